"""A client of the HTTP endpoint of streams: Unix socket, or TCP with a token.

It blocks, uses only the standard library, starts no thread and has no state outside of its objects.
Spark's driver and executors use it.
"""

import http.client
import io
import json
import os
import pathlib
import socket
import ssl
import threading
import urllib.parse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from types import TracebackType
from typing import Final, Self, cast

from mqttcore.errors import (
    EndpointError,
    EndpointUnreachableError,
    FileChangedError,
    RangeBeyondError,
    RangeGoneError,
    RangeSealedError,
    StreamUnknownError,
)
from mqttcore.streams.info import Bounds, Json, StreamInfo, StreamName, info

__all__ = [
    "SOCKET_NAME",
    "Bounds",
    "Rows",
    "StreamClient",
    "StreamInfo",
    "StreamName",
    "read_ca",
]

SOCKET_NAME: Final = pathlib.PurePath("streams", "endpoint.sock")
ERROR_BYTES: Final = 1 << 16
SOCKET_PATH_BYTES: Final = 108


class StreamClient:
    """A client of an endpoint. Threads may share it; each has its own connection.

    Args:
        endpoint: ``https://host:port``, ``http://host:port``,
            ``unix:/path/of/endpoint.sock``, or the folder of a broker's data on this machine.
        token: For a TCP address: the broker's token, or the secret of a key.
        timeout_s: For each step of a request: to connect, to send, to get the next bytes.
        ca: The CAs that ``https`` trusts, as PEM text; None: those of the system, or of the file
            that the environment variable ``SSL_CERT_FILE`` names.
    """

    def __init__(
        self,
        endpoint: str | os.PathLike[str],
        *,
        token: str | None = None,
        timeout_s: float = 30.0,
        ca: str | None = None,
    ) -> None:
        self._endpoint = os.fspath(endpoint)
        self._token = token
        self._timeout_s = timeout_s
        self._ca = ca
        self._connect = connector(self._endpoint, timeout_s, ca)
        self._own = threading.local()

    def __reduce__(self) -> tuple[object, ...]:
        return (_restored, (self._endpoint, self._token, self._timeout_s, self._ca))

    def __repr__(self) -> str:
        return f"StreamClient({self._endpoint!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes this thread's connection; the next request makes a new one."""
        connection = self._kept()
        if connection is not None:
            connection.close()
        self._own.connection = None

    def streams(self) -> list[StreamName]:
        """All streams."""
        found = self._json("GET", "/v1/streams")
        return [StreamName(item["name"], item["partitions"], item["epoch"]) for item in found]

    def stream(self, name: str) -> StreamInfo:
        """Describes one stream.

        Raises:
            StreamUnknownError: there is none of this name.
        """
        return info(self._json("GET", path(name)))

    def rows(self, name: str, *, partition: int, start: int, end: int) -> "Rows":
        """The rows ``[start, end)`` of a partition, as a file with an Arrow IPC stream.

        Raises:
            RangeSealedError: some of them are in files.
            RangeGoneError: some of them are not kept any more.
            RangeBeyondError: some of them are not there yet.
        """
        return self._body(rows_path(name, partition, start, end))

    def rows_at_once(self, name: str, *, partition: int, start: int, end: int) -> bytes:
        """Like `rows`, but in memory and over a persistent connection: faster for few rows."""
        return self._whole("GET", rows_path(name, partition, start, end))

    def tier(self, name: str) -> Json:
        """The object storage of a stream: URL, files that wait, problem; None if it has none."""
        return self._json("GET", path(name)).get("tier")

    def files(self, name: str) -> Json:
        """The files with the sealed rows of a stream: the content of its ``sealed.json``."""
        return self._json("GET", f"{path(name)}/files")

    def file(
        self,
        name: str,
        file: str,
        *,
        start: int = 0,
        end: int | None = None,
        tag: str | None = None,
    ) -> "Rows":
        """The bytes ``[start, end)`` of one of these files; None is its end.

        Args:
            name: The stream.
            file: The name of the file.
            start: The first byte.
            end: Behind the last byte.
            tag: `Rows.tag` of an earlier part: it has to be the same file.

        Raises:
            FileChangedError: it is gone, or another one by now.
        """
        last = "" if end is None else str(end - 1)
        headers = {"Range": f"bytes={start}-{last}", **({"If-Match": tag} if tag else {})}
        return self._body(f"{path(name)}/files/{urllib.parse.quote(file, safe='')}", headers)

    def _body(self, target: str, headers: Mapping[str, str] | None = None) -> "Rows":
        # it is read while other requests are sent, so it has its own connection
        connection = self._connect()
        try:
            response = self._exchange(connection, "GET", target, headers=headers)
        except BaseException:
            connection.close()
            raise
        return Rows(connection, response)

    def offsets(self, name: str, *, timestamp_us: int) -> tuple[int, ...]:
        """The first offset at or after a time, in unix microseconds, of each partition."""
        found = self._json("GET", f"{path(name)}/offsets?timestamp_us={timestamp_us}")
        return tuple(found["offsets"])

    def hold(self, name: str, consumer: str, offsets: Sequence[int]) -> None:
        """Places a hold: keeps rows from these offsets on, until `release` or for `hold_max`."""
        self._json("POST", f"{path(name)}/holds", {"consumer": consumer, "offsets": list(offsets)})

    def release(self, name: str, consumer: str) -> bool:
        """Ends a hold; False: there was none."""
        try:
            self._json("DELETE", f"{path(name)}/holds/{urllib.parse.quote(consumer, safe='')}")
        except EndpointError as error:
            if error.code != "not_held":
                raise
            return False
        return True

    def seal(self, name: str) -> StreamInfo:
        """Seals all rows: writes them to files. Returns the new state of the stream."""
        return info(self._json("POST", f"{path(name)}/seal"))

    def stage(self, query: str, batch: int, stage: str, body: Iterable[bytes]) -> int:
        """Stages rows for a later commit; returns their number.

        Args:
            query: Who sends them: 1 to 64 letters, digits, ``-`` and ``_``.
            batch: Its number; a query's batches are committed in their order.
            stage: One part of the batch, random for each attempt.
            body: An Arrow IPC stream in pieces: columns ``topic`` and ``payload``, and perhaps
                ``qos``, ``retain``, ``content_type``, ``response_topic``, ``correlation_data``,
                ``expiry``, ``user_properties``.

        Raises:
            EndpointError: a row is no message (``bad_rows``), or there is no room (``no_room``).
        """
        target = urllib.parse.urlencode({"query": query, "batch": batch, "stage": stage})
        connection = self._connect()
        try:
            pieces = (piece for piece in body if piece)  # an empty one would end the body
            response = self._exchange(connection, "POST", f"/v1/sink/stage?{target}", pieces)
            with reaching(self._endpoint):
                return int(json.loads(response.read())["rows"])
        finally:
            connection.close()

    def commit(
        self, query: str, batch: int, stages: Sequence[str], *, replacing: str | None = None
    ) -> bool:
        """Publishes the staged rows, all or none; False: this was done before.

        Retained messages of topics that match the filter ``replacing`` are cleared, unless they are
        in this batch.

        Raises:
            EndpointError: there is no such stage (``unknown_stage``): nothing was published.
        """
        body = batch_of(query, batch, stages)
        if replacing is not None:
            body["replacing"] = replacing
        committed = self._json("POST", "/v1/sink/commit", body)
        return bool(committed["committed"])

    def abort(self, query: str, batch: int, stages: Sequence[str]) -> int:
        """Discards the staged rows; returns the number of stages."""
        removed = self._json("POST", "/v1/sink/abort", batch_of(query, batch, stages))
        return int(removed["removed"])

    def report(self, query: str, told: Mapping[str, object]) -> None:
        """Lets the broker publish a report of a query as ``$SYS/spark/<query>``.

        Args:
            query: 1 to 128 letters, digits, ``.``, ``-`` and ``_``.
            told: What it tells, up to 8 KiB of JSON. It replaces what it told before, and goes
                when five minutes pass without another report.

        Raises:
            EndpointError: it is too much, or too many queries tell of themselves.
        """
        self._json("PUT", f"/v1/spark/{urllib.parse.quote(query, safe='')}", dict(told))

    def _json(self, method: str, target: str, body: Json | None = None) -> Json:
        """A request and its answer as JSON."""
        text = self._whole(method, target, None if body is None else json.dumps(body).encode())
        try:
            return json.loads(text)
        except ValueError as error:
            raise EndpointError(f"{self._endpoint}: the answer is not JSON: {error}") from error

    def _whole(self, method: str, target: str, body: bytes | None = None) -> bytes:
        """Sends an idempotent request over a persistent connection."""
        connection = self._kept()
        if connection is not None:
            try:
                return self._answer(connection, method, target, body)
            except EndpointUnreachableError:
                # the server may have closed an idle connection: try again
                self.close()
        connection = self._own.connection = self._connect()
        self._own.process = os.getpid()
        try:
            return self._answer(connection, method, target, body)
        except EndpointUnreachableError:
            self.close()
            raise

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, target: str, body: bytes | None
    ) -> bytes:
        response = self._exchange(connection, method, target, body)
        with reaching(self._endpoint):
            return response.read()

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: bytes | Iterable[bytes] | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> http.client.HTTPResponse:
        """Sends a request; returns its answer if the status is a success."""
        headers = dict(headers or {})
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        is_chunked = body is not None and not isinstance(body, bytes)
        if is_chunked:
            headers["Transfer-Encoding"] = "chunked"
        with reaching(self._endpoint):
            # a server that rejects a body answers before it has read all of it
            with suppress(BrokenPipeError, ConnectionResetError) if is_chunked else nullcontext():
                connection.request(method, target, body, headers, encode_chunked=is_chunked)
            response = connection.getresponse()
            if response.status in {http.client.OK, http.client.PARTIAL_CONTENT}:
                return response
            text = response.read(ERROR_BYTES)
        raise refusal(response.status, text)

    def _kept(self) -> http.client.HTTPConnection | None:
        """This thread's connection, if this process made it."""
        if getattr(self._own, "process", None) != os.getpid():
            return None
        return cast(http.client.HTTPConnection | None, self._own.connection)


def _restored(endpoint: str, token: str | None, timeout_s: float, ca: str | None) -> StreamClient:
    """A client that was pickled."""
    return StreamClient(endpoint, token=token, timeout_s=timeout_s, ca=ca)


class Rows(io.BufferedIOBase):
    """The body of an answer, read while it arrives; an incomplete body is an error."""

    def __init__(
        self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self._connection = connection
        self._response = response

    @property
    def tag(self) -> str | None:
        """Identifies this version of a file."""
        return self._response.getheader("ETag")

    @property
    def total_bytes(self) -> int | None:
        """The size of the file that these bytes are a part of."""
        _, _, total = (self._response.getheader("Content-Range") or "").partition("/")
        return int(total) if total.isdigit() else self._response.length

    def readable(self) -> bool:
        """Always."""
        return True

    def read(self, size: int | None = -1, /) -> bytes:
        """Reads as many bytes as requested, or fewer at the end.

        Raises:
            EndpointUnreachableError: they do not come.
        """
        wanted = None if size is None or size < 0 else size
        with reaching("the rest of the rows"):
            read = self._response.read(wanted)
            if wanted and not read and self._response.length:
                raise http.client.IncompleteRead(read, self._response.length)
        return read

    def close(self) -> None:
        """Releases the connection, whether the body was read completely or not."""
        self._response.close()
        self._connection.close()
        super().close()


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: pathlib.Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path
        self._timeout_s = timeout_s

    def connect(self) -> None:
        """Connects, even if the path is too long for a socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        try:
            self.sock.settimeout(self._timeout_s)
            if len(os.fsencode(self._path)) < SOCKET_PATH_BYTES:
                self.sock.connect(str(self._path))
            else:
                connect_through_folder(self.sock, self._path)
        except OSError:
            self.sock.close()
            raise


def connect_through_folder(sock: socket.socket, path: pathlib.Path) -> None:
    """Connects to a socket whose folder has a short name while it is open."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        sock.connect(f"/proc/self/fd/{folder}/{path.name}")
    finally:
        os.close(folder)


def read_ca(text: str) -> str:
    """The PEM text of CAs: of the file with this path, or the text itself.

    Raises:
        ValueError: the file cannot be read, or has no certificate.
    """
    if PEM not in text:
        try:
            text = pathlib.Path(text.removeprefix("file://")).read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise ValueError(f"the file cannot be read: {error}") from error
    try:
        if PEM not in text:  # `ssl` takes an empty text for no text
            raise ValueError("no line begins with -----BEGIN")
        ssl.create_default_context(cadata=text)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"there is no certificate in it: {error}") from error
    return text


PEM: Final = "-----BEGIN"


def connector(
    endpoint: str, timeout_s: float, ca: str | None = None
) -> Callable[[], http.client.HTTPConnection]:
    """Returns a function that connects to ``endpoint``.

    Raises:
        ValueError: it is no endpoint.
    """
    scheme, colon, rest = endpoint.partition(":")
    if colon and scheme == "unix":
        return lambda: UnixConnection(pathlib.Path(rest.removeprefix("//")), timeout_s)
    if "://" not in endpoint:
        return lambda: UnixConnection(pathlib.Path(endpoint, SOCKET_NAME), timeout_s)
    url = urllib.parse.urlsplit(endpoint)
    host, port = url.hostname, url.port
    if url.scheme not in {"http", "https"} or host is None or url.path.strip("/") or url.query:
        raise ValueError(
            f"{endpoint!r} is not an endpoint; allowed are https://host:port, unix:/path and a"
            f" folder"
        )
    if url.scheme == "https":
        return lambda: http.client.HTTPSConnection(
            host, port, timeout=timeout_s, context=ssl.create_default_context(cadata=ca)
        )
    return lambda: http.client.HTTPConnection(host, port, timeout=timeout_s)


@contextmanager
def reaching(endpoint: str) -> Iterator[None]:
    """Converts connection errors to errors that may be retried."""
    try:
        yield
    except (OSError, http.client.HTTPException) as error:
        problem = str(error) or type(error).__name__
        raise EndpointUnreachableError(f"{endpoint}: {problem}") from error


def refusal(status: int, text: bytes) -> EndpointError:
    """The exception for a failed answer."""
    try:
        said = json.loads(text)
        problem, code = str(said["error"]), str(said["code"])
    except (ValueError, KeyError, TypeError):
        problem, code = f"the endpoint answered {status}", "unknown"
    return KINDS.get(code, EndpointError)(problem, status=status, code=code)


KINDS: Final[dict[str, type[EndpointError]]] = {
    "unknown_stream": StreamUnknownError,
    "sealed": RangeSealedError,
    "gone": RangeGoneError,
    "beyond": RangeBeyondError,
    "unknown_file": FileChangedError,
    "changed": FileChangedError,
}


def path(name: str) -> str:
    """The path of a stream at the endpoint."""
    return f"/v1/streams/{urllib.parse.quote(name, safe='')}"


def rows_path(name: str, partition: int, start: int, end: int) -> str:
    """The path of the rows ``[start, end)`` of a partition."""
    query = urllib.parse.urlencode({"partition": partition, "from": start, "to": end})
    return f"{path(name)}/rows?{query}"


def batch_of(query: str, batch: int, stages: Sequence[str]) -> Json:
    """Identifies stages in a request."""
    return {"query": query, "batch": batch, "stages": list(stages)}
