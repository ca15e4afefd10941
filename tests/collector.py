"""A collector of OpenTelemetry that keeps what it gets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


class Collector(ThreadingHTTPServer):
    """Takes OTLP over HTTP, and keeps what it gets."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self.kept: list[tuple[str, str | None, bytes]] = []

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server_address[1]}"

    def bodies(self, signal: str) -> list[bytes]:
        """The requests of a signal."""
        return [body for path, _, body in self.kept if path == f"/v1/{signal}"]

    def spans(self) -> list[Span]:
        """All spans, in the order of their ends."""
        return [
            span
            for body in self.bodies("traces")
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class Request(BaseHTTPRequestHandler):
    """A request of an exporter."""

    server: Collector

    def do_POST(self) -> None:
        """Keeps the body."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.headers["Content-Type"] == "application/x-protobuf"
        self.server.kept.append((self.path, self.headers["X-Tenant"], body))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Says nothing."""


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that runs."""
    with Collector() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
