"""Typed columns of a stream: stored in its files, decoded for the tail."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from mqttcore.errors import StreamFolderError

__all__ = ["TypedColumns", "typed_columns"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TypedColumns:
    """The typed columns after those that every stream has."""

    decode: str
    """How payloads are read."""
    ddl: str
    """Names and types, as the reader in Rust takes them."""
    names: tuple[str, ...]
    """In the order in which they came: a file has the first of them, older ones fewer."""
    descriptor: bytes | None = field(default=None, repr=False)
    """For ``protobuf``: a FileDescriptorSet; for ``avro``: schemas by number, as JSON."""
    message: str | None = None
    """For ``protobuf``: the full name of the message in it."""

    def lacking(self, have: int, wanted: Sequence[str] | None) -> bool:
        """Whether a file with the first ``have`` of them lacks a wanted one; None wants all."""
        late = self.names[have:]
        return bool(late) and (wanted is None or not set(late).isdisjoint(wanted))


def typed_columns(schema: Any) -> TypedColumns | None:  # noqa: ANN401 -- JSON
    """The ``schema`` of a stream's description, which may be none.

    Raises:
        StreamFolderError: it is of another form.
    """
    if not schema:
        return None
    try:
        columns = [column_ddl(column["name"], column["type"]) for column in schema["columns"]]
        names = tuple(column["name"] for column in schema["columns"])
        descriptor = schema.get("descriptor")
        return TypedColumns(
            decode=schema["decode"],
            ddl=", ".join(columns),
            names=names,
            descriptor=descriptor and base64.b64decode(descriptor),
            message=schema.get("message"),
        )
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise StreamFolderError(f"the schema of the stream cannot be read: {error!r}") from error


def column_ddl(name: str, kind: str) -> str:
    """One column; a ``long`` is called ``bigint`` in DDL."""
    quoted = name.replace("`", "``")
    return f"`{quoted}` {'bigint' if kind == 'long' else kind}"
