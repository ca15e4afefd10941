"""A TCP proxy that writes down what passes as a capture file, and tshark's reading of it.

No privileges are needed, and nothing is missed: every connection of a run goes through it. What
goes through WebSocket is written twice: as it is, and as the packets in it, since tshark 4.0 does
not look for MQTT in frames.
"""

from __future__ import annotations

import contextlib
import pathlib
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import BinaryIO, Self

RAW_IP = 101
"""The link type of packets that begin with their IP header."""
SEGMENT_BYTES = 60_000
CLIENT, SERVER = bytes([192, 0, 2, 1]), bytes([192, 0, 2, 2])
FIN, SYN, RST, ACK = 0x01, 0x02, 0x04, 0x10
DECODE_DEADLINE_S = 120
CLOSE_DEADLINE_S = 5
MQTT_PORT, HTTP_PORT = 1883, 8083


@dataclass(slots=True)
class Conversation:
    """One connection in the file: both ports, and what each side has sent."""

    client_port: int
    server_port: int
    sent: dict[bool, int] = field(default_factory=lambda: {True: 1, False: 1})
    """Sequence numbers by side: True is the client's."""


class Capture:
    """A capture file that several connections write to."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path
        self.connections = 0
        self._conversations = 0
        self._file: BinaryIO = path.open("wb")
        self._file.write(struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65_535, RAW_IP))
        self._lock = threading.Lock()

    def begin(self, server_port: int, *, is_inner: bool = False) -> Conversation:
        """A new connection, or what is in one, with its three-way handshake."""
        with self._lock:
            self._conversations += 1
            self.connections += not is_inner
            one = Conversation(1_024 + self._conversations % 60_000, server_port)
            self._segment(one, True, SYN, b"", sequence=0)
            self._segment(one, False, SYN | ACK, b"", sequence=0)
            self._segment(one, True, ACK, b"")
            return one

    def data(self, one: Conversation, from_client: bool, data: bytes) -> None:
        """Bytes that one side has sent."""
        with self._lock:
            for start in range(0, len(data), SEGMENT_BYTES):
                part = data[start : start + SEGMENT_BYTES]
                self._segment(one, from_client, ACK, part)
                one.sent[from_client] += len(part)

    def end(self, one: Conversation, from_client: bool, *, reset: bool) -> None:
        """One side has closed."""
        with self._lock:
            self._segment(one, from_client, ACK | (RST if reset else FIN), b"")
            one.sent[from_client] += 1

    def close(self) -> None:
        """Ends the file."""
        with self._lock:
            self._file.close()

    def _segment(
        self,
        one: Conversation,
        from_client: bool,
        flags: int,
        data: bytes,
        *,
        sequence: int | None = None,
    ) -> None:
        if self._file.closed:
            return
        ports = (one.client_port, one.server_port)
        source, target = ports if from_client else ports[::-1]
        number = one.sent[from_client] if sequence is None else sequence
        seen = one.sent[not from_client]
        tcp = struct.pack(">HHIIBBHHH", source, target, number, seen, 5 << 4, flags, 65_535, 0, 0)
        length = 20 + len(tcp) + len(data)
        addresses = CLIENT + SERVER if from_client else SERVER + CLIENT
        ip = struct.pack(">BBHHHBBH", 0x45, 0, length, 0, 0, 64, socket.IPPROTO_TCP, 0) + addresses
        now = time.time_ns() // 1_000
        stamp = struct.pack("<IIII", now // 1_000_000, now % 1_000_000, length, length)
        self._file.write(stamp + ip + tcp + data)


class Unframed:
    """The payloads of one side's binary frames."""

    def __init__(self) -> None:
        self._raw = b""
        self._has_begun = False

    def feed(self, data: bytes) -> bytes:
        """What `data` completes."""
        self._raw += data
        if not self._has_begun:
            _, end, rest = self._raw.partition(b"\r\n\r\n")
            if not end:
                return b""
            self._has_begun, self._raw = True, rest
        payload = b""
        while found := self._frame():
            payload += found[0]
            self._raw = found[1]
        return payload

    def _frame(self) -> tuple[bytes, bytes] | None:
        raw = self._raw
        if len(raw) < 2:
            return None
        begin = {126: 4, 127: 10}.get(raw[1] & 0x7F, 2)
        length = int.from_bytes(raw[2:begin], "big") if begin > 2 else raw[1] & 0x7F
        mask = raw[begin : begin + 4] if raw[1] & 0x80 else b""
        begin += len(mask)
        if len(raw) < begin + length:
            return None
        body = raw[begin : begin + length]
        if mask:
            key = (mask * (length // 4 + 1))[:length]
            plain = int.from_bytes(body, "big") ^ int.from_bytes(key, "big")
            body = plain.to_bytes(length, "big")
        is_control = raw[0] & 0x08
        return b"" if is_control else body, raw[begin + length :]


class Proxy:
    """Passes connections on to a broker and writes them down."""

    def __init__(self, capture: Capture, target: int, shown_port: int) -> None:
        self.capture, self.target, self.shown_port = capture, target, shown_port
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # shutdown wakes the thread that waits in accept
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in self._threads:
            one.join(CLOSE_DEADLINE_S)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                one = threading.Thread(target=self._serve, args=[client], daemon=True)
                self._threads.append(one)
                one.start()

    def _serve(self, client: socket.socket) -> None:
        """Both directions of one connection, until both have ended."""
        with client, socket.create_connection(("127.0.0.1", self.target)) as server:
            for one in (client, server):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            told = [self.capture.begin(self.shown_port)]
            if self.shown_port == HTTP_PORT:
                told.append(self.capture.begin(MQTT_PORT, is_inner=True))
            back = threading.Thread(
                target=self._pump, args=(told, server, client, False), daemon=True
            )
            back.start()
            self._pump(told, client, server, True)
            back.join()

    def _pump(
        self,
        told: list[Conversation],
        source: socket.socket,
        target: socket.socket,
        from_client: bool,
    ) -> None:
        outer, *inner = told
        reset, unframed = False, Unframed()
        try:
            while data := source.recv(65_536):
                # written down first, so that no answer stands before its question
                self.capture.data(outer, from_client, data)
                for one in inner:
                    self.capture.data(one, from_client, unframed.feed(data))
                target.sendall(data)
        except OSError:
            reset = True
        for one in told:
            self.capture.end(one, from_client, reset=reset)
        # a reset is passed on as an end: nothing more comes from here
        with contextlib.suppress(OSError):
            target.shutdown(socket.SHUT_WR)


@dataclass(frozen=True, slots=True)
class Reading:
    """What tshark made of a capture."""

    connections: int
    packets: Counter[int]
    """MQTT packets by type."""
    malformed: int
    tshark: str
    """Its version."""

    def __str__(self) -> str:
        """One line for people."""
        total = sum(self.packets.values())
        return (
            f"tshark {self.tshark}: {self.connections} connections, {total} MQTT packets of "
            f"{len(self.packets)} types, {self.malformed} malformed frames"
        )


def tshark_is_missing() -> bool:
    """Whether there is nothing to read a capture with."""
    return shutil.which("tshark") is None


def read(capture: Capture) -> Reading:
    """Has tshark decode a capture that is closed."""
    tshark = shutil.which("tshark") or "tshark"
    command = [tshark, "-n", "-r", str(capture.path), "-d", f"tcp.port=={MQTT_PORT},mqtt"]
    command += ["-d", f"tcp.port=={HTTP_PORT},http", "-Y", "mqtt || _ws.malformed"]
    command += ["-T", "fields", "-e", "mqtt.msgtype", "-e", "_ws.malformed"]
    told = subprocess.run(  # noqa: S603 -- fixed words
        command, capture_output=True, text=True, timeout=DECODE_DEADLINE_S, check=True
    ).stdout
    version = subprocess.run(  # noqa: S603 -- fixed words
        [tshark, "--version"], capture_output=True, text=True, check=True
    ).stdout.split()[2]
    packets: Counter[int] = Counter()
    malformed = 0
    for line in told.splitlines():
        types, _, broken = line.partition("\t")
        packets.update(int(kind) for kind in types.split(",") if kind)
        malformed += bool(broken)
    return Reading(capture.connections, packets, malformed, version.rstrip("."))
