"""`mqttcore.Broker` inside of a program."""

import asyncio
import logging
import os
import pathlib
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest
from mqttcore import Broker, ConfigError, Settings, StartError, StoppedError, TopicNameError
from mqttcore._core import has_streams, hash_password
from mqttcore.broker import stop_all
from mqttcore.config import Listener, ServerLimits
from mqttcore.streams.settings import Stream

from tests.websocket import WebSocketWire
from tests.wire import Wire, WireError

LISTENER = Listener(address="127.0.0.1:0", name="main", anonymous=True)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(Settings(listeners=(LISTENER,))) as running:
        yield running


def test_clients_can_connect_when_start_returns(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.connect("c")


def test_what_it_publishes_arrives(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.connect("c")
        wire.subscribe(("a/#", 2))

        matched = broker.publish(
            "a/b",
            "täxt",
            qos=1,
            user_properties=[("k", "v"), ("k", "w")],
            content_type="text/plain",
            response_topic="r",
            correlation_data=b"\x00\x01",
            message_expiry_interval=60,
        )

        found = wire.receive_publish()
        assert matched == 1
        assert (found.topic, found.payload.decode(), found.qos, found.retain) == (
            "a/b",
            "täxt",
            1,
            False,
        )
        assert found.property("user_property") == [("k", "v"), ("k", "w")]
        assert found.property("content_type") == "text/plain"
        assert found.property("response_topic") == "r"
        assert found.property("correlation_data") == b"\x00\x01"
        assert found.property("payload_format_indicator") == 1
        assert broker.publish("elsewhere") == 0


def test_what_it_retains_stays(broker: Broker) -> None:
    broker.publish("kept", b"1", retain=True)

    with Wire(broker.port) as wire:
        wire.connect("c")
        wire.subscribe(("kept", 0))
        found = wire.receive_publish()
    assert (found.payload, found.retain) == (b"1", True)


def test_a_wrong_topic_or_qos_is_refused(broker: Broker) -> None:
    with pytest.raises(TopicNameError, match=r"MQTT-4\.7"):
        broker.publish("a/#")
    with pytest.raises(ValueError, match="QoS"):
        broker.publish("a", qos=3)


@pytest.mark.parametrize("value", [-1, 2**32, 2**200])
def test_a_number_that_no_message_can_have_is_refused(broker: Broker, value: int) -> None:
    with pytest.raises(ValueError, match=f"^message_expiry_interval is 0 to .*, not {value}$"):
        broker.publish("a", message_expiry_interval=value)
    with pytest.raises(ValueError, match=f"^QoS is 0, 1 or 2, not {value}$"):
        broker.publish("a", qos=value)


def test_what_no_publish_can_carry_is_refused_and_nobody_gets_it(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.connect("c", props={"receive_maximum": 1})
        wire.subscribe(("#", 1))

        for topic in ("x/#", "+", ""):
            with pytest.raises(TopicNameError, match=r"^response topic: "):
                broker.publish("a", response_topic=topic, qos=1)
        with pytest.raises(ValueError, match="the message needs 268435462 bytes"):
            broker.publish("a", bytes(268_435_456), qos=1)
        broker.publish("a", "next", qos=1)

        assert wire.receive_publish().payload == b"next"


def test_bytes_may_be_a_bytearray(broker: Broker) -> None:
    with Wire(broker.port) as wire:
        wire.connect("c")
        wire.subscribe(("a", 0))

        broker.publish("a", bytearray(b"1"), correlation_data=bytearray(b"2"))

        found = wire.receive_publish()
        assert (found.payload, found.property("correlation_data")) == (b"1", b"2")
    with pytest.raises(TypeError, match="payload"):
        broker.publish("a", 5)  # type: ignore[arg-type]


def test_its_own_figures_are_not_counted_as_retained_messages(broker: Broker) -> None:
    """Users look at `stats()` after their first `publish(retain=True)`, and expect 1."""
    with Wire(broker.port) as wire:
        wire.connect("c")
        wire.subscribe(("$SYS/broker/uptime", 0))
        assert wire.receive_publish().retain

    broker.publish("room/1", "21.5", retain=True)

    assert broker.stats()["retained_messages"] == 1


def test_its_clients_and_figures_can_be_seen(broker: Broker) -> None:
    with Wire(broker.port, version=4) as wire:
        wire.connect("c1", clean=False, keep_alive=33)
        wire.subscribe(("a/+", 1))

        (session,) = broker.clients()
        assert (session.client_id, session.connected, session.username) == ("c1", True, None)
        assert (session.listener, session.version, session.keep_alive) == ("main", 4, 33)
        assert session.subscriptions == ["a/+"]
        assert session.peer[0] == "127.0.0.1"
        assert broker.stats()["clients_connected"] == 1
        assert broker.stats()["subscriptions"] == 1

        assert broker.disconnect("c1")
        wire.expect_close()
    assert not broker.disconnect("c1")


def test_it_can_stop_twice_and_start_again() -> None:
    broker = Broker(Settings(listeners=(LISTENER,)))
    for _ in range(3):
        with broker as same:
            assert same is broker
            with Wire(broker.port) as wire:
                wire.connect("c")
        broker.stop()

    with pytest.raises(StoppedError, match="is not running"):
        broker.publish("a")


def test_it_is_an_async_context_manager_too() -> None:
    async def use() -> int:
        async with Broker(Settings(listeners=(LISTENER,))) as broker:
            return broker.port

    assert asyncio.run(use()) > 0


def test_two_brokers_cannot_have_one_port(broker: Broker) -> None:
    second = Broker(Settings(listeners=(Listener(address=f"127.0.0.1:{broker.port}"),)))

    with pytest.raises(StartError, match="cannot listen on"):
        second.start()
    with pytest.raises(StoppedError):
        second.addresses  # noqa: B018 - reading it raises


def test_many_brokers_live_in_one_process() -> None:
    brokers = [Broker(Settings(listeners=(LISTENER,), shards=1)).start() for _ in range(5)]
    try:
        assert len({broker.port for broker in brokers}) == 5
    finally:
        for broker in brokers:
            broker.stop()


def test_a_path_is_read_as_configuration(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mqttcore.toml"
    file.write_text('[[listeners]]\naddress = "127.0.0.1:0"\nname = "from file"\n')

    assert Broker(file).settings.listeners[0].name == "from file"
    file.write_text("shards = 'x'")
    with pytest.raises(ConfigError, match=r"mqttcore\.toml:1:10"):
        Broker(str(file))


def test_a_program_that_forgets_to_stop_ends_all_the_same() -> None:
    program = (
        "from mqttcore import Broker, Settings; from mqttcore.config import Listener\n"
        "from mqttcore.plugin import Plugin, hook\n"
        "class Late(Plugin):\n"
        "    @hook.authenticate()\n"
        "    async def login(self, login): ...\n"
        "listener = Listener(address='127.0.0.1:0')\n"
        "Broker(Settings(listeners=(listener,)), plugins=[Late()]).start()\n"
    )

    ended = subprocess.run(  # noqa: S603 - our own program
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=20, check=False
    )

    assert (ended.returncode, ended.stderr) == (0, "")


def test_it_may_be_used_from_many_threads(broker: Broker) -> None:
    def work() -> None:
        for _ in range(50):
            broker.publish("a", b"x")
            broker.clients()
            broker.stats()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_cannot_touch_the_broker_of_its_parent(broker: Broker) -> None:
    child = os.fork()
    if child == 0:
        try:
            broker.stats()
        except StoppedError as error:
            stop_all()
            broker.stop()
            os._exit(0 if "fork" in str(error) else 1)
        os._exit(2)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert broker.stats()["clients_connected"] == 0


def test_it_starts_again_over_its_folder(tmp_path: pathlib.Path) -> None:
    broker = Broker(Settings(listeners=(LISTENER,), data=str(tmp_path / "data")))
    for times in range(3):
        with broker, Wire(broker.port) as wire:
            props = {"session_expiry_interval": 60}
            connack = wire.connect("c", clean=False, props=props)
            assert connack.session_present == (times > 0)


@pytest.mark.skipif(not has_streams, reason="this build has no streams")
def test_a_reload_says_what_changed_and_what_takes_a_restart_and_nothing_else(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mqttcore")
    data = str(tmp_path / "data")
    started = Settings(listeners=(LISTENER,), data=data)
    closed = replace(LISTENER, anonymous=False)
    mounted = replace(LISTENER, mount_point="plant/1")
    newest = replace(LISTENER, protocol_versions=("5.0",))
    stream = Stream(name="other", filter=("#",))
    told = [
        (started, "nothing", None),
        (replace(started, data=str(tmp_path / "other")), "nothing", "data"),
        (replace(started, streams=(stream,), shards=1), "nothing", "shards, streams"),
        (replace(started, limits=ServerLimits(connections=9)), "limits.connections", None),
        (started, "limits.connections", None),
        (replace(started, listeners=(newest,)), "listener main: protocol_versions", None),
        (started, "listener main: protocol_versions", None),
        (replace(started, listeners=(mounted,)), "listener main: mount_point", None),
        (started, "listener main: mount_point", None),
        (replace(started, listeners=(closed,)), "listener main: anonymous", None),
        (
            replace(started, listeners=(replace(closed, address="127.0.0.1:1"),)),
            "nothing",
            "listener main: address",
        ),
        (
            replace(started, listeners=(replace(LISTENER, name="new"), replace(LISTENER))),
            "listener main: anonymous",
            "listener new: new",
        ),
    ]
    with Broker(started) as broker:
        for settings, changed, restart in told:
            caplog.clear()

            broker.reload(settings)

            lines = [record.getMessage() for record in caplog.records if record.name == "mqttcore"]
            said = [f"reloaded; changed: {changed}"]
            if restart is not None:
                said.append(f"reload: a restart is needed for {restart}")
            assert lines == said


def test_a_reload_of_the_rules_for_web_pages_is_in_force_and_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "mqttcore")
    web = replace(LISTENER, transport="websocket")
    moved = replace(web, path="/other", origins=("https://example.org",))
    with Broker(Settings(listeners=(web,))) as broker:
        ((_, port),) = broker.addresses
        with WebSocketWire(port) as one:
            one.connect("before")

            broker.reload(Settings(listeners=(moved,)))

            one.ping()
        assert "reloaded; changed: listener main: path, listener main: origins" in caplog.text
        with pytest.raises(WireError, match="404"):
            WebSocketWire(port)
        with WebSocketWire(port, path="/other", headers={"Origin": "https://example.org"}) as one:
            one.connect("after")


def test_a_reload_of_moved_lines_says_that_nothing_changed(
    tmp_path: pathlib.Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "mqttcore")
    (tmp_path / "passwords").write_text(f"joe:{hash_password(b'secret', salt=bytes(16))}\n")
    file = tmp_path / "mqttcore.toml"
    plugin = 'use = "mqttcore.auth.password_file"\nconfig = { path = "passwords" }\n'
    file.write_text(f'[[listeners]]\naddress = "127.0.0.1:0"\n[[plugins]]\n{plugin}')
    with Broker(file) as broker:
        file.write_text(f"# a remark\n{file.read_text()}")
        broker.reload(file)

        assert "reloaded; changed: nothing" in caplog.text

        file.write_text(f"{file.read_text()}[[topics]]\nfilter = 'a'\ndurability = 'memory'\n")
        broker.reload(file)

        assert "reloaded; changed: topics" in caplog.text


def test_a_listener_with_another_name_lets_clients_in(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "mqttcore")
    with Broker(Settings(listeners=(LISTENER,))) as broker:
        broker.reload(Settings(listeners=(replace(LISTENER, name="renamed"),)))

        with Wire(broker.port) as wire:
            wire.connect("c")
            assert broker.clients()[0].listener == "renamed"
    assert "reloaded; changed: listener renamed: name" in caplog.text


def test_stop_waits_for_the_last_lines_of_the_log() -> None:
    is_free, lines = threading.Event(), list[str]()

    class Slow(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            is_free.wait(30)
            lines.append(record.getMessage())

    engine_log, handler = logging.getLogger("mqttcore.engine"), Slow()
    engine_log.addHandler(handler)
    try:
        broker = Broker(Settings(listeners=(LISTENER,)))
        broker.start()
        with Wire(broker.port) as odd:
            odd.send(b"GET / HTTP/1.1\r\n\r\n")
            odd.expect_close()
        stopping = threading.Thread(target=broker.stop)
        stopping.start()

        stopping.join(0.5)
        assert stopping.is_alive()
        is_free.set()
        stopping.join(30)

        assert any("HTTP on a listener" in line for line in lines)
    finally:
        is_free.set()
        engine_log.removeHandler(handler)
