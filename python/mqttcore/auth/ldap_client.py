"""A connection to an LDAP server: one request at a time, bounded answers, no referrals."""

import asyncio
import ssl
from collections.abc import Sequence
from dataclasses import dataclass

from mqttcore.auth.backend import BackendError, BadAnswerError
from mqttcore.auth.ldap_wire import (
    BIND_ANSWER,
    DONE,
    ENTRY,
    REFERENCE,
    SEQUENCE,
    Entry,
    LdapWireError,
    Result,
    bind_request,
    entry_of,
    is_disconnection,
    message_of,
    result_of,
    search_request,
    unbind_request,
)

ANSWER_BYTES_MAX = 262_144
"""Maximum bytes of the answer to one request."""
SUCCESS, WRONG_CREDENTIALS, BUSY, UNAVAILABLE = 0, 49, 51, 52


class DisconnectedError(BackendError):
    """The server announced the end of the connection."""


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a server."""

    host: str
    port: int
    context: ssl.SSLContext | None
    """None: without TLS."""


class LdapConnection:
    """An open connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._number = 0
        self._bytes_left = 0

    @classmethod
    async def open(cls, address: Address) -> "LdapConnection":
        """Connects.

        Raises:
            OSError: the server cannot be reached, or its certificate is wrong.
        """
        return cls(
            *await asyncio.open_connection(
                address.host,
                address.port,
                ssl=address.context,
                server_hostname=address.host if address.context else None,
            )
        )

    async def bind(self, name: str, password: bytes) -> bool:
        """Whether a password is that of an entry.

        Raises:
            ValueError: name or password is empty: a server would take that for an anonymous bind.
            BackendError: the server is busy, or speaks no LDAP.
            BadAnswerError: it answered neither yes nor no.
        """
        if not name or not password:
            raise ValueError("a bind needs a name and a password")
        self._send(bind_request(self._next(), name, password))
        kind, value = await self._receive()
        if kind != BIND_ANSWER:
            raise BackendError("the server failed: no answer to a bind")
        result = checked_result(value)
        if result.code not in (SUCCESS, WRONG_CREDENTIALS):
            raise BadAnswerError(f"the result of a bind is {result.code}")
        return result.code == SUCCESS

    async def search(
        self, *, base: str, found: bytes, attributes: Sequence[str], most: int, seconds: int
    ) -> list[Entry]:
        """The entries that a filter finds, at most ``most``.

        Raises:
            BackendError: the server is busy, or speaks no LDAP.
            BadAnswerError: there are more entries, or it refused the search.
        """
        request = search_request(
            self._next(), base=base, found=found, attributes=attributes, most=most, seconds=seconds
        )
        self._send(request)
        entries: list[Entry] = []
        while True:
            kind, value = await self._receive()
            if kind == ENTRY:
                entries.append(entry_in(value))
            elif kind == DONE:
                break
            elif kind != REFERENCE:
                raise BackendError("the server failed: no answer to a search")
        result = checked_result(value)
        if result.code != SUCCESS:
            raise BadAnswerError(f"the result of a search is {result.code}")
        return entries

    def close(self) -> None:
        """Ends the connection at once."""
        if not self._writer.is_closing():
            self._send(unbind_request(self._next()))
            self._writer.close()

    def abort(self) -> None:
        """Closes the connection without sending the rest."""
        self._writer.transport.abort()

    def _next(self) -> int:
        self._number += 1
        self._bytes_left = ANSWER_BYTES_MAX
        return self._number

    def _send(self, message: bytes) -> None:
        self._writer.write(message)

    async def _receive(self) -> tuple[int, bytes]:
        """Kind and value of the next message to this request."""
        head = await self._read(2)
        length = head[1]
        if length >= 0x80:
            size = length & 0x7F
            if not 0 < size <= 4:
                raise BackendError("the server failed: not an LDAP server")
            length = int.from_bytes(await self._read(size))
        if head[0] != SEQUENCE:
            raise BackendError("the server failed: not an LDAP server")
        content = await self._read(length)
        try:
            number, kind, value = message_of(content)
            is_end = is_disconnection(number, kind, value)
        except LdapWireError:
            raise BackendError("the server failed: not an LDAP server") from None
        if is_end:
            raise DisconnectedError("the server failed: it ended the connection")
        if number != self._number:
            raise BackendError("the server failed: unexpected answer")
        return kind, value

    async def _read(self, count: int) -> bytes:
        self._bytes_left -= count
        if self._bytes_left < 0:
            raise BackendError(f"the server failed: more than {ANSWER_BYTES_MAX} bytes")
        return await self._reader.readexactly(count)


def checked_result(value: bytes) -> Result:
    """The result in an answer.

    Raises:
        BackendError: the server is busy or unavailable, or there is no result.
    """
    try:
        result = result_of(value)
    except LdapWireError:
        raise BackendError("the server failed: an answer without a result") from None
    if result.code in (BUSY, UNAVAILABLE):
        raise BackendError(f"the server failed: result {result.code}")
    return result


def entry_in(value: bytes) -> Entry:
    """The entry in an answer.

    Raises:
        BadAnswerError: the answer has no entry.
    """
    try:
        return entry_of(value)
    except LdapWireError as error:
        raise BadAnswerError(f"an entry makes no sense: {error}") from None
