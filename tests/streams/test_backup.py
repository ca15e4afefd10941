"""Copies of running brokers: with all rows from the first one on, and with what the sink keeps."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

from mqttcore import control
from mqttcore.streams.client import StreamClient

from tests.crash.process import ServerProcess
from tests.streams.conftest import Plant
from tests.streams.test_sink import ipc, numbers, seen
from tests.wire import Wire


def copy(plant: Plant, target: Path) -> None:
    """As `python -m mqttcore.store backup` does."""
    assert control.ask(plant.server.data, "backup", str(target)) > 0


@contextlib.contextmanager
def copy_of(plant: Plant, target: Path) -> Iterator[Plant]:
    """A broker on a copy that is made of a running one."""
    copy(plant, target)
    with opened(plant, target) as found:
        yield found


@contextlib.contextmanager
def opened(plant: Plant, folder: Path) -> Iterator[Plant]:
    server = ServerProcess(data=folder, config=plant.server.config)
    server.start()
    found = Plant(server=server, partitions=plant.partitions)
    try:
        yield found
    finally:
        found.client.close()
        server.kill()


class Writer(threading.Thread):
    """Publishes numbers one after the other, until it is told to end."""

    def __init__(self, plant: Plant) -> None:
        super().__init__()
        self.port = plant.server.port
        self.acknowledged = 0
        self.is_over = threading.Event()

    def run(self) -> None:
        """All of it."""
        with Wire(self.port) as wire:
            wire.connect("writer")
            while not self.is_over.is_set():
                wire.publish("plant/1", b"%d" % self.acknowledged, qos=1)
                self.acknowledged += 1


def test_a_running_broker_is_copied_with_its_history(plant: Plant, tmp_path: Path) -> None:
    writer = Writer(plant)
    writer.start()
    copies: list[tuple[Path, int]] = []
    try:
        for number in range(2):
            while writer.acknowledged < 100 * (number + 1):
                plant.client.seal("plant")
            before = writer.acknowledged
            target = tmp_path / f"copy{number}"
            copy(plant, target)
            copies.append((target, before))
    finally:
        writer.is_over.set()
        writer.join()
    plant.settle(writer.acknowledged)
    epoch = plant.client.stream("plant").epoch

    assert seen(plant) == list(range(writer.acknowledged))
    for target, before in copies:
        data = target / "streams" / "plant" / "data"
        assert all(file.stat().st_nlink >= 2 for file in data.iterdir()), "files are shared"
        with opened(plant, target) as made:
            found = seen(made)
            assert found == list(range(len(found)))
            assert before <= len(found) <= writer.acknowledged
            assert made.client.stream("plant").epoch != epoch, "rule 4"
    assert plant.client.stream("plant").epoch == epoch


def test_staged_rows_can_be_committed_to_the_copy(plant: Plant, tmp_path: Path) -> None:
    assert plant.client.stage("query", 0, "one", ipc(numbers(0, 300))) == 300
    with copy_of(plant, tmp_path / "copy") as made:
        assert made.ends() == [0]

        assert made.client.commit("query", 0, ["one"])

        made.settle(300)
        assert seen(made) == list(range(300))
    assert plant.ends() == [0]
    assert plant.client.commit("query", 0, ["one"])
    plant.settle(300)


def test_a_commit_is_whole_in_a_copy_or_can_be_made_there(plant: Plant, tmp_path: Path) -> None:
    rows = 4_000

    def commit(batch: int) -> None:
        with contextlib.closing(StreamClient(plant.server.data)) as client:
            client.commit("query", batch, ["one"])

    for batch in range(2):
        plant.client.stage("query", batch, "one", ipc(numbers(0, rows)))
        commits = threading.Thread(target=commit, args=(batch,))

        commits.start()
        copy(plant, tmp_path / f"copy{batch}")
        commits.join()

    for batch in range(2):
        with opened(plant, tmp_path / f"copy{batch}") as made:
            made.client.commit("query", batch, ["one"])
            made.settle((batch + 1) * rows)
            assert seen(made) == list(range(rows)) * (batch + 1)
