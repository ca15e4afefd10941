"""A broker that fills a real Kafka, and Spark's own connector that reads it back."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator
from typing import Any

import paho.mqtt.client as paho
import pytest
from mqttcore import Broker, _core
from mqttcore import config as configuration
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from tests.kafka.loss import Loss, Plan
from tests.kafka.node import Node
from tests.kafka.read_back import copied

pytestmark = [
    pytest.mark.skipif(not _core.has_kafka, reason="this build has no Kafka: FEATURES=kafka"),
    pytest.mark.timeout(600),
]

pa = pytest.importorskip("pyarrow")
dataset = pytest.importorskip("pyarrow.dataset")
MESSAGES = 3_000
KEY = ["topic", "payload"]
OWN_PLACE = {"partition", "offset", "timestamp"}
"""A record has places of its own, and its time is taken some microseconds apart."""


@pytest.fixture
def broker(config: pathlib.Path, tmp_path: pathlib.Path) -> Iterator[Broker]:
    with Broker(configuration.load(config, data=str(tmp_path / "data"))) as running:
        yield running


def everything(number: int) -> Properties:
    """What a publisher can say of a message."""
    made = Properties(PacketTypes.PUBLISH)
    made.ContentType = "text/plain"
    made.ResponseTopic = f"answers/{number}"
    made.CorrelationData = bytes([number % 256, 0, 255])
    made.MessageExpiryInterval = 3_600
    made.UserProperty = [("unit", "°C"), ("unit", "K"), ("n", str(number))]
    return made


def publish(broker: Broker) -> None:
    """Messages of all kinds; returns when each above QoS 0 was acknowledged."""
    client = paho.Client(CallbackAPIVersion.VERSION2, "meter-1", protocol=paho.MQTTv5)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    waiting = []
    for number in range(MESSAGES):
        qos = (1, 0, 1, 1)[number % 4] if number % 100 else 2
        topic, payload = f"plant/{number % 50}", str(number) if number % 7 else ""
        properties = everything(number) if number % 3 else None
        waiting.append(client.publish(topic, payload, qos, number % 11 == 0, properties))
    for one in waiting:
        one.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


def rows(path: pathlib.Path) -> Any:  # noqa: ANN401 -- a table of pyarrow
    """All rows of a folder of files, in the order of their topics."""
    files = sorted(str(file) for file in path.rglob("*.parquet"))
    return dataset.dataset(files, format="parquet").to_table()


def comparable(table: Any) -> list[dict[str, object]]:  # noqa: ANN401 -- of pyarrow
    """The rows of each topic in their order, without what differs between two logs."""
    ordered = table.sort_by([("topic", "ascending"), ("offset", "ascending")])
    rows: list[dict[str, object]] = ordered.drop_columns(sorted(OWN_PLACE)).to_pylist()
    return rows


@pytest.mark.parametrize("how", ["batch", "stream"])
def test_spark_reads_from_kafka_what_the_broker_keeps_itself(
    broker: Broker, node: Node, tmp_path: pathlib.Path, how: str
) -> None:
    publish(broker)
    topic, guarantees = tmp_path.name, broker.guarantees
    broker.stop()

    copied(node.servers, topic, tmp_path / "copy", how=how)

    own, copy = rows(tmp_path / "data" / "streams" / "own" / "data"), rows(tmp_path / "copy")
    assert guarantees == "fsync; kafka on plant/# (1 copy)"
    assert own.num_rows == MESSAGES
    assert set(copy.column_names) == set(own.column_names)
    kept = comparable(copy.select(own.column_names).cast(own.schema))
    assert kept == comparable(own)
    assert set(copy["partition"].to_pylist()) == {0, 1}


def test_what_was_acknowledged_is_in_kafka_after_kills_of_both(tmp_path: pathlib.Path) -> None:
    outcome = Loss(Plan(kills=4, seed=7), tmp_path).run()

    assert outcome.faults == []
    assert outcome.acknowledged > 100
    assert (outcome.lost, outcome.reordered) == (0, 0)
