"""The HTTP API of a running broker, for commands: over its Unix socket, or a URL with a key."""

import argparse
import http.client
import json
import os
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Self
from urllib.parse import quote, urlencode

from mqttcore.cli.failure import NOT_DONE, REFUSED, UNREACHABLE, USAGE, CommandError, reporting
from mqttcore.cli.terminal import printable, without_login
from mqttcore.streams.client import connector, read_ca

PREFIX: Final = "/api/v1"
SOCKET_NAME: Final = "http"
"""The Unix socket of the HTTP endpoint, in the folder of the data."""
PATIENCE_S: Final = 60.0
PIECE_BYTES: Final = 64 * 1_024
PAGE_ITEMS: Final = 1_000
"""Maximum items of a page of the API."""
DATA_VARIABLE: Final = "MQTTCORE__DATA"
"""The variable for the data folder; the broker also reads it."""

Json = dict[str, Any]  # an answer of the API: docs/operations.md and /api/v1/openapi.json
Query = Mapping[str, str | int | bool | None]
KEY: Final = re.compile(rb"[!-~]+")
STATUSES: Final = {400: USAGE, 401: REFUSED, 403: REFUSED, 429: REFUSED}
"""Exit statuses of HTTP statuses; the others are `NOT_DONE`."""


def endpoint_options() -> argparse.ArgumentParser:
    """The options of all commands that ask a running broker, as a parent of their parsers."""
    made = argparse.ArgumentParser(add_help=False)
    group = made.add_argument_group("broker")
    where = group.add_mutually_exclusive_group()
    where.add_argument(
        "--data",
        metavar="DIR",
        help=f"data folder of the broker, on this machine; default: ${DATA_VARIABLE}",
    )
    where.add_argument(
        "--url",
        metavar="URL",
        help="address of the HTTP endpoint, as https://host:8090; needs a key",
    )
    group.add_argument(
        "--key-file", type=pathlib.Path, metavar="FILE", help="file with a key of the HTTP API"
    )
    group.add_argument(
        "--cafile",
        metavar="FILE",
        help="trust only the CAs in FILE for https (default: those of the system)",
    )
    group.add_argument("--json", action="store_true", help="print JSON")
    return made


def add_command(
    commands: "argparse._SubParsersAction[argparse.ArgumentParser]",
    name: str,
    words: str,
    *more: argparse.ArgumentParser,
) -> argparse.ArgumentParser:
    """Adds a subcommand that asks a running broker; ``more`` are parents of its parser."""
    parents = [endpoint_options(), *more]
    return commands.add_parser(name, help=words, description=words, parents=parents)


class NotFoundError(CommandError):
    """The broker does not have the requested object."""


class Api:
    """Sends requests to the API of one broker.

    Raises:
        CommandError: the options do not say which broker, or the key cannot be read.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        folder = options.data or os.environ.get(DATA_VARIABLE, "")
        if not options.url and not folder:
            text = "which broker? Give --data DIR (its data folder) or --url URL"
            raise CommandError(text, status=USAGE)
        self._socket = "" if options.url else os.path.join(folder, SOCKET_NAME)
        self.place = without_login(options.url) if options.url else self._socket
        """The broker's address, for messages."""
        ca = ca_of(options)
        try:
            connect = connector(options.url or f"unix:{self._socket}", PATIENCE_S, ca)
        except ValueError:
            text = f"--url is http://HOST:PORT or https://HOST:PORT, not {self.place!r}"
            raise CommandError(text, status=USAGE) from None
        self._connection = connect()
        self._headers = headers_of(options.key_file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def get(self, path: str, query: Query | None = None) -> Json:
        """The answer to a GET."""
        return self.call("GET", path, query=query)

    def call(
        self, method: str, path: str, *, query: Query | None = None, body: object = None
    ) -> Json:
        """The answer to a request; empty if it has no body.

        Raises:
            CommandError: the broker cannot be reached, or it refuses.
        """
        status, raw = self.raw(method, f"{PREFIX}{path}", query=query, body=body)
        try:
            found = json.loads(raw) if raw else {}
        except ValueError:
            found = None
        if not isinstance(found, dict):
            text = f"{self.place}: HTTP status {status}, and no answer of mqttcore"
            raise CommandError(text)
        if status >= http.client.BAD_REQUEST:
            raise refusal(status, found)
        return found

    def raw(
        self, method: str, path: str, *, query: Query | None = None, body: object = None
    ) -> tuple[int, bytes]:
        """Status and body of the answer to a request.

        Raises:
            CommandError: the broker cannot be reached.
        """
        target = path + query_of(query or {})
        text = json.dumps(body) if body is not None else None
        is_kept = self._connection.sock is not None
        try:
            try:
                return self._ask(method, target, text)
            except ConnectionError:
                if method != "GET" or not is_kept:
                    raise
                # the endpoint closes a connection without requests
                self._connection.close()
                return self._ask(method, target, text)
        except (OSError, http.client.HTTPException) as error:
            self._connection.close()
            text = f"cannot ask {self.place}: {str(error) or type(error).__name__}"
            raise CommandError(f"{text}; {self._advice(error)}", status=UNREACHABLE) from error

    def pieces(self, path: str, query: Query | None = None) -> Iterator[bytes]:
        """The body of the answer to a GET, as it arrives.

        Raises:
            CommandError: the broker cannot be reached, refuses, or breaks off.
        """
        target = f"{PREFIX}{path}{query_of(query or {})}"
        try:
            self._connection.request("GET", target, headers=dict(self._headers))
            answer = self._connection.getresponse()
            if answer.status >= http.client.BAD_REQUEST:
                raise refusal(answer.status, problem_of(answer.read()))
            while piece := answer.read1(PIECE_BYTES):
                yield piece
        except (OSError, http.client.HTTPException) as error:
            text = f"cannot read from {self.place}: {str(error) or type(error).__name__}"
            raise CommandError(f"{text}; {self._advice(error)}", status=UNREACHABLE) from error
        finally:
            # the answer may not have ended
            self._connection.close()

    def lines(self, path: str, query: Query | None = None) -> Iterator[str]:
        """The lines of the answer to a GET, as they arrive."""
        rest = b""
        for piece in self.pieces(path, query):
            *whole, rest = (rest + piece).split(b"\n")
            yield from (line.decode(errors="replace") for line in whole)

    def events(self, path: str, query: Query | None = None) -> Iterator[tuple[str, str]]:
        """The server-sent events of the answer to a GET, as they arrive: kind and data."""
        kind = ""
        for line in self.lines(path, query):
            name, _, value = line.partition(": ")
            if name == "event":
                kind = value
            elif name == "data":
                yield kind, value

    def _ask(self, method: str, target: str, text: str | None) -> tuple[int, bytes]:
        headers = dict(self._headers)
        if text is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, target, text, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _advice(self, error: Exception) -> str:
        """Advice for a broker that cannot be reached."""
        if "CERTIFICATE_VERIFY_FAILED" in str(error):
            return "--cafile FILE names a file with the CA to trust"
        if isinstance(error, PermissionError):
            return "run it as the broker's user or root, or use --url and --key-file"
        if self._socket:
            return "does a broker with [http] run on this folder?"
        return "does the broker listen there ([http] address)?"

    def pages(self, path: str, query: Query | None = None, *, limit: int = 0) -> Iterator[Json]:
        """The pages of a list, until the list or ``limit`` items end; 0: no limit."""
        asked = dict(query or {})
        rest = limit
        while True:
            asked["limit"] = min(rest, PAGE_ITEMS) if limit else PAGE_ITEMS
            page = self.get(path, asked)
            yield page
            rest -= len(page["items"])
            asked["after"] = page["next"]
            if not page["next"] or (limit and rest <= 0):
                return


def ca_of(options: argparse.Namespace) -> str | None:
    """The CAs to trust, as PEM text; `None`: those of the system.

    Raises:
        CommandError: the file has none, or the URL needs none.
    """
    if options.cafile is None:
        return None
    if not (options.url or "").startswith("https://"):
        raise CommandError("--cafile needs --url https://HOST:PORT", status=USAGE)
    try:
        return read_ca(options.cafile)
    except ValueError as error:
        raise CommandError(f"--cafile {options.cafile}: {error}", status=USAGE) from error


def headers_of(key_file: pathlib.Path | None) -> dict[str, str]:
    """The headers of all requests.

    Raises:
        CommandError: the file has no key.
    """
    if key_file is None:
        return {}
    try:
        key = key_file.read_bytes().strip()
    except OSError as error:
        raise CommandError(f"--key-file: {error}", status=USAGE) from error
    if not KEY.fullmatch(key):
        text = f"--key-file {key_file}: the file has one line, the key, without spaces"
        raise CommandError(text, status=USAGE)
    return {"Authorization": f"Bearer {key.decode()}"}


def asking(
    command: str,
    options: argparse.Namespace,
    act: Callable[["Api", argparse.Namespace], int],
) -> int:
    """Runs a command with the API of a broker; returns the exit status."""

    def run() -> int:
        with Api(options) as api:
            return act(api, options)

    return reporting(command, run)


def query_of(query: Query) -> str:
    """A query string; values that are `None` are left out."""
    given = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in query.items()
        if value is not None
    }
    return f"?{urlencode(given, quote_via=quote)}" if given else ""


def path_of(*parts: str) -> str:
    """A path; slashes of its parts are percent-encoded."""
    return "".join(f"/{quote(part, safe='')}" for part in parts)


def refusal(status: int, problem: Json) -> CommandError:
    """The failure of a request that was refused with a problem."""
    text = str(problem.get("detail") or f"HTTP status {status}")
    hint = problem.get("hint")
    kind = NotFoundError if status == http.client.NOT_FOUND else CommandError
    return kind(f"{text}; {hint}" if hint else text, status=STATUSES.get(status, NOT_DONE))


def problem_of(raw: bytes) -> Json:
    """The problem in the body of an answer; empty without one."""
    try:
        found = json.loads(raw)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def whole(pages: Iterator[Json]) -> Json:
    """All pages as one list, for ``--json``."""
    found: Json = {"items": [], "next": None, "partial": []}
    for page in pages:
        found["items"] += page["items"]
        found["next"] = page["next"]
        found["partial"] += page["partial"]
    return found


def missing_parts(partial: Sequence[Json]) -> str:
    """The missing parts of a list, as a line; empty if it is complete."""
    shards = ", ".join(f"shard {part['shard']}: {part['why']}" for part in partial)
    return printable(f"the list is incomplete: {shards}") if shards else ""
