"""The client of the streams' endpoint, against a server that answers what a test tells it."""

import json
import os
import pathlib
import pickle
import socketserver
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler

import pytest
from mqttcore.errors import (
    EndpointError,
    EndpointUnreachableError,
    RangeBeyondError,
    RangeGoneError,
    RangeSealedError,
    StreamUnknownError,
)
from mqttcore.streams.client import Bounds, Rows, StreamClient, StreamName

PLANT = {
    "name": "plant",
    "epoch": "u:1",
    "seed": "18446744073709551615",
    "filters": ["plant/#"],
    "partitions": [{"earliest": 1, "sealed_end": 5, "end": 9}],
    "path": "/data/streams/plant",
    "schema": None,
}


@dataclass
class Script:
    """What the server answers, and what it was asked."""

    status: int = 200
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    close_after: bool = False
    asked: list[tuple[str, str, str | None, bytes]] = field(default_factory=list)
    connections: int = 0


class UnixServer(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers on a Unix socket."""

    daemon_threads = True


class TcpServer(socketserver.ThreadingTCPServer):
    """Answers on a free port."""

    daemon_threads = True


def handler(script: Script) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            script.connections += 1
            super().setup()

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            token = self.headers.get("Authorization")
            script.asked.append((self.command, self.path, token, body))
            self.send_response_only(script.status)
            headers = script.headers or {"Content-Length": str(len(script.body))}
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(script.body)
            self.close_connection = script.close_after

        do_GET = do_POST = do_DELETE = answer  # noqa: N815 - names that the base class looks for

    return Handler


@pytest.fixture
def script() -> Script:
    return Script(body=json.dumps(PLANT).encode())


@pytest.fixture(params=["short", "far" * 40])
def unix(tmp_path: pathlib.Path, script: Script, request: pytest.FixtureRequest) -> Iterator[str]:
    folder = tmp_path / request.param / "streams"
    folder.mkdir(parents=True)
    near = os.open(folder, os.O_PATH)
    place = f"/proc/self/fd/{near}/endpoint.sock"
    with UnixServer(place, handler(script)) as server, serving(server):
        yield str(folder.parent)
    os.close(near)


@pytest.fixture
def tcp(script: Script) -> Iterator[str]:
    with TcpServer(("127.0.0.1", 0), handler(script)) as server, serving(server):
        yield f"http://127.0.0.1:{server.server_address[1]}"


class serving:  # noqa: N801 - a context manager
    """A server that runs."""

    def __init__(self, server: socketserver.BaseServer) -> None:
        self.server = server
        self.thread = threading.Thread(target=server.serve_forever, args=(0.01,))

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.thread.join()


def test_a_folder_names_the_socket_in_it_however_long_its_path(unix: str, script: Script) -> None:
    with StreamClient(unix) as client:
        plant = client.stream("plant")

    assert (plant.name, plant.epoch, plant.seed) == ("plant", "u:1", 2**64 - 1)
    assert plant.partitions == (Bounds(1, 5, 9),)
    assert plant.path == pathlib.Path("/data/streams/plant")
    assert script.asked == [("GET", "/v1/streams/plant", None, b"")]
    with StreamClient(f"unix:{unix}/streams/endpoint.sock") as client:
        assert client.stream("plant") == plant


def test_a_token_goes_with_every_request(tcp: str, script: Script) -> None:
    script.body = b'[{"name":"plant","partitions":4,"epoch":"u:1"}]'

    with StreamClient(tcp, token="secret") as client:  # noqa: S106 - made up
        assert client.streams() == [StreamName("plant", 4, "u:1")]
        assert client.streams() == [StreamName("plant", 4, "u:1")]

    assert script.asked == [("GET", "/v1/streams", "Bearer secret", b"")] * 2
    assert script.connections == 1


def test_holds_offsets_and_seals_are_asked_for_by_name(tcp: str, script: Script) -> None:
    with StreamClient(tcp) as client:
        client.hold("plant", "my query", [3, 4])
        assert client.release("plant", "my/query")
        assert client.seal("plant").partitions[0].end == 9
        script.body = b'{"offsets":[7,8]}'
        assert client.offsets("plant", timestamp_us=5) == (7, 8)

    assert [(method, path, body) for method, path, _, body in script.asked] == [
        ("POST", "/v1/streams/plant/holds", b'{"consumer": "my query", "offsets": [3, 4]}'),
        ("DELETE", "/v1/streams/plant/holds/my%2Fquery", b""),
        ("POST", "/v1/streams/plant/seal", b""),
        ("GET", "/v1/streams/plant/offsets?timestamp_us=5", b""),
    ]


def test_rows_are_a_file_to_its_end(tcp: str, script: Script) -> None:
    script.body = bytes(range(256)) * 1_000

    with StreamClient(tcp) as client, client.rows("plant", partition=2, start=5, end=9) as rows:
        assert rows.read(3) == b"\x00\x01\x02"
        client.close()
        assert rows.read() == script.body[3:]
        assert rows.read(1) == b""

    assert script.asked[0][:2] == ("GET", "/v1/streams/plant/rows?partition=2&from=5&to=9")


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({"Content-Length": "100"}, b"only a part"),
        ({"Transfer-Encoding": "chunked"}, b"5\r\nhello\r\n"),
        ({"Transfer-Encoding": "chunked"}, b"50\r\nhello"),
    ],
)
@pytest.mark.parametrize("size", [-1, 80])
def test_rows_that_break_off_are_an_error_and_no_end(
    tcp: str, script: Script, headers: dict[str, str], body: bytes, size: int
) -> None:
    script.headers, script.body, script.close_after = headers, body, True

    def read_to_the_end(rows: Rows) -> None:
        while rows.read(size):
            pass

    with (
        StreamClient(tcp) as client,
        client.rows("plant", partition=0, start=0, end=9) as rows,
        pytest.raises(EndpointUnreachableError, match="the rest of the rows"),
    ):
        read_to_the_end(rows)
    with StreamClient(tcp) as client, pytest.raises(EndpointUnreachableError):
        client.rows_at_once("plant", partition=0, start=0, end=9)


def test_few_rows_come_over_the_connection_that_is_kept(tcp: str, script: Script) -> None:
    script.body = bytes(range(256)) * 10

    with StreamClient(tcp) as client:
        for start in (5, 6):
            found = client.rows_at_once("plant", partition=2, start=start, end=9)
            assert found == script.body

    (first, second) = script.asked
    assert first[:2] == ("GET", "/v1/streams/plant/rows?partition=2&from=5&to=9")
    assert second[:2] == ("GET", "/v1/streams/plant/rows?partition=2&from=6&to=9")
    assert script.connections == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (404, "unknown_stream", StreamUnknownError),
        (409, "sealed", RangeSealedError),
        (410, "gone", RangeGoneError),
        (416, "beyond", RangeBeyondError),
        (400, "bad_request", EndpointError),
    ],
)
def test_a_refusal_is_raised_with_its_text(
    tcp: str, script: Script, status: int, code: str, kind: type[EndpointError]
) -> None:
    script.status, script.body = status, json.dumps({"error": "why", "code": code}).encode()

    with StreamClient(tcp) as client, pytest.raises(EndpointError, match=r"^why$") as caught:
        client.rows("plant", partition=0, start=0, end=1)

    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):  # noqa: S301
        assert (type(error), error.status, error.code) == (kind, status, code)


def test_an_answer_of_somebody_else_is_reported_as_such(tcp: str, script: Script) -> None:
    script.status, script.body = 502, b"<html>"

    with (
        StreamClient(tcp) as client,
        pytest.raises(EndpointError, match="the endpoint answered 502"),
    ):
        client.stream("plant")


def test_a_connection_that_was_closed_meanwhile_is_made_anew(tcp: str, script: Script) -> None:
    script.close_after = True

    with StreamClient(tcp) as client:
        client.stream("plant")
        client.stream("plant")

    assert script.connections == 2


def test_an_endpoint_that_is_not_there_is_unreachable(tmp_path: pathlib.Path) -> None:
    with (
        StreamClient(tmp_path) as client,
        pytest.raises(EndpointUnreachableError, match=str(tmp_path)),
    ):
        client.streams()


def test_a_client_can_be_pickled_and_used_from_any_thread(tcp: str, script: Script) -> None:
    client = pickle.loads(pickle.dumps(StreamClient(tcp, token="secret")))  # noqa: S106, S301
    found: list[str] = []

    def ask() -> None:
        found.append(client.stream("plant").name)
        client.close()

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert found == ["plant"] * 3
    assert {token for _, _, token, _ in script.asked} == {"Bearer secret"}


def test_a_forked_child_has_a_connection_of_its_own(tcp: str, script: Script) -> None:
    with StreamClient(tcp) as client:
        client.stream("plant")
        child = os.fork()
        if child == 0:
            os._exit(0 if client.stream("plant").name == "plant" else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert client.stream("plant").name == "plant"

    assert script.connections == 2


@pytest.mark.parametrize("endpoint", ["https://", "http://127.0.0.1:1/v2", "ftp://host", "http://"])
def test_what_is_no_endpoint_is_refused_at_once(endpoint: str) -> None:
    with pytest.raises(ValueError, match="is not an endpoint"):
        StreamClient(endpoint)


def test_a_step_that_takes_too_long_is_unreachable(tcp: str, script: Script) -> None:
    script.headers, script.body = {"Content-Length": "100"}, b""

    with StreamClient(tcp, timeout_s=0.05) as client, pytest.raises(EndpointUnreachableError):
        client.stream("plant")
