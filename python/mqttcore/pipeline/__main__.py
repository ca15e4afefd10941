"""`python -m mqttcore.pipeline FILE`: runs the pipeline that a TOML file describes.

`python -m mqttcore.pipeline emit-sdp FILE FOLDER` writes it as a declarative pipeline of Spark.

Exit status: 0 when it has ended as asked, 1 when a query failed or something is missing, 2 for a
file or command line that is wrong.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from mqttcore.errors import ConfigError, MqttError
from mqttcore.pipeline.config import Pipeline, load
from mqttcore.pipeline.declarative import emit
from mqttcore.pipeline.progress import JsonLines

__all__ = ["main"]

EMIT = "emit-sdp"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs or writes one pipeline; returns the exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    is_emission = given[:1] == [EMIT]
    options = emission_parser().parse_args(given[1:]) if is_emission else parser().parse_args(given)
    try:
        pipeline = load(options.file)
        if is_emission:
            print(*emit(pipeline, options.folder), sep="\n")
        elif options.dry_run or options.explain:
            show(pipeline, explain=options.explain)
        else:
            start(pipeline, options)
    except ConfigError as error:
        print("\n".join(error.faults), file=sys.stderr)
        return 2
    except MqttError as error:
        print(f"mqttcore pipeline: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore pipeline",
        description="A stream's messages into tables, and alerts back.",
        epilog=f"`{EMIT} FILE FOLDER` writes the pipeline as a declarative one of Spark.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="TOML file")
    made.add_argument("--once", action="store_true", help="read what there is, then end")
    made.add_argument("--dry-run", action="store_true", help="show the tables, write nothing")
    made.add_argument("--explain", action="store_true", help="show Spark's plans, write nothing")
    made.add_argument("--json", action="store_true", help="progress as JSON, a line a batch")
    return made


def emission_parser() -> argparse.ArgumentParser:
    """The command line of `emit-sdp`."""
    made = argparse.ArgumentParser(
        prog=f"mqttcore pipeline {EMIT}",
        description="Write a pipeline for `spark-pipelines run --spec FOLDER/spark-pipeline.yml`.",
    )
    made.add_argument("file", type=Path, metavar="FILE", help="TOML file")
    made.add_argument("folder", type=Path, metavar="FOLDER", help="where it is written")
    return made


def start(pipeline: Pipeline, options: argparse.Namespace) -> None:
    """Runs it."""
    from mqttcore.pipeline.run import run

    if options.json or not sys.stderr.isatty():
        run(pipeline, once=options.once, reporter=JsonLines())
        return
    from mqttcore.pipeline.bars import Bars

    with Bars() as bars:
        run(pipeline, once=options.once, reporter=bars)


def show(pipeline: Pipeline, *, explain: bool) -> None:
    """Prints each query's tables with their columns, or its plan."""
    from mqttcore.pipeline.run import own_session
    from mqttcore.pipeline.stages import stages

    with own_session(pipeline) as spark:
        for stage in stages(spark, pipeline):
            print(f"query {pipeline.name}.{stage.name}")
            if explain:
                stage.rows.explain()
                continue
            for output in stage.outputs:
                print(f"  table {pipeline.tables / output.table} ({pipeline.format})")
                for column in output.select(stage.rows).schema:
                    print(f"    {column.name:20} {column.dataType.simpleString()}")
                for alert in output.alerts:
                    print(f"    alert {alert.name}: when {alert.when} to {alert.topic}")


if __name__ == "__main__":
    sys.exit(main())
