"""Configuration of Avro payloads: a folder of schemas by number."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Final

from mqttcore.errors import StreamOptionError

__all__ = ["check_avro", "read_schemas"]

ALLOWED: Final = "allowed: a folder with a file <number>.avsc for each schema of the registry"


def read_schemas(folder: pathlib.Path) -> bytes:
    """The schemas of a folder as a JSON object by number, which decoders take.

    Raises:
        ValueError: there are none, or a file has none, or a name that is no number.
    """
    schemas = {}
    for path in sorted(folder.glob("*.avsc")):
        if not (path.stem.isascii() and path.stem.isdecimal()):
            raise ValueError(f"{path}: its name is not the number of a schema, as 17.avsc")
        number = str(int(path.stem))
        if number in schemas:
            raise ValueError(f"{path}: another file has the schema {number}, too")
        try:
            schemas[number] = json.loads(path.read_bytes())
        except OSError as error:
            raise ValueError(f"{path} cannot be read: {error.strerror}") from error
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}: it is not JSON: {error}") from error
    if not schemas:
        raise ValueError(f"{folder} has no file <number>.avsc")
    return json.dumps(schemas).encode()


def check_avro(decode: str, folder: pathlib.Path | None, fault: Callable[..., None]) -> None:
    """Reports faults of the key ``schemas`` to ``fault(key, what, *notes)``."""
    if decode != "avro":
        if folder is not None:
            fault("schemas", "has no effect without decode = avro")
        return
    if folder is None:
        fault("schemas", "decode = avro needs a folder", ALLOWED)
        return
    # A build without streams does not have it.
    from mqttcore._core import StreamDecoder

    try:
        StreamDecoder("avro", "any INT", descriptor=read_schemas(folder))
    except StreamOptionError as error:
        fault("schemas", f"{folder}: {str(error).removeprefix('option schemas: ')}", ALLOWED)
    except ValueError as error:
        fault("schemas", str(error), ALLOWED)
