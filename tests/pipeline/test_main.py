"""The command line of a pipeline: what it prints where, what it writes, how it exits."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import deltalake
import pytest
from mqttcore.pipeline.__main__ import main
from mqttcore.pipeline.files import locked

from tests.pipeline.test_run import message
from tests.stream_folder import StreamFolder, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

FILE = """\
name = "factory"
tables = "tables"

[source]
path = "."
stream = "plant"

[silver]
schema = "machine STRING, temperature DOUBLE"
"""
MORE = """
[[gold]]
name = "by_minute"
window = "1 minute"
group_by = ["machine"]
columns = ["max(temperature) AS highest"]

[[alerts]]
name = "hot"
table = "by_minute"
when = "highest > 90"
topic = "concat('alerts/', machine)"
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "pipeline.toml"
    path.write_text(FILE)
    return path


@pytest.fixture
def lent(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the pipeline get the Spark of all tests for its own, and leave it running."""

    def lend(app: str, *, master: str, memory: str, **conf: str) -> SparkSession:
        assert (master, memory, conf) == ("local[*,4]", "1g", {}), "tasks are tried again"
        print(f"Spark for {app}: http://127.0.0.1:4040")
        return spark

    monkeypatch.setattr("mqttcore.spark.session", lend)
    monkeypatch.setattr(spark, "stop", lambda: None)


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has whoever starts Spark fail."""

    def refuse(app: str, **_given: object) -> SparkSession:
        raise AssertionError(f"Spark was started for {app}")

    monkeypatch.setattr("mqttcore.spark.session", refuse)


@pytest.mark.usefixtures("lent")
def test_progress_as_json_is_all_there_is_on_standard_output(
    file: Path, make_stream: Callable[..., StreamFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    make_stream().seal(rows([message(second) for second in range(5)]))

    assert main([str(file), "--once", "--json"]) == 0

    said = capsys.readouterr()
    told = [json.loads(line) for line in said.out.splitlines()]
    assert [(line["query"], line["rows"]) for line in told] == [("factory", 5)]
    assert "http://127.0.0.1:4040" in said.err
    silver = deltalake.DeltaTable(file.parent / "tables" / "silver")
    assert silver.to_pyarrow_table().num_rows == 5


@pytest.mark.usefixtures("lent")
def test_a_dry_run_shows_the_tables_and_writes_nothing(
    file: Path, make_stream: Callable[..., StreamFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    make_stream()
    file.write_text(FILE + MORE)

    assert main([str(file), "--dry-run"]) == 0

    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    queries = [line[1] for line in lines if line[0] == "query"]
    assert queries == ["factory"]
    tables = [Path(line[1]).name for line in lines if line[0] == "table"]
    assert tables == ["bronze", "quarantine", "silver", "by_minute"]
    assert lines[-5:] == [
        ["window_start", "timestamp"],
        ["window_end", "timestamp"],
        ["machine", "string"],
        ["highest", "double"],
        ["alert", "hot:", "when", "highest", ">", "90", "to", "concat('alerts/',", "machine)"],
    ]
    assert not (file.parent / "tables").exists()


@pytest.mark.usefixtures("lent")
def test_plans_are_explained_and_nothing_is_written(
    file: Path, make_stream: Callable[..., StreamFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    make_stream()

    file.write_text(FILE + MORE)

    assert main([str(file), "--explain"]) == 0

    said = capsys.readouterr().out
    assert said.count("== Physical Plan ==") == 3
    assert not (file.parent / "tables").exists()


@pytest.mark.usefixtures("lent")
def test_rule_9_a_pipeline_that_runs_already_is_exit_status_1(
    file: Path, make_stream: Callable[..., StreamFolder], capsys: pytest.CaptureFixture[str]
) -> None:
    make_stream()

    with locked(file.parent / "tables" / "_checkpoints", "the test"):
        assert main([str(file), "--once"]) == 1

    assert "another pipeline uses this folder" in capsys.readouterr().err


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("old", "new", "status", "said"),
    [
        ('"plant"', '"planet"', 1, "has no stream planet"),
        ('path = "."', 'endpoint = "http://127.0.0.1:9"', 1, "http://127.0.0.1:9: "),
        ("temperature DOUBLE", "temperature DUBLE", 1, "payloadSchema"),
        ("[silver]", "[sliver]", 2, 'did you mean "silver"?'),
        ("[silver]", "[silver", 2, "pipeline.toml:8:"),
    ],
)
def test_what_cannot_run_is_said_in_a_line_before_spark_starts(
    file: Path,
    make_stream: Callable[..., StreamFolder],
    capsys: pytest.CaptureFixture[str],
    old: str,
    new: str,
    status: int,
    said: str,
) -> None:
    make_stream()
    file.write_text(FILE.replace(old, new, 1))

    assert main([str(file), "--once"]) == status

    told = capsys.readouterr()
    assert said in told.err
    assert "Traceback" not in told.err
    assert told.out == ""


def test_a_file_that_is_not_there_is_exit_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "none.toml")]) == 2

    assert "none.toml" in capsys.readouterr().err


WITHOUT_THE_EXTRA = """
import sys
sys.modules.update(dict.fromkeys(["deltalake", "pandas", "pyarrow", "pyspark", "rich"]))
from mqttcore.pipeline.__main__ import main
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.parametrize("option", ["--dry-run", "--explain", "--once"])
def test_a_missing_extra_is_named(
    file: Path, make_stream: Callable[..., StreamFolder], option: str
) -> None:
    make_stream()

    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", WITHOUT_THE_EXTRA, str(file), option],
        capture_output=True,
        text=True,
        check=False,
    )

    said = r"mqttcore pipeline: \w+ is missing: pip install 'mqttcore\[pipeline\]'\n"
    assert re.fullmatch(said, done.stderr), done.stderr
    assert (done.returncode, done.stdout) == (1, "")


SPARK = """
[spark]
master = "spark://far:7077"
memory = "2g"
packages = ["a:b:1", "c:d:2"]
conf = ["spark.executor.memory=4g", "spark.x=1=2"]
"""


@pytest.mark.parametrize(
    ("options", "master", "changes"),
    [
        ([], "spark://far:7077", {}),
        (
            ["--master", "local[2]", "--conf", "spark.x=3", "--conf", "spark.y=4"],
            "local[2]",
            {"spark.x": "3", "spark.y": "4"},
        ),
    ],
    ids=["of the file", "of the command line"],
)
def test_a_pipeline_runs_on_the_spark_that_it_names(
    file: Path,
    make_stream: Callable[..., StreamFolder],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    master: str,
    changes: dict[str, str],
) -> None:
    from pyspark.errors import PySparkRuntimeError

    asked: dict[str, object] = {}

    def refuse(_app: str, **given: object) -> SparkSession:
        asked.update(given)
        raise PySparkRuntimeError("nobody answers")

    monkeypatch.setattr("mqttcore.spark.session", refuse)
    make_stream()
    file.write_text(FILE + SPARK)

    assert main([str(file), "--once", *options]) == 1

    wanted = {"spark.jars.packages": "a:b:1,c:d:2", "spark.executor.memory": "4g", "spark.x": "1=2"}
    assert asked == {"master": master, "memory": "2g", **wanted, **changes}
    assert f"Spark does not start with master {master!r}: nobody answers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--conf", "executor=4g"], "--conf: 'executor=4g' is not a setting"),
        (["--master", "there"], "--master: 'there' is not a master"),
        (["--remote", "sc://host"], "--remote: 'sc://host': a pipeline does not run through Spark"),
    ],
)
def test_an_option_of_spark_that_is_wrong_is_named(
    file: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main([str(file), *options]) == 2

    assert said in capsys.readouterr().err


def test_a_command_line_that_is_wrong_is_exit_status_2() -> None:
    with pytest.raises(SystemExit) as exit_of:
        main(["pipeline.toml", "--twice"])

    assert exit_of.value.code == 2
