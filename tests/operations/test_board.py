"""The Grafana board and the alert rules of the package: every name in them is one of `/metrics`."""

from __future__ import annotations

import json
import pathlib
import re
from collections.abc import Iterator
from importlib import resources

import pytest

ROOT = pathlib.Path(__file__).parents[2]
DATA = resources.files("mqttcore") / "data"
SUFFIXES = {"Counter": "_total", "Info": "_info", "Histogram": "_bucket"}
OF_PROMETHEUS = {"job", "instance"}


def families() -> dict[str, set[str]]:
    """The labels of each family, by its name in a scrape."""
    text = (ROOT / "rust/http/src/metrics/families.rs").read_text()
    declared = re.findall(
        r'^    family\("(\w+)", (\w+), "[^"]+",\s*'
        r'(?:(?:By|(ByListener)|(DropsByQos))\("(\w+)"|(OneByListener)|(LimitsByListener)|Each\(&\[([^]]+)\]|\w+)',
        text,
        re.MULTILINE,
    )
    return {
        name + SUFFIXES.get(kind, ""): {
            *re.findall(r"\w+", f"{by} {each}"),
            *(["listener"] if both or one or limits else []),
            *(["limit", "action"] if limits else []),
            *(["qos"] if drops else []),
            *(["le"] if kind == "Histogram" else []),
        }
        for name, kind, both, drops, by, one, limits, each in declared
    }


def alerts() -> list[str]:
    text = (DATA / "alerts.yml").read_text()
    return re.findall(r"^        expr: (.+)$", text, re.MULTILINE)


def queries() -> Iterator[str]:
    board = json.loads((DATA / "grafana.json").read_text())
    for panel in board["panels"]:
        for target in panel["targets"]:
            yield target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]


@pytest.mark.parametrize("expression", [*alerts(), *queries()])
def test_every_name_is_one_of_a_scrape(expression: str) -> None:
    known = families()
    names = re.findall(r"\b(?:mqttcore|process)_\w+", expression)
    labels = re.findall(r"(\w+)=", expression)
    labels += re.findall(r"\w+", " ".join(re.findall(r"by \(([^)]*)\)", expression)))

    assert names or expression.startswith("up{")
    for name in names:
        assert name in known, name
        assert set(labels) <= known[name] | OF_PROMETHEUS, name
    assert expression.count("(") == expression.count(")")
    assert expression.count("{") == expression.count("}")


def test_a_counter_is_read_as_a_rate_and_a_gauge_is_not() -> None:
    for expression in [*alerts(), *queries()]:
        for name in re.findall(r"\b(?:mqttcore|process)_\w+", expression):
            is_rate = re.search(rf"(?:rate|increase)\({name}", expression) is not None
            assert is_rate == name.endswith(("_total", "_bucket")), expression


def test_every_alert_says_what_and_how_bad() -> None:
    text = (DATA / "alerts.yml").read_text()
    rules = text.split("      - alert: ")[1:]

    assert len(rules) == len(alerts()) >= 12
    for rule in rules:
        assert re.search(r"labels: \{severity: (?:critical|warning)\}", rule), rule
        assert re.search(r'annotations: \{summary: ".*\{\{ \$labels\.instance \}\}.*"\}', rule), (
            rule
        )
