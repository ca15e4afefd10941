"""Streams of an mqttcore broker as a Spark data source and sink, each row exactly once.

It needs Java 17 or newer and the extra: ``pip install mqttcore[spark]``. Workers of Spark import
only the modules for reading rows; nothing here starts a thread or opens a socket before it is used.

    from mqttcore.spark import session

    spark = session("look")
    rows = spark.read.format("mqttcore").load("/var/lib/mqttcore", stream="plant")
    rows.groupBy("topic").count().show()
"""

import importlib
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mqttcore.spark.decoding import decode
    from mqttcore.spark.kafka import from_kafka
    from mqttcore.spark.objects import sealed_files
    from mqttcore.spark.offsets import Lag, lag
    from mqttcore.spark.sessions import Tuning, session, tune
    from mqttcore.spark.tables import Retained, read, read_stream, retained, retained_stream

__all__ = [
    "Lag",
    "Retained",
    "Tuning",
    "decode",
    "from_kafka",
    "lag",
    "read",
    "read_stream",
    "retained",
    "retained_stream",
    "sealed_files",
    "session",
    "tune",
]

HOMES: Final = {
    "Lag": "offsets",
    "Retained": "tables",
    "Tuning": "sessions",
    "decode": "decoding",
    "from_kafka": "kafka",
    "lag": "offsets",
    "read": "tables",
    "read_stream": "tables",
    "retained": "tables",
    "retained_stream": "tables",
    "sealed_files": "objects",
    "session": "sessions",
    "tune": "sessions",
}


def __getattr__(name: str) -> object:
    """Imports a name on first use: workers and tests of pure parts need no session."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(importlib.import_module(f"{__name__}.{HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name not in {"pyspark", "pyarrow", "pandas"}:
            raise
        what = f"{error.name} is missing: pip install 'mqttcore[spark]'"
        raise ImportError(what, name=error.name) from error
