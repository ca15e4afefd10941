"""Abuse table J: folders of the store that somebody else made, moved, copied or wrote to."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from mqttcore.control import Control

from tests.abuse.beside import Beside
from tests.crash.process import NotUpError, ServerProcess
from tests.named import ROOT
from tests.wire import Wire, unique

Open = Callable[..., Wire]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A broker with a store that has a session, a queued message and a retained one."""
    one = ServerProcess(data=tmp_path / "data")
    one.start()
    with Wire(one.port, version=4) as client:
        client.connect("kept", clean=False)
        client.subscribe(("j/#", 1))
        client.disconnect()
    with Wire(one.port, version=4) as client:
        client.connect(unique("c"))
        client.publish("j/1", b"retained", qos=1, retain=True)
    yield one
    one.stop()


def queued(port: int) -> list[bytes]:
    """What the kept session has."""
    with Wire(port, version=4) as client:
        assert client.connect("kept", clean=False).session_present
        return [client.receive_publish().payload]


def test_j09_a_folder_that_was_moved_is_the_same_store(
    server: ServerProcess, tmp_path: Path
) -> None:
    server.stop()
    server.data = server.data.rename(tmp_path / "elsewhere")
    server.start()

    assert queued(server.port) == [b"retained"]


def test_j09_a_second_broker_is_refused_by_whatever_path(
    server: ServerProcess, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(server.data)

    for path in (server.data, tmp_path / "link", tmp_path / "link" / ".." / "data"):
        second = ServerProcess(data=path, log_path=tmp_path / "second.log")
        with Beside(server.port), pytest.raises(NotUpError, match="exit status 1"):
            second.start()

    assert "Traceback" not in (tmp_path / "second.log").read_text()
    assert queued(server.port) == [b"retained"]


def test_j09_a_copy_of_a_running_store_touches_nothing_of_it(
    server: ServerProcess, tmp_path: Path
) -> None:
    ignored = shutil.ignore_patterns("control", "*.sock")
    copy = ServerProcess(data=tmp_path / "copy")

    with Beside(server.port):
        shutil.copytree(server.data, copy.data, ignore=ignored)
        copy.start()
        assert queued(copy.port) == [b"retained"]
        copy.stop()

    server.crash()
    assert queued(server.port) == [b"retained"]


def attacked(folder: Path, cycles: int) -> tuple[int, int]:
    """How often a tool refused such a store, and the most memory of its process in KiB."""
    done = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-m", "tests.abuse.malicious_store", str(folder), str(cycles)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    refused, peak = done.stdout.split()
    return int(refused), int(peak)


def test_j10_a_store_that_an_attacker_wrote_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    _, usual = attacked(tmp_path / "victim", 0)

    refused, peak = attacked(tmp_path / "victim", 60)

    assert refused > 60
    assert peak - usual < 300_000


def modes(folder: Path) -> dict[str, set[int]]:
    """The permissions of everything in a folder, by the kind of file."""
    found: dict[str, set[int]] = {"folder": {stat.S_IMODE(folder.stat().st_mode)}, "file": set()}
    for path in folder.rglob("*"):
        kind = "folder" if path.is_dir() else "file"
        found[kind].add(stat.S_IMODE(path.lstat().st_mode))
    return found


def test_j11_only_the_owner_can_read_whatever_the_umask_says(tmp_path: Path) -> None:
    server = ServerProcess(data=tmp_path / "data")
    before = os.umask(0)
    try:
        server.start()
    finally:
        os.umask(before)
    with Wire(server.port, version=4) as client:
        client.connect("kept", clean=False)

    assert modes(server.data) == {"folder": {0o700}, "file": {0o600}}
    server.stop()
    assert modes(server.data) == {"folder": {0o700}, "file": {0o600}}


def test_j11_the_control_socket_is_made_with_its_mode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no moment in which others could connect: nothing changes the mode afterwards."""
    monkeypatch.setattr(Path, "chmod", None)
    before = os.umask(0)
    try:
        control = Control(tmp_path, {})
    finally:
        os.umask(before)

    assert stat.S_IMODE((tmp_path / "control").stat().st_mode) == 0o600
    control.stop()


def test_j11_a_folder_that_others_may_write_is_refused_and_one_of_a_group_is_told(
    server: ServerProcess,
) -> None:
    server.stop()
    server.data.chmod(0o777)

    with pytest.raises(NotUpError, match="exit status 1") as caught:
        server.start()

    assert "others may write" in str(caught.value)
    server.data.chmod(0o775)
    server.start()
    warning = "the group of the data folder"
    assert warning in server.log.read_text()
    server.stop()
    before = server.log.read_text()
    server.data.chmod(0o755)
    server.start()
    assert warning not in server.log.read_text().removeprefix(before)
    assert queued(server.port) == [b"retained"]
