"""The sink: batches of rows become messages, all or none, once, whatever dies."""

from __future__ import annotations

import io
import threading
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from mqttcore.errors import EndpointError, EndpointUnreachableError

from tests.streams.conftest import Plant
from tests.wire import Wire


def ipc(table: pa.Table, *, rows: int = 1_000) -> Iterator[bytes]:
    """An Arrow IPC stream, in pieces of an odd size."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    whole = out.getvalue()
    for start in range(0, len(whole), 4_097):
        yield whole[start : start + 4_097]


def numbers(first: int, last: int, **columns: pa.Array) -> pa.Table:
    values = [str(number).encode() for number in range(first, last)]
    topics = [f"plant/{number % 5}" for number in range(first, last)]
    return pa.table({"topic": topics, "payload": pa.array(values, pa.binary()), **columns})


def seen(plant: Plant) -> list[int]:
    return [int(value) for value in plant.read()["payload"].to_pylist()]


def test_rule_8_what_is_staged_is_published_by_its_commit_and_once(plant: Plant) -> None:
    client = plant.client
    with Wire(plant.server.port) as reader:
        reader.connect("reader")
        reader.subscribe(("plant/#", 2))

        assert client.stage("query", 0, "one", ipc(numbers(0, 300))) == 300
        assert client.stage("query", 0, "two", ipc(numbers(300, 700))) == 400
        assert client.stage("query", 0, "loser", ipc(numbers(9_000, 9_010))) == 10
        assert plant.ends() == [0]

        assert client.commit("query", 0, ["one", "two"])
        assert not client.commit("query", 0, ["one", "two"])
        got: list[int] = []
        while len(got) < 700:
            packet = reader.receive_publish()
            reader.acknowledge(packet)
            got.append(int(packet.payload))

    assert got == list(range(700))
    plant.settle(700)
    assert seen(plant) == list(range(700))
    assert client.abort("query", 0, ["loser", "one", "unheard-of"]) == 1
    assert list((plant.server.data / "sink").iterdir()) == []


@pytest.mark.parametrize("fields", [("key", "value"), ("value", "key")])
def test_every_column_reaches_the_message(plant: Plant, fields: tuple[str, str]) -> None:
    pairs = pa.list_(pa.struct([(name, pa.string()) for name in fields]))
    table = pa.table(
        {
            "topic": ["plant/a", "plant/b"],
            "payload": pa.array(["text", None], pa.string()),
            "qos": pa.array([2, None], pa.int8()),
            "retain": [True, False],
            "content_type": ["json", None],
            "response_topic": ["answers", None],
            "correlation_data": pa.array([b"\x00\xff", None], pa.binary()),
            "expiry": pa.array([60, None], pa.int64()),
            "user_properties": pa.array([[{"key": "unit", "value": "K"}], None], pairs),
        }
    )

    plant.client.stage("query", 7, "one", ipc(table))
    plant.client.commit("query", 7, ["one"])

    plant.settle(2)
    first, second = plant.read().to_pylist()
    assert (first["topic"], first["payload"], first["qos"], first["retain"]) == (
        "plant/a",
        b"text",
        2,
        True,
    )
    assert (first["content_type"], first["response_topic"]) == ("json", "answers")
    assert (first["correlation_data"], first["expiry"]) == (b"\x00\xff", 60)
    assert first["user_properties"] == [{"key": "unit", "value": "K"}]
    assert (second["payload"], second["qos"], second["retain"]) == (b"", 1, False)
    with Wire(plant.server.port) as reader:
        reader.connect("reader")
        reader.subscribe(("plant/#", 0))
        assert reader.receive_publish().payload == b"text"


WRONG: dict[str, Callable[[], pa.Table]] = {
    r"row 1: topic \"\$SYS/x\" begins with \$": lambda: pa.table(
        {"topic": ["a", "$SYS/x"], "payload": ["", ""]}
    ),
    r"row 0: topic \"a/#\"": lambda: pa.table({"topic": ["a/#"], "payload": [""]}),
    "row 2: the topic is null": lambda: pa.table(
        {"topic": pa.array(["a", "b", None]), "payload": ["", "", ""]}
    ),
    "row 0: 3 is not a QoS: allowed are 0, 1 and 2": lambda: pa.table(
        {"topic": ["a"], "payload": [""], "qos": [3]}
    ),
    "row 0: -1 is not a message expiry interval: allowed are 0 to 4294967295 s": lambda: pa.table(
        {"topic": ["a"], "payload": [""], "expiry": [-1]}
    ),
    'unknown column "price"': lambda: pa.table({"topic": ["a"], "payload": [""], "price": [1]}),
    "column payload is missing": lambda: pa.table({"topic": ["a"]}),
    "column topic is Int64": lambda: pa.table({"topic": [1], "payload": [""]}),
    "a packet has at most": lambda: pa.table({"topic": ["a"], "payload": ["x" * (1 << 21)]}),
}


@pytest.mark.parametrize("words", WRONG)
def test_rows_that_are_no_messages_are_refused_with_their_place(plant: Plant, words: str) -> None:
    with pytest.raises(EndpointError, match=words) as caught:
        plant.client.stage("query", 0, "one", ipc(WRONG[words]()))

    assert (caught.value.status, caught.value.code) == (400, "bad_rows")
    assert list((plant.server.data / "sink").iterdir()) == []


def test_bytes_that_are_no_rows_are_refused(plant: Plant) -> None:
    whole = b"".join(ipc(numbers(0, 10)))
    for body in ([b"no arrow at all, but some text"], [whole[:-20]], [], [whole, whole]):
        with pytest.raises(EndpointError) as caught:
            plant.client.stage("query", 0, "one", body)
        assert caught.value.code == "bad_rows"

    with pytest.raises(EndpointError, match=r"stage .* does not exist") as caught:
        plant.client.commit("query", 0, ["one"])
    assert (caught.value.status, caught.value.code) == (409, "unknown_stage")


@pytest.mark.parametrize("name", ["", "a/b", "..", "ä", "x" * 65])
def test_names_that_are_none_are_refused(plant: Plant, name: str) -> None:
    for query, stage in [(name, "one"), ("query", name)]:
        with pytest.raises(EndpointError) as caught:
            plant.client.stage(query, 0, stage, ipc(numbers(0, 1)))
        assert caught.value.code == "bad_request"


@pytest.mark.parametrize("name", ["", "a/b", "..", "x" * 65])
def test_a_commit_without_stages_has_a_valid_query(plant: Plant, name: str) -> None:
    """The log keeps the name."""
    with pytest.raises(EndpointError) as caught:
        plant.client.commit(name, 0, [])
    assert caught.value.code == "bad_request"
    with pytest.raises(EndpointError) as caught:
        plant.client.abort(name, 0, [])
    assert caught.value.code == "bad_request"


def test_a_commit_that_names_a_stage_too_much_publishes_nothing(plant: Plant) -> None:
    plant.client.stage("query", 0, "one", ipc(numbers(0, 10)))

    for stages in (["one", "two"], ["one", "one"]):
        with pytest.raises(EndpointError, match=r"stage .* does not exist"):
            plant.client.commit("query", 0, stages)

    assert plant.ends() == [0]
    assert plant.client.commit("query", 0, ["one"])
    plant.settle(10)


def test_rule_8_an_older_batch_is_over_and_an_empty_one_counts(plant: Plant) -> None:
    client = plant.client
    client.stage("query", 4, "old", ipc(numbers(0, 10)))
    assert client.commit("query", 5, [])
    assert not client.commit("query", 4, ["old"])
    assert not client.commit("query", 5, [])

    with pytest.raises(EndpointError, match="is older than the last committed"):
        client.stage("query", 4, "again", ipc(numbers(0, 1)))
    assert client.commit("other", 4, [])
    assert plant.ends() == [0]


@pytest.mark.timeout(240)
def test_a_commit_outlives_the_broker_and_publishes_every_row_once(plant: Plant) -> None:
    """It dies at some moment of each commit: before, in the middle of, or behind the publishing."""
    rows, committed = 3_000, 0
    for batch in range(5):
        first = batch * rows
        table = numbers(first, first + rows, retain=pa.array([n % 400 == 0 for n in range(rows)]))
        plant.client.stage("query", batch, f"s{batch}", ipc(table))
        plant.server.crash()
        killer = Killer(plant, after=batch * 700)
        with killer:
            try:
                plant.client.commit("query", batch, [f"s{batch}"])
            except EndpointUnreachableError:
                killer.join()
        # whoever asked asks again: Spark repeats a batch whose commit it has not seen
        plant.client.commit("query", batch, [f"s{batch}"])
        assert not plant.client.commit("query", batch, [f"s{batch}"])
        committed += rows
        plant.settle(committed)

    assert seen(plant) == list(range(committed))


class Killer:
    """Kills the broker as soon as a stream has ``after`` new rows, and starts the next one."""

    def __init__(self, plant: Plant, *, after: int) -> None:
        self.plant, self.goal = plant, plant.ends()[0] + after
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        """Watches, then kills."""
        while self.plant.ends()[0] < self.goal:
            pass
        self.plant.client.close()
        self.plant.server.crash()

    def join(self) -> None:
        """Waits until the next broker is there."""
        self.thread.join()

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.thread.join()


def test_a_batch_may_stand_for_all_that_is_retained_below_a_level(plant: Plant) -> None:
    def commit(batch: int, topics: list[str], *, retained: bool = True) -> None:
        table = pa.table(
            {
                "topic": topics,
                "payload": [f"batch {batch}"] * len(topics),
                "retain": [retained] * len(topics),
            }
        )
        plant.client.stage("query", batch, f"s{batch}", ipc(table))
        assert plant.client.commit("query", batch, [f"s{batch}"], replacing="registry/#")

    def kept() -> dict[str, str]:
        with Wire(plant.server.port) as reader:
            reader.connect("reader")
            reader.subscribe(("registry/#", 0), ("other", 0))
            packets = iter(reader.receive_publish, None)
            found: dict[str, str] = {}
            for packet in packets:
                if packet.topic == "other":
                    return found
                found[packet.topic] = packet.payload.decode()
        raise AssertionError

    plant.client.stage(
        "other", 0, "s", ipc(pa.table({"topic": ["other"], "payload": ["x"], "retain": [True]}))
    )
    plant.client.commit("other", 0, ["s"])
    commit(0, [f"registry/{number}" for number in range(1_000)])
    assert len(kept()) == 1_000

    commit(1, ["registry/7", "registry/new/1"])
    plant.server.crash()
    assert kept() == {"registry/7": "batch 1", "registry/new/1": "batch 1"}

    # what is not retained says nothing of what is to be kept
    commit(2, ["registry/7"], retained=False)
    plant.server.crash()
    assert kept() == {}


def test_a_filter_that_is_none_publishes_nothing(plant: Plant) -> None:
    plant.client.stage("query", 0, "one", ipc(numbers(0, 10)))

    with pytest.raises(EndpointError, match=r"retained messages of .a/#/b.") as caught:
        plant.client.commit("query", 0, ["one"], replacing="a/#/b")

    assert (caught.value.status, caught.value.code) == (400, "bad_request")
    assert plant.ends() == [0]
    assert plant.client.commit("query", 0, ["one"])
