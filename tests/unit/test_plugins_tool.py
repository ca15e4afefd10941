"""`mqttcore plugins`: lists plugins, writes a new one, checks one."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from mqttcore.cli import plugins
from mqttcore.config import load
from mqttcore.plugin.loading import BUILT_IN
from mqttcore.testing import plugin_check

BROKEN = """
import time
from mqttcore.plugin import Allow, Deny, Exchange, Login, Plugin, PluginConfig, Secret, hook

class Opens(Plugin):
    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        return Allow()

class Raises(Plugin):
    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        return Deny("banned", login.username.lower())

class Exits(Plugin):
    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        raise SystemExit(3)

class Junk(Plugin):
    @hook.authenticate
    def login(self, login):
        return True

class Blocks(Plugin):
    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        time.sleep(60)

class Hangs(Plugin):
    async def start(self) -> None:
        raise ConnectionError("no database")

    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        return None

class Shape(Plugin):
    @hook.authenticate
    def login(self) -> None:
        return None

class Nothing(Plugin):
    pass

class Trusting(Plugin):
    @hook.enhanced_auth("M")
    async def talk(self, talk: Exchange) -> Allow | Deny:
        await talk.challenge(b"who?")
        return Allow()

class Configured(Plugin):
    class Config(PluginConfig):
        token: Secret[str]
    config: Config
    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        return Deny() if self.config.token.matches(login.password) else None
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The working directory of each test."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in ("broken", "door_rules"):
        sys.modules.pop(name, None)


def test_the_list_has_each_built_in_plugin(capsys: pytest.CaptureFixture[str]) -> None:
    assert plugins.main(["list"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[: len(BUILT_IN)]] == [
        f"mqttcore.auth.{name}" for name in BUILT_IN
    ]
    assert all("built in" in line for line in lines[: len(BUILT_IN)])


def test_each_module_of_the_built_in_plugins_is_listed() -> None:
    auth = Path(plugins.__file__).parents[1] / "auth"
    with_plugin = {path.stem for path in auth.glob("*.py") if "    @hook." in path.read_text()}

    bases = {"backend", "stored_users"}
    assert with_plugin - bases | {"redis", "sql"} == set(BUILT_IN)  # their hooks are those of bases


def test_the_list_names_plugins_of_other_packages_and_marks_those_in_use(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    point = importlib.metadata.EntryPoint("doors", "nowhere:Doors", "mqttcore.plugins")
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: [point])
    (folder / "m.toml").write_text('[[plugins]]\nuse = "doors"\n')

    assert plugins.main(["list", "-c", "m.toml"]) == 0

    said = capsys.readouterr().out
    assert "* doors" in said
    assert "unknown package         nowhere:Doors" in said
    assert "  mqttcore.auth.scram" in said


def test_a_new_plugin_passes_its_test_and_its_check(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert plugins.main(["new", "door_rules"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == [
        "door_rules.py",
        "door_rules.toml",
        "test_door_rules.py",
    ]
    environment = {name: text for name, text in os.environ.items() if name != "PYTEST_ADDOPTS"}
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_door_rules.py"],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout
    assert load(folder / "door_rules.toml").plugins[0].use == "door_rules"
    assert plugins.main(["check", "door_rules", "-c", "door_rules.toml"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "no faults"


def test_a_file_that_is_there_is_not_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "test_door_rules.py").write_text("mine")

    assert plugins.main(["new", "door_rules"]) == 1

    assert [path.name for path in folder.iterdir()] == ["test_door_rules.py"]
    assert "test_door_rules.py is there already" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["", "a-b", "../x", "class", "7up", "_x", "ä", "a b"])
def test_a_name_that_no_module_can_have(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert plugins.main(["new", name]) == 1

    assert list(folder.iterdir()) == []
    assert "is not the name of a module" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("Opens", "a client with no user name is allowed"),
        ("Raises", "asked about a client with no user name: AttributeError"),
        ("Exits", "asked about a client with no user name: SystemExit: 3"),
        ("Junk", "login answered with bool; allowed: Allow, Deny, None"),
        ("Hangs", "it does not start: ConnectionError: no database"),
        ("Shape", "must take self and one argument"),
        ("Nothing", "Nothing has no hooks"),
        ("Trusting", "M with nonsense is allowed"),
        ("Configured", "config.token: missing"),
        ("Missing", "it cannot be loaded: LookupError"),
    ],
)
def test_what_would_refuse_clients_or_let_strangers_in_is_a_fault(
    folder: Path, capsys: pytest.CaptureFixture[str], name: str, fault: str
) -> None:
    (folder / "broken.py").write_text(BROKEN)

    assert plugins.main(["check", f"broken:{name}"]) == 1

    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("fault: ") and fault in line for line in lines), lines


def test_json_is_all_that_standard_output_has(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text(f"print('loud')\n{BROKEN}")

    assert plugins.main(["check", "broken:Opens", "--json"]) == 1
    checked = capsys.readouterr()
    assert plugins.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert plugins.main(["new", "door_rules", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)

    found = json.loads(checked.out)
    assert checked.err == "loud\n"
    assert found["use"] == "broken:Opens"
    assert any("no user name is allowed" in fault for fault in found["faults"])
    assert {"mqttcore.auth.password_file"} <= {item["use"] for item in listed["items"]}
    assert not any(item["used"] for item in listed["items"])
    assert made == {"files": ["door_rules.py", "test_door_rules.py", "door_rules.toml"]}


def test_a_plugin_that_blocks_is_given_up(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_check, "LIMIT_S", 0.2)
    (folder / "broken.py").write_text(BROKEN.replace("sleep(60)", "sleep(2)"))
    began = time.monotonic()

    assert plugins.main(["check", "broken:Blocks"]) == 1

    assert "it blocks its thread" in capsys.readouterr().out
    assert time.monotonic() - began < 60


def test_the_configuration_of_a_check_comes_from_a_file(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "broken.py").write_text(BROKEN)
    (folder / "m.toml").write_text(
        '[[plugins]]\nuse = "broken:Configured"\nconfig = { token = "canary" }\n'
    )

    assert plugins.main(["check", "broken:Configured", "-c", "m.toml"]) == 0
    assert "canary" not in capsys.readouterr().out
    assert plugins.main(["check", "broken:Opens", "-c", "m.toml"]) == 1
    assert "no [[plugins]] has use = 'broken:Opens'" in capsys.readouterr().err
