"""The ready-made pipeline: a stream as raw, decoded and aggregated tables, and alerts.

``python -m mqttcore.pipeline FILE`` runs what `config` describes; `run` does the same from Python.
Needs the extra ``mqttcore[pipeline]``.
"""

from mqttcore.pipeline.config import Pipeline, load
from mqttcore.pipeline.run import run

__all__ = ["Pipeline", "load", "run"]
