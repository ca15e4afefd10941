"""A node whose first start was interrupted starts the next time; without Java."""

from __future__ import annotations

import pathlib
import subprocess
import sys
from typing import Any

import pytest

from tests.kafka.node import Member, Node, NodeError

FORMAT = """
import pathlib, sys
settings = pathlib.Path(sys.argv[-1])
logs = pathlib.Path(settings.parent / "logs")
assert not logs.exists(), "it was formatted already"
logs.mkdir()
(logs / "bootstrap.checkpoint").touch()
if pathlib.Path(settings.parent / "slow").exists():
    import time
    time.sleep(600)
(logs / "meta.properties").touch()
"""
SERVE = """
import pathlib, re, socket, sys
port = re.search("listeners=PLAINTEXT.*?:([0-9]+)", pathlib.Path(sys.argv[-1]).read_text())[1]
with socket.create_server(("127.0.0.1", int(port))) as server:
    while True:
        server.accept()
"""


class PretendedNode(Node):
    """A node whose commands are Python."""

    def _command(self, main: str, *arguments: str, heap: str) -> list[str]:
        del heap
        script = FORMAT if main == "kafka.tools.StorageTool" else SERVE
        return [sys.executable, "-c", script, *arguments]


@pytest.fixture
def slow(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A folder whose first format takes too long."""
    (tmp_path / "slow").touch()
    run = subprocess.run

    def at_once(*arguments: Any, timeout: float, **more: Any) -> Any:  # noqa: ANN401 -- passed on
        is_slow = (tmp_path / "slow").exists()
        return run(*arguments, timeout=2.0 if is_slow else timeout, **more)

    monkeypatch.setattr(subprocess, "run", at_once)
    return tmp_path


def test_a_format_that_takes_too_long_is_an_error_and_is_begun_anew(slow: pathlib.Path) -> None:
    node = PretendedNode(slow)
    with pytest.raises(NodeError, match="start it again"):
        node.start()
    assert (slow / "logs" / "bootstrap.checkpoint").exists()

    (slow / "slow").unlink()
    node.start()
    port = node.port
    node.stop()

    again = PretendedNode(slow).start()
    assert again.port == port, "it is the same node"
    again.stop()


def test_a_folder_that_an_earlier_format_left_is_formatted(tmp_path: pathlib.Path) -> None:
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://127.0.0.1:1\n")
    (tmp_path / "logs").mkdir()

    PretendedNode(tmp_path).start().stop()

    assert (tmp_path / "logs" / "meta.properties").exists()


def test_nodes_of_a_cluster_know_each_other_and_keep_copies(tmp_path: pathlib.Path) -> None:
    given: list[tuple[str, ...]] = []

    class Told(PretendedNode):
        def _command(self, main: str, *arguments: str, heap: str) -> list[str]:
            given.append(arguments)
            return super()._command(main, *arguments, heap=heap)

    node = Told(tmp_path / "node", member=Member(number=2, ports=(7001, 7002, 7003)))
    try:
        node.start()
    finally:
        node.kill()

    assert "--standalone" not in given[0]
    lines = (tmp_path / "node" / "server.properties").read_text().splitlines()
    # the last value of a key counts
    settings = dict(line.split("=", 1) for line in lines)
    assert "CONTROLLER://127.0.0.1:7002" in settings["listeners"]
    assert settings["node.id"] == "2"
    voters = "1@127.0.0.1:7001,2@127.0.0.1:7002,3@127.0.0.1:7003"
    assert settings["controller.quorum.voters"] == voters
    assert (settings["default.replication.factor"], settings["min.insync.replicas"]) == ("3", "2")
