"""Writes a pipeline as a declarative pipeline of Spark.

``python -m mqttcore.pipeline emit-sdp FILE FOLDER`` writes ``spark-pipeline.yml`` and
``transformations/<name>.py``; ``spark-pipelines run --spec FOLDER/spark-pipeline.yml`` runs them
(Spark 4.1 and later, ``pyspark[pipelines]``). Spark keeps the tables then, so exactly once is what
its catalog's format makes of it. Late messages are dropped there. A pipeline with alerts is
refused: its gold tables are views, of which Spark publishes nothing.
"""

import pprint
from dataclasses import fields, replace
from pathlib import Path

from mqttcore.errors import PipelineError
from mqttcore.pipeline.config import Gold, Pipeline
from mqttcore.pipeline.stages import source_options

__all__ = ["emit", "left_out"]

SPECIFICATION = """\
name: {name}
storage: {storage}
libraries:
  - glob:
      include: transformations/**
"""

HEAD = '''\
"""The pipeline {name}, written by mqttcore.pipeline."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from mqttcore.pipeline.config import Silver
from mqttcore.pipeline.stages import as_it_came, deduplicated, faulty, judged, valid

OPTIONS = {options}

SILVER = {silver}


def messages(consumer: str) -> DataFrame:
    reader = SparkSession.active().readStream.format("mqttcore").options(**OPTIONS)
    return judged(reader.option("consumer", "{name}." + consumer).load(), SILVER)


@dp.table
def quarantine() -> DataFrame:
    return faulty(messages("quarantine"))


@dp.table
def silver() -> DataFrame:
    return deduplicated(valid(messages("silver")), SILVER)
'''

BRONZE = """

@dp.table(partition_cols=["day"])
def bronze() -> DataFrame:
    return as_it_came(messages("bronze"))
"""

GOLD = """

@dp.materialized_view
def {name}() -> DataFrame:
    window = f.window({time!r}, {window!r}, {slide!r})
    times = window.start.alias("window_start"), window.end.alias("window_end")
    groups = SparkSession.active().read.table("silver").groupBy(*times{groups})
    return groups.agg({columns})
"""


def emit(pipeline: Pipeline, folder: Path) -> list[Path]:
    """Writes the pipeline into ``folder``; returns the written files.

    A token is not written: whoever runs the pipeline adds it to ``OPTIONS``.

    Raises:
        PipelineError: the pipeline has alerts.
    """
    if pipeline.alerts:
        names = ", ".join(alert.name for alert in pipeline.alerts)
        raise PipelineError(
            f"alerts {names}: a declarative pipeline publishes none. Take [[alerts]] out of the"
            " file, or run it with `python -m mqttcore.pipeline`"
        )
    specification = folder / "spark-pipeline.yml"
    code = folder / "transformations" / f"{pipeline.name}.py"
    code.parent.mkdir(parents=True, exist_ok=True)
    storage = (folder / "storage").absolute().as_uri()
    specification.write_text(SPECIFICATION.format(name=pipeline.name, storage=storage))
    code.write_text(program(pipeline))
    return [specification, code]


def left_out(pipeline: Pipeline) -> list[str]:
    """The keys of the file that a declarative pipeline does not have."""
    return [
        field.name
        for field in fields(pipeline)
        if field.name in ELSEWHERE and getattr(pipeline, field.name) != field.default
    ]


ELSEWHERE = ("tables", "checkpoints", "storage", "format", "trigger", "spark")
"""Where and when a pipeline runs: `spark-pipelines` and its catalog decide that."""


def program(pipeline: Pipeline) -> str:
    """The Python file of a declarative pipeline."""
    options = source_options(pipeline)
    if "path" in options:
        options["path"] = str(Path(options["path"]).absolute())
    # The options say what payloads are; a path is no literal of Python.
    silver = replace(pipeline.silver, descriptor=None, message=None, schemas=None)
    head = HEAD.format(
        name=pipeline.name,
        options=pprint.pformat(
            {name: options[name] for name in options if name not in ("consumer", "token")}
        ),
        silver=pprint.pformat(silver),
    )
    golds = [gold_view(pipeline, gold) for gold in pipeline.gold]
    return head + (BRONZE if pipeline.bronze.keep else "") + "".join(golds)


def gold_view(pipeline: Pipeline, gold: Gold) -> str:
    """The function of one gold table."""
    return GOLD.format(
        name=gold.name,
        time=pipeline.silver.event_time,
        window=gold.window,
        slide=gold.slide,
        groups="".join(f", {name!r}" for name in gold.group_by),
        columns=", ".join(f"f.expr({column!r})" for column in gold.columns),
    )
