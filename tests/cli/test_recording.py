"""`mqttcore sub --record` and `mqttcore pub --replay`."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
from mqttcore.cli.client import MqttClient
from mqttcore.cli.failure import CommandError
from mqttcore.cli.pub import Publisher
from mqttcore.cli.recording import Recorded, line_of, read_line
from mqttcore.cli.sub import Printer
from mqttcore.cli.sub import parser as sub_parser
from mqttcore.packets import Publish, properties

from tests.cli.conftest import Run
from tests.conftest import RunningBroker
from tests.wire import Wire

Connect = Callable[..., Wire]
PROPERTIES: dict[str, Any] = {
    "content_type": "text/plain",
    "response_topic": "back",
    "user_property": [("a", "b"), ("a", "ü\n")],
    "correlation_data": b"\x00\xff",
    "payload_format_indicator": True,
    "message_expiry_interval": 3_600,
}


@pytest.fixture
def recording(tmp_path: pathlib.Path) -> pathlib.Path:
    """The file of a recording, which does not exist yet."""
    return tmp_path / "messages.jsonl"


def test_recorded_messages_are_published_again(
    run: Run, client: Connect, broker: RunningBroker, topic: str, recording: pathlib.Path
) -> None:
    client().publish(f"{topic}/a", b"\x00\xff", qos=2, retain=True)
    client().publish(topic, b"text", qos=1, retain=True, props=PROPERTIES)
    of_broker = ("-p", broker.port)
    wanted = ("-t", topic, "-t", f"{topic}/a", "-q", 2, "-C", 2)
    recorded = run("sub", *of_broker, *wanted, "--record", recording)
    receiver = client()
    receiver.subscribe((f"{topic}/#", 0x22))  # QoS 2, no retained messages

    done = run("pub", *of_broker, "--replay", recording, "--json")

    assert recorded == (0, "", "")
    assert json.loads(done.out)["acknowledged"] == 2
    first, second = (receiver.receive_publish() for _ in range(2))
    assert (first.topic, first.payload, first.qos) == (topic, b"text", 1)
    assert first.property("user_property") == PROPERTIES["user_property"]
    assert first.property("correlation_data") == PROPERTIES["correlation_data"]
    assert first.property("content_type") == "text/plain"
    assert (second.topic, second.payload, second.qos) == (f"{topic}/a", b"\x00\xff", 2)


def test_every_property_survives_a_recording() -> None:
    pairs = properties(**PROPERTIES)
    of_connection = (("topic_alias", 3), ("subscription_identifier", 7))
    message = Publish(
        topic="a/ü", payload=b"\xff\n", qos=2, packet_id=9, properties=(*pairs, *of_connection)
    )

    line = line_of(message, 1_764_300_000.123_456_7)
    found = read_line(line, version=5)

    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert found.at == 1_764_300_000.123_457
    assert found.message == message.replaced(packet_id=1, properties=pairs)
    assert read_line(line, version=4).message.properties == ()


class Waiting(Publisher):
    """Notes pauses instead of waiting."""

    def __init__(self) -> None:
        super().__init__(MqttClient.__new__(MqttClient), is_quiet=True)
        self.done: list[str | float] = []

    def _idle(self, pause_s: float) -> None:
        self.done.append(pause_s)

    def _publish(self, message: Publish) -> None:
        self.done.append(message.topic)


@pytest.mark.parametrize(
    ("speed", "expected"),
    [
        (1.0, [0, "a", 60, "b", 40, "c", 200, "d"]),
        (10.0, [0, "a", 6, "b", 4, "c", 20, "d"]),
        (0.0, ["a", "b", "c", "d"]),
    ],
)
def test_messages_keep_their_pauses(speed: float, expected: list[str | float]) -> None:
    # the clock was set back between b and c
    times = {"a": 1_000.0, "b": 1_060.0, "c": 1_040.0, "d": 1_200.0}
    publisher = Waiting()

    publisher.publish_recording(
        (Recorded(at, Publish(topic=topic)) for topic, at in times.items()), speed
    )

    # the test itself takes time, by which later pauses are shorter
    assert publisher.done == [
        wanted if isinstance(wanted, str) else pytest.approx(wanted, abs=2) for wanted in expected
    ]


GOOD = {"at": 1, "topic": "a", "qos": 0, "retain": False, "payload_base64": ""}


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ('{"at": 1, "topic": "a"', "delimiter"),
        ("[]", "expected a JSON object"),
        (json.dumps({"at": 1}), "no key 'qos'"),
        (json.dumps({**GOOD, "at": "NaN"}), "at: expected a time in seconds"),
        (json.dumps({**GOOD, "topic": "a/#"}), "wildcard"),
        (json.dumps({**GOOD, "topic": 5}), "str"),
        (json.dumps({**GOOD, "qos": 3}), "QoS"),
        (json.dumps({**GOOD, "retain": "yes"}), "bool"),
        (json.dumps({**GOOD, "payload_base64": "?"}), "base64"),
        (json.dumps({**GOOD, "properties": [["none", 1]]}), "none"),
        (json.dumps({**GOOD, "properties": {"a": 1}}), "properties: expected a list"),
    ],
)
def test_a_line_of_something_else_is_named(
    run: Run, broker: RunningBroker, recording: pathlib.Path, line: str, why: str
) -> None:
    recording.write_text(f"{json.dumps(GOOD)}\n{line}\n")

    done = run("pub", "-p", broker.port, "--replay", recording, "--speed", 0)

    assert done.status == 2
    expected = f"mqttcore pub: {recording}: line 2 is not a message of `mqttcore sub --record`: "
    assert done.error.startswith(expected)
    assert why in done.error.removeprefix(expected)


@pytest.mark.parametrize("options", [("-t", "a"), ("-q", 1), ("-r",), ("--repeat", 2)])
def test_a_recording_decides_about_its_messages(
    run: Run, recording: pathlib.Path, options: tuple[object, ...]
) -> None:
    recording.touch()

    done = run("pub", "--replay", recording, *options)

    assert (done.status, done.out) == (2, "")
    assert "--replay publishes the messages as they were recorded" in done.error


@pytest.mark.parametrize("factor", ["-1", "nan", "inf", "fast"])
def test_a_wrong_speed_is_refused(run: Run, factor: str) -> None:
    assert run("pub", "--replay", "x", f"--speed={factor}").status == 2


def test_a_recording_is_not_overwritten(run: Run, recording: pathlib.Path) -> None:
    recording.write_text("mine")

    done = run("sub", "-t", "a", "--record", recording)

    assert (done.status, done.error) == (2, f"mqttcore sub: --record {recording}: File exists\n")
    assert recording.read_text() == "mine"


def test_a_full_disk_is_reported_before_messages_are_acknowledged(recording: pathlib.Path) -> None:
    options = sub_parser().parse_args(["-t", "a", "--record", str(recording)])
    with Printer(options) as printer:
        printer._out.close()
        printer._out = open("/dev/full", "wb")  # noqa: SIM115 -- the printer closes it
        printer.show(Publish(topic="a"))

        with pytest.raises(CommandError, match=f"--record {recording}: No space left on device"):
            printer.flush()
