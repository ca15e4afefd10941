"""The HTTP API for commands, against a server that closes connections and forgets messages."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from mqttcore import Broker
from mqttcore.cli.api import Api, endpoint_options
from mqttcore.cli.failure import CommandError

from tests.cli.conftest import Run
from tests.streams.plant import plant_settings, with_key
from tests.tls import Files

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


SECRET = "mq_" + "a" * 52


def test_a_command_trusts_the_ca_of_its_option_and_no_other(
    run: Run, tmp_path: pathlib.Path
) -> None:
    files, other = Files.make(tmp_path / "tls"), Files.make(tmp_path / "other")
    settings = with_key(plant_settings(tmp_path), tmp_path, SECRET, "view")
    assert settings.http is not None
    http = dataclasses.replace(settings.http, tls=files.tls())
    key = tmp_path / "key"
    key.write_text(SECRET)
    with Broker(dataclasses.replace(settings, http=http)) as broker:
        assert broker.http_address is not None
        url = f"https://localhost:{broker.http_address[1]}"
        asked = ("streams", "--json", "--url", url, "--key-file", key)

        trusted = run(*asked, "--cafile", files.path("ca.pem"))
        strange = run(*asked, "--cafile", other.path("ca.pem"))
        without = run(*asked)

    assert (trusted.status, json.loads(trusted.out)["items"][0]["name"]) == (0, "plant")
    for refused in (strange, without):
        assert refused.status == 3
        assert "--cafile FILE names a file with the CA to trust" in refused.error


def test_a_ca_file_that_cannot_be_used_is_named(run: Run, tmp_path: pathlib.Path) -> None:
    empty = tmp_path / "ca.pem"
    empty.touch()

    none = run("streams", "--url", "https://h", "--cafile", empty)
    plain = run("streams", "--url", "http://h", "--cafile", empty)
    folder = run("ban", "list", tmp_path, "--cafile", empty)

    assert (none.status, plain.status, folder.status) == (2, 2, 2)
    assert f"--cafile {empty}: there is no certificate in it" in none.error
    assert "--cafile needs --url https://HOST:PORT" in plain.error
