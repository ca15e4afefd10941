"""`mqttcore pipeline FILE`: runs the pipeline that a TOML file describes.

`mqttcore pipeline emit-sdp FILE FOLDER` converts it to a declarative pipeline of Spark, `mqttcore
pipeline delta DATA STREAM` makes a Delta table of a stream's sealed files, which `--follow` keeps
up to date.

Exit status: 0 if it ended as requested, 1 if a query failed or something is missing, 2 if the file
or the command line is wrong.
"""

import argparse
import dataclasses
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from mqttcore.errors import ConfigError, MqttError
from mqttcore.pipeline.config import Pipeline, check_master, check_remote, check_setting, load
from mqttcore.pipeline.declarative import emit, left_out
from mqttcore.pipeline.definitions import naming_places
from mqttcore.pipeline.progress import JsonLines

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command line; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    # a file has no such name: it would be `./delta`
    act, parse, rest = {
        "emit-sdp": (write, emission_parser, given[1:]),
        "delta": (refresh_table, delta_parser, given[1:]),
    }.get(given[0] if given else "", (run_or_show, parser, given))
    options = parse().parse_args(rest)
    try:
        act(options)
    except ConfigError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return 2
    except MqttError as error:
        print(f"mqttcore pipeline: {error}", file=sys.stderr)
        return 1
    except ImportError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRA:
            raise
        hint = "pip install 'mqttcore[pipeline]'"
        print(f"mqttcore pipeline: {package} is missing: {hint}", file=sys.stderr)
        return 1
    return 0


EXTRA = {"deltalake", "pandas", "pyarrow", "pyspark", "rich"}
"""Packages that a pipeline needs."""


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore pipeline",
        description="Writes the messages of a stream into tables, and publishes alerts.",
        epilog="`emit-sdp FILE FOLDER` converts the file to a declarative pipeline of Spark;"
        " `delta DATA STREAM` creates a Delta table from the stream's own files.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="TOML file")
    made.add_argument("--once", action="store_true", help="read all available rows, then stop")
    made.add_argument("--dry-run", action="store_true", help="print the tables, write nothing")
    made.add_argument("--explain", action="store_true", help="print Spark's plans, write nothing")
    made.add_argument("--master", help="Spark master, instead of `master` of [spark]")
    made.add_argument(
        "--remote", metavar="URL", help="refused: a pipeline does not run through Spark Connect"
    )
    made.add_argument(
        "--conf",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of Spark, in addition to `conf` of [spark]; may be repeated",
    )
    made.add_argument(
        "--json", action="store_true", help="print progress as JSON, one line for each batch"
    )
    return made


def delta_parser() -> argparse.ArgumentParser:
    """The command line of `delta`."""
    made = argparse.ArgumentParser(
        prog="mqttcore pipeline delta",
        description="Creates or updates DATA/streams/STREAM/delta, a Delta table of the stream's"
        " sealed files, which are not copied. To update it, run the command again, or let the"
        " broker do it: `delta = true` of [[streams]].",
    )
    made.add_argument("data", metavar="DATA", help="the broker's data folder")
    made.add_argument("streams", nargs="+", metavar="STREAM", help="a stream's name")
    made.add_argument(
        "--follow",
        action="store_true",
        help="update it when files are sealed, until standard input ends",
    )
    return made


def emission_parser() -> argparse.ArgumentParser:
    """The command line of `emit-sdp`."""
    made = argparse.ArgumentParser(
        prog="mqttcore pipeline emit-sdp",
        description="Write a pipeline for `spark-pipelines run --spec FOLDER/spark-pipeline.yml`.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="TOML file")
    made.add_argument(
        "folder", type=Path, metavar="FOLDER", help="folder for the declarative pipeline"
    )
    return made


def run_or_show(options: argparse.Namespace) -> None:
    """Runs a pipeline, or prints its tables or plans."""
    pipeline = with_spark(load(options.file), options.master, options.conf, options.remote)
    with naming_places(options.file):
        if options.dry_run or options.explain:
            show(pipeline, explain=options.explain)
        else:
            start(pipeline, options)


def with_spark(
    pipeline: Pipeline, master: str | None, conf: Sequence[str], remote: str | None = None
) -> Pipeline:
    """A pipeline with the Spark settings of the command line.

    Raises:
        ConfigError: an option is not valid.
    """
    for option, check, values in (
        ("--master", check_master, [master] if master is not None else []),
        ("--conf", check_setting, conf),
        ("--remote", check_remote, [remote] if remote is not None else []),
    ):
        for value in values:
            try:
                check(value)
            except ValueError as error:
                raise ConfigError([f"{option}: {error}"]) from error
    spark = dataclasses.replace(
        pipeline.spark,
        master=pipeline.spark.master if master is None else master,
        conf=(*pipeline.spark.conf, *conf),
    )
    return dataclasses.replace(pipeline, spark=spark)


def write(options: argparse.Namespace) -> None:
    """Writes a declarative pipeline, prints its files and what they do not have."""
    pipeline = load(options.file)
    print(*emit(pipeline, options.folder), sep="\n")
    if keys := left_out(pipeline):
        print(
            f"mqttcore pipeline: {', '.join(keys)} of {options.file} are not in it: tables,"
            " checkpoints and settings are those of `spark-pipelines` and its catalog",
            file=sys.stderr,
        )


def refresh_table(options: argparse.Namespace) -> None:
    """Updates Delta tables of streams, and prints the changes."""
    from mqttcore.pipeline.follow import NICENESS, change_text, follow, until_input_ends
    from mqttcore.pipeline.lake import refresh
    from mqttcore.spark.folder import find_folder

    if options.follow:
        os.nice(NICENESS)
        tell = partial(print, flush=True)
        follow(options.data, options.streams, is_over=until_input_ends, tell=tell)
        return
    for stream in options.streams:
        folder = find_folder(options.data, stream)
        print(change_text(str(folder.path / "delta"), refresh(folder)))


def start(pipeline: Pipeline, options: argparse.Namespace) -> None:
    """Runs it."""
    from mqttcore.pipeline.run import run

    if options.json or not sys.stderr.isatty():
        run(pipeline, once=options.once, reporter=JsonLines())
        return
    from mqttcore.pipeline.progress_bars import Bars

    with Bars() as bars:
        run(pipeline, once=options.once, reporter=bars)


def show(pipeline: Pipeline, *, explain: bool) -> None:
    """Prints the tables with their columns, or the plans of Spark."""
    from mqttcore.pipeline.batches import BatchWriter
    from mqttcore.pipeline.run import session_for
    from mqttcore.pipeline.runner import open_table, planned

    with session_for(pipeline) as spark:
        rows, made = planned(spark, pipeline)
        added = BatchWriter(pipeline, partial(open_table, pipeline)).check(made)
        print(f"query {pipeline.name}")
        if explain:
            rows.explain()
        for name, table in made.items():
            if explain:
                if name not in {"bronze", "quarantine"}:
                    print(f"table {name}, of the rows of a batch")
                    table.explain()
                continue
            print(f"  table {pipeline.table(name)} ({pipeline.format})")
            for column in table.schema:
                new = "  (new)" if column.name in added.get(name, ()) else ""
                print(f"    {column.name:20} {column.dataType.simpleString()}{new}")
            for alert in pipeline.alerts:
                if alert.table == name:
                    print(f"    alert {alert.name}: when {alert.when} to {alert.topic}")


if __name__ == "__main__":
    sys.exit(main())
