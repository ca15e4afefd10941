"""Abuse table I, and C14, C23: what clients of TLS try."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import pathlib
import shutil
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests.abuse.beside import clients_of_test
from tests.eventually import eventually
from tests.tls import Files, open_tls
from tests.wire import PATIENCE_S, ClosedByPeerError, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker
    from mqttcore.config import Listener

LONGEST_CRL = 64 << 20
Start = Callable[..., "Broker"]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("tls"))


def listener(files: Files, **changes: object) -> tuple[Listener, ...]:
    """One listener with TLS."""
    from mqttcore.config import Listener

    return (Listener(address="127.0.0.1:0", anonymous=True, tls=files.tls(**changes)),)


@pytest.fixture
def encrypted(start_broker: Start, files: Files) -> int:
    """The port of a broker with TLS."""
    return start_broker(listeners=listener(files)).port


def refused(port: int, context: ssl.SSLContext) -> bool:
    """Whether no CONNECT comes through; TLS 1.3 tells a client so behind its own handshake."""
    try:
        with open_tls(port, context) as one:
            one.connect(unique("c"))
            return False
    except (OSError, ClosedByPeerError):
        return True


@pytest.mark.parametrize("old", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1], ids=["1.0", "1.1"])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_i01_old_versions_of_tls_are_refused(
    encrypted: int, files: Files, old: ssl.TLSVersion
) -> None:
    context = files.context()
    context.minimum_version = context.maximum_version = old
    context.set_ciphers("ALL:@SECLEVEL=0")

    with pytest.raises((ssl.SSLError, OSError)):
        open_tls(encrypted, context)


@pytest.mark.parametrize(
    "weak", ["AES128-SHA", "ECDHE-ECDSA-AES128-SHA256", "ECDHE-RSA-AES256-SHA", "NULL-SHA256"]
)
def test_i01_weak_suites_are_refused(encrypted: int, files: Files, weak: str) -> None:
    context = files.context()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(f"{weak}:@SECLEVEL=0")

    with pytest.raises((ssl.SSLError, OSError)):
        open_tls(encrypted, context)


@pytest.mark.parametrize("newest", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_i01_nothing_is_compressed(encrypted: int, files: Files, newest: ssl.TLSVersion) -> None:
    context = files.context()
    context.maximum_version = newest
    context.options &= ~ssl.OP_NO_COMPRESSION

    with open_tls(encrypted, context) as one:
        one.connect(unique("c"))
        assert isinstance(one.socket, ssl.SSLSocket)
        assert one.socket.compression() is None


def test_i02_there_is_no_early_data(encrypted: int, files: Files) -> None:
    # A ticket of a server with early data says so in an extension; Python has no call for it. What
    # it has: the session resumes, and CONNECT is accepted only behind the handshake.
    context = files.context()
    with open_tls(encrypted, context) as first:
        first.connect(unique("c"))
        assert isinstance(first.socket, ssl.SSLSocket)
        ticket = first.socket.session

    plain = socket.create_connection(("127.0.0.1", encrypted), PATIENCE_S)
    again = context.wrap_socket(plain, server_hostname="localhost", session=ticket)

    assert again.session_reused
    with Wire(encrypted, using=again) as one:
        one.connect(unique("c"))


def test_i03_a_reload_ends_resumption_and_no_connection(start_broker: Start, files: Files) -> None:
    broker = start_broker(listeners=listener(files))
    context = files.context()
    with open_tls(broker.port, context) as connected:
        connected.connect(unique("c"))
        assert isinstance(connected.socket, ssl.SSLSocket)
        ticket = connected.socket.session

        broker.reload(broker.settings)

        plain = socket.create_connection(("127.0.0.1", broker.port), PATIENCE_S)
        again = context.wrap_socket(plain, server_hostname="localhost", session=ticket)
        with Wire(broker.port, using=again) as one:
            assert not again.session_reused
            one.connect(unique("c"))
        connected.ping()


@pytest.mark.parametrize("content", ["missing", "garbage", "empty", "huge"])
def test_i04_without_a_revocation_list_that_can_be_read_nobody_starts(
    start_broker: Start, files: Files, tmp_path: pathlib.Path, content: str
) -> None:
    from mqttcore.errors import StartError

    crl = tmp_path / "crl.pem"
    if content != "missing":
        crl.write_text("-----BEGIN X509 CRL-----\nAAAA\n" if content == "garbage" else "")
    if content == "huge":
        os.truncate(crl, LONGEST_CRL + 1)
    asked = {"client_certificates": "required", "client_ca": files.path("ca.pem"), "crl": crl}

    why = rf"longer than {LONGEST_CRL} bytes" if content == "huge" else ""
    with pytest.raises(StartError, match=rf"crl .*crl\.pem.*{why}"):
        start_broker(listeners=listener(files, **asked))


def test_i04_a_list_of_corrupt_content_keeps_the_old_configuration(
    start_broker: Start, files: Files, tmp_path: pathlib.Path
) -> None:
    from mqttcore.errors import StartError

    broker = start_broker(listeners=listener(files))
    crl = tmp_path / "crl.pem"
    crl.write_bytes(b"\x30\x82\xff\xff corrupt")
    asked = {"client_certificates": "required", "client_ca": files.path("ca.pem"), "crl": crl}
    settings = dataclasses.replace(broker.settings, listeners=listener(files, **asked))

    with pytest.raises(StartError, match=r"crl\.pem"):
        broker.reload(settings)

    assert not refused(broker.port, files.context())


def test_i05_a_broken_pair_leaves_the_old_one_in_force_and_is_reported(
    start_broker: Start, tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = Files.make(tmp_path / "own")
    other = Files.make(tmp_path / "other")
    broker = start_broker(listeners=listener(files))

    shutil.copy(other.path("server.key"), files.path("server.key"))
    with caplog.at_level(logging.WARNING, logger="mqttcore"):
        eventually(lambda: "does not belong to certificate" in caplog.text)

    assert "previous certificates stay in use" in caplog.text
    with open_tls(broker.port, files.context()) as one:
        one.connect(unique("c"))


def test_c14_a_handshake_of_one_byte_at_a_time_ends_at_the_deadline(
    start_broker: Start, files: Files
) -> None:
    broker = start_broker(listeners=listener(files), connect_deadline_s=0.5)
    hello = hello_of(files.context())
    with (
        open_tls(broker.port, files.context()) as bystander,
        Wire(broker.port) as slow,
    ):
        bystander.connect(unique("bystander"))
        with contextlib.suppress(OSError):
            for place in range(len(hello) - 1):
                slow.send(hello[place : place + 1])
                bystander.ping()
        until = time.monotonic() + PATIENCE_S
        while not slow.is_closed():
            bystander.ping()
            assert time.monotonic() < until
        bystander.ping()


def test_c14_unfinished_handshakes_count_as_pending(start_broker: Start, files: Files) -> None:
    broker = start_broker(listeners=listener(files), pending_connections=3, connect_deadline_s=60.0)
    before = broker.stats()["connections_accepted"]
    slow = [Wire(broker.port) for _ in range(3)]
    for each in slow:
        each.send(b"\x16\x03\x01")
    eventually(lambda: broker.stats()["connections_accepted"] == before + 3)

    assert refused(broker.port, files.context())

    for each in slow:
        each.close()
    eventually(lambda: not refused(broker.port, files.context()))
    assert broker.stats()["connections_refused"] > 0


def hello_of(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client."""
    reads, writes = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(reads, writes, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return writes.read()


@pytest.mark.parametrize(
    "name", ["nul\0", "line\nfeed", "bell\x07", "\x85next"], ids=["NUL", "LF", "BEL", "NEL"]
)
def test_c23_a_certificate_with_a_control_character_lets_nobody_in(
    start_broker: Start, tmp_path: pathlib.Path, name: str
) -> None:
    files = Files.make(tmp_path / "tls", client=name)
    asked = {"client_certificates": "required", "client_ca": files.path("ca.pem")}
    broker = start_broker(listeners=listener(files, **asked))

    assert refused(broker.port, files.context(with_client=True))
    assert broker.stats()["connects_refused"] == 1


def test_c23_the_name_of_a_certificate_is_the_user_and_its_rules_hold(
    start_broker: Start, files: Files
) -> None:
    from mqttcore.auth.certificate import Certificate
    from mqttcore.config import Listener

    tls = files.tls(client_certificates="optional", client_ca=files.path("ca.pem"), identity="cn")
    rules = Certificate.Config(publish=("device/%u/#",), subscribe=("device/%u/#",))
    broker = start_broker(Certificate(rules), listeners=(Listener(address="127.0.0.1:0", tls=tls),))

    with open_tls(broker.port, files.context(with_client=True)) as one:
        # Whatever user it says that it is.
        one.connect(unique("c"), username="admin")
        [session] = clients_of_test(broker)
        assert session.username == "truck-1"
        assert one.subscribe("device/truck-1/#", "device/truck-2/#").reasons == (0, 0x87)
    with open_tls(broker.port, files.context()) as nobody:
        nobody.connect(unique("c"), username="truck-1", reason=0x86)
