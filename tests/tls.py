"""Certificates and clients of TLS for tests."""

from __future__ import annotations

import pathlib
import socket
import ssl
from dataclasses import dataclass

from mqttcore import _core
from mqttcore.config import Tls

from tests.wire import PATIENCE_S, Wire


@dataclass(frozen=True, slots=True)
class Files:
    """What `make_certificates` wrote."""

    folder: pathlib.Path

    @classmethod
    def make(cls, folder: pathlib.Path, *, client: str = "truck-1") -> Files:
        """A CA, a server named localhost, and a client."""
        _core.make_certificates(folder, hosts=["localhost", "127.0.0.1"], client=client)
        return cls(folder)

    def path(self, name: str) -> pathlib.Path:
        """One of the files."""
        return self.folder / name

    def tls(self, **changes: object) -> Tls:
        """What a listener says that presents the server's certificate."""
        return Tls(certificate=self.path("server.pem"), key=self.path("server.key"), **changes)  # type: ignore[arg-type] # fields

    def context(self, *, with_client: bool = False) -> ssl.SSLContext:
        """How a client is set up that trusts the CA."""
        context = ssl.create_default_context(cafile=str(self.path("ca.pem")))
        if with_client:
            context.load_cert_chain(self.path("client.pem"), self.path("client.key"))
        return context


def open_tls(port: int, context: ssl.SSLContext, *, version: int = 5) -> Wire:
    """A connection whose handshake is done."""
    plain = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
    try:
        return Wire(
            port,
            version=version,
            using=context.wrap_socket(plain, server_hostname="localhost"),
        )
    except BaseException:
        plain.close()
        raise
