"""The HTTP API for commands, against a server that closes connections and forgets messages."""

from __future__ import annotations

import json
import pathlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from mqttcore.cli.api import Api, endpoint_options
from mqttcore.cli.failure import CommandError

from tests.cli.conftest import Run

OVERVIEW = b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n{"a":1}'


@contextmanager
def server(*connections: Sequence[bytes]) -> Iterator[str]:
    """A server that answers the requests of each connection, then closes it; yields its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for answers in connections:
                line, _ = listener.accept()
                with line:
                    line.settimeout(10)
                    for answer in answers:
                        line.recv(65_536)
                        line.sendall(answer)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        assert not thread.is_alive()


def answer(value: object, status: int = 200) -> bytes:
    """An answer with JSON."""
    body = json.dumps(value).encode()
    return b"HTTP/1.1 %d x\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body)


def api_of(url: str) -> Api:
    """The API that is there."""
    return Api(endpoint_options().parse_args(["--url", url]))


def test_a_get_is_sent_again_if_a_kept_connection_has_ended() -> None:
    with server([OVERVIEW], [OVERVIEW]) as url, api_of(url) as api:
        assert [api.get("/overview"), api.get("/overview")] == [{"a": 1}, {"a": 1}]


def test_other_requests_are_sent_once() -> None:
    with server([OVERVIEW]) as url, Api(endpoint_options().parse_args(["--url", url])) as api:
        api.get("/overview")
        with pytest.raises(CommandError, match="cannot ask"):
            api.call("POST", "/reload")


def test_an_export_goes_on_if_a_message_has_gone(run: Run) -> None:
    page = {"items": [{"topic": "gone"}, {"topic": "b"}], "next": None, "partial": []}
    message = {"topic": "b", "payload_base64": "eA==", "qos": 0}
    with server([answer(page), answer({"detail": "no"}, 404), answer(message)]) as url:
        done = run("retained", "export", "--url", url)

    assert (done.status, json.loads(done.out)) == (0, message)


def test_an_export_that_is_not_utf_8_is_reported(run: Run, tmp_path: pathlib.Path) -> None:
    (tmp_path / "export").write_bytes(b"\xff\n")

    done = run("retained", "import", "--url", "http://127.0.0.1:1", tmp_path / "export")

    assert (done.status, "not UTF-8" in done.error) == (2, True)
