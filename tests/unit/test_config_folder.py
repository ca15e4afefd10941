"""A folder of configuration files: `mqttcore serve --config FOLDER`."""

from __future__ import annotations

import pathlib
import textwrap
from collections.abc import Callable

import pytest
from mqttcore import Broker, ConfigError
from mqttcore.config import Origin, load
from mqttcore.config.effective import effective

Write = Callable[..., pathlib.Path]

LISTENER = """\
[[listeners]]
name = "{0}"
address = "127.0.0.1:0"
anonymous = true
"""


@pytest.fixture
def write(tmp_path: pathlib.Path) -> Write:
    """Writes files of a folder, by name."""

    def written(files: dict[str, str]) -> pathlib.Path:
        for name, text in files.items():
            (tmp_path / name).write_text(textwrap.dedent(text))
        return tmp_path

    return written


def faults(folder: pathlib.Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(folder)
    return [fault.replace(f"{folder}/", "") for fault in caught.value.faults]


def test_files_are_merged_in_the_order_of_their_names(write: Write) -> None:
    folder = write(
        {
            "20-later.toml": 'log_level = "error"\n[limits]\nconnections = 7\n',
            "10-first.toml": 'log_level = "debug"\n[limits]\nconnections = 5\nsessions = 3\n',
        }
    )

    loaded = Origin(path=folder).load()

    settings = loaded.settings
    assert (settings.log_level, settings.limits.connections) == ("error", 7)
    assert settings.limits.sessions == 3
    sources = {key.key: key.source for key in effective(loaded)}
    assert sources["limits.connections"] == f"{folder}/20-later.toml:3:15"
    assert sources["limits.sessions"] == f"{folder}/10-first.toml:4:12"
    assert sources["limits.keep_alive_max_s"] == "default"


def test_tables_of_arrays_are_added_and_other_arrays_replaced(write: Write) -> None:
    folder = write(
        {
            "1.toml": LISTENER.format("one") + 'protocol_versions = ["3.1.1", "5.0"]\n',
            "2.toml": LISTENER.format("two"),
            "3.toml": '[limits]\nexempt_addresses = ["10.0.0.1"]\n',
            "4.toml": '[limits]\nexempt_addresses = ["10.0.0.2"]\n',
        }
    )

    settings = load(folder)

    assert [listener.name for listener in settings.listeners] == ["one", "two"]
    assert settings.listeners[0].protocol_versions == ("3.1.1", "5.0")
    assert [str(address) for address in settings.limits.exempt_addresses] == ["10.0.0.2"]


def test_faults_name_their_file(write: Write) -> None:
    folder = write(
        {
            "b.toml": 'log_levle = "info"\n[limits]\nconnections = "many"\n',
            "a.toml": "shards = = 2\n",
            "c.toml": "log_level = = 2\nshards = true\n",
        }
    )

    found = faults(folder)

    assert [fault.split(" ")[0] for fault in found] == [
        "a.toml:1:10:",
        "b.toml:1:1:",
        "b.toml:3:15:",
        "c.toml:1:13:",
        "c.toml:2:10:",
    ]


def test_a_value_of_another_kind_is_a_fault_of_the_later_file(write: Write) -> None:
    folder = write({"1.toml": LISTENER.format("one"), "2.toml": "listeners = 5\n"})

    assert faults(folder) == ["2.toml:1:13: listeners: expected an array, found 5"]


def test_leftovers_of_editors_and_packages_are_not_read(write: Write) -> None:
    names = (".a.toml", "a.toml~", "a.toml.dpkg-new", "a.toml.bak", "README")
    folder = write(dict.fromkeys(names, "not TOML") | {"a.toml": LISTENER.format("one")})

    assert [listener.name for listener in load(folder).listeners] == ["one"]


def test_a_folder_without_files_is_a_fault(tmp_path: pathlib.Path) -> None:
    assert faults(tmp_path) == [f"{tmp_path}: has no file *.toml"]


def test_paths_are_relative_to_the_folder(write: Write) -> None:
    folder = write({"a.toml": LISTENER.format("one"), "b.toml": 'data = "store"\n'})

    assert load(folder).data == str(folder / "store")
    text = 'data = "store"\n' + LISTENER.format("one")
    assert Origin(path=folder).load(text).settings.data == str(folder / "store")


def test_a_reload_reads_new_files(write: Write) -> None:
    folder = write({"1.toml": LISTENER.format("one")})

    with Broker(folder) as broker:
        write({"2.toml": "[limits]\nconnections = 9\n"})
        found = broker.reload_origin()

    assert found.applied == ("limits.connections",)
