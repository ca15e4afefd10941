"""An operator who looks on while a broker is measured."""

from __future__ import annotations

import contextlib
import http.client
import json
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from string import Template
from typing import Final

from benches.broker.brokers import ReportError, free_port

PAUSE_S: Final = 1.0
"""Between two scrapes."""
TRACE: Final = {"where": {"client_id": "nobody"}, "for_s": 600}


class Observer:
    """Reads metrics each second and all events, and traces a client that never comes."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.token = folder / f"token-{self.port}"
        self.token.write_text(secrets.token_urlsafe(24))
        self.token.chmod(0o600)
        self.scrapes = 0
        self.events = 0

    def settings(self, text: str) -> str:
        """A configuration of the broker, with its ``$http`` and ``$token``."""
        return Template(text).substitute(http=self.port, token=self.token)

    @contextlib.contextmanager
    def looks_on(self) -> Iterator[None]:
        """Does so until the end of the block.

        Raises:
            ReportError: the broker refused a request, or sent no metrics or no events.
        """
        done = threading.Event()
        self.ask("POST", "/api/v1/traces", TRACE).read()
        events = self.ask("GET", "/api/v1/events?kinds=stats,client,drop,log")
        threads = [
            threading.Thread(target=self.scrape, args=(done,)),
            threading.Thread(target=self.read, args=(events,)),
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            done.set()
        # the events end with the broker
        threads[0].join()
        if not self.scrapes or not self.events:
            raise ReportError(f"the observer got {self.scrapes} scrapes, {self.events} events")

    def ask(self, method: str, path: str, body: object = None) -> http.client.HTTPResponse:
        """Sends a request; the answer is not read yet.

        Raises:
            ReportError: the answer is an error.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        headers = {"Authorization": f"Bearer {self.token.read_text()}"}
        text = None if body is None else json.dumps(body)
        connection.request(method, path, text, headers | {"Content-Type": "application/json"})
        answer = connection.getresponse()
        if answer.status >= http.client.BAD_REQUEST:
            raise ReportError(f"{method} {path}: {answer.status} {answer.read().decode()}")
        return answer

    def scrape(self, done: threading.Event) -> None:
        """Reads the metrics until it is done."""
        while True:
            self.scrapes += bool(self.ask("GET", "/metrics").read())
            if done.wait(PAUSE_S):
                return

    def read(self, events: http.client.HTTPResponse) -> None:
        """Reads events until the broker ends."""
        with contextlib.suppress(OSError):
            for line in events:
                self.events += line.startswith(b"event:")
