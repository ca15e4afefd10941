"""Creates a local Spark session tuned for streams, or tunes an existing one."""

import contextlib
import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

import pyspark
from pyspark import SparkContext
from pyspark.sql import SparkSession

from mqttcore.spark.java import find_java
from mqttcore.spark.local_files import without_chmod

__all__ = ["Tuning", "session", "settings", "tune"]

LOOPBACK: Final = "127.0.0.1"
MIB: Final = str(1 << 20)
# Spark 4.1 gave the class a package of its own.
CHECKPOINTS: Final = "" if pyspark.__version__.startswith("4.0.") else "checkpointing."

# Each line takes something off every micro-batch or every row; `make bench-spark` measures them.
RUNTIME: Final[Mapping[str, str]] = {
    # half as many processes for permissions of checkpoint files; `LocalFiles.java` saves the others
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"org.apache.spark.sql.execution.streaming.{CHECKPOINTS}"
        "FileSystemBasedCheckpointFileManager"
    ),
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    # state in RocksDB, written as changes instead of as whole files
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.execution.python.udf.buffer.size": MIB,
    # larger Arrow tables, such as the tail of `read()`, go to tasks as Arrow and not row by row
    "spark.sql.execution.arrow.localRelationThreshold": MIB,
    "spark.sql.session.timeZone": "UTC",
}
AT_START: Final[Mapping[str, str]] = {
    # TCP between the JVM and Python would stall 40 ms a task
    "spark.python.unix.domain.socket.enabled": "true",
    # deadline for the start of a Python process: queries that start together wait for each other
    "spark.python.authenticate.socketTimeout": "60s",
    "spark.buffer.size": MIB,
}
JAVA: Final = (
    # gives memory back to the system after a minute without rows
    "-XX:G1PeriodicGCInterval=60000",
    "-XX:MaxHeapFreeRatio=40",
    # batches from Python are validated once, not again for each value that is read
    "-Darrow.enable_unsafe_memory_access=true",
)
OF_A_STREAM: Final = (
    "SPARK_AUTH_SOCKET_TIMEOUT",
    "SPARK_BUFFER_SIZE",
    "SPARK_LOCAL_DIRS",
    "SPARK_PYTHON_RUNTIME",
)
"""Variables that Spark sets in the environment of a Python source when a stream begins."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """Changes by `tune`: changed settings, and settings that only a new session can have."""

    changed: Mapping[str, str] = field(default_factory=dict)
    left: Mapping[str, str] = field(default_factory=dict)
    """Requested values of the settings that were not changed."""

    def __str__(self) -> str:
        lines = [f"{len(self.changed)} settings changed"]
        lines += [f"needs a new session: {name} = {value}" for name, value in self.left.items()]
        return "\n".join(lines)


def session(
    app: str = "mqttcore",
    *,
    cores: int | str = "*",
    memory: str = "1g",
    java: str = "auto",
    warm: bool = True,
    master: str | None = None,
    **conf: object,
) -> SparkSession:
    """Starts Spark on this machine, only on the loopback, and prints the link to its page.

    ``cores`` is a number, ``*``, or Spark's form (``2,3``: two cores, three attempts for a task).
    ``master`` is another Spark instead, as ``spark://host:7077``: its driver runs here, at the
    address of this machine, with Spark's own number of shuffle partitions. ``conf`` sets other
    settings of Spark: ``session(**{"spark.ui.port": 4050})``. With ``warm``, one Python worker is
    started at once, so that the first query does not wait for it.

    Raises:
        StartError: no Java of version 17 or newer was found.
    """
    here = local_cores(master) if master is not None else cores
    prepare_environment(java, is_local=here is not None)
    builder = SparkSession.builder.appName(app).master(master or f"local[{cores}]")
    for name, value in {**settings(cores=here, memory=memory), **conf}.items():
        builder = builder.config(name, str(value))
    has_begun = SparkContext._active_spark_context is not None
    spark = builder.getOrCreate()
    if not has_begun:
        without_chmod(spark)
    let_streams_begin_at_once(spark)
    if warm:
        spark.range(1).mapInArrow(lambda batches: batches, "id LONG").collect()
    print(f"Spark {spark.version}: {spark.sparkContext.uiWebUrl or 'no page'}")
    return spark


def settings(*, cores: int | str | None, memory: str) -> dict[str, str]:
    """All settings of `session`; ``cores`` of this machine, None: of other machines."""
    everywhere = {
        **RUNTIME,
        **AT_START,
        "spark.driver.memory": memory,
        "spark.driver.extraJavaOptions": " ".join(JAVA),
        "spark.ui.showConsoleProgress": "false",
    }
    if cores is None:
        return everywhere
    return {
        **everywhere,
        "spark.sql.shuffle.partitions": str(core_count(cores)),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
    }


def local_cores(master: str) -> str | None:
    """The cores of a master on this machine; None for another one."""
    if master == "local":
        return "1"
    found = re.fullmatch(r"local\[\s*(\S.*?)\s*\]", master)
    return found[1] if found else None


def tune(spark: SparkSession) -> Tuning:
    """Tunes a Spark session of somebody else, as far as its settings can still be changed.

    The number of shuffle partitions is unchanged: it depends on the machines, and on checkpoints.
    """
    changed, left = {}, {}
    for name, value in {**RUNTIME, **AT_START}.items():
        if spark.conf.get(name, None) == value:
            continue
        if name in RUNTIME and spark.conf.isModifiable(name):
            spark.conf.set(name, value)
            changed[name] = value
        else:
            left[name] = value
    let_streams_begin_at_once(spark)
    return Tuning(changed=changed, left=left)


def let_streams_begin_at_once(spark: SparkSession) -> None:
    """Makes two streams that begin at the same moment safe from each other.

    Spark finds this source once a JVM, with one map for the environment of all its workers, and
    each stream that begins writes into it without a lock. Two that add the same name at once leave
    a map that counts one entry too many, and no task that has it can be sent any more ("Illegal
    size 5 of collection, expected 6"). Names that are there are not added; Spark sets their values.
    """
    from py4j.protocol import Py4JError

    with contextlib.suppress(AttributeError, Py4JError):  # Connect has no JVM, a later Spark no map
        sources = spark._jsparkSession.sessionState().dataSourceManager()
        environment = sources.lookupDataSource("mqttcore").dataSourceCls().envVars()
        for name in OF_A_STREAM:
            environment.putIfAbsent(name, "")


def prepare_environment(java: str, *, is_local: bool) -> None:
    """Sets the environment of Spark's launcher and its workers."""
    os.environ["JAVA_HOME"] = str(find_java(java).spark_home())
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if not is_local:
        # machines of a cluster may have Python elsewhere
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        return
    # without it, workers run the `python3` of the PATH
    os.environ["PYSPARK_PYTHON"] = sys.executable
    # the address of Spark's web page
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)


def core_count(cores: int | str) -> int:
    """Number of tasks that run at once with ``local[cores]``."""
    first = str(cores).partition(",")[0]
    return len(os.sched_getaffinity(0)) if first == "*" else int(first)
