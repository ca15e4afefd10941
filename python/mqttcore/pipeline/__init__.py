"""The ready pipeline: a stream's messages as raw, decoded and counted tables, and alerts.

``python -m mqttcore.pipeline FILE`` runs what `config` describes; `run` does the same from Python.
Needs the extra ``mqttcore[pipeline]``.
"""

from mqttcore.pipeline.config import Pipeline, load
from mqttcore.pipeline.run import run

__all__ = ["Pipeline", "load", "run"]
