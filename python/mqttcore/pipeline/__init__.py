"""Pipelines: a stream as raw, decoded and aggregated tables, and alerts.

``mqttcore pipeline FILE`` runs the pipeline of a file; `run` does the same from Python. Needs the
extra ``mqttcore[pipeline]``.
"""

from mqttcore.pipeline.config import Pipeline, load
from mqttcore.pipeline.run import run

__all__ = ["Pipeline", "load", "run"]
