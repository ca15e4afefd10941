"""Configuration of Protocol Buffers payloads: a descriptor and a message type."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Final

from mqttcore.errors import StreamOptionError

__all__ = ["check_protobuf", "read_descriptor"]

MADE_BY: Final = (
    "allowed: what `protoc --include_imports --descriptor_set_out=FILE` writes, a FileDescriptorSet"
)


def read_descriptor(path: pathlib.Path) -> bytes:
    """The content of the file.

    Raises:
        ValueError: it cannot be read.
    """
    try:
        return path.read_bytes()
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error


def check_protobuf(
    decode: str,
    descriptor: pathlib.Path | None,
    message: str | None,
    fault: Callable[..., None],
) -> None:
    """Reports faults of the two keys to ``fault(key, what, *notes)``."""
    if decode != "protobuf":
        for key, value in {"descriptor": descriptor, "message": message}.items():
            if value is not None:
                fault(key, "has no effect without decode = protobuf")
        return
    if descriptor is None:
        fault("descriptor", "decode = protobuf needs a file", MADE_BY)
    if message is None:
        fault("message", "decode = protobuf needs one", "allowed: a full name, as factory.Machine")
    if descriptor is None or message is None:
        return
    try:
        check_message(descriptor, message)
    except ValueError as error:
        fault("descriptor", str(error), MADE_BY)


def check_message(descriptor: pathlib.Path, message: str) -> None:
    """Reads the file as a decoder would.

    Raises:
        ValueError: it cannot be read, or does not have all that the message needs.
    """
    # A build without streams does not have it.
    from mqttcore._core import StreamDecoder

    content = read_descriptor(descriptor)
    try:
        StreamDecoder("protobuf", "any INT", descriptor=content, message=message)
    except StreamOptionError as error:
        what = str(error).removeprefix("option descriptor: ")
        raise ValueError(f"{descriptor}: {what}") from error
