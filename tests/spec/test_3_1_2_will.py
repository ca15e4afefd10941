"""Section 3.1.2 of MQTT 3.1.1 and 5.0: the will, when it is published and as what."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests import wire as mqtt
from tests.crash.process import ServerProcess
from tests.wire import Will, Wire, unique

Open = Callable[..., Wire]


@pytest.fixture
def watcher(client: Open, topic: str) -> Wire:
    """A subscriber to the topics of this test, in the version of the run."""
    one = client()
    one.subscribe((f"{topic}/#", 2))
    return one


def nothing_comes(watcher: Wire, sender: Wire, topic: str) -> None:
    """What is published now is the next that the watcher gets."""
    sender.publish(f"{topic}/sentinel", b"sentinel")
    assert watcher.receive_publish().payload == b"sentinel"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-7")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
@pytest.mark.parametrize("end", ["close", "reset"])
def test_the_will_is_published_when_the_network_fails(
    client: Open, watcher: Wire, topic: str, end: str
) -> None:
    one = client(will=Will(topic=f"{topic}/will", payload=b"gone"))

    getattr(one, end)()

    found = watcher.receive_publish()
    assert (found.topic, found.payload) == (f"{topic}/will", b"gone")


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-7")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_the_will_is_published_when_the_broker_was_killed(tmp_path: Path, version: int) -> None:
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    kept: dict[str, int] = {"session_expiry_interval": 3_600}
    try:
        with Wire(server.port) as reader:
            reader.connect("reader", clean=False, props=kept)
            reader.subscribe(("will", 1))
        with Wire(server.port, version=version) as one:
            one.connect("one", will=Will(topic="will", payload=b"gone", qos=1))
            server.crash()

        with Wire(server.port) as reader:
            assert reader.connect("reader", clean=False, props=kept).session_present
            assert reader.receive_publish().payload == b"gone"
    finally:
        server.kill()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_the_will_is_published_when_the_broker_closes_for_a_violation(
    client: Open, watcher: Wire, topic: str
) -> None:
    one = client(will=Will(topic=f"{topic}/will"))

    one.send(b"\xc1\x00")

    one.expect_refusal(0x81)
    assert watcher.receive_publish().topic == f"{topic}/will"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_the_will_is_published_when_the_client_is_replaced(
    client: Open, watcher: Wire, topic: str
) -> None:
    name = unique("c")
    client(name, will=Will(topic=f"{topic}/will"))

    client(name)

    assert watcher.receive_publish().topic == f"{topic}/will"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("3.1.1", "MQTT-3.1.2-10")
@pytest.mark.spec("5.0", "MQTT-3.1.2-10")
def test_the_will_is_published_once(client: Open, watcher: Wire, topic: str) -> None:
    name = unique("c")
    client(name, keep=True, will=Will(topic=f"{topic}/will", payload=b"gone")).close()
    assert watcher.receive_publish().payload == b"gone"

    client(name, keep=True).close()
    client(name, clean=True)

    nothing_comes(watcher, client(), topic)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-10")
@pytest.mark.spec("3.1.1", "MQTT-3.14.4-3")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-10")
@pytest.mark.spec("5.0", "MQTT-3.14.4-3")
def test_disconnect_forgets_the_will(client: Open, watcher: Wire, topic: str) -> None:
    name = unique("c")
    client(name, keep=True, will=Will(topic=f"{topic}/will")).disconnect()

    client(name, keep=True).close()
    client(name, clean=True)

    nothing_comes(watcher, client(), topic)


@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
@pytest.mark.parametrize("reason", [0x04, 0x80, 0x97])
def test_a_disconnect_with_another_reason_publishes_the_will(
    client: Open, watcher: Wire, topic: str, reason: int
) -> None:
    one = client(will=Will(topic=f"{topic}/will"))

    one.disconnect(reason)

    assert watcher.receive_publish().topic == f"{topic}/will"


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-12")
def test_a_client_without_a_will_leaves_none(client: Open, watcher: Wire, topic: str) -> None:
    name = unique("c")
    client(name, keep=True, will=Will(topic=f"{topic}/old")).disconnect()

    client(name, keep=True).reset()

    client(name, keep=True).disconnect()
    nothing_comes(watcher, client(), topic)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_the_will_is_published_with_its_qos(
    client: Open, watcher: Wire, topic: str, qos: int
) -> None:
    client(will=Will(topic=f"{topic}/will", payload=b"\x00\xff", qos=qos)).close()

    found = watcher.receive_publish()
    assert (found.qos, found.payload, found.dup) == (qos, b"\x00\xff", False)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-16")
@pytest.mark.spec("5.0", "MQTT-3.1.2-14")
def test_a_will_without_retain_is_not_retained(client: Open, watcher: Wire, topic: str) -> None:
    client(will=Will(topic=f"{topic}/will", payload=b"gone")).close()
    assert not watcher.receive_publish().retain

    late = client()
    late.subscribe(f"{topic}/will")

    late.ping()


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-17")
@pytest.mark.spec("5.0", "MQTT-3.1.2-15")
def test_a_will_with_retain_is_retained(client: Open, watcher: Wire, topic: str) -> None:
    client(will=Will(topic=f"{topic}/will", payload=b"gone", qos=1, retain=True)).close()
    assert watcher.receive_publish().payload == b"gone"

    late = client()
    late.subscribe((f"{topic}/will", 1))

    found = late.receive_publish()
    assert (found.payload, found.retain, found.qos) == (b"gone", True, 1)
    late.publish(f"{topic}/will", b"", retain=True)


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-17")
@pytest.mark.spec("5.0", "MQTT-3.1.2-15")
def test_an_empty_will_with_retain_clears_what_was_retained(
    client: Open, watcher: Wire, topic: str
) -> None:
    client().publish(f"{topic}/will", b"kept", qos=1, retain=True)
    assert watcher.receive_publish().payload == b"kept"

    client(will=Will(topic=f"{topic}/will", payload=b"", retain=True)).close()

    assert watcher.receive_publish().payload == b""
    late = client()
    late.subscribe(f"{topic}/will")
    late.ping()


# --- 5.0: delay and properties -------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_a_will_waits_for_its_delay(client: Open, watcher: Wire, topic: str) -> None:
    delayed = Will(topic=f"{topic}/delayed", properties={"will_delay_interval": 1})
    client(keep=True, will=delayed).close()
    client(keep=True, will=Will(topic=f"{topic}/at-once")).close()

    assert watcher.receive_publish().topic == f"{topic}/at-once"
    assert watcher.receive_publish().topic == f"{topic}/delayed"


@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_a_will_does_not_wait_longer_than_its_session(
    client: Open, watcher: Wire, topic: str
) -> None:
    late = Will(topic=f"{topic}/late", properties={"will_delay_interval": 3_600})
    client(props={"session_expiry_interval": 1}, will=late).close()
    client(will=Will(topic=f"{topic}/none", properties={"will_delay_interval": 3_600})).close()

    assert watcher.receive_publish().topic == f"{topic}/none"
    assert watcher.receive_publish().topic == f"{topic}/late"


@pytest.mark.spec("5.0", "MQTT-3.1.3-9")
def test_no_will_is_sent_when_the_session_goes_on_within_the_delay(
    client: Open, watcher: Wire, topic: str
) -> None:
    names = [unique("back"), unique("away")]
    for name in names:
        will = Will(topic=f"{topic}/{name}", properties={"will_delay_interval": 1})
        client(name, keep=True, will=will).close()

    client(names[0], keep=True)

    assert watcher.receive_publish().topic == f"{topic}/{names[1]}"
    nothing_comes(watcher, client(), topic)


@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.3-9")
def test_a_will_that_waits_is_sent_when_a_clean_start_ends_its_session(
    client: Open, watcher: Wire, topic: str
) -> None:
    name = unique("c")
    will = Will(topic=f"{topic}/will", properties={"will_delay_interval": 3_600})
    client(name, keep=True, will=will).close()

    client(name, clean=True)

    assert watcher.receive_publish().topic == f"{topic}/will"


@pytest.mark.spec("5.0", "MQTT-3.1.3-9")
def test_a_takeover_within_the_delay_sends_no_will(client: Open, watcher: Wire, topic: str) -> None:
    name = unique("c")
    will = Will(topic=f"{topic}/will", properties={"will_delay_interval": 3_600})
    old = client(name, keep=True, will=will)

    client(name, keep=True).disconnect()

    old.expect_refusal(0x8E)
    client(name, clean=True)
    nothing_comes(watcher, client(), topic)


@pytest.mark.spec("5.0", "MQTT-3.1.2-7")
@pytest.mark.spec("5.0", "MQTT-3.1.3-10")
def test_a_will_carries_its_properties_in_their_order(
    client: Open, watcher: Wire, topic: str
) -> None:
    carried = bytes.fromhex(
        "01 01"  # payload format indicator
        "03 00 01 74"  # content type
        "08 00 01 72"  # response topic
        "09 00 02 00 ff"  # correlation data
        "26 00 01 62 00 01 31"  # user properties: b, a, b
        "26 00 01 61 00 01 32"
        "26 00 01 62 00 01 33"
    )
    delay = bytes.fromhex("18 00 00 00 00")

    client(will=Will(topic=f"{topic}/will", payload=b"p", properties=delay + carried)).close()

    found = watcher.receive_publish()
    user = [("b", "1"), ("a", "2"), ("b", "3")]
    assert found.property("user_property") == user
    assert bytes([len(carried)]) + carried + b"p" == found.raw[4 + len(f"{topic}/will") :]


@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_the_expiry_of_a_will_begins_when_it_is_published(
    client: Open, watcher: Wire, topic: str
) -> None:
    times = {"will_delay_interval": 1, "message_expiry_interval": 60}

    client(keep=True, will=Will(topic=f"{topic}/will", properties=times)).close()

    assert watcher.receive_publish().property("message_expiry_interval") == 60


@pytest.mark.spec("3.1.1", "MQTT-3.1.2-8")
@pytest.mark.spec("5.0", "MQTT-3.1.2-8")
def test_a_refused_client_leaves_no_will(
    wire: Open, client: Open, watcher: Wire, version: int, topic: str
) -> None:
    one = wire()

    one.send(mqtt.connect("a+b", version=version, will=Will(topic=f"{topic}/will")))

    assert one.expect(mqtt.CONNACK).reason != 0
    one.expect_close()
    nothing_comes(watcher, client(), topic)
