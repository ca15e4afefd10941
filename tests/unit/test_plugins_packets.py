"""Hooks about packets: `connect`, `will` and `subscribe`, as `def` and `async def`."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Access, Listener
from mqttcore.errors import OverloadedError
from mqttcore.plugin import (
    Allow,
    Deny,
    Drop,
    Grant,
    HookStats,
    Limits,
    Login,
    Message,
    Plugin,
    Redirect,
    Replace,
    ReplaceConnect,
    ReplaceOptions,
    Subscribe,
    SubscribeEntry,
    hook,
)

from tests.eventually import eventually
from tests.wire import CONNACK, SUBACK, Packet, Will, Wire, connect, subscribe

UNAVAILABLE, FAULT, NOT_AUTHORIZED = 0x88, 0x83, 0x87
CLOSED = Listener(address="127.0.0.1:0", name="closed")
OPEN = Listener(
    address="127.0.0.1:0",
    name="open",
    anonymous=Access(publish=("#",), subscribe=("#",)),
)
Hook = Callable[..., Any]  # Any: each hook point has its own argument and answer


class Porter(Plugin):
    """Lets everybody in, under another name."""

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["#"], subscribe=["#"], deny=["denied"]), username="present")


def deciding(decorate: Callable[[Hook], Hook], answers: Sequence[Any], *, is_async: bool) -> Plugin:
    """A plugin with one hook for each of ``answers``: a value, or a function of the argument."""

    def answer(one: Any, seen: Any) -> Any:  # noqa: ANN401 - any answer about anything
        plugin.seen.append(seen)  # type: ignore[attr-defined] # made below
        return one(seen) if callable(one) else one

    def made(one: Any) -> Hook:  # noqa: ANN401 - as above
        def decide(self: Plugin, seen: Any) -> Any:  # noqa: ANN401 - as above
            return answer(one, seen)

        async def decide_async(self: Plugin, seen: Any) -> Any:  # noqa: ANN401 - as above
            return answer(one, seen)

        return decorate(decide_async if is_async else decide)

    hooks = {f"decide_{number}": made(one) for number, one in enumerate(answers)}
    plugin: Plugin = type("Deciding", (Plugin,), hooks)()
    plugin.seen = []  # type: ignore[attr-defined] # for the test
    return plugin


@pytest.fixture(params=[False, True], ids=["def", "async def"])
def is_async(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@contextmanager
def running(*plugins: Plugin, listener: Listener = CLOSED) -> Iterator[Broker]:
    """A broker with a porter and these plugins."""
    with Broker(Settings(listeners=(listener,)), plugins=[Porter(), *plugins]) as broker:
        yield broker


@contextmanager
def client(  # Any: of CONNECT
    broker: Broker,
    **connecting: Any,  # noqa: ANN401 - as above
) -> Iterator[tuple[Wire, Packet]]:
    """A client with a user name, and its CONNACK."""
    with Wire(broker.port) as wire:
        wire.send(connect("c", username="joe", password=b"pw", **connecting))
        yield wire, wire.expect(CONNACK)


def reason_of_connect(plugin: Plugin, **connecting: Any) -> int:  # noqa: ANN401 - as above
    """The reason code of CONNACK."""
    with running(plugin) as broker, client(broker, **connecting) as (_, connack):
        return connack.reason


def stats(broker: Broker, point: str) -> HookStats:
    (found,) = [one for one in broker.hook_stats() if one.point == point]
    return found


def test_a_connect_hook_changes_the_connection(is_async: bool) -> None:
    change = ReplaceConnect(
        keep_alive=77,
        session_expiry_interval=30,
        limits=Limits(max_qos=1),
        user_properties=[("a", "b")],
    )
    plugin = deciding(hook.connect(timeout=5), [change], is_async=is_async)

    props = {"session_expiry_interval": 900}
    with running(plugin) as broker, client(broker, keep_alive=600, props=props) as (wire, connack):
        assert connack.property("server_keep_alive") == 77
        assert connack.property("session_expiry_interval") == 30
        assert connack.property("maximum_qos") == 1
        assert connack.property("user_property") == [("a", "b")]
        wire.ping()
        eventually(lambda: stats(broker, "connect").allowed == 1)


def test_each_plugin_sees_what_the_one_before_it_changed(is_async: bool) -> None:
    answers = [
        ReplaceConnect(keep_alive=77, session_expiry_interval=30),
        None,
        ReplaceConnect(session_expiry_interval=60),
    ]
    plugin = deciding(hook.connect, answers, is_async=is_async)

    with running(plugin) as broker, client(broker, props={"session_expiry_interval": 900}) as found:
        assert found[1].property("session_expiry_interval") == 30

    first, second, third = plugin.seen  # type: ignore[attr-defined] # of `deciding`
    assert (first.session_expiry_interval, second.session_expiry_interval) == (900, 30)
    assert (second.keep_alive, third.keep_alive) == (77, 77)


def test_a_connect_hook_sees_the_user_name_in_force_and_no_password(is_async: bool) -> None:
    plugin = deciding(hook.connect, [None], is_async=is_async)

    assert reason_of_connect(plugin) == 0

    (seen,) = plugin.seen  # type: ignore[attr-defined] # of `deciding`
    assert (seen.client_id, seen.username, seen.password) == ("c", "present", None)


def test_a_connect_hook_decides_about_anonymous_clients() -> None:
    plugin = deciding(hook.connect, [Deny("banned")], is_async=False)

    with running(plugin, listener=OPEN) as broker, Wire(broker.port) as wire:
        wire.send(connect("c"))
        assert wire.expect(CONNACK).reason == 0x8A


@pytest.mark.parametrize(("permanent", "reason"), [(False, 0x9C), (True, 0x9D)])
def test_a_connect_hook_names_another_server(permanent: bool, reason: int) -> None:
    redirect = Redirect("b.example:1883", permanent=permanent)
    plugin = deciding(hook.connect, [redirect], is_async=False)

    with running(plugin) as broker, client(broker) as (_, connack):
        assert connack.reason == reason
        assert connack.property("server_reference") == "b.example:1883"
        eventually(lambda: stats(broker, "connect").denied == 1)


def boom(_: object) -> object:
    raise RuntimeError("no database")


def busy(_: object) -> object:
    raise OverloadedError("later")


@pytest.mark.parametrize("fault", [boom, True, Allow(), [None], {"keep_alive": 5}])
def test_a_connect_hook_with_a_fault_refuses(fault: object, is_async: bool) -> None:
    plugin = deciding(hook.connect, [fault, None], is_async=is_async)

    assert reason_of_connect(plugin) == UNAVAILABLE
    assert len(plugin.seen) == 1  # type: ignore[attr-defined] # the next hook is not asked


def test_a_connect_hook_may_be_busy() -> None:
    plugin = deciding(hook.connect, [busy], is_async=True)

    assert reason_of_connect(plugin) == 0x89


def will_of(plugin: Plugin, topic: str = "will/a") -> tuple[str, bytes]:
    """What a subscriber gets when a client with a will vanishes, or the message after it."""
    with running(plugin) as broker, Wire(broker.port) as reader:
        reader.connect("reader", username="ann", password=b"pw")
        reader.subscribe(("#", 0))
        with client(broker, will=Will(topic=topic, payload=b"gone", qos=1)) as (_, connack):
            assert connack.reason == 0
        eventually(lambda: broker.stats()["clients_connected"] == 1)
        reader.publish("after", b"")
        found = reader.receive_publish()
        return found.topic, found.payload


def test_a_will_may_be_replaced(is_async: bool) -> None:
    def change(will: Message) -> Replace:
        assert (will.topic, will.payload, will.qos) == ("will/a", b"gone", 1)
        assert will.client.username == "present"
        return Replace(topic="moved", payload=will.payload + b"!")

    plugin = deciding(hook.will("will/#"), [change, None], is_async=is_async)

    assert will_of(plugin) == ("moved", b"gone!")
    assert len(plugin.seen) == 1  # type: ignore[attr-defined] # its topic is another one


def test_a_will_may_be_dropped(is_async: bool) -> None:
    plugin = deciding(hook.will("will/#"), [Drop()], is_async=is_async)

    assert will_of(plugin) == ("after", b"")


def test_a_will_on_another_topic_is_not_asked_about() -> None:
    plugin = deciding(hook.will("will/#"), [boom], is_async=False)

    assert will_of(plugin, "other") == ("other", b"gone")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (Deny("payload_format_invalid"), 0x99),
        (Replace(topic="denied"), NOT_AUTHORIZED),
        (boom, UNAVAILABLE),
        (True, UNAVAILABLE),
    ],
)
def test_a_client_whose_will_is_refused_does_not_connect(
    answer: object, reason: int, is_async: bool
) -> None:
    plugin = deciding(hook.will("will/#"), [answer], is_async=is_async)

    assert reason_of_connect(plugin, will=Will(topic="will/a", payload=b"gone", qos=1)) == reason


def reasons_of_subscribe(plugin: Plugin, *filters: tuple[str, int]) -> list[int]:
    """The reason codes of SUBACK."""
    with running(plugin) as broker, client(broker) as (wire, _):
        wire.send(subscribe(*filters))
        return list(wire.expect(SUBACK).reasons)


def test_a_subscribe_hook_lowers_and_refuses_filters(is_async: bool) -> None:
    answer = [ReplaceOptions(qos=0), Deny("quota_exceeded"), None]
    plugin = deciding(hook.subscribe, [answer], is_async=is_async)

    found = reasons_of_subscribe(plugin, ("a", 2), ("denied", 1), ("b", 1), ("$share/g/c", 2))

    assert found == [0, NOT_AUTHORIZED, 0x97, 2]
    (seen,) = plugin.seen  # type: ignore[attr-defined] # of `deciding`
    assert [(one.topic, one.share, one.qos) for one in seen.entries] == [
        ("a", None, 2),
        ("b", None, 1),
        ("c", "g", 2),
    ]
    assert (seen.client.client_id, seen.client.username) == ("c", "present")


def test_the_next_hook_sees_what_is_left_of_a_subscribe(is_async: bool) -> None:
    answers = [[ReplaceOptions(qos=1), Deny()], None, [ReplaceOptions(qos=0)]]
    plugin = deciding(hook.subscribe, answers, is_async=is_async)

    assert reasons_of_subscribe(plugin, ("a", 2), ("b", 2)) == [0, NOT_AUTHORIZED]

    _, second, third = plugin.seen  # type: ignore[attr-defined] # of `deciding`
    assert [(one.topic, one.qos) for one in second.entries] == [("a", 1)]
    assert [one.topic for one in third.entries] == ["a"]


def test_one_answer_may_refuse_all_filters(is_async: bool) -> None:
    plugin = deciding(hook.subscribe, [Deny("quota_exceeded"), None], is_async=is_async)

    assert reasons_of_subscribe(plugin, ("a", 2), ("b", 2)) == [0x97, 0x97]
    assert len(plugin.seen) == 1  # type: ignore[attr-defined] # nothing is left to ask about


@pytest.mark.parametrize(
    "fault",
    [boom, busy, True, "no", [None], [None, True], [ReplaceOptions(qos=2), None], Drop()],
    ids=lambda one: getattr(one, "__name__", str(one)),
)
def test_a_subscribe_hook_with_a_fault_refuses_each_filter(fault: object, is_async: bool) -> None:
    plugin = deciding(hook.subscribe, [fault, None], is_async=is_async)

    assert reasons_of_subscribe(plugin, ("a", 1), ("b", 1)) == [FAULT, FAULT]
    assert len(plugin.seen) == 1  # type: ignore[attr-defined] # the next hook is not asked


def test_a_packet_may_be_made_by_hand() -> None:
    packet = Subscribe(
        Login(client_id="c"),
        entries=[SubscribeEntry("$share/g/a/#", qos=1, retain_handling=2), SubscribeEntry("b")],
    )

    first, second = packet.entries
    assert (first.topic, first.share, first.qos, first.retain_handling) == ("a/#", "g", 1, 2)
    assert (second.no_local, second.retain_as_published) == (False, False)
    with pytest.raises(ValueError, match="QoS is 0, 1 or 2"):
        SubscribeEntry("a", qos=3)
    with pytest.raises(ValueError, match="retain_handling is 0, 1 or 2"):
        SubscribeEntry("a", retain_handling=3)
    with pytest.raises(ValueError, match="#"):
        SubscribeEntry("a/#/b")


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: ReplaceConnect(keep_alive=65_536), "keep_alive is 65536: 0 to 65,535"),
        (lambda: ReplaceConnect(session_expiry_interval=-1), "session_expiry_interval is -1"),
        (lambda: ReplaceOptions(qos=3), "qos is 3: 0, 1 or 2"),  # type: ignore[arg-type] # wrong
        (lambda: Redirect(""), "server must have 1 to 65,535 bytes"),
    ],
)
def test_an_answer_is_checked_where_it_is_written(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        make()
