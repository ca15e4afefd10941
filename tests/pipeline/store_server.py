"""An S3-compatible server of its own process: moto, where it is installed.

``make .make/moto`` installs it; without it, tests are skipped by name.
"""

from __future__ import annotations

import pathlib
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

HOME: Final = pathlib.Path(__file__).parents[2] / ".make" / "moto"
START_S: Final = 120.0
PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv.pop(1)); from moto.server import main; main()"
)


def is_missing() -> bool:
    """Whether moto is not installed."""
    return not (HOME / "moto").is_dir()


@contextmanager
def store(bucket: str, log: pathlib.Path) -> Iterator[dict[str, str]]:
    """A server with an empty bucket; the options of delta-rs for it.

    Raises:
        TimeoutError: it does not start.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-c", PROGRAM, str(HOME), "-H", "127.0.0.1", "-p", str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen(command, stdout=out, stderr=out)  # noqa: S603 -- our own command
    url = f"http://127.0.0.1:{port}"
    try:
        make_bucket(url, bucket)
        yield {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "tests",
            "AWS_SECRET_ACCESS_KEY": "tests",
            "AWS_REGION": "us-east-1",
        }
    finally:
        server.kill()
        server.wait()


def make_bucket(url: str, bucket: str) -> None:
    """Makes a bucket as soon as the server answers."""
    deadline = time.monotonic() + START_S
    while True:
        request = urllib.request.Request(f"{url}/{bucket}", method="PUT")  # noqa: S310 -- of ours
        try:
            urllib.request.urlopen(request, timeout=30).close()  # noqa: S310
        except (urllib.error.URLError, ConnectionError) as error:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{url} does not answer: {error}") from error
            time.sleep(0.1)
        else:
            return
