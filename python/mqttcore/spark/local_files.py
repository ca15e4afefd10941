"""Writes checkpoint files of Spark's driver to the local disk without a process for each file.

Hadoop without its native library runs `chmod` for every file that it makes, two of them a
micro-batch: 17 ms of 100. It also writes a `.crc` file beside each. The class of `LocalFiles.java`
asks the system itself, and writes the file alone. It is compiled when a session begins, by the
compiler that Spark has for its own queries, so no jar is needed.
"""

from __future__ import annotations

import importlib.resources
import logging
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["without_chmod"]

logger = logging.getLogger(__name__)
SETTING: Final = "fs.file.impl"
OURS: Final = "mqttcore.spark.LocalFiles"


def without_chmod(spark: SparkSession) -> None:
    """Has `OURS` write files of this machine, unless the session sets another file system.

    For a new session, in one JVM: it closes the existing file system, and so its list of files to
    delete at the end. If Spark has no such compiler or file system, nothing changes.
    """
    context = spark.sparkContext
    settings = context._jsc.hadoopConfiguration()
    if not context._jsc.isLocal() or settings.get(SETTING) is not None:
        return
    java: Any = context._jvm
    try:
        compiler = java.org.codehaus.janino.SimpleCompiler()
        compiler.setParentClassLoader(java.Thread.currentThread().getContextClassLoader())
        compiler.cook((importlib.resources.files(__package__) / "LocalFiles.java").read_text())
        ours = java.org.apache.hadoop.conf.Configuration(settings)
        ours.setClassLoader(compiler.getClassLoader())
        ours.set(SETTING, OURS)
        # Hadoop caches one file system for each scheme: all later calls get this one
        place = java.java.net.URI("file:///")
        systems = java.org.apache.hadoop.fs.FileSystem
        systems.get(place, settings).close()
        systems.get(place, ours)
    except (Py4JError, PySparkException, TypeError) as error:
        logger.warning("Spark starts a process for each checkpoint file: %s", error)
