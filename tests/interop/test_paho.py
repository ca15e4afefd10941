"""The Eclipse Paho client against the broker, in all versions, over TCP and WebSocket, with TLS."""

from __future__ import annotations

import contextlib
import dataclasses
import queue
import ssl
from collections.abc import Callable, Iterator
from typing import Any, Literal

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from tests.conftest import RunningBroker, both_transports, start
from tests.tls import Files
from tests.wire import PATIENCE_S, unique

Message = paho.MQTTMessage
Transport = Literal["tcp", "websockets"]


class PahoClient:
    """A client whose network loop runs in its own thread; `messages` is what came."""

    def __init__(
        self,
        port: int,
        client_id: str,
        version: int,
        *,
        clean: bool,
        transport: Transport,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self.version = version
        self.messages: queue.Queue[Message] = queue.Queue()
        self.connacks: queue.Queue[tuple[paho.ConnectFlags, Any]] = queue.Queue()
        self._answers: queue.Queue[tuple[int, list[Any]]] = queue.Queue()
        options = {} if version == 5 else {"clean_session": clean}
        self.client = paho.Client(
            CallbackAPIVersion.VERSION2,
            client_id,
            protocol=MQTTProtocolVersion(version),
            transport=transport,
            **options,
        )
        if context is not None:
            self.client.tls_set_context(context)
        self.clean = clean
        self.port = port
        self.client.on_message = lambda _c, _u, message: self.messages.put(message)
        self.client.on_connect = lambda _c, _u, flags, reason, _p: self.connacks.put(
            (flags, reason)
        )
        self.client.on_subscribe = lambda _c, _u, mid, reasons, _p: self._answers.put(
            (mid, reasons)
        )

    def connect(self) -> paho.ConnectFlags:
        """Connects, and answers with the flags of CONNACK."""
        options: dict[str, Any] = {}
        if self.version == 5:
            kept = Properties(PacketTypes.CONNECT)
            kept.SessionExpiryInterval = 0 if self.clean else 60
            options = {"clean_start": self.clean, "properties": kept}
        self.client.connect("127.0.0.1", self.port, **options)
        self.client.loop_start()
        flags, reason = self.connacks.get(timeout=PATIENCE_S)
        assert not reason.is_failure, reason
        return flags

    def subscribe(self, topic: str, qos: int = 0, **options: Any) -> list[Any]:  # noqa: ANN401 -- paho's
        """Subscribes, and answers with the reason codes of SUBACK."""
        if self.version == 5:
            asked = self.client.subscribe(topic, options=SubscribeOptions(qos=qos, **options))
        else:
            asked = self.client.subscribe(topic, qos)
        mid, reasons = self._answers.get(timeout=PATIENCE_S)
        assert mid == asked[1]
        return reasons

    def publish(self, topic: str, payload: bytes, **options: Any) -> None:  # noqa: ANN401 -- paho's
        """Publishes, and waits for the end of the flow."""
        info = self.client.publish(topic, payload, **options)
        info.wait_for_publish(PATIENCE_S)
        assert info.is_published()

    def next(self) -> Message:
        """The next message."""
        return self.messages.get(timeout=PATIENCE_S)

    def disconnect(self) -> None:
        """Disconnects in order, and joins the thread."""
        self.client.disconnect()
        self.client.loop_stop()

    def drop(self) -> None:
        """Loses the connection: no DISCONNECT leaves."""
        self.client.loop_stop()
        sock = self.client.socket()
        if sock is not None:
            sock.close()


@dataclasses.dataclass(frozen=True, slots=True)
class Encrypted:
    """A broker with TLS over TCP, then over WebSocket."""

    ports: tuple[int, int]
    context: ssl.SSLContext


@pytest.fixture(scope="module")
def encrypted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Encrypted]:
    """A broker of this module, with a CA of its own."""
    if request.config.getoption("--address"):
        pytest.skip("needs a broker of its own")
    files = Files.make(tmp_path_factory.mktemp("tls"))
    both = [dataclasses.replace(one, tls=files.tls()) for one in both_transports()]
    with start(listeners=tuple(both)) as running:
        (_, tcp), (_, web) = running.addresses
        yield Encrypted((tcp, web), files.context())


@pytest.fixture(params=["tcp", "websockets", "tcp with TLS", "websockets with TLS"])
def paho_client(
    request: pytest.FixtureRequest, broker: RunningBroker
) -> Iterator[Callable[..., PahoClient]]:
    """Makes connected clients, and ends them."""
    words = request.param.split()
    transport: Transport = words[0]
    framed = transport == "websockets"
    context = None
    if "TLS" in words:
        own: Encrypted = request.getfixturevalue("encrypted")
        port, context = own.ports[framed], own.context
    else:
        port = request.getfixturevalue("websocket_port") if framed else broker.port
    with contextlib.ExitStack() as stack:

        def make(
            version: int, client_id: str | None = None, *, clean: bool = True, connect: bool = True
        ) -> PahoClient:
            name = client_id or unique("paho")
            one = PahoClient(port, name, version, clean=clean, transport=transport, context=context)
            stack.callback(one.disconnect)
            if connect:
                one.connect()
            return one

        yield make


Make = Callable[..., PahoClient]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_paho_hears_itself(paho_client: Make, topic: str, version: int, qos: int) -> None:
    one = paho_client(version)
    assert [reason.value for reason in one.subscribe(f"{topic}/#", qos)] == [qos]

    for number in range(30):
        one.publish(f"{topic}/{number}", b"%d" % number, qos=qos)

    found = [one.next() for _ in range(30)]
    assert [each.payload for each in found] == [b"%d" % number for number in range(30)]
    assert {each.qos for each in found} == {qos}


@pytest.mark.parametrize("receiving", [3, 4, 5])
def test_paho_reaches_every_version(
    paho_client: Make, topic: str, version: int, receiving: int
) -> None:
    receiver, sender = paho_client(receiving), paho_client(version)
    receiver.subscribe(topic, 2)

    for qos in (0, 1, 2):
        sender.publish(topic, b"%d" % qos, qos=qos)

    found = [receiver.next() for _ in range(3)]
    assert sorted((each.payload, each.qos) for each in found) == [(b"0", 0), (b"1", 1), (b"2", 2)]


def test_paho_gets_retained_messages(paho_client: Make, topic: str, version: int) -> None:
    sender, receiver = paho_client(version), paho_client(version)
    sender.publish(topic, b"kept", qos=1, retain=True)

    receiver.subscribe(topic, 1)

    found = receiver.next()
    assert (found.payload, found.retain) == (b"kept", True)
    sender.publish(topic, b"", qos=1, retain=True)
    assert receiver.next().payload == b""


def test_paho_leaves_a_will(paho_client: Make, topic: str, version: int) -> None:
    watcher = paho_client(version)
    watcher.subscribe(topic, 1)
    one = paho_client(version, connect=False)
    one.client.will_set(topic, b"gone", qos=1)
    one.connect()

    one.drop()

    found = watcher.next()
    assert (found.payload, found.qos) == (b"gone", 1)


def test_paho_resumes_its_session(paho_client: Make, topic: str, version: int) -> None:
    name = unique("paho")
    first, sender = paho_client(version, name, clean=False), paho_client(version)
    first.subscribe(topic, 2)
    first.disconnect()
    for number in range(3):
        sender.publish(topic, b"%d" % number, qos=2)

    second = paho_client(version, name, clean=False, connect=False)
    flags = second.connect()

    # MQTT 3.1 has no flag for it.
    assert flags.session_present == (version > 3)
    assert [second.next().payload for _ in range(3)] == [b"0", b"1", b"2"]


def test_paho_shares_a_subscription(paho_client: Make, topic: str) -> None:
    members, sender = [paho_client(5), paho_client(5)], paho_client(5)
    for member in members:
        member.subscribe(f"$share/group/{topic}", 1)

    for number in range(10):
        sender.publish(topic, b"%d" % number, qos=1)

    found = [[int(member.next().payload) for _ in range(5)] for member in members]
    assert sorted(found[0] + found[1]) == list(range(10))


def test_paho_carries_v5_properties(paho_client: Make, topic: str) -> None:
    receiver, sender = paho_client(5), paho_client(5)
    receiver.subscribe(topic, 1)
    asked = Properties(PacketTypes.PUBLISH)
    asked.ResponseTopic = "answers"
    asked.CorrelationData = b"\x00\x01"
    asked.UserProperty = [("a", "1"), ("a", "2")]
    asked.MessageExpiryInterval = 60

    sender.publish(topic, b"x", qos=1, properties=asked)

    found: Any = receiver.next().properties
    assert found is not None
    assert (found.ResponseTopic, found.CorrelationData) == ("answers", b"\x00\x01")
    assert found.UserProperty == [("a", "1"), ("a", "2")]


def test_paho_asks_for_no_local_and_retain_handling(paho_client: Make, topic: str) -> None:
    one, other = paho_client(5), paho_client(5)
    other.publish(topic, b"kept", qos=1, retain=True)
    one.subscribe(topic, 1, noLocal=True, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)

    one.publish(topic, b"mine", qos=1)
    other.publish(topic, b"", qos=1, retain=True)

    assert one.next().payload == b""


def test_paho_sends_with_many_messages_in_flight(
    paho_client: Make, topic: str, version: int
) -> None:
    receiver, sender = paho_client(version), paho_client(version)
    receiver.subscribe(topic, 2)

    infos = [sender.client.publish(topic, b"%d" % number, qos=2) for number in range(200)]

    for info in infos:
        info.wait_for_publish(PATIENCE_S)
    assert [int(receiver.next().payload) for _ in range(200)] == list(range(200))
