"""`mqttcore sub`."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import cast

import pytest
from mqttcore import Broker
from mqttcore.cli import client as client_module
from mqttcore.config import Access, Listener

from tests.cli.conftest import Run
from tests.conftest import RunningBroker
from tests.eventually import eventually
from tests.wire import Wire, unique

Connect = Callable[..., Wire]


@pytest.fixture
def retained(client: Connect, topic: str) -> str:
    """A filter that matches two retained messages: `TOPIC/a` with 1, `TOPIC/b` with 2."""
    sender = client()
    sender.publish(f"{topic}/a", b"1", qos=1, retain=True)
    sender.publish(f"{topic}/b", b"2", qos=1, retain=True)
    return f"{topic}/#"


def test_messages_are_printed(run: Run, broker: RunningBroker, retained: str, version: int) -> None:
    name = {3: "mqttv31", 4: "311", 5: "5"}[version]
    done = run("sub", "-p", broker.port, "-t", retained, "-C", 2, "-V", name)

    assert (done.status, sorted(done.out.splitlines()), done.error) == (0, ["1", "2"], "")


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_of_each_qos_are_printed(
    run: Run, broker: RunningBroker, client: Connect, topic: str, qos: int
) -> None:
    client().publish(topic, b"x", qos=2, retain=True)

    done = run("sub", "-p", broker.port, "-t", topic, "-C", 1, "-q", qos, "-F", "%q %t")

    assert done.out == f"{qos} {topic}\n"


def test_verbose_and_no_line_end(run: Run, broker: RunningBroker, retained: str) -> None:
    topic = retained.replace("#", "a")

    done = run("sub", "-p", broker.port, "-t", topic, "-C", 1, "-v", "-N")

    assert done.out == f"{topic} 1"


def test_json_has_a_line_for_each_message(
    run: Run, broker: RunningBroker, client: Connect, topic: str
) -> None:
    sender = client()
    sender.publish(topic, "ü".encode(), qos=1, retain=True, props={"user_property": ("a", "b")})
    sender.publish(f"{topic}/raw", b"\xff", qos=1, retain=True)

    done = run("sub", "-p", broker.port, "-t", f"{topic}/#", "-C", 2, "-q", 1, "--json")

    text, raw = sorted(map(json.loads, done.out.splitlines()), key=lambda line: line["topic"])
    assert (text["payload"], text["payloadlen"], text["qos"], text["retain"]) == ("ü", 2, 1, 1)
    assert text["properties"] == {"user-properties": [["a", "b"]]}
    assert raw["payload_base64"] == "/w=="


def test_a_time_limit_ends_with_27(run: Run, broker: RunningBroker, retained: str) -> None:
    done = run("sub", "-p", broker.port, "-t", retained, "-W", "0.2")

    assert (done.status, sorted(done.out.splitlines())) == (27, ["1", "2"])


def test_unwanted_topics_and_stale_messages_are_not_printed(
    run: Run, broker: RunningBroker, retained: str
) -> None:
    unwanted = retained.replace("#", "+")
    one = retained.replace("#", "a")

    some = run("sub", "-p", broker.port, "-t", retained, "-T", one, "-C", 1)
    none = run("sub", "-p", broker.port, "-t", retained, "-T", unwanted, "-W", "0.2")
    stale = run("sub", "-p", broker.port, "-t", retained, "-R", "-W", "0.2")

    assert (some.out, none.out, stale.out) == ("2\n", "", "")


def test_it_ends_when_the_broker_has_subscribed(
    run: Run, broker: RunningBroker, topic: str
) -> None:
    assert run("sub", "-p", broker.port, "-t", topic, "-E") == (0, "", "")


def test_retained_messages_are_removed(run: Run, broker: RunningBroker, retained: str) -> None:
    options = ("-p", broker.port, "-t", retained)

    first = run("sub", *options, "--remove-retained", "--retained-only", "-W", "0.2")
    second = run("sub", *options, "--retained-only", "-W", "0.2")

    assert sorted(first.out.splitlines()) == ["1", "2"]
    assert second.out == ""


def test_a_session_keeps_its_messages(
    run: Run, broker: RunningBroker, client: Connect, topic: str
) -> None:
    options = ("-p", broker.port, "-i", unique(), "-c", "-q", 1)
    run("sub", *options, "-t", topic, "-E")
    client().publish(topic, b"kept", qos=1)

    done = run("sub", *options, "-t", topic, "-C", 1)
    ended = run("sub", *options, "-U", topic, "-W", "0.1")
    client().publish(topic, b"lost", qos=1)
    again = run("sub", *options, "-t", unique(), "-W", "0.2", "-x", 0)

    assert (done.status, done.out) == (0, "kept\n")
    assert (ended.status, again.out) == (27, "")


def test_a_refused_subscription_is_reported(run: Run, start_broker: Callable[..., Broker]) -> None:
    listener = Listener(address="127.0.0.1:0", anonymous=Access(subscribe=("a",)))
    broker = start_broker(listeners=(listener,))

    done = run("sub", "-p", broker.port, "-t", "other")
    part = run("sub", "-p", broker.port, "-t", "other", "-t", "a", "-E")

    assert done.status == 4
    assert "refused the subscription to other: 0x87 Not authorized" in done.error
    assert part.status == 0
    assert "refused the subscription to other: 0x87 Not authorized" in part.error


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ((), "give a topic filter with -t"),
        (("-t", "a/#/b"), "-t 'a/#/b': "),
        (("-t", "a", "-T", "#a"), "-T '#a': "),
        (("-t", "a", "-U", "b"), "-U needs -c"),
        (("-t", "a", "-F", "%y"), "-F: unknown sequence '%y'"),
        (("-t", "a", "-F", "a%"), "nothing follows"),
        (("-t", "a", "-F", "%t", "-v"), "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_is_refused(run: Run, arguments: tuple[str, ...], why: str) -> None:
    done = run("sub", *arguments)

    assert (done.status, done.out) == (2, "")
    assert why in done.error


@contextmanager
def subscribed(broker: Broker, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A `sub` of its own process, with the client identifier `sub`, that has subscribed."""
    arguments = ["sub", "-p", str(broker.port), "-i", "sub", *options]
    with subprocess.Popen(  # noqa: S603 -- our own program
        [sys.executable, "-m", "mqttcore", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            eventually(lambda: bool(broker.stats()["subscriptions"]))
            yield process
        finally:
            process.kill()


def test_it_connects_and_subscribes_again(fresh_broker: Broker) -> None:
    with subscribed(fresh_broker, "-t", "a", "-C", "1") as process:
        fresh_broker.disconnect("sub")
        eventually(lambda: fresh_broker.stats()["subscriptions"] == 0)
        eventually(lambda: fresh_broker.stats()["subscriptions"] == 1)
        fresh_broker.publish("a", b"again")

        out, error = process.communicate()

    assert (process.returncode, out) == (0, "again\n")
    assert "ended the connection: 0x98 Administrative action" in error


def test_it_gives_way_to_another_client_with_its_identifier(fresh_broker: Broker, run: Run) -> None:
    with subscribed(fresh_broker, "-t", "a") as process:
        assert run("pub", "-p", fresh_broker.port, "-i", "sub", "-t", "b", "-n").status == 0

        _, error = process.communicate()

    assert process.returncode == 4
    assert "ended the connection: 0x8E Session taken over" in error
    assert "another client has the identifier 'sub'" in error


def test_an_interrupt_is_no_traceback(fresh_broker: Broker) -> None:
    import signal

    with subscribed(fresh_broker, "-t", "a") as process:
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()

    assert (process.returncode, error) == (130, "")


def test_a_broker_that_does_not_answer_a_ping_is_lost(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket
    import threading

    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            for number in range(2):
                line, _ = server.accept()
                with line:
                    line.recv(4_096)
                    line.sendall(bytes.fromhex("20 03 00 00 00"))
                    line.recv(4_096)
                    line.sendall(bytes.fromhex("90 04 00 01 00 00"))
                    if number:
                        line.sendall(bytes.fromhex("30 04 00 01 61 00"))
                    while line.recv(4_096):  # a ping, then the end
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        done = run("sub", "-p", server.getsockname()[1], "-t", "a", "-C", 1, "-k", 1)
        thread.join()

    assert (done.status, done.out) == (0, "\n")
    assert "no PINGRESP within the keep-alive of 1 s" in done.error


@pytest.mark.skipif(shutil.which("mosquitto_sub") is None, reason="mosquitto_sub is not installed")
@pytest.mark.parametrize(
    "form",
    [
        "%t %p",
        "[%10t] [%-40t] [%.3t] [%10.3t]",
        "%l %5l %05l %-5l|",
        "%x %X %q %r %m %%",
        "%C|%R|%E|%F|%P|%D|%A|%S",
        "@Y-@m-@d",
        "a\\tb\\0c\\\\",
        "%p%p",
    ],
)
def test_formats_are_those_of_mosquitto(
    run: Run, broker: RunningBroker, client: Connect, topic: str, form: str
) -> None:
    properties = {
        "content_type": "text/plain",
        "response_topic": "back",
        "user_property": [("a", "b")],
        "correlation_data": b"id",
    }
    client().publish(topic, b"value", qos=1, retain=True, props=properties)
    options = ["-p", str(broker.port), "-t", topic, "-C", "1", "-F", form]

    ours = run("sub", *options).out
    program = cast("str", shutil.which("mosquitto_sub"))
    theirs = subprocess.run(  # noqa: S603 -- a program of the system
        [program, "-V", "5", *options], capture_output=True, text=True, check=True
    ).stdout

    assert ours == theirs
