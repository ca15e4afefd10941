"""`mqttcore conf` and `mqttcore reload`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from mqttcore import Broker, _core

from tests.cli.conftest import Run

CONFIGURATION = """
log_level = "info"
data = "data"
[[listeners]]
address = "127.0.0.1:0"
anonymous = true
[http]
"""


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    """A configuration that can be used."""
    path = tmp_path / "mqttcore.toml"
    path.write_text(CONFIGURATION)
    return path


def test_a_file_is_checked_without_a_broker(run: Run, file: pathlib.Path) -> None:
    valid = run("conf", "check", "-c", file)
    file.write_text('log_level = "lod"\nshard = 1\n')
    wrong = run("conf", "check", "-c", file)
    found = run("conf", "check", "-c", file, "--json")

    assert (valid.status, valid.out) == (0, f"{file}: valid\n")
    assert (wrong.status, wrong.out) == (2, "")
    assert f"{file}:1:" in wrong.error
    assert found.status == 2
    errors = json.loads(found.out)["errors"]
    assert [(error["file"], error["line"]) for error in errors] == [(str(file), 1), (str(file), 2)]


@pytest.fixture
def where(file: pathlib.Path) -> Iterator[tuple[str, str]]:
    """The options that name a broker with this configuration."""
    if not _core.has_streams:
        pytest.skip("this build has no HTTP endpoint")
    with Broker(file):
        yield ("--data", str(file.parent / "data"))


def test_the_keys_of_a_running_broker_are_shown(
    run: Run, file: pathlib.Path, where: tuple[str, str]
) -> None:
    text = run("conf", "show", *where, "--find", "log_level")
    changed = run("conf", "show", *where, "--changed", "--json")

    assert text.status == 0
    assert text.out.splitlines()[1].split()[:2] == ["log_level", '"info"']
    assert f"{file}:2:" in text.out
    keys = {key["key"] for key in json.loads(changed.out)["items"]}
    assert "log_level" in keys
    assert "shards" not in keys


def test_a_reload_takes_what_was_checked(
    run: Run, file: pathlib.Path, where: tuple[str, str]
) -> None:
    file.write_text(CONFIGURATION.replace('"info"', '"nothing"'))
    checked, refused = run("conf", "check", *where), run("reload", *where)
    file.write_text(CONFIGURATION.replace('"info"', '"debug"'))
    valid, done = run("conf", "check", *where), run("reload", *where)

    assert (checked.status, refused.status) == (2, 1)
    assert f"{file}:2:" in checked.error
    assert "log_level" in refused.error
    assert (valid.status, done.status) == (0, 0)
    preview = "a reload changes: nothing\na restart is needed for: log_level\n"
    assert valid.out == f"configuration: valid\n{preview}"
    assert done.out == "changed: nothing\na restart is needed for: log_level\n"
