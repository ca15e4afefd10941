"""Abuse table K: names, secrets and code in the Python layer."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mqttcore import ConfigError
from mqttcore.config import load

from tests.crash.process import ServerProcess
from tests.named import ROOT
from tests.wire import Wire

Open = Callable[..., Wire]
SOURCES = sorted((ROOT / "python").rglob("*.py"))

# --- names ----------------------------------------------------------------------------------------

ESCAPES = [
    "../../escaped",
    "..",
    "a/../../escaped",
    "C:\\escaped",
    "~root",
    "%2e%2e/x",
]


def files_below(folder: Path) -> set[str]:
    """Everything in a folder, by path."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_k01_names_of_clients_are_no_paths(tmp_path: Path) -> None:
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    before = files_below(tmp_path)
    for number, name in enumerate([*ESCAPES, str(tmp_path / "absolute")]):
        with Wire(server.port, version=4) as one:
            one.connect(name, clean=False, username=name, password=b"x")
            one.subscribe((f"{name}/#", 1))
            one.publish(f"{name}/x", b"x", qos=1, retain=True, packet_id=number + 1)
    server.stop()

    tool = [sys.executable, "-m", "mqttcore.store"]
    for command in (["dump", str(server.data)], ["info", str(server.data)]):
        done = subprocess.run([*tool, *command], cwd=tmp_path, capture_output=True, check=False)  # noqa: S603
        assert done.returncode == 0

    known = {"data/control", "data/ballast", "data/checkpoint.redb", "data/lock"}
    assert files_below(tmp_path) - before - known == set()


@pytest.mark.parametrize("name", ["../x", "a/b", "/etc", "..", ".", "", "a\x00b"])
def test_k01_a_stream_has_no_path_as_its_name(name: str, tmp_path: Path) -> None:
    quoted = name.replace("\x00", "\\u0000")
    path = tmp_path / "mqttcore.toml"
    path.write_text(f'data = "var"\n[[streams]]\nname = "{quoted}"\nfilter = ["a"]\n')

    with pytest.raises(ConfigError, match=r"streams\[0\].name"):
        load(path)


# --- configuration --------------------------------------------------------------------------------

CODE = "__import__('os').system('touch executed')"


@pytest.mark.parametrize(
    "text",
    [
        "data: !!python/object/apply:os.system ['touch executed']\n",
        f'data = "{{{{ {CODE} }}}}"\nlog_level = "{CODE}"\n',
        f"shards = {CODE}\n",
        'include = "/etc/passwd"\n',
        '[[listeners]]\naddress = "$(touch executed)"\n',
        "import os\n",
    ],
    ids=["yaml", "template", "expression", "include", "shell", "python"],
)
def test_k02_a_configuration_is_data(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mqttcore.toml").write_text(text)

    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "mqttcore.toml")

    assert "mqttcore.toml:1" in str(caught.value.faults) or "mqttcore.toml:2" in str(
        caught.value.faults
    )
    assert "root:" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mqttcore.toml"]


def test_k02_the_environment_is_data(tmp_path: Path) -> None:
    environment = {
        **os.environ,
        "MQTTCORE__LOG_LEVEL": CODE,
        "MQTTCORE__SHARDS": CODE,
        "MQTTCORE__LIMITS__QUEUE_MESSAGES": "1 if " + CODE + " else 2",
    }

    done = subprocess.run(
        [sys.executable, "-m", "mqttcore.serve", "--check-config"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert done.stderr.count("MQTTCORE__") >= 3
    assert list(tmp_path.iterdir()) == []


# --- code -----------------------------------------------------------------------------------------

RUNS_CODE = {"eval", "exec", "compile", "__import__"}
LOADS_CODE = {"pickle", "cPickle", "marshal", "shelve", "dill", "cloudpickle", "yaml", "jsonpickle"}


def imports(tree: ast.AST) -> Iterator[str]:
    """The first names of all modules that are imported."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


def calls(tree: ast.AST) -> Iterator[str]:
    """The names of all functions that are called by a bare name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "python")))
def test_k04_nothing_that_comes_in_is_run(path: Path) -> None:
    tree = ast.parse(path.read_text())

    assert LOADS_CODE.isdisjoint(imports(tree))
    assert RUNS_CODE.isdisjoint(calls(tree))


def test_k05_values_of_wrong_types_are_exceptions_and_nothing_else(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.abuse.wrong_types"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3_000:]
    assert "panicked" not in done.stderr
    calls, refused = map(int, done.stdout.split())
    assert calls > 3_000
    assert refused > calls / 2


def test_k05_the_border_has_no_unsafe_code_and_one_interface() -> None:
    sources = [path.read_text() for path in (ROOT / "rust/bindings").rglob("*.rs")]
    manifest = (ROOT / "Cargo.toml").read_text() + (ROOT / "rust/bindings/Cargo.toml").read_text()

    assert sources
    assert [text for text in sources if "unsafe " in text] == []
    assert "abi3" in manifest
