"""What an acknowledgement means, sentence by sentence: what it says outlives the broker."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.crash.process import NotUpError, ServerProcess
from tests.wire import Packet, Will, Wire

HOUR = {"session_expiry_interval": 3_600}
SECOND = {"session_expiry_interval": 1}
NO_LOCAL = 1 << 2
RETAIN_AS_PUBLISHED = 1 << 3


def restart(server: ServerProcess) -> None:
    """Ends the broker in order, and starts the next one."""
    server.stop()
    server.start()


ENDS = pytest.mark.parametrize("end", [ServerProcess.crash, restart], ids=["killed", "stopped"])
End = Callable[[ServerProcess], None]


def arrive(
    server: ServerProcess,
    name: str,
    *,
    version: int = 5,
    props: mqtt.Given = HOUR,
    will: Will | None = None,
    present: bool | None = None,
) -> Wire:
    """A client whose session outlives its connections."""
    wire = Wire(server.port, version=version)
    given = props if version == 5 else None
    connack = wire.connect(name, clean=False, props=given, will=will)
    assert present is None or version == 3 or connack.session_present == present
    return wire


END = "the end of the queue/"


def waiting(wire: Wire) -> list[Packet]:
    """Everything that comes before a message that comes behind all that waits.

    No ping would do: a queue is read back from the disk while its client is here.
    """
    end, number = f"{END}{next(counter)}", 60_000
    wire.send(mqtt.subscribe((end, 1), packet_id=number, version=wire.version))
    wire.send(mqtt.publish(end, qos=1, packet_id=number, version=wire.version))
    packets: list[mqtt.Packet] = []
    while not packets or packets[-1].kind != mqtt.UNSUBACK:
        packets.append(wire.receive())
        if packets[-1].topic == end:
            wire.acknowledge(packets[-1])
            wire.send(mqtt.unsubscribe(end, packet_id=number, version=wire.version))
    answers = {mqtt.SUBACK, mqtt.PUBACK, mqtt.UNSUBACK}
    return [
        one
        for one in packets
        if not one.topic.startswith(END) and (one.kind not in answers or one.packet_id != number)
    ]


counter = itertools.count()


def messages(wire: Wire) -> list[tuple[str, bytes, int]]:
    """Topic, payload and QoS of the messages that wait; they are left unacknowledged."""
    found = [one for one in waiting(wire) if one.kind == mqtt.PUBLISH]
    return [(one.topic, one.payload, one.qos) for one in found]


def settle(server: ServerProcess) -> None:
    """Waits until all that was done so far is safe: later acknowledgements are written later."""
    arrive(server, "later").close()


def leave_subscribed(server: ServerProcess, *filters: tuple[str, int], version: int = 5) -> None:
    """A subscriber "reader" whose session is kept and who is away."""
    with arrive(server, "reader", version=version) as reader:
        reader.subscribe(*filters)
        reader.disconnect()


@ENDS
@pytest.mark.parametrize("version", [3, 4, 5])
@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledged_message_waits_for_its_subscriber(
    server: ServerProcess, version: int, end: End, qos: int
) -> None:
    leave_subscribed(server, ("t", qos), version=version)
    with Wire(server.port, version=version) as writer:
        writer.connect("writer")
        writer.send(mqtt.publish("t", b"kept", qos=qos, packet_id=7, version=version))
        writer.expect(mqtt.PUBACK if qos == 1 else mqtt.PUBREC)

    end(server)

    with arrive(server, "reader", version=version, present=True) as reader:
        assert messages(reader) == [("t", b"kept", qos)]


@ENDS
def test_messages_keep_their_order(server: ServerProcess, end: End) -> None:
    leave_subscribed(server, ("t/#", 2))
    with arrive(server, "writer") as writer:
        for number in range(300):
            writer.publish(f"t/{number % 3}", b"%d" % number, qos=1 + number % 2)

    end(server)

    with arrive(server, "reader") as reader:
        found = [reader.receive_publish() for _ in range(300)]
        assert waiting(reader) == []
    for qos in (1, 2):
        numbers = [int(one.payload) for one in found if one.qos == qos]
        assert numbers == [number for number in range(300) if 1 + number % 2 == qos]


@ENDS
def test_everything_about_a_message_is_kept(server: ServerProcess, end: End) -> None:
    props = {
        "payload_format_indicator": 1,
        "content_type": "text/plain",
        "response_topic": "answers",
        "correlation_data": b"\x00\x01",
        "user_property": [("a", "1"), ("a", "2")],
    }
    with arrive(server, "reader") as reader:
        reader.subscribe(("t", 1), props={"subscription_identifier": 9})
    with arrive(server, "writer") as writer:
        writer.publish("t", "ü".encode(), qos=1, props=props)

    end(server)

    with arrive(server, "reader") as reader:
        (found,) = waiting(reader)
    assert found.payload == "ü".encode()
    assert found.properties == {**props, "subscription_identifier": [9]}


@ENDS
def test_a_repeat_of_a_qos_2_publish_is_no_new_message(server: ServerProcess, end: End) -> None:
    leave_subscribed(server, ("t", 2))
    first = mqtt.publish("t", b"once", qos=2, packet_id=5)
    with arrive(server, "writer") as writer:
        writer.send(first)
        writer.expect(mqtt.PUBREC)

    end(server)

    with arrive(server, "writer", present=True) as writer:
        writer.send(mqtt.publish("t", b"once", qos=2, packet_id=5, dup=True))
        assert writer.expect(mqtt.PUBREC).reason == 0
        writer.send(mqtt.ack(mqtt.PUBREL, 5))
        assert writer.expect(mqtt.PUBCOMP).reason == 0
    with arrive(server, "reader") as reader:
        assert messages(reader) == [("t", b"once", 2)]


@ENDS
def test_a_released_identifier_stands_for_a_new_message(server: ServerProcess, end: End) -> None:
    leave_subscribed(server, ("t", 2))
    with arrive(server, "writer") as writer:
        writer.publish("t", b"first", qos=2, packet_id=5)

    end(server)

    with arrive(server, "writer", present=True) as writer:
        writer.publish("t", b"second", qos=2, packet_id=5, dup=True)
    with arrive(server, "reader") as reader:
        assert [payload for _, payload, _ in messages(reader)] == [b"first", b"second"]


@ENDS
def test_messages_in_flight_are_sent_again_under_their_identifiers(
    server: ServerProcess, end: End
) -> None:
    with arrive(server, "reader") as reader:
        reader.subscribe(("t", 2))
        with arrive(server, "writer") as writer:
            for payload in (b"a", b"b", b"c"):
                writer.publish("t", payload, qos=2)
        sent = [reader.expect(mqtt.PUBLISH) for _ in range(3)]
        reader.send(mqtt.ack(mqtt.PUBREC, sent[1].packet_id or 0))
        reader.expect(mqtt.PUBREL)

    end(server)

    with arrive(server, "reader", present=True) as reader:
        found = waiting(reader)
    release, *again = found
    assert (release.kind, release.packet_id) == (mqtt.PUBREL, sent[1].packet_id)
    assert [(one.packet_id, one.payload, one.dup) for one in again] == [
        (sent[0].packet_id, b"a", True),
        (sent[2].packet_id, b"c", True),
    ]


@ENDS
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_received_is_not_sent_again(server: ServerProcess, end: End, qos: int) -> None:
    with arrive(server, "reader") as reader:
        reader.subscribe(("t", qos))
        with arrive(server, "writer") as writer:
            writer.publish("t", b"a", qos=qos)
            writer.publish("t", b"b", qos=qos)
        reader.receive_publish()
        reader.receive_publish()
        reader.ping()
    settle(server)

    end(server)

    with arrive(server, "reader", present=True) as reader:
        assert waiting(reader) == []


@ENDS
@pytest.mark.parametrize("version", [4, 5])
def test_subscriptions_are_kept_as_they_were_confirmed(
    server: ServerProcess, end: End, version: int
) -> None:
    with arrive(server, "reader", version=version) as reader:
        reader.subscribe(("a/+", 0), ("b/#", 1), ("c", 2))
        reader.subscribe(("a/+", 2))
        reader.unsubscribe("b/#")

    end(server)

    with arrive(server, "reader", version=version, present=True) as reader:
        with arrive(server, "writer") as writer:
            for topic in ("a/1", "b/1", "c"):
                writer.publish(topic, b"x", qos=2)
        found = [reader.receive_publish() for _ in range(2)]
        assert waiting(reader) == []
    assert [(one.topic, one.qos) for one in found] == [("a/1", 2), ("c", 2)]


@ENDS
def test_options_of_a_subscription_are_kept(server: ServerProcess, end: End) -> None:
    with arrive(server, "both") as both:
        both.subscribe(("t", 1 | NO_LOCAL), ("kept", 1 | RETAIN_AS_PUBLISHED))

    end(server)

    with arrive(server, "both", present=True) as both:
        both.publish("t", b"own", qos=1)
        both.send(mqtt.publish("kept", b"x", qos=1, packet_id=2, retain=True))
        found = [one for one in waiting(both) if one.kind == mqtt.PUBLISH]
    assert [(one.topic, one.retain) for one in found] == [("kept", True)]


@ENDS
def test_an_offline_member_of_a_shared_subscription_keeps_its_messages(
    server: ServerProcess, end: End
) -> None:
    leave_subscribed(server, ("$share/g/t", 1))
    with arrive(server, "writer") as writer:
        writer.publish("t", b"x", qos=1)

    end(server)

    with arrive(server, "reader", present=True) as reader:
        assert messages(reader) == [("t", b"x", 1)]


@ENDS
def test_retained_messages_are_kept_replaced_and_cleared(server: ServerProcess, end: End) -> None:
    with arrive(server, "writer") as writer:
        writer.publish("a", b"old", qos=1, retain=True)
        writer.publish("a", b"new", qos=1, retain=True)
        writer.publish("b", b"gone", qos=2, retain=True)
        writer.publish("b", b"", qos=1, retain=True)
        writer.publish("c", b"kept", qos=2, retain=True)

    end(server)

    with Wire(server.port) as reader:
        reader.connect("anybody")
        reader.subscribe(("+", 2))
        found = [one for one in waiting(reader) if one.kind == mqtt.PUBLISH]
    assert sorted((one.topic, one.payload, one.retain) for one in found) == [
        ("a", b"new", True),
        ("c", b"kept", True),
    ]


def test_the_will_of_a_client_that_was_connected_is_published(server: ServerProcess) -> None:
    leave_subscribed(server, ("wills", 1))
    with arrive(server, "mortal", will=Will(topic="wills", payload=b"gone", qos=1)):
        server.crash()

    with arrive(server, "reader", present=True) as reader:
        assert reader.receive_publish().payload == b"gone"


@pytest.mark.parametrize("version", [3, 5])
def test_the_will_of_a_client_whose_session_is_not_kept_is_published(
    server: ServerProcess, version: int
) -> None:
    leave_subscribed(server, ("wills", 1))
    with Wire(server.port, version=version) as mortal:
        mortal.connect("mortal", will=Will(topic="wills", payload=b"gone", qos=1))
        server.crash()

    with arrive(server, "reader", present=True) as reader:
        (told,) = waiting(reader)
        assert told.payload == b"gone"
        reader.acknowledge(told)
        assert waiting(reader) == []
    server.crash()
    with arrive(server, "reader", present=True) as reader:
        assert waiting(reader) == []


@ENDS
def test_a_disconnect_cancels_the_will_of_a_client_whose_session_is_not_kept(
    server: ServerProcess, end: End
) -> None:
    leave_subscribed(server, ("wills", 1))
    with Wire(server.port) as mortal:
        mortal.connect("mortal", will=Will(topic="wills", payload=b"gone", qos=1))
        mortal.disconnect()
        mortal.expect_close()

    end(server)

    with arrive(server, "reader", present=True) as reader:
        assert waiting(reader) == []


@ENDS
def test_a_will_that_a_disconnect_cancelled_is_never_published(
    server: ServerProcess, end: End
) -> None:
    leave_subscribed(server, ("wills", 1))
    with arrive(server, "mortal", will=Will(topic="wills", payload=b"gone", qos=1)) as mortal:
        mortal.disconnect()
    settle(server)

    end(server)

    with arrive(server, "reader", present=True) as reader:
        assert waiting(reader) == []


def test_a_delayed_will_is_cancelled_by_coming_back(server: ServerProcess) -> None:
    leave_subscribed(server, ("wills", 1))
    will = Will(topic="wills", payload=b"gone", qos=1, properties={"will_delay_interval": 3_600})
    with arrive(server, "mortal", will=will):
        server.crash()

    arrive(server, "mortal", present=True).disconnect()
    settle(server)
    server.crash()
    with arrive(server, "reader", present=True) as reader:
        assert waiting(reader) == []


def test_a_delayed_will_is_published_by_a_later_broker(server: ServerProcess) -> None:
    leave_subscribed(server, ("wills", 1))
    will = Will(topic="wills", payload=b"late", qos=1, properties={"will_delay_interval": 1})
    with arrive(server, "mortal", will=will):
        # The first of these ends its connection.
        live_and_die(server, 1.1)

    with arrive(server, "reader", present=True) as reader:
        assert reader.receive_publish().payload == b"late"


@ENDS
def test_a_session_that_was_given_up_does_not_come_back(server: ServerProcess, end: End) -> None:
    leave_subscribed(server, ("t", 1))
    with Wire(server.port) as reader:
        reader.connect("reader", clean=True)
    settle(server)

    end(server)

    arrive(server, "reader", present=False).disconnect()


@ENDS
def test_a_session_for_one_connection_is_not_kept(server: ServerProcess, end: End) -> None:
    with Wire(server.port) as reader:
        reader.connect("reader", clean=False)
        reader.subscribe(("t", 1))
    settle(server)

    end(server)

    arrive(server, "reader", present=False).disconnect()


def live_and_die(server: ServerProcess, seconds: float) -> None:
    """Brokers that begin and are killed, for at least so long."""
    deadline = time.monotonic() + seconds
    server.kill()
    while time.monotonic() < deadline:
        server.start()
        server.kill()
    server.start()


def test_the_expiry_of_a_session_goes_on_while_the_broker_is_down(server: ServerProcess) -> None:
    arrive(server, "short", props=SECOND).disconnect()
    arrive(server, "long").disconnect()
    settle(server)

    live_and_die(server, 1.1)

    arrive(server, "short", present=False).disconnect()
    arrive(server, "long", present=True).disconnect()


def test_the_expiry_of_a_message_goes_on_while_the_broker_is_down(server: ServerProcess) -> None:
    leave_subscribed(server, ("t", 1))
    with arrive(server, "writer") as writer:
        writer.publish("t", b"short", qos=1, props={"message_expiry_interval": 1})
        writer.publish("t", b"long", qos=1, props={"message_expiry_interval": 3_600})
    live_and_die(server, 1.1)

    with arrive(server, "reader", present=True) as reader:
        (found,) = waiting(reader)
    assert found.payload == b"long"
    left = (found.properties or {})["message_expiry_interval"]
    assert isinstance(left, int)
    assert 3_500 < left < 3_600


def test_a_folder_belongs_to_one_broker_at_a_time(server: ServerProcess) -> None:
    second = ServerProcess(data=server.data)

    with pytest.raises(NotUpError, match="another running broker"):
        second.start()

    arrive(server, "still").disconnect()


def test_a_folder_that_cannot_be_made_is_named(server: ServerProcess) -> None:
    in_the_way = server.data.parent / "file"
    in_the_way.write_text("no folder")
    second = ServerProcess(data=in_the_way)

    with pytest.raises(NotUpError, match="file"):
        second.start()


def test_many_runs_in_a_row_keep_everything(server: ServerProcess) -> None:
    leave_subscribed(server, ("t", 2))
    for number in range(5):
        with arrive(server, "writer") as writer:
            writer.publish("t", b"%d" % number, qos=2)
        server.crash()

    with arrive(server, "reader", present=True) as reader:
        assert [payload for _, payload, _ in messages(reader)] == [b"%d" % n for n in range(5)]
