"""`mqttcore streams`: streams of rows of a running broker."""

import argparse
import sys
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.api import Api, asking, endpoint_options
from mqttcore.cli.failure import OK
from mqttcore.cli.table import Column, Table
from mqttcore.cli.terminal import json_text

COLUMNS: Final = (
    Column("STREAM", lambda row: row["name"]),
    Column("PARTITION", lambda row: row["partition"], is_number=True),
    Column("EARLIEST", lambda row: row["earliest"], is_number=True),
    Column("SEALED", lambda row: row["sealed_end"], is_number=True),
    Column("END", lambda row: row["end"], is_number=True),
    Column("UNSEALED", lambda row: row["unsealed"], is_number=True),
    Column("FILTERS", lambda row: " ".join(row["filters"])),
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints streams; returns the exit status."""
    options = parser().parse_args(arguments)
    return asking("streams", options, list_streams)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    return argparse.ArgumentParser(
        prog="mqttcore streams",
        description="Lists the streams of rows with the offsets of each partition: the earliest"
        " row, the end of the rows in files, the end, and the rows that are in no file yet.",
        parents=[endpoint_options()],
    )


def list_streams(api: Api, options: argparse.Namespace) -> int:
    """Prints a line for each partition."""
    found = api.get("/streams")
    if options.json:
        print(json_text(found))
        return OK
    rows = [
        {**stream, **bounds, "partition": number}
        for stream in found["items"]
        for number, bounds in enumerate(stream["partitions"])
    ]
    print(*Table(COLUMNS).lines(rows), sep="\n")
    return OK


if __name__ == "__main__":
    sys.exit(main())
