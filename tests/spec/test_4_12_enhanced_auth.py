"""Section 4.12 of MQTT 5.0: enhanced authentication and re-authentication."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

from tests import wire as mqtt
from tests.wire import Will, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]
# What the plugin asks and says, as properties of AUTH and CONNACK.
METHOD = b"\x15\x00\x06RIDDLE"
QUESTION = b"\x16\x00\x10six times seven?"
WELCOME = b"\x16\x00\x09well said"
CONTINUE, AGAIN = 0x18, 0x19


def said(data: bytes | None = None, method: str = "RIDDLE") -> dict[str, object]:
    """Method and data of a client."""
    listed: dict[str, object] = {"authentication_method": method}
    return listed if data is None else {**listed, "authentication_data": data}


@pytest.fixture
def asked(wire: Open, riddle: Broker) -> Wire:
    """A client without CONNACK that was asked the first question."""
    one = wire(port=riddle.port)
    one.send(mqtt.connect(unique("c"), props=said(b"hello")))
    one.expect_bytes(b"\xf0\x1e\x18\x1c" + METHOD + QUESTION)
    return one


@pytest.fixture
def let_in(wire: Open, riddle: Broker) -> Wire:
    """A client that was let in by the method."""
    one = wire(port=riddle.port)
    one.connect(unique("c"), props=said(b"friend"))
    return one


# --- before CONNACK -------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.12.0-1")
@pytest.mark.parametrize("method", ["NONE", "riddle", "RIDDLE ", ""])
def test_a_method_that_the_broker_does_not_have_is_refused(
    wire: Open, riddle: Broker, method: str
) -> None:
    one = wire(port=riddle.port)

    one.send(mqtt.connect(unique("c"), props=said(b"hello", method)))

    one.expect_no_entry(0x8C)


@pytest.mark.spec("5.0", "MQTT-4.12.0-1")
def test_a_broker_that_has_no_method_at_all_refuses_any(wire: Open) -> None:
    one = wire()

    one.send(mqtt.connect(unique("c"), props=said(b"hello")))

    one.expect_no_entry(0x8C)


@pytest.mark.spec("5.0", "MQTT-4.12.0-2")
def test_the_broker_asks_for_more_by_auth_0x18(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)

    one.send(mqtt.connect(unique("c"), props=said(b"hello")))

    one.expect_bytes(b"\xf0\x1e\x18\x1c" + METHOD + QUESTION)


@pytest.mark.spec("5.0", "MQTT-4.12.0-2")
def test_the_broker_may_ask_several_times(asked: Wire) -> None:
    for _ in range(3):
        asked.send(mqtt.auth(CONTINUE, said(b"41")))
        asked.expect_bytes(b"\xf0\x1e\x18\x1c" + METHOD + QUESTION)

    asked.send(mqtt.auth(CONTINUE, said(b"42")))

    assert asked.expect(mqtt.CONNACK).reason == 0
    asked.ping()


@pytest.mark.spec("5.0", "MQTT-4.12.0-2")
def test_the_broker_need_not_ask(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)

    one.send(mqtt.connect(unique("c"), props=said(b"friend")))

    assert one.expect(mqtt.CONNACK).reason == 0


@pytest.mark.spec("5.0", "MQTT-4.12.0-2")
def test_connect_may_bring_no_data(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)

    one.send(mqtt.connect(unique("c"), props=said()))

    one.expect_bytes(b"\xf0\x1e\x18\x1c" + METHOD + QUESTION)


@pytest.mark.spec("5.0", "MQTT-4.12.0-3")
@pytest.mark.parametrize("code", [0x00, AGAIN])
def test_an_auth_of_the_client_with_another_code_is_a_protocol_error(
    asked: Wire, code: int
) -> None:
    asked.send(mqtt.auth(code, said(b"42")))

    asked.expect_no_entry(0x82)


@pytest.mark.spec("5.0", "MQTT-4.12.0-4")
def test_the_broker_may_refuse_at_once(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)

    one.send(mqtt.connect(unique("c"), props=said(b"foe")))

    one.expect_no_entry(0x8A)


@pytest.mark.spec("5.0", "MQTT-4.12.0-4")
@pytest.mark.parametrize(("data", "code"), [(b"foe", 0x8A), (b"", 0x87)])
def test_the_broker_may_refuse_after_a_step(asked: Wire, data: bytes, code: int) -> None:
    asked.send(mqtt.auth(CONTINUE, said(data)))

    asked.expect_no_entry(code)


@pytest.mark.spec("5.0", "MQTT-4.12.0-4")
def test_behind_a_refusal_nothing_is_processed(
    asked: Wire, client: Open, riddle: Broker, topic: str
) -> None:
    other = client(port=riddle.port)
    other.subscribe(topic)

    asked.send(mqtt.auth(CONTINUE, said(b"foe")), mqtt.publish(topic, b"late"), mqtt.pingreq())

    asked.expect_no_entry(0x8A)
    other.ping()


@pytest.mark.spec("5.0", "MQTT-4.12.0-4")
def test_a_client_that_is_refused_takes_no_session_over(wire: Open, riddle: Broker) -> None:
    name = unique("c")
    owner, thief = wire(port=riddle.port), wire(port=riddle.port)
    owner.connect(name, props=said(b"friend"))

    thief.send(mqtt.connect(name, props=said(b"foe")))

    thief.expect_no_entry(0x8A)
    owner.ping()


@pytest.mark.spec("5.0", "MQTT-4.12.0-5")
def test_connack_repeats_the_method(asked: Wire) -> None:
    asked.send(mqtt.auth(CONTINUE, said(b"42")))

    found = asked.expect(mqtt.CONNACK)
    assert METHOD + WELCOME in found.raw


@pytest.mark.spec("5.0", "MQTT-4.12.0-5")
@pytest.mark.parametrize("method", ["OTHER", "riddle", ""])
def test_another_method_within_the_exchange_is_a_protocol_error(asked: Wire, method: str) -> None:
    asked.send(mqtt.auth(CONTINUE, said(b"42", method)))

    asked.expect_no_entry(0x82)


@pytest.mark.spec("5.0", "MQTT-4.12.0-5")
@pytest.mark.parametrize(
    "step",
    [b"\xf0\x00", b"\xf0\x01\x18", b"\xf0\x02\x18\x00", b"\xf0\x07\x18\x05\x16\x00\x0242"],
    ids=["empty", "code", "no properties", "data alone"],
)
def test_an_auth_without_the_method_is_a_protocol_error(asked: Wire, step: bytes) -> None:
    asked.send(step)

    asked.expect_no_entry(0x82)


@pytest.mark.spec("5.0", "MQTT-4.12.0-6")
def test_without_a_method_there_is_no_auth_and_none_in_connack(wire: Open, riddle: Broker) -> None:
    one = wire(port=riddle.port)

    found = one.connect(unique("c"))

    assert found.property("authentication_method") is None
    assert found.property("authentication_data") is None
    one.ping()


@pytest.mark.spec("5.0", "MQTT-4.12.0-7")
@pytest.mark.parametrize("code", [0x00, CONTINUE, AGAIN])
def test_an_auth_of_a_client_that_named_no_method_is_a_protocol_error(
    client: Open, riddle: Broker, code: int
) -> None:
    one = client(port=riddle.port)

    one.send(mqtt.auth(code, said(b"42")))

    one.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-3.1.2-30")
@pytest.mark.parametrize(
    "packet",
    [
        b"\xc0\x00",
        b"\x30\x04\x00\x01a\x00",
        b"\x82\x07\x00\x01\x00\x00\x01a\x00",
        mqtt.connect("again"),
    ],
    ids=["pingreq", "publish", "subscribe", "connect"],
)
def test_before_connack_anything_but_auth_and_disconnect_is_a_protocol_error(
    asked: Wire, packet: bytes
) -> None:
    asked.send(packet)

    asked.expect_no_entry(0x82)


@pytest.mark.beyond("5.0")
def test_a_client_may_give_up_before_connack(asked: Wire) -> None:
    asked.send(b"\xe0\x00")

    asked.expect_close()


# --- once connected -------------------------------------------------------------------------------


@pytest.mark.spec("5.0", "MQTT-4.12.0-5")
def test_each_auth_of_a_re_authentication_repeats_the_method(let_in: Wire) -> None:
    let_in.send(mqtt.auth(AGAIN, said(b"hello")))
    let_in.expect_bytes(b"\xf0\x1e\x18\x1c" + METHOD + QUESTION)

    let_in.send(mqtt.auth(CONTINUE, said(b"42")))

    let_in.expect_bytes(b"\xf0\x17\x00\x15" + METHOD + WELCOME)
    let_in.ping()


@pytest.mark.spec("5.0", "MQTT-4.12.1-1")
@pytest.mark.parametrize("method", ["OTHER", "riddle", ""])
def test_a_re_authentication_by_another_method_ends_the_connection(
    let_in: Wire, method: str
) -> None:
    let_in.send(mqtt.auth(AGAIN, said(b"friend", method)))

    let_in.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-4.12.1-2")
def test_a_re_authentication_that_fails_at_once_ends_the_connection(let_in: Wire) -> None:
    let_in.send(mqtt.auth(AGAIN, said(b"foe")))

    # DISCONNECT has no code for who is banned.
    let_in.expect_refusal(0x87)


@pytest.mark.spec("5.0", "MQTT-4.12.1-2")
def test_a_re_authentication_that_fails_after_a_step_ends_the_connection(let_in: Wire) -> None:
    let_in.send(mqtt.auth(AGAIN, said(b"hello")))
    let_in.expect(mqtt.AUTH)

    let_in.send(mqtt.auth(CONTINUE, said(b"")), mqtt.pingreq())

    while (found := let_in.receive()).kind == mqtt.PINGRESP:
        pass
    assert (found.kind, found.reason) == (mqtt.DISCONNECT, 0x87)
    let_in.expect_close()


@pytest.mark.spec("5.0", "MQTT-4.12.1-2")
def test_a_failed_re_authentication_publishes_the_will(
    wire: Open, client: Open, riddle: Broker, topic: str
) -> None:
    heir, one = client(port=riddle.port), wire(port=riddle.port)
    heir.subscribe(topic)
    one.connect(unique("c"), props=said(b"friend"), will=Will(topic=topic, payload=b"lost"))

    one.send(mqtt.auth(AGAIN, said(b"foe")))

    one.expect_refusal(0x87)
    assert heir.receive_publish().payload == b"lost"


@pytest.mark.spec("5.0", "MQTT-4.12.1-2")
def test_a_step_without_a_beginning_ends_the_connection(let_in: Wire) -> None:
    let_in.send(mqtt.auth(CONTINUE, said(b"42")))

    let_in.expect_refusal(0x82)


@pytest.mark.spec("5.0", "MQTT-4.12.1-2")
def test_a_second_beginning_within_one_ends_the_connection(let_in: Wire) -> None:
    let_in.send(mqtt.auth(AGAIN, said(b"hello")))
    let_in.expect(mqtt.AUTH)

    let_in.send(mqtt.auth(AGAIN, said(b"friend")))

    let_in.expect_refusal(0x82)


@pytest.mark.beyond("5.0")
def test_other_packets_flow_while_a_client_authenticates_again(
    let_in: Wire, client: Open, riddle: Broker, topic: str
) -> None:
    other = client(port=riddle.port)
    let_in.subscribe((topic, 1))
    let_in.send(mqtt.auth(AGAIN, said(b"hello")))
    let_in.expect(mqtt.AUTH)

    other.publish(topic, b"in", qos=1)
    assert let_in.receive_publish().payload == b"in"
    let_in.publish(f"{topic}/out", b"out", qos=2)
    let_in.ping()

    let_in.send(mqtt.auth(CONTINUE, said(b"42")))
    assert let_in.expect(mqtt.AUTH).reason == 0


@pytest.mark.beyond("5.0")
def test_a_client_may_authenticate_again_and_again(let_in: Wire) -> None:
    for _ in range(20):
        let_in.send(mqtt.auth(AGAIN, said(b"friend")))
        assert let_in.expect(mqtt.AUTH).reason == 0

    let_in.ping()
