"""`python -m mqttcore.healthcheck`: asks a running broker whether it works, for Docker and systemd.

Exit status: 0 if it does, 1 if it does not or cannot be reached, 2 for wrong arguments.
"""

import argparse
import json
import pathlib
import queue
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from mqttcore._socket_path import short

SOCKET_NAME: Final = "http"
"""The Unix socket of the HTTP endpoint, in the folder of the data."""
PATIENCE_S: Final = 5.0
"""Seconds for everything: name, connection and answer."""
ANSWER_BYTES: Final = 64 * 1024
OK: Final = 200
WORKS: Final = frozenset({"healthy", "ready", "degraded"})
"""The statuses of a working broker."""

Open = Callable[[], socket.socket]


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks, prints one line, and returns the exit status."""
    options = parser().parse_args(arguments)
    path = "/readyz" if options.ready else "/healthz"
    try:
        host, opened = connection(options.url, options.data)
        status, body = within_patience(opened, f"GET {path} HTTP/1.0\r\nHost: {host}\r\n\r\n")
    except OSError as error:
        where = options.url or options.data / SOCKET_NAME
        print(f"mqttcore: cannot ask {where}: {error}; is [http] configured?", file=sys.stderr)
        return 1
    except ValueError as error:
        print(f"mqttcore: {error}", file=sys.stderr)
        return 2
    word, text = described(status, body)
    if options.json and word:
        print(body.decode())
    else:
        print(text, file=sys.stderr if options.json else sys.stdout)
    return 0 if status == OK and word in WORKS else 1


def within_patience(opened: Open, request: str) -> tuple[int, bytes]:
    """Status and body of the answer: the timeout of a socket begins again with each byte.

    Raises:
        TimeoutError: there is no whole answer in time.
        OSError: the server cannot be reached, or its answer is not HTTP.
    """
    answers: queue.SimpleQueue[tuple[int, bytes] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            with opened() as line:
                line.sendall(request.encode())
                answers.put(answer_of(line))
        # The waiting thread raises it.
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


def answer_of(line: socket.socket) -> tuple[int, bytes]:
    """Reads status and body. `http.client` would do it too, for half of the CPU time of the tool.

    Raises:
        ConnectionError: the answer is not HTTP.
    """
    raw = b""
    while len(raw) < ANSWER_BYTES and not is_whole(raw) and (part := line.recv(ANSWER_BYTES)):
        raw += part
    head, end, body = raw.partition(b"\r\n\r\n")
    version, _, rest = head.partition(b" ")
    if not (end and version.startswith(b"HTTP/1.") and rest[:3].isdigit()):
        raise ConnectionError("the answer is not HTTP")
    return int(rest[:3]), body[:ANSWER_BYTES]


def is_whole(raw: bytes) -> bool:
    """Whether the body is complete by its header; without one it ends with the connection."""
    head, _, body = raw.partition(b"\r\n\r\n")
    for field in head.lower().split(b"\r\n"):
        name, _, value = field.partition(b":")
        if name == b"content-length" and value.strip().isdigit():
            return len(body) >= int(value)
    return False


def connection(url: str | None, data: pathlib.Path | None) -> tuple[str, Open]:
    """The host to ask for, and a function that connects to the endpoint.

    Raises:
        ValueError: the URL is not one of an endpoint.
    """
    if data is not None:
        return "localhost", lambda: unix(data / SOCKET_NAME)
    from urllib.parse import urlsplit

    parts = urlsplit(url or "")
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(f"--url is http://HOST:PORT or https://HOST:PORT, not {url!r}")
    host, is_tls = parts.hostname, parts.scheme == "https"
    port = parts.port or (443 if is_tls else 80)
    name = parts.netloc.rpartition("@")[2]
    return name, lambda: (tls if is_tls else tcp)(host, port)


def unix(path: pathlib.Path) -> socket.socket:
    """Connects to a Unix socket."""
    line = socket.socket(socket.AF_UNIX)
    line.settimeout(PATIENCE_S)
    try:
        with short(path) as address:
            line.connect(address)
    except OSError:
        line.close()
        raise
    return line


def tcp(host: str, port: int) -> socket.socket:
    """Connects over TCP."""
    return socket.create_connection((host, port), PATIENCE_S)


def tls(host: str, port: int) -> socket.socket:
    """Connects over TLS, to a server with a certificate that the system trusts."""
    import ssl

    return ssl.create_default_context().wrap_socket(tcp(host, port), server_hostname=host)


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
    """A failed check."""
    return f"{check['name']}: {check['detail']}"


class PrintVersion(argparse.Action):
    """Loads the engine for its version only on request."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        """Prints the version and ends the program."""
        from mqttcore import __version__

        parser.exit(message=f"mqttcore {__version__}\n")


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
    where.add_argument("--url", help="address of the HTTP endpoint, as http://127.0.0.1:8090")
    made.add_argument(
        "--ready",
        action="store_true",
        help="ask whether the broker is ready for clients: sessions are loaded, the disk has space",
    )
    made.add_argument("--json", action="store_true", help="print the answer of the broker")
    made.add_argument("--version", action=PrintVersion, nargs=0, help="print the version and exit")
    return made


if __name__ == "__main__":
    sys.exit(main())
