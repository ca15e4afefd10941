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

from tests.crash.process import Life, NotUpError
from tests.named import ROOT
from tests.wire import Wire, unique

Open = Callable[..., Wire]


@pytest.fixture
def life(tmp_path: Path) -> Iterator[Life]:
    """A broker with a store that has a session, a queued message and a retained one."""
    one = Life(data=tmp_path / "data")
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


def test_j09_a_folder_that_was_moved_is_the_same_store(life: Life, tmp_path: Path) -> None:
    life.stop()
    life.data = life.data.rename(tmp_path / "elsewhere")
    life.start()

    assert queued(life.port) == [b"retained"]


def test_j09_a_second_broker_is_refused_by_whatever_path(life: Life, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(life.data)

    for path in (life.data, tmp_path / "link", tmp_path / "link" / ".." / "data"):
        second = Life(data=path, log_path=tmp_path / "second.log")
        with pytest.raises(NotUpError, match="exit status 1"):
            second.start()

    assert "Traceback" not in (tmp_path / "second.log").read_text()
    assert queued(life.port) == [b"retained"]


def test_j09_a_copy_of_a_running_store_touches_nothing_of_it(life: Life, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("control", "*.sock")
    shutil.copytree(life.data, tmp_path / "copy", ignore=ignored)
    copy = Life(data=tmp_path / "copy")

    copy.start()
    assert queued(copy.port) == [b"retained"]
    copy.stop()

    life.crash()
    assert queued(life.port) == [b"retained"]


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
    life = Life(data=tmp_path / "data")
    before = os.umask(0)
    try:
        life.start()
    finally:
        os.umask(before)
    with Wire(life.port, version=4) as client:
        client.connect("kept", clean=False)

    assert modes(life.data) == {"folder": {0o700}, "file": {0o600}}
    life.stop()
    assert modes(life.data) == {"folder": {0o700}, "file": {0o600}}


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


def test_j11_a_folder_that_others_may_write_is_refused(life: Life) -> None:
    life.stop()
    life.data.chmod(0o777)

    with pytest.raises(NotUpError, match="exit status 1") as caught:
        life.start()

    assert "others may write" in str(caught.value)
    life.data.chmod(0o755)
    life.start()
    assert queued(life.port) == [b"retained"]
