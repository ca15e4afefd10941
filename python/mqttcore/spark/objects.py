"""Reads sealed files of a stream that are in object storage: ``[streams.tier]`` of the broker.

A mounted folder is read as such. S3, Azure and Google Cloud Storage are read by pyarrow, which
takes credentials and ``AWS_ENDPOINT_URL`` from the environment.
"""

from __future__ import annotations

import json
import os
import pathlib
import tempfile
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

from mqttcore.errors import StreamFileError, StreamFolderError
from mqttcore.spark.fetching import Fetch, scratch
from mqttcore.spark.folder import FileMovedError, SealedFile, find_folder, index_of

if TYPE_CHECKING:
    import pyarrow.fs as pafs

__all__ = ["object_at_hand", "sealed_files"]

FILE: Final = "file://"
CURE: Final = (
    "set its credentials in the environment, as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY; or"
    " read through the broker: option endpoint, with files = endpoint"
)


@contextmanager
def object_at_hand(file: SealedFile, start: int, end: int) -> Iterator[str]:
    """A path where the rows ``[start, end)`` of an object can be read, until this is left.

    Raises:
        FileMovedError: the object is gone, so the index is another by now.
        StreamFileError: the store cannot be reached from here; the text says what to do.
    """
    if file.url.startswith(FILE):
        yield folder_of(file.url)
        return
    with tempfile.NamedTemporaryFile(prefix="mqttcore-", suffix=".parquet", dir=scratch()) as copy:
        filesystem, path = opened(file.url)
        try:
            Fetch(file, copy, Parts(filesystem, path, copy)).rows(start, end)
        except FileNotFoundError as error:
            raise FileMovedError(file.url) from error
        except OSError as error:
            raise StreamFileError(f"{file.url}: {error}; {CURE}") from error
        copy.flush()
        yield copy.name


@dataclass(frozen=True, slots=True)
class Parts:
    """Brings parts of an object to their places in a copy."""

    filesystem: pafs.FileSystem
    path: str
    copy: IO[bytes]

    def part(self, start: int, end: int) -> None:
        """The bytes ``[start, end)``."""
        with self.filesystem.open_input_file(self.path) as source:
            source.seek(start)
            self.copy.seek(start)
            self.copy.write(source.read(end - start))


def opened(url: str) -> tuple[pafs.FileSystem, str]:
    """The file system of a URL, and the path in it.

    Raises:
        StreamFileError: pyarrow has no such file system here.
    """
    import pyarrow.fs as pafs

    parsed = urllib.parse.urlsplit(url)
    try:
        if parsed.scheme in {"s3", "s3a"}:
            return pafs.S3FileSystem(**s3_options()), f"{parsed.netloc}{parsed.path}"
        found: tuple[pafs.FileSystem, str] = pafs.FileSystem.from_uri(url)
    except (ImportError, AttributeError, ValueError, OSError) as error:
        raise StreamFileError(
            f"{url}: this pyarrow cannot read it ({error}): install a newer one with"
            f" pip install -U pyarrow, or {CURE}"
        ) from error
    return found


def s3_options() -> dict[str, Any]:
    """What the environment says of an S3 that is not that of AWS."""
    endpoint = urllib.parse.urlsplit(os.environ.get("AWS_ENDPOINT_URL", ""))
    options: dict[str, Any] = {}
    if endpoint.netloc:
        options = {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if region := os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION"):
        options["region"] = region
    return options


def folder_of(url: str) -> str:
    """The path of a ``file://`` URL."""
    return url.removeprefix(FILE)


def sealed_files(place: str | os.PathLike[str], stream: str | None = None) -> list[str]:
    """Paths and URLs of the files with the sealed rows of a stream, each row once.

    For readers that take lists of Parquet files: DuckDB, Polars, pandas, and Spark with its own
    reader. ``place`` is a broker's data folder, the folder of a stream, or its URL in object
    storage, ``s3://bucket/prefix/plant``.

    Raises:
        StreamFolderError: there is no such stream.
        StreamFileError: the store cannot be reached from here.
    """
    text = os.fspath(place)
    if "://" in text and not text.startswith(FILE):
        url = "/".join(filter(None, (text.rstrip("/"), stream)))
        index = index_of(read_index(url), pathlib.PurePath())
    else:
        index = find_folder(text, stream).index()
    files = (file for files in index.standing() for file in files)
    return [plain(file) for file in files]


def plain(file: SealedFile) -> str:
    """Where a reader finds a file."""
    if not file.is_remote:
        return file.path
    return folder_of(file.url) if file.url.startswith(FILE) else file.url


def read_index(url: str) -> Any:  # noqa: ANN401 -- JSON
    """The index of a stream in object storage."""
    filesystem, path = opened(f"{url}/sealed.json")
    try:
        with filesystem.open_input_stream(path) as source:
            return json.loads(source.read())
    except FileNotFoundError as error:
        raise StreamFolderError(f"{url} is not a stream: sealed.json is missing") from error
    except (OSError, ValueError) as error:
        raise StreamFileError(f"{url}/sealed.json cannot be read: {error}; {CURE}") from error
