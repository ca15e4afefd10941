"""An endpoint as the broker has it, with a tail that the test fills."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import socketserver
import threading
import urllib.parse
from typing import TYPE_CHECKING, Any, Self

from tests.stream_folder import EPOCH, StreamFolder, ipc

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow as pa


class RefusalError(Exception):
    """An answer that is none."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(code)
        self.status = status
        self.code = code


class FakeEndpoint:
    """Serves one stream on the Unix socket beside its folder, until it is closed.

    ``write`` puts rows into the tail, ``seal`` moves all of them into files. What was asked is kept
    in ``asked``; holds in ``holds``.
    """

    def __init__(self, stream: StreamFolder) -> None:
        self.stream = stream
        self.epoch = EPOCH
        self.is_configured = True
        self.earliest = [0] * stream.partitions
        self.tails: list[list[pa.Table]] = [[] for _ in range(stream.partitions)]
        self.holds: dict[str, list[int]] = {}
        self.asked: list[str] = []
        self.path = stream.root.parent / "endpoint.sock"
        self.connections: set[socket.socket] = set()
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def open(self) -> None:
        """Begins to answer."""
        self.path.unlink(missing_ok=True)
        self._server = Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        """The broker is away: nobody answers."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.path.unlink(missing_ok=True)
        self._server = None

    def write(self, table: pa.Table) -> None:
        """Rows that are safe, and in no file yet."""
        self.tails[table["partition"][0].as_py()].append(table)

    def seal(self) -> None:
        """All rows of the tail go into files."""
        for tail in self.tails:
            for table in tail:
                self.stream.seal(table)
            tail.clear()

    def bounds(self, partition: int) -> dict[str, int]:
        """What there is of a partition."""
        sealed = max(
            (last + 1 for _, _, last in self.stream.files(partition)),
            default=self.earliest[partition],
        )
        tail = sum(table.num_rows for table in self.tails[partition])
        return {
            "earliest": self.earliest[partition],
            "sealed_end": sealed,
            "end": sealed + tail,
        }

    def answer(self, method: str, target: str, body: bytes) -> bytes:
        """The body of the answer to a request."""
        url = urllib.parse.urlsplit(target)
        query = {key: int(values[0]) for key, values in urllib.parse.parse_qs(url.query).items()}
        prefix = f"/v1/streams/{self.stream.name}"
        self.asked.append(f"{method} {target}")
        match method, url.path.removeprefix(prefix):
            case "GET", "":
                return json.dumps(self.described()).encode()
            case "GET", "/rows":
                return self.rows(query["partition"], query["from"], query["to"])
            case "GET", "/files":
                return self.stream.index_path.read_bytes()
            case "GET", "/offsets":
                offsets = [self.first_at(n, query["timestamp_us"]) for n in range(len(self.tails))]
                return json.dumps({"offsets": offsets}).encode()
            case "POST", "/holds":
                hold = json.loads(body)
                self.holds[hold["consumer"]] = hold["offsets"]
                return b"{}"
        raise RefusalError(404, "unknown_stream")

    def described(self) -> dict[str, Any]:
        """The stream."""
        return {
            "name": self.stream.name,
            "epoch": self.epoch,
            "seed": "7",
            "filters": ["#"],
            "configured": self.is_configured,
            "partitions": [self.bounds(partition) for partition in range(len(self.tails))],
            "path": str(self.stream.root),
            "schema": None,
        }

    def rows(self, partition: int, start: int, end: int) -> bytes:
        """Exactly these rows of the tail."""
        import pyarrow as pa

        bounds = self.bounds(partition)
        if start < bounds["earliest"]:
            raise RefusalError(410, "gone")
        if start < bounds["sealed_end"]:
            raise RefusalError(409, "sealed")
        if end > bounds["end"]:
            raise RefusalError(416, "beyond")
        tail = pa.concat_tables(self.tails[partition]).combine_chunks()
        return ipc(tail.slice(start - bounds["sealed_end"], end - start))

    def first_at(self, partition: int, timestamp_us: int) -> int:
        """The first offset at or after a time; here the tail only."""
        offset = self.bounds(partition)["sealed_end"]
        for table in self.tails[partition]:
            for moment in table["timestamp"].to_pylist():
                if moment.timestamp() * 1e6 >= timestamp_us:
                    return offset
                offset += 1
        return offset


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Answers on a Unix socket."""

    daemon_threads = True

    def __init__(self, endpoint: FakeEndpoint) -> None:
        self.endpoint = endpoint
        super().__init__(str(endpoint.path), Handler)


class Handler(http.server.BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *_: object) -> None:
        """Says nothing."""

    def setup(self) -> None:
        """Remembers the connection: a broker that goes takes it along."""
        super().setup()
        self.server.endpoint.connections.add(self.connection)

    def finish(self) -> None:
        """Forgets it."""
        self.server.endpoint.connections.discard(self.connection)
        super().finish()

    def handle_one_request(self) -> None:
        """Reads until the client goes, however it goes."""
        try:
            super().handle_one_request()
        except ConnectionError:
            self.close_connection = True

    def do_GET(self) -> None:
        """Any question."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            status, answer = 200, self.server.endpoint.answer(self.command, self.path, body)
        except RefusalError as refusal:
            status, code = refusal.status, refusal.code
            answer = json.dumps({"error": f"it is {code}", "code": code}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET  # noqa: N815 -- the base class's name
