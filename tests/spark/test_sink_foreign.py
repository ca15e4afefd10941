"""The sink to any broker, without Spark: at least once, each message with its name."""

from __future__ import annotations

import contextlib
import pathlib
import socket
import subprocess
import threading
from collections.abc import Iterator

import pyarrow as pa
import pytest
from mqttcore.errors import StreamOptionError, UndeliveredError
from mqttcore.spark.messages import RowPlace
from mqttcore.spark.mqtt import Foreign
from mqttcore.spark.sink_options import parse_sink_options
from pyspark.sql.types import DataType, IntegerType, MapType, StringType, StructType

from benches.broker.brokers import ReportError, find_mosquitto, free_port, wait_until_ready
from tests import wire as mqtt
from tests.spark.relay import CERTIFICATE, Relay, made_up
from tests.spark.sinks import Received, listen, open_broker
from tests.wire import Wire

SHORT = "200ms"
"""A timeout in tests where nothing is to come."""


TYPES: dict[str, DataType] = {
    "qos": IntegerType(),
    "expiry": IntegerType(),
    "user_properties": MapType(StringType(), StringType()),
}


def place(attempt: int = 0) -> RowPlace:
    return RowPlace(query="q", batch=3, partition=1, attempt=attempt)


def foreign(port: int, *columns: str, scheme: str = "mqtt", **options: str) -> Foreign:
    schema = StructType()
    for name in ("topic", "payload", *columns):
        schema = schema.add(name, TYPES.get(name, StringType()))
    given = {"broker": f"{scheme}://127.0.0.1:{port}", **options}
    return Foreign(parse_sink_options(given), schema)


def rows(first: int, end: int, **more: object) -> pa.RecordBatch:
    numbers = range(first, end)
    columns = {"topic": ["out/a"] * len(numbers), "payload": [str(n) for n in numbers]}
    return pa.record_batch({**columns, **more})


def names(received: list[Received]) -> list[str]:
    return [dict(one.user_properties)["mqttcore-id"] for one in received]


# --- what is sent


def test_a_row_becomes_a_message_with_its_name_behind_its_own_properties(
    tmp_path: pathlib.Path,
) -> None:
    batch = pa.record_batch(
        {
            "topic": ["out/a", "out/b"],
            "payload": ["one", None],
            "qos": pa.array([2, None], pa.int32()),
            "content_type": ["text", None],
            "expiry": pa.array([60, None], pa.int32()),
            "user_properties": pa.array([[("unit", "K")], None], pa.map_(pa.string(), pa.string())),
        }
    )
    with open_broker(tmp_path) as broker, listen(broker.port, "out/#") as heard:
        sink = foreign(broker.port, "qos", "content_type", "expiry", "user_properties")
        told = sink.send([batch], place())
        first, second = heard.take(2)

    assert told.rows == 2
    pairs = (("unit", "K"), ("mqttcore-id", "q/3/1/0"))
    assert first == Received("out/a", b"one", 2, pairs, "text", 60)
    assert second == Received("out/b", b"", 1, (("mqttcore-id", "q/3/1/1"),), None, None)


@pytest.mark.parametrize(("protocol", "window"), [("5", "99999999999"), ("3.1.1", "16")])
def test_a_task_ends_when_all_is_acknowledged(
    tmp_path: pathlib.Path, protocol: str, window: str
) -> None:
    with open_broker(tmp_path) as broker:
        sink = foreign(broker.port, window=window, qos="2", protocol=protocol)
        sink.send([rows(0, 500)], place())

        assert broker.stats()["messages_received"] == 500


def test_each_row_has_its_name_and_what_no_broker_acknowledges_is_raised(
    tmp_path: pathlib.Path,
) -> None:
    qos = pa.array([0, 1, 2, None], pa.int32())
    batches = [rows(0, 4, qos=qos), rows(4, 5, qos=qos.slice(0, 1))]
    with open_broker(tmp_path) as broker, listen(broker.port, "out/#") as heard:
        told = foreign(broker.port, "qos").send(batches, place())
        came = sorted(heard.take(5), key=lambda one: one.payload)

    assert told.rows == 5
    assert [one.qos for one in came] == [1, 1, 2, 1, 1]
    assert names(came) == [f"q/3/1/{row}" for row in range(5)]


def test_the_older_protocol_refuses_what_it_cannot_carry_before_a_row_is_there() -> None:
    with pytest.raises(StreamOptionError, match=r"protocol 3.1.1: column expiry requires MQTT 5.0"):
        foreign(1, "expiry", protocol="3.1.1")
    with pytest.raises(StreamOptionError, match="password without a user name"):
        foreign(1, protocol="3.1.1", password="hush")  # noqa: S106 -- of a test

    assert foreign(1, "qos", protocol="3.1.1").options.protocol == "3.1.1"


def test_the_older_protocol_delivers(tmp_path: pathlib.Path) -> None:
    with open_broker(tmp_path) as broker, listen(broker.port, "out/#") as heard:
        foreign(broker.port, protocol="3.1.1").send([rows(0, 1)], place())

        assert heard.next() == Received("out/a", b"0", 1)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        (None, "mqttcore-id q/3/1/1: the topic is null"),
        ("", 'mqttcore-id q/3/1/1: topic ""'),
        ("a/#", 'mqttcore-id q/3/1/1: topic "a/#".*wildcard'),
        ("a\0", "mqttcore-id q/3/1/1: .*null character"),
        ("x" * 65_536, "mqttcore-id q/3/1/1: .*longer than the limit"),
    ],
)
def test_a_row_that_is_no_message_stops_its_batch(
    tmp_path: pathlib.Path, topic: str | None, words: str
) -> None:
    batch = pa.record_batch({"topic": ["out/a", topic], "payload": ["", ""]})
    with open_broker(tmp_path) as broker:
        with pytest.raises(UndeliveredError, match=f"mqtt://127.0.0.1:{broker.port}: {words}"):
            foreign(broker.port).send([batch], place())

        assert broker.stats()["messages_received"] == 0


def test_what_the_broker_does_not_take_stops_its_batch() -> None:
    def script(wire: Wire) -> None:
        wire.expect_close()  # and no message before

    limits = {"maximum_packet_size": 100, "maximum_qos": 1}
    with (
        made_up(script, **limits) as port,
        pytest.raises(UndeliveredError, match=r"q/3/1/1: the packet has 1\d\d bytes; .* 100"),
    ):
        foreign(port).send([rows(0, 2, payload=["", "x" * 100])], place())
    with (
        made_up(script, **limits) as port,
        pytest.raises(UndeliveredError, match="q/3/1/0: QoS 2 is above"),
    ):
        foreign(port, qos="2").send([rows(0, 1)], place())


def test_a_message_that_the_broker_refuses_ends_the_task(tmp_path: pathlib.Path) -> None:
    batch = pa.record_batch({"topic": ["$SYS/mine"], "payload": ["x"]})
    with (
        open_broker(tmp_path) as broker,
        pytest.raises(UndeliveredError, match=r"the server rejected mqttcore-id q/3/1/0: 0x87"),
    ):
        foreign(broker.port).send([batch], place())


# --- what goes wrong on the way


def test_a_broker_that_is_not_there_is_named() -> None:
    with pytest.raises(UndeliveredError, match=r"mqtt://127.0.0.1:1: "):
        foreign(1).send([], place())


def test_a_task_that_comes_again_repeats_the_names(tmp_path: pathlib.Path) -> None:
    with open_broker(tmp_path) as broker, listen(broker.port, "out/#") as heard:
        with Relay(broker.port, cut_after=5_000) as relay:
            sink = foreign(relay.port, window="10")
            with pytest.raises(UndeliveredError, match=f"mqtt://127.0.0.1:{relay.port}: "):
                sink.send([rows(0, 300)], place())
            assert sink.send([rows(0, 300)], place(attempt=1)).rows == 300
        came = [heard.next()]
        while came[-1].payload != b"299":  # only the second attempt gets so far
            came.append(heard.next())

    assert 300 < len(came) < 600, "some of the first attempt, all of the second"
    by_name = {name: one.payload for name, one in zip(names(came), came, strict=True)}
    assert by_name == {f"q/3/1/{n}": str(n).encode() for n in range(300)}


def test_a_broker_that_dies_between_batches_ends_the_task(tmp_path: pathlib.Path) -> None:
    server = contextlib.ExitStack()
    broker = server.enter_context(open_broker(tmp_path))

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(0, 100)
        server.close()
        yield rows(100, 200)

    with server, pytest.raises(UndeliveredError, match=f"127.0.0.1:{broker.port}: .*refused"):
        foreign(broker.port).send(batches(), place())


def test_a_connection_that_is_lost_while_rows_are_slow_is_made_again(
    tmp_path: pathlib.Path,
) -> None:
    with (
        open_broker(tmp_path) as broker,
        listen(broker.port, "out/#") as heard,
        Relay(broker.port) as relay,
    ):

        def batches() -> Iterator[pa.RecordBatch]:
            yield rows(0, 2)
            relay.drop()
            yield rows(2, 4)

        told = foreign(relay.port).send(batches(), place())
        came = heard.take(4)

    assert (told.rows, relay.connections) == (4, 2)
    assert names(came) == [f"q/3/1/{row}" for row in range(4)]


def test_a_server_that_says_nothing_is_not_waited_for_for_ever() -> None:
    over = threading.Event()

    def stalled(_wire: Wire) -> None:
        assert over.wait(60)

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(UndeliveredError, match=f":{port}: no CONNACK received"):
            foreign(port, timeout=SHORT).send([], place())
    for batch, words in [
        (rows(0, 7), "7 messages are not acknowledged"),
        # more than sockets hold: it stops within a message
        (rows(0, 1, payload=["x" * (64 << 20)]), "1 messages are not acknowledged"),
    ]:
        over.clear()
        with made_up(stalled) as port:
            with pytest.raises(UndeliveredError, match=words):
                foreign(port, timeout=SHORT).send([batch], place())
            over.set()


def test_a_server_that_refuses_or_talks_nonsense_is_quoted() -> None:
    def refuse(wire: Wire) -> None:
        number = wire.expect(mqtt.PUBLISH).packet_id or 0
        wire.send(mqtt.ack(mqtt.PUBACK, number, 0x97, props={"reason_string": "no room"}))

    def leave(wire: Wire) -> None:
        wire.expect(mqtt.PUBLISH)
        wire.send(mqtt.disconnect(0x8B))

    def nonsense(wire: Wire) -> None:
        wire.expect(mqtt.PUBLISH)
        wire.send(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    for script, words in [
        (refuse, r'the server rejected mqttcore-id q/3/1/0: 0x97 Quota exceeded \("no room"\)'),
        (leave, "the server disconnected: 0x8B Server shutting down"),
        (nonsense, "the server sent bytes that are not MQTT"),
    ]:
        with made_up(script) as port, pytest.raises(UndeliveredError, match=words):
            foreign(port).send([rows(0, 1)], place())


def test_a_server_is_told_that_somebody_waits() -> None:
    def script(wire: Wire) -> None:
        number = wire.expect(mqtt.PUBLISH).packet_id or 0
        wire.expect(mqtt.PINGREQ)
        wire.send(mqtt.packet(0xD0), mqtt.ack(mqtt.PUBACK, number))
        wire.expect(mqtt.DISCONNECT)

    with made_up(script, server_keep_alive=1) as port:
        told = foreign(port).send([rows(0, 1)], place())

    assert told.rows == 1


# --- over TLS


def test_rows_go_over_tls_to_a_broker_that_is_trusted(tmp_path: pathlib.Path) -> None:
    batch = rows(0, 500, payload=["x" * 2_000] * 500)
    with open_broker(tmp_path) as broker, Relay(broker.port, tls=True) as relay:
        sink = foreign(relay.port, scheme="mqtts", ca=str(CERTIFICATE), qos="2", window="50")
        assert sink.send([batch, batch], place()).rows == 1_000
        assert broker.stats()["messages_received"] == 1_000

        with pytest.raises(UndeliveredError, match="self-signed certificate"):
            foreign(relay.port, scheme="mqtts").send([batch], place())
        with pytest.raises(UndeliveredError, match="option ca = '/nowhere'"):
            foreign(relay.port, scheme="mqtts", ca="/nowhere").send([batch], place())
        assert broker.stats()["messages_received"] == 1_000


# --- a broker of somebody else


@pytest.fixture
def mosquitto(tmp_path: pathlib.Path) -> Iterator[int]:
    """The port of a Mosquitto that keeps nothing retained and takes 20 messages at a time."""
    try:
        path = find_mosquitto()
    except ReportError as error:
        pytest.skip(str(error))
    port, log = free_port(), tmp_path / "mosquitto.log"
    config = tmp_path / "mosquitto.conf"
    config.write_text(f"listener {port} 127.0.0.1\n" + MOSQUITTO)
    with (
        log.open("wb") as sink,
        subprocess.Popen([path, "-c", str(config)], stdout=sink, stderr=sink) as process,  # noqa: S603 -- found above
    ):
        try:
            wait_until_ready(process, port, log)
            yield port
        finally:
            process.terminate()


MOSQUITTO = """\
allow_anonymous true
retain_available false
max_queued_messages 5000
"""


@pytest.mark.parametrize("qos", ["1", "2"])
@pytest.mark.parametrize("protocol", ["5", "3.1.1"])
def test_mosquitto_gets_every_row(mosquitto: int, protocol: str, qos: str) -> None:
    with listen(mosquitto, "out/#") as heard:
        sink = foreign(mosquitto, protocol=protocol, qos=qos)
        told = sink.send([rows(0, 1_000)], place())
        came = heard.take(1_000)

    assert told.rows == 1_000
    assert [one.payload for one in came] == [str(n).encode() for n in range(1_000)]
    if protocol == "5":
        assert names(came) == [f"q/3/1/{n}" for n in range(1_000)]


def test_mosquitto_is_asked_for_nothing_that_it_does_not_take(mosquitto: int) -> None:
    with pytest.raises(
        UndeliveredError, match="q/3/1/0: the server does not support retained messages"
    ):
        foreign(mosquitto, retain="true").send([rows(0, 1)], place())
