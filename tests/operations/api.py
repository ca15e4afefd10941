"""A caller of the HTTP API over the Unix socket of a data folder."""

from __future__ import annotations

import http.client
import json
import pathlib
import socket
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from mqttcore._socket_path import short


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=30)
        self._path = path

    def connect(self) -> None:
        """Opens the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(30)
        self.sock.connect(self._path)


@dataclass(frozen=True)
class Api:
    """The API of the broker that runs on a data folder."""

    folder: pathlib.Path

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Sends a request; returns the status and the JSON of the answer."""
        with short(self.folder / "http") as place, closing(UnixConnection(place)) as connection:
            text = None if body is None else json.dumps(body)
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, f"/api/v1{path}", text, headers)
            answer = connection.getresponse()
            content = answer.read()
            kind = answer.headers.get("Content-Type", "")
        # lines of JSON have another type
        is_json = kind in ("application/json", "application/problem+json")
        return answer.status, json.loads(content) if is_json and content else None
