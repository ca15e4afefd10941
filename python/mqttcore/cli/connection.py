"""Sends and receives MQTT packets over a socket, with the broker's own codec."""

import contextlib
import select
import socket
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from mqttcore.packets import Packet, decode_packet

if TYPE_CHECKING:
    import ssl

READ_BYTES: Final = 1 << 16
READS: Final = 64
"""Number of reads before packets are decoded."""
WINDOW_BYTES: Final = 1 << 14
"""Small packets are decoded from windows of this size, so that a full buffer is not copied for
each."""


class Endpoint(NamedTuple):
    """The address of a broker."""

    host: str = "localhost"
    port: int = 1883
    unix: str = ""
    """The path of a Unix socket, instead of host and port."""
    bind: str = ""
    """The local address of the connection."""
    tls: "ssl.SSLContext | None" = None

    def __str__(self) -> str:
        if self.unix:
            return self.unix
        return f"{'mqtts://' if self.tls else ''}{self.host}:{self.port}"

    def advice(self, error: Exception) -> str:
        """Advice for a broker that cannot be reached."""
        if isinstance(error, socket.gaierror):
            return "is the host (-h) right?"
        if self.tls is None:
            return "does a broker listen there?"
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "--cafile names the CA of its certificate; -h has to be a name in it"
        return "does a broker with TLS listen there?"

    @property
    def doubt(self) -> str:
        """Advice for a server that does not answer a CONNECT."""
        if self.tls is None:
            return "is it a listener of MQTT, without TLS (--cafile)?"
        return "is it a listener of MQTT?"

    def open(self, timeout_s: float) -> socket.socket:
        """Connects, with the TLS handshake.

        Raises:
            OSError: the broker cannot be reached, or its certificate is not trusted.
        """
        if self.unix:
            sock = socket.socket(socket.AF_UNIX)
            sock.settimeout(timeout_s)
            try:
                sock.connect(self.unix)
            except OSError:
                sock.close()
                raise
            return sock
        source = (self.bind, 0) if self.bind else None
        # text would need the codec `idna`, which is slow to load
        host = cast(str, self.host.encode()) if self.host.isascii() else self.host
        sock = socket.create_connection((host, self.port), timeout_s, source)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return self.tls.wrap_socket(sock, server_hostname=self.host) if self.tls else sock


class Connection:
    """A socket that does not block: `send` queues, `wait` writes and reads, `packets` decodes."""

    def __init__(self, sock: socket.socket, *, version: int) -> None:
        sock.setblocking(False)
        self._socket = sock
        self._version = version
        self._in = b""
        self._at = 0
        self._out = bytearray()
        self._later: tuple[type[OSError], ...] = (BlockingIOError,)
        if hasattr(sock, "pending"):
            import ssl

            self._later = (ssl.SSLWantReadError, ssl.SSLWantWriteError)
        self.has_ended = False
        """Whether the broker has closed the connection."""

    def send(self, raw: bytes) -> None:
        """Queues the bytes of a packet, and writes as much as the socket accepts."""
        self._out += raw
        self._write()

    def fileno(self) -> int:
        """The descriptor of the socket."""
        return self._socket.fileno()

    @property
    def unsent_bytes(self) -> int:
        """Bytes that the socket has not accepted yet."""
        return len(self._out)

    def wait(self, timeout_s: float | None, *, other: int | None = None) -> bool:
        """Waits until the socket, or the descriptor ``other``, can be read; writes meanwhile.

        Returns:
            Whether ``other`` can be read.

        Raises:
            OSError: the connection is lost.
        """
        if self._has_more():
            timeout_s = 0
        poll = select.poll()
        events = select.POLLIN | (select.POLLOUT if self._out else 0)
        poll.register(self._socket, events)
        if other is not None:
            poll.register(other, select.POLLIN)
        ready = dict(poll.poll(None if timeout_s is None else max(timeout_s, 0) * 1_000))
        if self._out:
            self._write()
        if ready.get(self._socket.fileno(), 0) & ~select.POLLOUT or self._has_more():
            self._read()
        return other in ready

    def packets(self) -> Iterator[Packet]:
        """The packets that have arrived.

        Raises:
            PacketError: what arrived is not MQTT.
        """
        while (packet := self._next()) is not None:
            yield packet

    def abort(self) -> None:
        """Closes at once."""
        self._socket.close()

    def close(self, timeout_s: float = 5.0) -> None:
        """Writes queued bytes, and closes."""
        deadline = time.monotonic() + timeout_s
        with contextlib.suppress(OSError):
            while self._out and time.monotonic() < deadline and not self.has_ended:
                self.wait(deadline - time.monotonic())
        self._socket.close()

    def _has_more(self) -> bool:
        """Whether TLS has decrypted more than was read."""
        pending = getattr(self._socket, "pending", None)
        return pending is not None and pending() > 0

    def _write(self) -> None:
        with contextlib.suppress(*self._later):
            while self._out:
                del self._out[: self._socket.send(self._out)]

    def _read(self) -> None:
        parts = [self._in[self._at :]]
        with contextlib.suppress(*self._later):
            for _ in range(READS):
                part = self._socket.recv(READ_BYTES)
                self.has_ended = not part
                parts.append(part)
                if not part:
                    break
        self._in, self._at = b"".join(parts), 0

    def _next(self) -> Packet | None:
        for size in (WINDOW_BYTES, len(self._in)):
            window = self._in[self._at : self._at + size]
            found = decode_packet(window, version=self._version) if window else None
            if found:
                self._at += found[1]
                return found[0]
            if self._at + size >= len(self._in):
                break
        return None
