"""The example `examples/factory`: broker, machines and picture; `make pipeline` runs all of it."""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.dataset
from mqttcore import Broker
from mqttcore.config import load
from mqttcore.streams.client import StreamClient

FACTORY = Path(__file__).parents[2] / "examples" / "factory"
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def run(script: str, *arguments: object) -> str:
    """What a script of the example prints."""
    command = [sys.executable, str(FACTORY / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)  # noqa: S603 -- ours
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_what_the_machines_say_becomes_rows_of_the_examples_broker(tmp_path: Path) -> None:
    settings = load(FACTORY / "broker.toml", listen=["127.0.0.1:0"], data=str(tmp_path / "var"))
    with Broker(settings) as broker, StreamClient(broker.settings.data) as client:
        said = run("simulator.py", "--port", broker.port, "--per-second", 200, "--seconds", 0.5)
        sent = int(said.removeprefix("sent ").removesuffix(" messages\n"))
        while sum(bounds.end for bounds in client.stream("plant").partitions) < sent:
            """Rows are seen a little after they are safe."""
        client.seal("plant")
        info = client.stream("plant")

    assert sent >= 8, "each machine has spoken"
    assert sum(bounds.end for bounds in info.partitions) == sent
    rows = pa.dataset.dataset(info.path / "data").to_table().to_pylist()
    sound = [json.loads(row["payload"]) for row in rows if row["payload"].endswith(b"}")]
    assert {values["machine"] for values in sound} == {f"m{number}" for number in range(1, 9)}
    assert {*sound[0]} == {"machine", "temperature", "power", "at"}


def test_the_gold_table_becomes_a_picture(tmp_path: Path) -> None:
    windows = [START + datetime.timedelta(seconds=5 * number) for number in range(6)]
    gold = pa.table(
        {
            "window_start": pa.array(windows * 2, pa.timestamp("us", "UTC")),
            "machine": ["m1"] * 6 + ["m2"] * 6,
            "highest": [float(number) for number in range(80, 92)],
        }
    )
    deltalake.write_deltalake(tmp_path / "load", gold)

    run("plot.py", tmp_path / "load", tmp_path / "load.png")

    picture = (tmp_path / "load.png").read_bytes()
    assert picture.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = (int.from_bytes(picture[at : at + 4]) for at in (16, 20))
    assert (width, height) == (1080, 480)
