"""`make spark-matrix`: the Spark tests with older lines of Spark, Connect, declarative pipelines.

A test that asks for what a line does not have yet is skipped there, and says so. Each line has an
environment of its own, ``.make/spark-<version>``, made by pip at the first run; the extension is
that of this checkout. The last line says how many of them failed.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
import venv
from collections.abc import Sequence
from typing import Final

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
OLDER: Final = ("4.0.5", "4.1.4", "4.2.1")
NEWEST: Final = "4.3.0"
"""What all other tests run with, which lack what Connect and declarative pipelines need."""
BESIDE: Final = (
    "deltalake>=1.6", "hypothesis>=6.150", "pandas>=2.2,<3", "pyarrow>=18", "pytest>=9.0",
    "pytest-timeout>=2.4", "rich>=13",
)  # fmt: skip
LIMIT_S: Final = 1800
EXTRAS: Final = "connect,pipelines"
# Spark 4.1 itself leaves sockets to the collection of garbage
QUIET: Final = ("-q", "-p", "no:cacheprovider", "-W", "ignore::ResourceWarning", "-W",
                "ignore::pytest.PytestUnraisableExceptionWarning")  # fmt: skip


def main() -> int:
    """Runs everything; the exit status is 1 if anything failed."""
    failed, count = [], 0
    for version in (*OLDER, NEWEST):
        python = environment(version)
        for name, arguments in suites(version).items():
            began, count = time.monotonic(), count + 1
            passed = run([str(python), *arguments]) == 0
            seconds = time.monotonic() - began
            verdict = "passed" if passed else "FAILED"
            print(f"Spark {version}, {name}: {verdict} ({seconds:.0f} s)", flush=True)
            failed += [] if passed else [f"{version} {name}"]
    print(f"{len(failed)} of {count} failed {failed or ''}".rstrip())
    return 1 if failed else 0


def suites(version: str) -> dict[str, list[str]]:
    """What is run with a line of Spark, and how."""
    tests = ["-m", "pytest", *QUIET]
    connect = ["-m", "tests.spark.connect"]
    if version == NEWEST:
        return {
            "Connect": connect,
            "declarative pipelines": [*tests, "tests/pipeline/test_declarative.py"],
        }
    return {"tests/spark": [*tests, "tests/spark"], "Connect": connect}


def environment(version: str) -> pathlib.Path:
    """The interpreter of one line of Spark."""
    home = ROOT / ".make" / f"spark-{version}"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        venv.create(home, with_pip=True, clear=True)
        pins = [f"pyspark[{EXTRAS}]=={version}", *BESIDE]
        if run([str(python), "-m", "pip", "install", "--quiet", *pins]) != 0:
            raise SystemExit(f"Spark {version} cannot be installed")
        (home / "done").touch()
    return python


def run(command: Sequence[str]) -> int:
    """The exit status of a command in this checkout."""
    found = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
    return subprocess.run(  # noqa: S603 -- from above
        command, cwd=ROOT, env=found, timeout=LIMIT_S, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
