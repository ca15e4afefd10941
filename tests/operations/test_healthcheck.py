"""`mqttcore healthcheck`: what Docker and systemd ask a broker."""

from __future__ import annotations

import contextlib
import json
import pathlib
import socket
import threading
from collections.abc import Iterator

import pytest
from mqttcore import Broker, Settings, _core, healthcheck
from mqttcore.config import HttpListener, Listener

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

LISTENER = Listener(address="127.0.0.1:0", name="main", anonymous=True)


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    http = HttpListener(address="127.0.0.1:0")
    settings = Settings(listeners=(LISTENER,), http=http, data=str(tmp_path / "data"))
    with Broker(settings) as started:
        yield started


def url_of(broker: Broker) -> str:
    assert broker.http_address is not None
    host, port = broker.http_address
    return f"http://{host}:{port}"


def test_a_broker_that_works_is_healthy_over_tcp_and_over_its_socket(
    broker: Broker, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert healthcheck.main(["--url", url_of(broker)]) == 0
    assert healthcheck.main(["--data", str(tmp_path / "data")]) == 0

    assert capsys.readouterr().out == "healthy\nhealthy\n"


def test_the_answer_is_printed_as_json(broker: Broker, capsys: pytest.CaptureFixture[str]) -> None:
    assert healthcheck.main(["--url", url_of(broker), "--json"]) == 0

    assert json.loads(capsys.readouterr().out)["status"] == "healthy"


def test_a_broker_becomes_ready(
    broker: Broker, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # its sessions may still be loaded, which the client below waits for
    broker.clients()

    assert healthcheck.main(["--ready", "--data", str(tmp_path / "data")]) == 0
    assert capsys.readouterr().out == "ready\n"


def test_a_broker_that_is_not_there_is_not_healthy(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert healthcheck.main(["--data", str(tmp_path)]) == 1

    error = capsys.readouterr().err
    assert error.startswith(f"mqttcore: cannot ask {tmp_path}/http: ")
    assert "is [http] configured?" in error


def test_what_fails_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    body = (
        b'{"checks":[{"detail":"shard 1 has not run for 12 s","name":"shards","ok":false},'
        b'{"name":"broker","ok":true}],"status":"failed"}'
    )
    head = f"HTTP/1.1 503 Service Unavailable\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert answered(head + body) == 1
    assert capsys.readouterr().out == "failed; shards: shard 1 has not run for 12 s\n"


@pytest.mark.parametrize("body", [b"[]", b"hello", b'{"status":"x"}'])
def test_another_server_is_not_healthy(body: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    head = f"HTTP/1.1 404 Not Found\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert answered(head + body) == 1
    assert capsys.readouterr().out == "HTTP status 404, and no answer of mqttcore\n"
    assert answered(head + body, "--json") == 1
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("", "HTTP status 404, and no answer of mqttcore\n")


@pytest.mark.parametrize(
    "body",
    [
        b"<html>It works!</html>",
        b"{}",
        b'{"status":"failed","checks":[]}',
        b'{"status":["healthy"],"checks":[]}',
        b'{"status":"healthy"}',
        b'{"status":"healthy","checks":[' + 70_000 * b" " + b"]}",
        30_000 * b"[",
    ],
)
def test_status_200_of_another_server_is_not_healthy(body: bytes) -> None:
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert answered(head + body) == 1


@pytest.mark.parametrize("status", ["healthy", "ready", "degraded"])
def test_status_200_of_a_broker_is(status: str) -> None:
    body = f'{{"status":"{status}","checks":[]}}'
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n"

    assert answered((head + body).encode()) == 0


def test_an_answer_that_comes_byte_by_byte_is_waited_for_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(healthcheck, "PATIENCE_S", 0.5)
    body = b'{"status":"healthy","checks":[]}'
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()

    assert answered(head + body, pause_s=0.1) == 1
    assert "no answer within 0.5 s" in capsys.readouterr().err


def answered(answer: bytes, *more: str, pause_s: float = 0.0) -> int:
    """The exit status if a server gives this answer, with a pause behind each byte."""
    ended = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line, contextlib.suppress(OSError):
                line.recv(4_096)
                pieces = [bytes([byte]) for byte in answer] if pause_s else [answer]
                for piece in pieces:
                    line.sendall(piece)
                    if ended.wait(pause_s):
                        break

        thread = threading.Thread(target=serve)
        thread.start()
        url = f"http://127.0.0.1:{server.getsockname()[1]}"
        status = healthcheck.main(["--url", url, *more])
        ended.set()
        thread.join()
    return status


@pytest.mark.parametrize("url", ["127.0.0.1:8090", "ftp://host", "http://", "http://host/healthz"])
def test_a_url_is_checked(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert healthcheck.main(["--url", url]) == 2
    assert "--url is http://HOST:PORT" in capsys.readouterr().err
