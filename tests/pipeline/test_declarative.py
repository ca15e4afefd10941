"""A pipeline as one of Spark's declarative pipelines."""

from __future__ import annotations

import ast
import os
import pathlib
import subprocess
import sys

import pyarrow.dataset
import pytest
from mqttcore.pipeline.__main__ import main
from mqttcore.pipeline.config import load
from mqttcore.pipeline.declarative import emit

from tests.pipeline.test_run import Make, message, pipeline
from tests.stream_folder import rows

FILE = """
name = "factory"
tables = "tables"

[source]
path = "var"
stream = "plant"
token_file = "token"

[silver]
schema = "machine STRING, temperature DOUBLE"

[[gold]]
name = "by_minute"
window = "1 minute"
columns = ["max(temperature) AS highest"]
"""


def test_each_table_is_a_function_and_no_token_is_written(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("nobody's business")
    (tmp_path / "pipeline.toml").write_text(FILE)

    status = main(["emit-sdp", str(tmp_path / "pipeline.toml"), str(tmp_path / "out")])

    assert status == 0
    specification, code = (pathlib.Path(line) for line in capsys.readouterr().out.splitlines())
    assert specification.read_text().startswith("name: factory\nstorage: file:///")
    text = code.read_text()
    made = {each.name for each in ast.parse(text).body if isinstance(each, ast.FunctionDef)}
    assert made == {"messages", "bronze", "silver", "quarantine", "by_minute"}
    assert f"'path': '{tmp_path}/var'" in text
    assert "nobody" not in text


def test_what_describes_payloads_is_an_option_and_the_code_can_be_read(
    tmp_path: pathlib.Path,
) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/7.avsc").write_text(
        '{"type": "record", "name": "Machine", "fields": [{"name": "machine", "type": "string"}]}'
    )
    (tmp_path / "token").write_text("nobody's business")
    avro = '[silver]\ndecode = "avro"\nschemas = "schemas"'
    (tmp_path / "pipeline.toml").write_text(FILE.replace("[silver]", avro))

    _, code = emit(load(tmp_path / "pipeline.toml"), tmp_path / "out")

    text = code.read_text()
    assert f"'schemasFolder': '{tmp_path}/schemas'" in text
    (silver,) = (
        each.value
        for each in ast.parse(text).body
        if isinstance(each, ast.Assign) and ast.unparse(each.targets[0]) == "SILVER"
    )
    assert isinstance(silver, ast.Call)
    made = {each.arg: ast.literal_eval(each.value) for each in silver.keywords}
    assert made["schema"] == "machine STRING, temperature DOUBLE"


def test_what_it_does_not_have_is_told_by_name(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").write_text("nobody's business")
    kept = 'trigger = "5 seconds"\nformat = "parquet"\n'
    (tmp_path / "pipeline.toml").write_text(kept + FILE + '[spark]\nmemory = "2g"\n')

    assert main(["emit-sdp", str(tmp_path / "pipeline.toml"), str(tmp_path / "out")]) == 0

    told = capsys.readouterr().err
    assert f"tables, format, trigger, spark of {tmp_path}/pipeline.toml are not in it" in told


def test_alerts_are_refused_by_name(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alert = '[[alerts]]\nname = "hot"\ntable = "silver"\nwhen = "true"\ntopic = "\'a\'"\n'
    (tmp_path / "token").write_text("nobody's business")
    (tmp_path / "pipeline.toml").write_text(FILE + alert)

    assert main(["emit-sdp", str(tmp_path / "pipeline.toml"), str(tmp_path / "out")]) == 1

    assert "alerts hot: a declarative pipeline publishes none" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.timeout(600)
def test_spark_runs_it(tmp_path: pathlib.Path, make_stream: Make) -> None:
    pytest.importorskip("grpc", reason="declarative pipelines need pyspark[pipelines]")
    first = [message(1), message(2), message(2), message(3, temperature=170.0), message(65, "m2")]
    make_stream().seal(rows(first))
    specification, _ = emit(pipeline(tmp_path), tmp_path / "out")
    folder = pathlib.Path(sys.executable).parent
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}

    done = subprocess.run(  # noqa: S603 -- the test wrote what it runs
        [folder / "spark-pipelines", "run", "--spec", specification],
        cwd=tmp_path / "out",
        env=environment | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-4_000:]
    kept = {
        name: pyarrow.dataset.dataset(tmp_path / "out" / "spark-warehouse" / name).count_rows()
        for name in ("bronze", "silver", "quarantine", "by_minute")
    }
    assert kept == {"bronze": 5, "silver": 3, "quarantine": 1, "by_minute": 2}
