"""`make spark-matrix`: the Spark tests with older lines of Spark, and with Spark Connect.

Each line has an environment of its own, ``.make/spark-<version>``, made by pip at the first run;
the extension is that of this checkout. The last line says how many of them failed.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import venv
from collections.abc import Sequence
from typing import Final

ROOT: Final = pathlib.Path(__file__).resolve().parents[2]
VERSIONS: Final = ("4.0.5", "4.1.4", "4.2.1")
BESIDE: Final = (
    "deltalake>=1.6", "hypothesis>=6.150", "paho-mqtt>=2.1", "pandas>=2.2,<3", "pyarrow>=18",
    "pytest>=9.0", "pytest-timeout>=2.4", "rich>=13",
)  # fmt: skip
LIMIT_S: Final = 1800
# Spark 4.1 itself leaves sockets to the collection of garbage
QUIET: Final = ("-q", "-p", "no:cacheprovider", "-W", "ignore::ResourceWarning", "-W",
                "ignore::pytest.PytestUnraisableExceptionWarning")  # fmt: skip


def main() -> int:
    """Runs everything; the exit status is 1 if anything failed."""
    failed = []
    for version in VERSIONS:
        python = environment(version)
        suites = {
            "tests/spark": ["-m", "pytest", *QUIET, "tests/spark"],
            "Connect": ["-m", "tests.spark.connect"],
        }
        for name, arguments in suites.items():
            passed = run([str(python), *arguments]) == 0
            print(f"Spark {version}, {name}: {'passed' if passed else 'FAILED'}", flush=True)
            failed += [] if passed else [f"{version} {name}"]
    print(f"{len(failed)} of {2 * len(VERSIONS)} failed {failed or ''}".rstrip())
    return 1 if failed else 0


def environment(version: str) -> pathlib.Path:
    """The interpreter of one line of Spark."""
    home = ROOT / ".make" / f"spark-{version}"
    python = home / "bin" / "python"
    if not (home / "done").exists():
        venv.create(home, with_pip=True, clear=True)
        pins = [f"pyspark[connect]=={version}", *BESIDE]
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
