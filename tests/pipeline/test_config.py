"""A pipeline's file: what it may say, and how what is wrong is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from mqttcore.errors import ConfigError
from mqttcore.pipeline.config import load
from mqttcore.pipeline.stages import source_options

EXAMPLE = Path(__file__).parents[2] / "examples" / "factory" / "pipeline.toml"
MACHINE = Path(__file__).parents[2] / "rust/columnar/tests/protobuf/machine.binpb"
LEAST = """\
name = "least"
[source]
path = "var"
stream = "plant"
[silver]
schema = "machine STRING"
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "pipeline.toml"
    path.write_text(text)
    return path


def test_the_example_is_read_whole() -> None:
    pipeline = load(EXAMPLE)

    assert pipeline.source.path == EXAMPLE.parent / "var"
    assert pipeline.tables == EXAMPLE.parent / "tables"
    assert [gold.name for gold in pipeline.gold] == ["load"]
    assert [(alert.table, alert.qos) for alert in pipeline.alerts] == [("load", 1)]


def test_a_query_is_told_what_messages_of_protocol_buffers_are(tmp_path: Path) -> None:
    (tmp_path / "machine.binpb").write_bytes(MACHINE.read_bytes())
    described = 'decode = "protobuf"\ndescriptor = "machine.binpb"\nmessage = "factory.Machine"'
    pipeline = load(written(tmp_path, f"{LEAST}{described}\n"))

    options = source_options(pipeline)

    assert options["decode"] == "protobuf"
    assert options["messageName"] == "factory.Machine"
    assert options["descriptorFile"] == str(tmp_path / "machine.binpb")


def test_a_query_is_told_where_the_schemas_of_avro_are(tmp_path: Path) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/7.avsc").write_text(
        '{"type": "record", "name": "Machine", "fields": [{"name": "machine", "type": "string"}]}'
    )
    pipeline = load(written(tmp_path, f'{LEAST}decode = "avro"\nschemas = "schemas"\n'))

    options = source_options(pipeline)

    assert (options["decode"], options["schemasFolder"]) == ("avro", str(tmp_path / "schemas"))


@pytest.mark.parametrize(
    ("trigger", "target"),
    [
        ("available_now", "20000ms"),
        ("2 seconds", "20000ms"),
        ("15 seconds", "30000ms"),
        ("20 seconds", "40000ms"),
        ("1 minute", None),
    ],
)
def test_batches_have_a_target_time_unless_the_trigger_is_longer(
    tmp_path: Path, trigger: str, target: str | None
) -> None:
    pipeline = load(written(tmp_path, f'trigger = "{trigger}"\n{LEAST}'))

    options = source_options(pipeline)

    assert options.get("targetBatchTime") == target
    assert options["maxRowsPerTrigger"] == "1000000"


def test_what_a_file_does_not_say_has_a_default(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path, LEAST))

    assert (pipeline.format, pipeline.trigger, pipeline.bronze.keep) == ("delta", "2 seconds", True)
    assert (pipeline.source.topic, pipeline.silver.event_time) == ("#", "timestamp")
    assert (pipeline.spark.master, pipeline.spark.settings()) == ("local[*,4]", {})


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        (
            'name = "least"',
            'name = "Least"',
            ":1:8: name: 'Least' is not a name; allowed: lower-case",
        ),
        ('path = "var"\n', "", "source: needs either path or endpoint"),
        ('path = "var"', 'path = "var"\nendpoint = "http://b"', "needs either path or endpoint"),
        ("[silver]", 'topic = "a/#/b"\n[silver]', ":5:9: source.topic: "),
        ("[silver]", '[silver]\nwatermark = "soon"', "'soon' is not a duration; allowed: a num"),
        ("[silver]", '[silver]\nvalid = [" "]', "silver.valid[0]: is empty"),
        ("[silver]", '[silver]\ndecode = "jsn"', 'did you mean "json"?'),
        (
            'name = "least"',
            'name = "least"\ntrigger = "now"',
            "allowed: available_now, or a number",
        ),
        ('schema = "machine STRING"', "", "silver.schema: missing"),
        ("[silver]", "[slver]", 'did you mean "silver"?'),
        (
            "[silver]",
            '[spark]\nremote = "sc://host"\n[silver]',
            "spark.remote: 'sc://host': a pipeline does not run through Spark Connect (ADR 0061);",
        ),
        (
            "[silver]",
            '[silver]\ndecode = "protobuf"',
            "silver.message: decode = protobuf needs",
        ),
        (
            "[silver]",
            '[silver]\ndecode = "protobuf"\ndescriptor = "pipeline.toml"\nmessage = "a.B"',
            "pipeline.toml: it is not a FileDescriptorSet; allowed: what `protoc",
        ),
        ("[silver]", '[silver]\ndecode = "avro"', "silver.schemas: decode = avro needs a folder"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(
    tmp_path: Path, old: str, new: str, fault: str
) -> None:
    assert old in LEAST

    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, LEAST.replace(old, new, 1)))

    assert any(fault in line for line in refused.value.faults), refused.value.faults


GOLD = '[[gold]]\nname = "{}"\nwindow = "1 minute"\ncolumns = ["count(*) AS n"]\n'
ALERT = '[[alerts]]\nname = "{}"\ntable = "{}"\nwhen = "n > 1"\ntopic = "\'a\'"\n'


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        (GOLD.format("silver"), 'gold[0].name: duplicate table "silver"'),
        (GOLD.format("one") * 2, 'gold[1].name: duplicate table "one"'),
        (ALERT.format("hot", "one"), "alerts[0].table: unknown table; allowed: silver"),
        (ALERT.format("hot", "bronze"), "alerts[0].table: unknown table; allowed: silver"),
        (ALERT.format("hot", "silver") * 2, "alerts[1].name: duplicate name of an alert"),
    ],
)
def test_tables_and_alerts_fit_together(tmp_path: Path, more: str, fault: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load(written(tmp_path, LEAST + more))

    [line] = refused.value.faults
    assert fault in line
