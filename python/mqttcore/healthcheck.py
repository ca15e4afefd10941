"""`python -m mqttcore.healthcheck`: asks a running broker whether it works, for Docker and systemd.

Exit status: 0 if it does, 1 if it does not or cannot be reached, 2 for wrong arguments.
"""

import argparse
import contextlib
import http.client
import json
import pathlib
import queue
import socket
import sys
import threading
import urllib.parse
from collections.abc import Mapping, Sequence
from typing import Final

from mqttcore import _core
from mqttcore.control import short

SOCKET_NAME: Final = "http"
"""The Unix socket of the HTTP endpoint, in the folder of the data."""
PATIENCE_S: Final = 5.0
"""For all of it: the name, the connection and the answer."""
ANSWER_BYTES: Final = 64 * 1024
WORKS: Final = frozenset({"healthy", "ready", "degraded"})
"""The statuses of a broker that works."""


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: pathlib.Path) -> None:
        super().__init__("localhost", timeout=PATIENCE_S)
        self._path = path

    def connect(self) -> None:
        """Connects to the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE_S)
        with short(self._path) as address:
            self.sock.connect(address)


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks, prints one line, and returns the exit status."""
    options = parser().parse_args(arguments)
    path = "/readyz" if options.ready else "/healthz"
    try:
        status, body = within_patience(connect(options.url, options.data), path)
    except (OSError, http.client.HTTPException) as error:
        where = options.url or options.data / SOCKET_NAME
        print(f"mqttcore: cannot ask {where}: {error}; is [http] configured?", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"mqttcore: {error}", file=sys.stderr)
        return 2
    word, text = described(status, body)
    print(text)
    return 0 if status == http.client.OK and word in WORKS else 1


def within_patience(connection: http.client.HTTPConnection, path: str) -> tuple[int, bytes]:
    """Status and body of the answer: the timeout of a socket begins again with each byte.

    Raises:
        TimeoutError: there is no whole answer in time.
        OSError: the server cannot be reached.
        http.client.HTTPException: the answer is not HTTP.
    """
    answers: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            with contextlib.closing(connection):
                connection.request("GET", path)
                answer = connection.getresponse()
                answers.put((answer.status, answer.read(ANSWER_BYTES)))
        # The thread that waits raises it.
        except Exception as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=PATIENCE_S)
    except queue.Empty:
        raise TimeoutError(f"no answer within {PATIENCE_S:g} s") from None
    if isinstance(answer, Exception):
        raise answer
    return answer


def connect(url: str | None, data: pathlib.Path | None) -> http.client.HTTPConnection:
    """A connection to the endpoint; it is opened by the first request.

    Raises:
        ValueError: the URL is not one of an endpoint.
    """
    if data is not None:
        return UnixConnection(data / SOCKET_NAME)
    parts = urllib.parse.urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"--url is http://HOST:PORT or https://HOST:PORT, not {url!r}")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=PATIENCE_S)


def described(status: int, body: bytes) -> tuple[str, str]:
    """The status in the answer and, in one line, that and the checks that do not hold.

    The status is empty if the answer is not of mqttcore.
    """
    try:
        answer = json.loads(body)
        failed = [check for check in answer["checks"] if not check["ok"]]
        word = answer["status"]
        return word, "; ".join([word, *map(line, failed)])
    except (ValueError, KeyError, TypeError, RecursionError):
        return "", f"HTTP status {status}, and no answer of mqttcore"


def line(check: Mapping[str, str]) -> str:
    """A check that does not hold."""
    return f"{check['name']}: {check['detail']}"


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore healthcheck",
        description="Asks a running broker whether it works. Exit status: 0 if it does, 1 if it"
        " does not or cannot be reached.",
    )
    where = made.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--data",
        type=pathlib.Path,
        metavar="DIR",
        help="data folder of the broker, on this machine",
    )
    where.add_argument("--url", help="address of its [http], as http://127.0.0.1:8090")
    made.add_argument(
        "--ready",
        action="store_true",
        help="ask whether clients should come: all sessions are loaded, the disk has space",
    )
    made.add_argument("--version", action="version", version=f"mqttcore {_core.__version__}")
    return made


if __name__ == "__main__":
    sys.exit(main())
