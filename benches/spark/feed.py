"""`python -m benches.spark.feed`: a broker, or a folder of files, that gets 400 rows every 50 ms.

It runs until its standard input ends, and says ``ready`` when the first rows are there.
"""

from __future__ import annotations

import argparse
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow.parquet as pq

from benches.spark.data import telemetry

PERIOD_S: Final = 0.05
ROWS: Final = 400
PARTITIONS: Final = 4


@contextmanager
def broker(root: pathlib.Path) -> Iterator[Callable[[int], None]]:
    """A broker whose stream gets them as messages."""
    from mqttcore import Broker, Settings
    from mqttcore.config import Listener
    from mqttcore.streams.settings import Stream

    stream = Stream(name="floor", filter=("floor/#",), partitions=PARTITIONS)
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    with Broker(Settings(listeners=(listener,), data=str(root), streams=(stream,))) as running:

        def publish(turn: int) -> None:
            for number in range(ROWS):
                payload = f'{{"temperature":{20 + number / 100},"sequence":{turn * ROWS + number}}}'
                running.publish(f"floor/{number % 100}", payload)

        yield publish


@contextmanager
def files(root: pathlib.Path) -> Iterator[Callable[[int], None]]:
    """A folder that gets them as small Parquet files, 10,000 of which are there before."""
    root.mkdir(parents=True, exist_ok=True)
    table = telemetry(0, 0, ROWS)

    def write(turn: int) -> None:
        path = root / f"{turn:08}.parquet"
        pq.write_table(table, path.with_name(f"_{path.name}"))
        path.with_name(f"_{path.name}").rename(path)

    have = len(list(root.glob("[0-9]*.parquet")))
    for turn in range(have, 10_000):
        write(turn)
    yield lambda turn: write(max(have, 10_000) + turn)


def main() -> int:
    """Feeds until told to stop."""
    made = argparse.ArgumentParser(description=__doc__)
    made.add_argument("kind", choices=("broker", "files"))
    made.add_argument("root", type=pathlib.Path)
    made.add_argument("--turns", type=int, default=sys.maxsize, help="after so many no rows come")
    options = made.parse_args()
    stopped = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stopped.set()), daemon=True).start()
    with {"broker": broker, "files": files}[options.kind](options.root) as feed:
        turn, next_s = 0, time.monotonic()
        while not stopped.is_set():
            if turn < options.turns:
                feed(turn)
            if turn == 0:
                print("ready", flush=True)
            turn, next_s = turn + 1, next_s + PERIOD_S
            stopped.wait(max(0.0, next_s - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
