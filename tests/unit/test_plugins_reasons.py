"""What a plugin says beside its codes reaches clients that take it, as far as there is room."""

from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.plugin import Allow, Ask, Deny, DisconnectClient, Grant, Login, Plugin, hook

from tests.wire import CONNACK, DISCONNECT, PUBACK, PUBREC, Wire, connect, publish

CLOSED = Listener(address="127.0.0.1:0", name="closed")
NOT_AUTHORIZED, BANNED = 0x87, 0x8A
PROPERTIES = (("region", "north"), ("shard", "3"), ("nul", "\0"))


class Porter(Plugin):
    """Lets in all but one, and allows nothing."""

    answer: Deny | DisconnectClient = Deny("not_authorized", "after hours")

    @hook.authenticate()
    def login(self, login: Login) -> Allow | Deny:
        """By the user name."""
        if login.username == "eve":
            return Deny("banned", "until Monday")
        if login.username == "mallory":
            return Deny("bad_credentials", "who is that?\nlistener a: all is well")
        return Allow(Grant(), user_properties=PROPERTIES)

    @hook.authorize(action="publish", filter="#")
    def may_publish(self, _: Ask) -> Deny | DisconnectClient:
        """Never."""
        return self.answer

    @hook.authorize(action="subscribe", filter="#")
    async def may_subscribe(self, _: Ask) -> Deny:
        """Never."""
        return Deny("quota_exceeded", "one is enough")


@pytest.fixture
def porter() -> Porter:
    return Porter()


@pytest.fixture
def broker(porter: Porter) -> Iterator[Broker]:
    with Broker(Settings(listeners=(CLOSED,)), plugins=(porter,)) as running:
        yield running


@pytest.fixture
def client(broker: Broker) -> Iterator[Callable[..., Wire]]:
    opened: list[Wire] = []

    def connected(**props: int) -> Wire:
        wire = Wire(broker.port)
        opened.append(wire)
        wire.connect("c", username="ann", props=props)
        return wire

    yield connected
    for wire in opened:
        wire.close()


@pytest.mark.parametrize(("qos", "kind"), [(1, PUBACK), (2, PUBREC)])
def test_a_denied_publish_is_told_why(client: Callable[..., Wire], qos: int, kind: int) -> None:
    wire = client()

    wire.send(publish("a", qos=qos, packet_id=7))

    answer = wire.expect(kind)
    assert (answer.reason, answer.property("reason_string")) == (NOT_AUTHORIZED, "after hours")


def test_a_denied_subscription_is_told_why(client: Callable[..., Wire]) -> None:
    answer = client().subscribe(("a", 0), ("b", 0))

    assert answer.reasons == (0x97, 0x97)
    assert answer.property("reason_string") == "one is enough"


def test_a_client_that_has_to_go_is_told_why(porter: Porter, client: Callable[..., Wire]) -> None:
    porter.answer = DisconnectClient("not_authorized", "go away")
    wire = client()

    wire.send(publish("a"))

    answer = wire.expect(DISCONNECT)
    assert (answer.reason, answer.property("reason_string")) == (NOT_AUTHORIZED, "go away")


def test_a_login_that_is_refused_is_told_why(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.send(connect("c", username="eve"))
        answer = wire.expect(CONNACK)

    assert (answer.reason, answer.property("reason_string")) == (BANNED, "until Monday")


def test_the_reason_string_of_a_refused_login_is_one_line_in_the_log(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    """A plugin may repeat what its client said."""
    with Wire(broker.port) as wire:
        wire.send(connect("c", username="mallory"))
        wire.expect(CONNACK)
    broker.stop()

    lines = [record.getMessage() for record in caplog.records]
    assert any("all is well" in line for line in lines)
    assert not any("\n" in line for line in lines)


def test_the_reason_string_of_a_disconnect_is_one_line_in_the_log(
    broker: Broker,
    porter: Porter,
    client: Callable[..., Wire],
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Lines of a kind are few a second, so each test has a broker of its own."""
    porter.answer = DisconnectClient("not_authorized", "no\n\x1b[2J")
    wire = client()
    wire.send(publish("a"))
    wire.expect(DISCONNECT)
    broker.stop()

    lines = [record.getMessage() for record in caplog.records]
    assert any("[2J" in line for line in lines)
    assert not any(set(line) & set("\n\x1b") for line in lines)


def test_user_properties_of_a_login_reach_connack(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.send(connect("c", username="ann"))
        answer = wire.expect(CONNACK)

    # what MQTT cannot carry is left out
    assert answer.property("user_property") == list(PROPERTIES[:2])


@pytest.mark.parametrize("props", [{"request_problem_information": 0}, {"maximum_packet_size": 18}])
def test_a_client_that_takes_no_reason_strings_gets_the_code_alone(
    client: Callable[..., Wire], props: dict[str, int]
) -> None:
    wire = client(**props)

    wire.send(publish("a", qos=1, packet_id=7))

    wire.expect_bytes(bytes.fromhex("40 03 00 07 87"))


def test_older_versions_have_no_reason_strings(broker: Broker) -> None:
    with Wire(broker.port, version=4) as wire:
        wire.connect("c", username="ann")
        wire.send(publish("a", qos=1, packet_id=7, version=4))
        wire.expect_bytes(bytes.fromhex("40 02 00 07"))
