"""Between a client and a broker: a relay that ends connections; and servers that are made up."""

from __future__ import annotations

import contextlib
import pathlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from typing import Self

from tests.wire import PATIENCE_S, Wire, packet, properties

CERTIFICATE = pathlib.Path(__file__).with_name("localhost.pem")
"""Of 127.0.0.1, signed by itself, with its key: for tests only."""


class Relay:
    """Passes bytes on to a port, one connection after the other."""

    def __init__(self, port: int, *, cut_after: int | None = None, tls: bool = False) -> None:
        self.to = port
        self.cut_after = cut_after
        """Bytes of the first client behind which its connection ends."""
        self.tls: ssl.SSLContext | None = None
        if tls:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(CERTIFICATE)
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.settimeout(0.05)
        self.port = self.server.getsockname()[1]
        self.ends: list[socket.socket] = []
        self.over = threading.Event()
        self.connections = 0
        self.thread = threading.Thread(target=self.run, daemon=True)

    def __enter__(self) -> Self:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.drop()
        self.thread.join(PATIENCE_S)
        self.server.close()

    def run(self) -> None:
        """Accepts."""
        while not self.over.is_set():
            with contextlib.suppress(TimeoutError):
                client, _ = self.server.accept()
                with contextlib.suppress(OSError):
                    self.serve(client)

    def serve(self, client: socket.socket) -> None:
        """One connection."""
        self.connections += 1
        client.settimeout(PATIENCE_S)
        if self.tls is not None:
            client = self.tls.wrap_socket(client, server_side=True)
        broker = socket.create_connection(("127.0.0.1", self.to), PATIENCE_S)
        self.ends = [client, broker]
        # `drop` may close them meanwhile
        with contextlib.suppress(OSError, ValueError):
            self.pass_on(client, broker)
        self.cut_after = None
        self.drop()

    def pass_on(self, client: socket.socket, broker: socket.socket) -> None:
        """Until one side ends, or so many bytes of the client have passed.

        One thread does both ways: two must not use one connection of TLS at a time.
        """
        passed = 0
        while self.cut_after is None or passed < self.cut_after:
            has_more = isinstance(client, ssl.SSLSocket) and client.pending()
            ready = [client] if has_more else select.select([client, broker], [], [], PATIENCE_S)[0]
            for source in ready or [client]:
                data = source.recv(4096)
                if not data:
                    return
                if source is broker:
                    client.sendall(data)
                else:
                    rest = None if self.cut_after is None else self.cut_after - passed
                    broker.sendall(data[:rest])
                    passed += len(data)

    def drop(self) -> None:
        """Ends the connection, both ways."""
        for end in self.ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@contextlib.contextmanager
def made_up(script: Callable[[Wire], None], **connack: int) -> Iterator[int]:
    """A port where ``script`` plays a server that has just sent CONNACK, to one client."""

    def run() -> None:
        client, _ = server.accept()
        with Wire(0, using=client) as wire:
            client.settimeout(PATIENCE_S)
            assert client.recv(4096)[0] == 0x10, "CONNECT comes first and alone"
            wire.send(packet(0x20, b"\0\0", properties(connack)))
            script(wire)

    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
