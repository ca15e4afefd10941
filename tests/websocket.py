"""A WebSocket client for tests, as strict and as rude as a test wants it.

`WebSocketWire` is a `Wire` whose bytes travel in frames: everything that `Wire` does works over
it, and `send_frame` and `receive_frame` reach the frames themselves.
"""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle

from tests.wire import PATIENCE_S, ClosedByPeerError, Wire, WireError

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
KEY, ACCEPT = "dGhlIHNhbXBsZSBub25jZQ==", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
"""The pair of RFC 6455 section 1.3."""
MASK = b"\x37\xfa\x21\x3d"


@dataclass(frozen=True, slots=True)
class Frame:
    """A frame of the broker."""

    opcode: int
    payload: bytes
    final: bool = True

    @property
    def code(self) -> int:
        """What a Close frame says."""
        return int.from_bytes(self.payload[:2], "big")


def frame(
    opcode: int,
    payload: bytes = b"",
    *,
    final: bool = True,
    masked: bool = True,
    reserved: int = 0,
) -> bytes:
    """A client's frame; `reserved` are the three bits behind FIN."""
    length = len(payload)
    if length < 126:
        size, more = length, b""
    elif length < 65_536:
        size, more = 126, length.to_bytes(2, "big")
    else:
        size, more = 127, length.to_bytes(8, "big")
    head = bytes([final << 7 | reserved << 4 | opcode, masked << 7 | size]) + more
    if not masked:
        return head + payload
    key = int.from_bytes((MASK * (length // 4 + 1))[:length], "big")
    body = (int.from_bytes(payload, "big") ^ key).to_bytes(length, "big")
    return head + MASK + body


def split_frame(raw: bytes) -> tuple[Frame, bytes] | None:
    """The first frame and what follows it, once it is whole."""
    if len(raw) < 2:
        return None
    size = raw[1] & 0x7F
    if raw[1] & 0x80:
        raise WireError("a server never masks")
    begin = {126: 4, 127: 10}.get(size, 2)
    if len(raw) < begin:
        return None
    length = int.from_bytes(raw[2:begin], "big") if begin > 2 else size
    if len(raw) < begin + length:
        return None
    found = Frame(raw[0] & 0x0F, raw[begin : begin + length], bool(raw[0] & 0x80))
    return found, raw[begin + length :]


def upgrade(
    path: str = "/mqtt",
    *,
    method: str = "GET",
    version: str = "HTTP/1.1",
    leave_out: str = "",
    **headers: str,
) -> bytes:
    """A request; `headers` replace or add, underscores stand for hyphens."""
    lines = {
        "Host": "127.0.0.1",
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": KEY,
        "Sec-WebSocket-Protocol": "mqtt",
    }
    lines |= {name.replace("_", "-"): value for name, value in headers.items()}
    lines.pop(leave_out, None)
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"{method} {path} {version}\r\n{head}\r\n".encode()


@dataclass(frozen=True, slots=True)
class Response:
    """An HTTP response, and the bytes behind its head."""

    status: int
    headers: dict[str, str]
    rest: bytes


class HttpWire:
    """A connection on which nothing was said yet."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, data: bytes) -> None:
        """Sends all of it."""
        self.socket.sendall(data)

    def response(self) -> Response:
        """The head of the response, and what came with it."""
        raw = b""
        while b"\r\n\r\n" not in raw:
            chunk = self.socket.recv(65_536)
            if not chunk:
                raise ClosedByPeerError(f"closed before a response: {raw!r}")
            raw += chunk
        head, _, rest = raw.partition(b"\r\n\r\n")
        first, *lines = head.decode().split("\r\n")
        fields = (line.partition(": ") for line in lines)
        return Response(
            int(first.split(" ")[1]), {name.lower(): value for name, _, value in fields}, rest
        )

    def rest(self) -> bytes:
        """Everything until the broker closes."""
        raw = b""
        with contextlib.suppress(ConnectionError):
            while chunk := self.socket.recv(65_536):
                raw += chunk
        return raw

    def close(self) -> None:
        """Ends it."""
        self.socket.close()


class WebSocketWire(Wire):
    """A `Wire` in frames. `send` puts all chunks into one binary frame."""

    def __init__(
        self,
        port: int,
        *,
        version: int = 5,
        path: str = "/mqtt",
        protocol: str = "mqtt",
        headers: Mapping[str, str] | None = None,
        first: bytes = b"",
    ) -> None:
        plain = HttpWire(port)
        plain.send(first + upgrade(path, Sec_WebSocket_Protocol=protocol, **(headers or {})))
        self.response = plain.response()
        if self.response.status != 101:
            plain.close()
            raise WireError(f"no upgrade: {self.response}")
        self._raw = self.response.rest
        self.frames: deque[Frame] = deque()
        """Control frames that came."""
        super().__init__(port, version=version, using=plain.socket)

    def send(self, *chunks: bytes) -> None:
        """Sends all chunks in one binary frame."""
        super().send(frame(BINARY, b"".join(chunks)))

    def send_raw(self, data: bytes) -> None:
        """Sends bytes without a frame around them."""
        super().send(data)

    def send_frame(
        self,
        opcode: int,
        payload: bytes = b"",
        *,
        final: bool = True,
        masked: bool = True,
        reserved: int = 0,
    ) -> None:
        """Sends one frame as it is told."""
        self.send_raw(frame(opcode, payload, final=final, masked=masked, reserved=reserved))

    def receive_frame(self, *, within_s: float = PATIENCE_S) -> Frame:
        """The next frame that is not binary; packets that come before it are kept.

        Raises:
            ClosedByPeerError: The connection ended instead.
            TimeoutError: Nothing came in time.
        """
        until = time.monotonic() + within_s
        while not self.frames:
            if self._ended or not self._fill(until):
                raise ClosedByPeerError("closed without another frame")
        return self.frames.popleft()

    def expect_closing(self, code: int, *, within_s: float = PATIENCE_S) -> None:
        """A Close frame with this code, then the end of the connection."""
        found = self.receive_frame(within_s=within_s)
        if found.opcode != CLOSE or found.code != code:
            raise WireError(f"expected Close {code}, came {found}")
        self.expect_close(within_s=within_s)

    def _fill(self, until: float) -> bool:
        ready, self._unread, before = self._unread, self._raw, len(self._raw)
        has_more = super()._fill(until) or len(self._unread) > before
        self._raw, self._unread = self._unread, ready
        while split := split_frame(self._raw):
            found, self._raw = split
            if found.opcode == BINARY:
                self._unread += found.payload
            else:
                self.frames.append(found)
        if self._ended and self._raw:
            raise WireError(f"the last frame was cut: {self._raw[:20].hex(' ')}")
        return has_more


def torn(data: bytes, sizes: tuple[int, ...]) -> list[bytes]:
    """`data` in pieces of these sizes, over and over."""
    pieces, lengths = [], cycle(sizes)
    while data:
        length = next(lengths)
        pieces.append(data[:length])
        data = data[length:]
    return pieces
