"""Abuse table K: what a wheel is made of. `make reproducible` builds real ones, twice."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests import provenance, wheel_paths
from tests.named import ROOT

Run = Callable[..., "subprocess.CompletedProcess[str]"]
BUILD = "make wheel PROFILE=release FEATURES="


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel with its statement, built of the last commit by name."""
    path = tmp_path / "mqttcore-0.1.0-cp311-abi3-linux_x86_64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("mqttcore/__init__.py", "x = 1\n")
        archive.writestr("mqttcore/_core.abi3.so", bytes(range(256)) * 16)
    monkeypatch.setattr(provenance, "tools", lambda: {"rustc": "rustc 1.90.0"})
    monkeypatch.setattr(provenance, "changes", list)
    provenance.write(path, build=BUILD)
    return path


def statement_of(wheel: Path) -> Path:
    """The file beside it."""
    return wheel.with_name(wheel.name + ".provenance.json")


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """The verification as a program of Python alone: no package is found by it."""
    command = [sys.executable, "-S", "-m", "tests.provenance", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603


def test_k07_a_statement_says_what_a_wheel_was_made_of(wheel: Path) -> None:
    found = json.loads(statement_of(wheel).read_text())

    commit = provenance.output("git", "rev-parse", "HEAD")
    build = found["predicate"]["buildDefinition"]
    parts = {part["name"]: part["digest"] for part in build["resolvedDependencies"]}
    assert found["_type"] == "https://in-toto.io/Statement/v1"
    assert found["predicateType"] == "https://slsa.dev/provenance/v1"
    (subject,) = found["subject"]
    assert subject["name"] == wheel.name
    assert subject["digest"] == {"sha256": provenance.sha256(wheel.read_bytes())}
    assert build["externalParameters"] == {"command": BUILD}
    assert parts["source"] == {"gitCommit": commit}
    for lock in ("Cargo.lock", "requirements-build.lock"):
        assert parts[lock] == {"sha256": provenance.sha256((ROOT / lock).read_bytes())}


def test_k07_the_tools_of_a_build_are_named() -> None:
    found = provenance.tools()

    assert found["rustc"].startswith("rustc ")
    assert found["maturin"].startswith("maturin ")
    assert set(found) == {"cargo", "cc", "maturin", "platform", "python", "rustc"}


def test_k07_a_wheel_as_it_was_built_is_accepted(wheel: Path) -> None:
    done = run(wheel, "--only-wheel")

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("place", [0, 0.3, 0.6, -1], ids=str)
def test_k07_a_flipped_byte_is_found(wheel: Path, place: float) -> None:
    data = bytearray(wheel.read_bytes())
    data[-1 if place < 0 else int(len(data) * place)] ^= 1
    wheel.write_bytes(data)

    done = run(wheel, "--only-wheel")

    assert done.returncode == 1
    assert "its SHA-256 is" in done.stderr


def changed(wheel: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes the statement."""
    path = statement_of(wheel)
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))


def source_of(found: dict[str, Any]) -> dict[str, Any]:
    """The part of a statement about the commit."""
    part: dict[str, Any] = found["predicate"]["buildDefinition"]["resolvedDependencies"][0]
    return part


def lock_of(found: dict[str, Any]) -> dict[str, Any]:
    """The part of a statement about Cargo.lock."""
    part: dict[str, Any] = found["predicate"]["buildDefinition"]["resolvedDependencies"][1]
    return part


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda it: it["subject"][0].update(name="other.whl"), "is about other.whl"),
        (lambda it: it["subject"][0].update(digest={}), "sha256"),
        (lambda it: it.update(predicateType="x"), "predicateType is 'x'"),
        (lambda it: it.pop("_type"), "_type is None"),
        (lambda it: it.pop("subject"), "subject"),
        (lambda it: source_of(it).update(digest={"gitCommit": "0" * 40}), "cat-file"),
        (lambda it: source_of(it)["annotations"]["changed"].append("a.rs"), "with changes to"),
        (lambda it: lock_of(it)["digest"].update(sha256="0" * 64), "Cargo.lock is not that of"),
    ],
)
def test_k07_a_statement_about_something_else_is_refused(
    wheel: Path, change: Callable[[dict[str, Any]], object], text: str
) -> None:
    changed(wheel, change)

    done = run(wheel)

    assert done.returncode == 1
    assert text in done.stderr


def test_k07_a_wheel_of_this_commit_is_accepted_with_its_source(wheel: Path) -> None:
    locks = provenance.output("git", "status", "--porcelain", "--", *provenance.LOCKS)
    if locks:
        pytest.skip("lock files are being changed")

    done = run(wheel)

    commit = provenance.output("git", "rev-parse", "HEAD")
    assert done.stdout == f"{wheel.name}: built from {commit}\n", done.stderr


def test_k07_a_wheel_without_a_statement_is_refused(wheel: Path) -> None:
    statement_of(wheel).unlink()

    assert run(wheel, "--only-wheel").returncode == 1


def test_k07_two_builds_are_compared_by_their_members(wheel: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.whl"
    other.write_bytes(wheel.read_bytes())
    assert run("--compare", wheel, other).returncode == 0

    with zipfile.ZipFile(other, "a") as archive:
        archive.writestr("mqttcore/more.py", "")
    done = run("--compare", wheel, other)

    assert done.returncode == 1
    assert "differ in mqttcore/more.py" in done.stderr


FOLDER = "/home/somebody/mqttcore"


@pytest.fixture
def raw_wheel(tmp_path: Path) -> Path:
    """A wheel as maturin makes it: its bill of materials names the folder."""
    path = tmp_path / "raw.whl"
    bill = f'{{"bom-ref": "path+file://{FOLDER}/rust/codec#0.1.0"}}'.encode()
    members = {"m/__init__.py": b"x = 1\n", "m.dist-info/sboms/m.cyclonedx.json": bill}
    record = [wheel_paths.record_line(name, data) for name, data in members.items()]
    members["m.dist-info/RECORD"] = "\n".join([*record, "m.dist-info/RECORD,,", ""]).encode()
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(zipfile.ZipInfo(name), data)
    return path


def test_k07_a_wheel_does_not_name_the_folder_of_its_build(raw_wheel: Path) -> None:
    assert wheel_paths.main([str(raw_wheel), FOLDER]) == 0

    found = {info.filename: data for info, data in wheel_paths.read_members(raw_wheel)}
    names = ["m/__init__.py", "m.dist-info/sboms/m.cyclonedx.json"]
    assert [*found] == [*names, "m.dist-info/RECORD"]
    assert found[names[1]] == b'{"bom-ref": "path+file:///mqttcore/rust/codec#0.1.0"}'
    lines = [wheel_paths.record_line(name, found[name]) for name in names]
    assert found["m.dist-info/RECORD"].decode().splitlines() == [*lines, "m.dist-info/RECORD,,"]


def test_k07_code_that_names_the_folder_fails_the_build(
    raw_wheel: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with zipfile.ZipFile(raw_wheel, "a") as archive:
        archive.writestr("m/_core.so", b"\0" + FOLDER.encode() + b"/src/x.rs\0")

    assert wheel_paths.main([str(raw_wheel), FOLDER]) == 1

    assert "is named in m/_core.so" in capsys.readouterr().err


# --- what it is made of: locked by hash -----------------------------------------------------------


@pytest.mark.parametrize("path", ["Cargo.lock", "fuzz/Cargo.lock", "benches/tree-study/Cargo.lock"])
def test_k07_crates_come_from_the_registry_with_a_checksum(path: str) -> None:
    packages = tomllib.loads((ROOT / path).read_text())["package"]

    foreign = [each for each in packages if "source" in each]
    assert foreign
    assert {each["source"] for each in foreign} == {
        "registry+https://github.com/rust-lang/crates.io-index"
    }
    assert [
        each["name"] for each in foreign if not re.fullmatch("[0-9a-f]{64}", each["checksum"])
    ] == []


@pytest.mark.parametrize(
    "path",
    ["requirements-build.lock", "requirements-dev.lock", "tests/interop/python/requirements.lock"],
)
def test_k07_python_packages_are_pinned_with_hashes(path: str) -> None:
    text = re.sub(r"^\s*#.*$", "", (ROOT / path).read_text(), flags=re.MULTILINE)
    requirements = [line for line in text.replace("\\\n", " ").splitlines() if line.strip()]

    assert requirements
    for line in requirements:
        assert re.match(
            r"[A-Za-z0-9._-]+(\[.*\])?==\S+( ;.*)? +--hash=sha256:[0-9a-f]{64}", line
        ), line


def test_k07_installs_and_builds_are_held_to_their_locks() -> None:
    makefile = (ROOT / "Makefile").read_text().replace("\\\n", " ")
    installs = [line for line in makefile.splitlines() if "/pip install" in line]
    builds = [line for line in makefile.splitlines() if "maturin build" in line]

    # for renewing the locks, mutants, object stores and another type checker: part of no build
    apart = ("pip-tools", "mutmut==", "moto[server]", "basedpyright==")
    loose = [line for line in installs if "--require-hashes" not in line]
    assert [line for line in loose if not any(name in line for name in apart)] == []
    assert len(installs) > len(loose) == len(apart)
    assert builds
    assert all("--locked" in line for line in builds)
    assert "export CARGO_ARGS=--locked" in (ROOT / ".ci/run").read_text()
