"""`mqttcore conf schema` and `mqttcore serve --print-defaults`: the configuration in words."""

from __future__ import annotations

import json
import pathlib
import re
import tomllib
from collections.abc import Iterator

import pytest
from mqttcore import Settings, config, serve
from mqttcore.cli import conf
from mqttcore.config.json_schema import Json, json_schema

SCHEMA = json_schema()
TYPES: dict[str, type | tuple[type, ...]] = {
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "string": str,
    "array": list,
    "object": dict,
}


def misfits(one: Json, value: object, place: str = "$") -> list[str]:
    """What a schema says against a value; knows the words that `json_schema` writes."""
    if "$ref" in one:
        return misfits(SCHEMA["$defs"][one["$ref"].rpartition("/")[2]], value, place)
    if "anyOf" in one:
        return min((misfits(each, value, place) for each in one["anyOf"]), key=len)
    if "enum" in one:
        return [] if value in one["enum"] else [f"{place}: {value!r}"]
    is_bool = isinstance(value, bool) and one["type"] != "boolean"
    if is_bool or not isinstance(value, TYPES[one["type"]]):
        return [f"{place}: {value!r} is no {one['type']}"]
    return list(misfits_inside(one, value, place))


def misfits_inside(one: Json, value: object, place: str) -> Iterator[str]:
    """What a schema says against a value of the right type."""
    if isinstance(value, list):
        for item in value:
            yield from misfits(one["items"], item, place)
    elif isinstance(value, dict):
        keys = one.get("properties", {key: {"type": "object"} for key in value})
        yield from (f"{place}: {name}" for name in value.keys() - keys.keys())
        yield from (f"{place}: no {name}" for name in {*one.get("required", ())} - {*value})
        for name in value.keys() & keys.keys():
            yield from misfits(keys[name], value[name], f"{place}.{name}")
    elif isinstance(value, int | float) and "minimum" in one:
        yield from () if one["minimum"] <= value <= one["maximum"] else (f"{place}: {value}",)


@pytest.fixture
def defaults(capsys: pytest.CaptureFixture[str], tmp_path: pathlib.Path) -> pathlib.Path:
    """The file that `--print-defaults` prints."""
    assert serve.main(["--print-defaults"]) == 0
    path = tmp_path / "mqttcore.toml"
    path.write_text(capsys.readouterr().out)
    return path


def test_the_printed_defaults_are_the_defaults(defaults: pathlib.Path) -> None:
    assert config.load(defaults) == Settings()


def test_the_printed_defaults_have_every_key(defaults: pathlib.Path) -> None:
    keys = set(re.findall(r"(?m)^(?:# )?(\w+) =", defaults.read_text()))
    tables = set(re.findall(r"(?m)^(?:# )?\[+(?:\w+\.)*(\w+)\]+", defaults.read_text()))

    for name, table in SCHEMA["$defs"].items():
        missing = table["properties"].keys() - keys - tables
        assert not missing - INLINE.get(name, set()), name


# `anonymous` is shown as an inline table, and [http.tls] refers to [listeners.tls].
INLINE = {"Access": {"publish", "subscribe", "deny"}, "Column": {"name", "type"}}


def test_the_schema_takes_the_printed_defaults(defaults: pathlib.Path) -> None:
    assert misfits(SCHEMA, tomllib.loads(defaults.read_text())) == []


@pytest.mark.parametrize(
    "text",
    [
        "shard = 1",
        "shards = 65",
        'shards = "2"',
        'log_level = "lod"',
        "[[topics]]\ndurability = 'os'",
        "[[listeners]]\nanonymous = 1",
        "[limits]\nmaximum_qos = 3",
        "[[streams]]\nname = 's'\nfilter = 's/#'",
    ],
)
def test_the_schema_refuses_what_the_broker_refuses(text: str) -> None:
    assert misfits(SCHEMA, tomllib.loads(text))


def test_the_schema_is_printed_with_meanings_and_defaults(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert conf.main(["schema"]) == 0

    schema = json.loads(capsys.readouterr().out)
    assert schema["properties"]["shards"] == {
        "type": "integer",
        "minimum": 0,
        "maximum": 64,
        "description": "Number of event loops, one thread each; 0: one for each core.",
        "default": 0,
    }
    tls = schema["$defs"]["Tls"]
    assert tls["required"] == ["certificate", "key"]
    assert tls["properties"]["certificate"]["description"]
    assert schema["properties"]["http"] == {
        "$ref": "#/$defs/HttpListener",
        "description": schema["properties"]["http"]["description"],
    }
