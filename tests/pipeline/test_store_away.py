"""An object store that is away, or refuses: which errors of delta-rs a pipeline restarts after."""

from __future__ import annotations

import http.server
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from mqttcore.errors import PipelineError
from mqttcore.pipeline.locations import Location
from mqttcore.pipeline.supervisor import may_pass
from mqttcore.pipeline.tables import DeltaTable

FAST = {
    "AWS_ALLOW_HTTP": "true",
    "AWS_ACCESS_KEY_ID": "tests",
    "AWS_SECRET_ACCESS_KEY": "tests",
    "AWS_REGION": "us-east-1",
    "max_retries": "1",
    "retry_timeout": "1s",
    "timeout": "1s",
}


@contextmanager
def answering(status: int) -> Iterator[int]:
    """The port of a store in this process that answers all requests with one status."""

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            """Answers."""
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def error_of(port: int) -> PipelineError:
    """What opening a table of the store raises."""
    place = Location("s3a://lake/silver", {**FAST, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}"})
    with pytest.raises(
        PipelineError, match=r"s3a://lake/silver: cannot be opened: (.|\n)*Error performing GET"
    ) as raised:
        DeltaTable(place).found()
    return raised.value


@pytest.mark.parametrize(
    ("status", "passes"), [(503, True), (429, True), (500, True), (403, False), (400, False)]
)
def test_a_store_that_answers_may_be_overloaded_or_refuse(status: int, passes: bool) -> None:
    """The store is a thread of this process: opening a table must not keep others waiting."""
    with answering(status) as port:
        error = error_of(port)

    assert f" {status} " in str(error)
    assert may_pass(error) is passes


def test_a_store_that_answers_nothing_may_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        error = error_of(silent.getsockname()[1])

    assert "timed out" in str(error)
    assert may_pass(error)


def test_a_store_that_nobody_listens_for_may_come_back() -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]

    assert may_pass(error_of(port))
