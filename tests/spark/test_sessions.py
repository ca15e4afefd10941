"""What `session` and `tune` make of a Spark."""

from __future__ import annotations

import contextlib
import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mqttcore.spark import sessions
from mqttcore.spark.sessions import (
    AT_START,
    OF_A_STREAM,
    RUNTIME,
    Tuning,
    local_cores,
    session,
    settings,
    tune,
)

from tests.spark.conftest import SPARK, numbered
from tests.stream_folder import StreamFolder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_a_stream_that_begins_adds_nothing_to_what_all_streams_share(
    spark: SparkSession, make_stream: Callable[..., StreamFolder], tmp_path: pathlib.Path
) -> None:
    make_stream().seal(numbered(3))
    environment = environment_of_sources(spark)
    for name in set(environment) - {"PYTHONPATH"}:
        environment.remove(name)  # what earlier streams have added
    tune(spark)
    before = set(environment)
    assert before >= set(OF_A_STREAM)

    rows = spark.readStream.format("mqttcore").load(str(tmp_path), stream="plant")
    query = rows.writeStream.format("noop").trigger(availableNow=True)
    query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()

    assert set(environment) == before
    written = {name for name in OF_A_STREAM if environment[name]}
    of_this_line = set(OF_A_STREAM) - ({"SPARK_PYTHON_RUNTIME"} if SPARK < (4, 2) else set())
    assert written == of_this_line, "a stream of this Spark writes others"


def environment_of_sources(spark: SparkSession) -> Any:  # noqa: ANN401 -- a map of the JVM
    """Of the workers of this source."""
    sources: Any = spark._jsparkSession.sessionState().dataSourceManager()
    return sources.lookupDataSource("mqttcore").dataSourceCls().envVars()


class Conf(dict[str, str]):
    """Settings of a Spark that runs: some of them are fixed."""

    fixed: frozenset[str] = frozenset()

    def set(self, name: str, value: str) -> None:
        """As Spark does it."""
        assert name not in self.fixed
        self[name] = value

    def isModifiable(self, name: str) -> bool:  # noqa: N802 -- Spark's name
        """Whether `set` may be called."""
        return name not in self.fixed


def test_tune_says_what_it_changed_and_what_needs_a_new_session() -> None:
    conf = Conf(RUNTIME, **{"spark.sql.session.timeZone": "Asia/Tokyo", "spark.buffer.size": "7"})
    del conf["spark.sql.execution.arrow.pyspark.enabled"]
    conf.fixed = frozenset({"spark.sql.session.timeZone"})

    # no JVM is behind it, as none is behind Connect
    done = tune(SimpleNamespace(conf=conf))  # type: ignore[arg-type]  # as much of it as is needed

    assert done.changed == {"spark.sql.execution.arrow.pyspark.enabled": "true"}
    assert done.left == {"spark.sql.session.timeZone": "UTC", **AT_START}
    assert conf["spark.sql.execution.arrow.pyspark.enabled"] == "true"
    assert conf["spark.sql.session.timeZone"] == "Asia/Tokyo"


def test_tuning_is_told_a_line_a_setting() -> None:
    assert str(Tuning()) == "0 settings changed"
    assert str(Tuning(changed={"a": "1"}, left={"b": "2"})).splitlines() == [
        "1 settings changed",
        "needs a new session: b = 2",
    ]


def test_a_foreign_session_is_tuned_and_one_of_ours_needs_nothing(spark: SparkSession) -> None:
    assert tune(spark) == Tuning()
    foreign = spark.newSession()
    foreign.conf.set("spark.sql.session.timeZone", "Europe/Paris")

    done = tune(foreign)

    assert done == Tuning(changed={"spark.sql.session.timeZone": "UTC"})
    assert foreign.conf.get("spark.sql.session.timeZone") == "UTC"


@pytest.mark.parametrize(
    ("cores", "tasks"), [(3, "3"), ("2,4", "2"), ("*", str(len(os.sched_getaffinity(0))))]
)
def test_shuffles_have_as_many_parts_as_there_are_cores(cores: int | str, tasks: str) -> None:
    assert settings(cores=cores, memory="1g")["spark.sql.shuffle.partitions"] == tasks


def test_settings_are_those_of_the_ladder_on_the_loopback() -> None:
    told = settings(cores=1, memory="3g")

    assert told.items() >= {**RUNTIME, **AT_START}.items()
    assert told["spark.driver.memory"] == "3g"
    assert told["spark.driver.host"] == told["spark.driver.bindAddress"] == "127.0.0.1"


@pytest.mark.parametrize(
    ("master", "cores"),
    [
        ("local", "1"),
        ("local[*,4]", "*,4"),
        ("local[2, 3]", "2, 3"),
        ("local-cluster[2,1,512]", None),
        ("spark://far:7077", None),
        ("yarn", None),
    ],
)
def test_only_a_local_master_has_cores_of_this_machine(master: str, cores: str | None) -> None:
    assert local_cores(master) == cores


def test_the_driver_of_a_cluster_is_not_on_the_loopback() -> None:
    told = settings(cores=None, memory="3g")

    assert told.items() >= {**RUNTIME, **AT_START, "spark.driver.memory": "3g"}.items()
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & set(told)
    assert "spark.sql.shuffle.partitions" not in told


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Iterator[Builder]:
    """Takes what a Spark would be started with; none is, and no Java is looked for."""
    with pytest.MonkeyPatch.context() as context:
        for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_IP"):
            context.setenv(name, "as it was")
        context.delenv("SPARK_LOCAL_IP")
        java = SimpleNamespace(spark_home=lambda: pathlib.Path("/opt/java"))
        monkeypatch.setattr(sessions, "find_java", lambda _: java)
        made = Builder()
        monkeypatch.setattr(sessions, "SparkSession", SimpleNamespace(builder=made))
        monkeypatch.setattr(sessions, "without_chmod", lambda _: None)
        yield made


class Builder:
    """Of a session that is not there."""

    def __init__(self) -> None:
        self.told: dict[str, str] = {}
        self.page: str | None = "http://127.0.0.1:4040"

    def appName(self, name: str) -> Builder:  # noqa: N802 -- Spark's name
        """As Spark's."""
        return self.config("app", name)

    def master(self, name: str) -> Builder:
        """As Spark's."""
        return self.config("master", name)

    def config(self, name: str, value: str) -> Builder:
        """As Spark's."""
        self.told[name] = value
        return self

    def getOrCreate(self) -> Any:  # noqa: ANN401, N802 -- Spark's name, and as much as is needed
        """As Spark's."""
        return SimpleNamespace(version="4.x", sparkContext=SimpleNamespace(uiWebUrl=self.page))


def test_a_session_is_told_everything_and_the_caller_has_the_last_word(builder: Builder) -> None:
    session("plant", cores="2,3", memory="2g", warm=False, **{"spark.ui.port": "4050"})
    assert builder.told["app"] == "plant"
    assert builder.told["master"] == "local[2,3]"
    assert builder.told["spark.ui.port"] == "4050"
    assert builder.told.items() >= settings(cores=2, memory="2g").items()

    session(warm=False, **{"spark.sql.session.timeZone": "Asia/Tokyo"})
    assert builder.told["spark.sql.session.timeZone"] == "Asia/Tokyo"


def test_a_session_says_where_its_page_is(
    builder: Builder, capfd: pytest.CaptureFixture[str]
) -> None:
    session(warm=False)
    builder.page = None
    session(warm=False)

    assert "".join(capfd.readouterr()).splitlines() == [
        "Spark 4.x: http://127.0.0.1:4040",
        "Spark 4.x: no page",
    ]


def test_workers_run_this_python_and_the_page_listens_on_the_loopback(
    builder: Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    session(warm=False)

    assert os.environ["JAVA_HOME"] == "/opt/java"
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable
    assert os.environ["SPARK_LOCAL_IP"] == "127.0.0.1"
    assert builder.told

    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    session(warm=False)
    assert os.environ["SPARK_LOCAL_IP"] == "10.0.0.7"


LISTENS = "0A"
"""The state of a socket in ``/proc/net/tcp``."""
LOOPBACKS = ("0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000")
"""127.0.0.1, the same as an address of version 6, and ::1, as they stand there."""


def test_spark_listens_on_the_loopback_alone(spark: SparkSession) -> None:
    machine: Any = spark._jvm
    process = pathlib.Path("/proc", str(machine.java.lang.ProcessHandle.current().pid()))
    own = set()
    for file in (process / "fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # it was closed meanwhile
            own.add(os.readlink(file))

    sockets = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in (process / "net" / table).read_text().splitlines()[1:]
    ]
    listening = [
        fields[1].partition(":")[0]
        for fields in sockets
        if fields[3] == LISTENS and f"socket:[{fields[9]}]" in own
    ]

    assert len(listening) >= 2  # of the driver, and of its blocks
    assert set(listening) <= set(LOOPBACKS)
