"""`mqttcore pub`."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from collections.abc import Callable
from typing import cast

import pytest
from mqttcore import Broker
from mqttcore.cli import client as client_module
from mqttcore.cli.client import ConnectionLostError, MqttClient
from mqttcore.cli.pub import Publisher
from mqttcore.config import Access, Listener
from mqttcore.packets import Publish

from tests.cli.conftest import Run
from tests.conftest import RunningBroker
from tests.tls import Files
from tests.wire import Wire, unique

Connect = Callable[..., Wire]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_arrives(
    run: Run, client: Connect, broker: RunningBroker, topic: str, version: int, qos: int
) -> None:
    receiver = client()
    receiver.subscribe((topic, 2))

    options = ("-V", {3: "31", 4: "mqttv311", 5: "5"}[version], "-q", qos)
    done = run("pub", "-p", broker.port, "-t", topic, "-m", "hello", *options)

    message = receiver.receive_publish()
    assert done == (0, "", "")
    assert (message.payload, message.qos) == (b"hello", qos)


def test_the_payload_comes_from_a_file_or_is_empty(
    run: Run, client: Connect, broker: RunningBroker, topic: str, tmp_path: pathlib.Path
) -> None:
    receiver = client()
    receiver.subscribe((topic, 0))
    (tmp_path / "payload").write_bytes(b"\x00\xff")

    run("pub", "-p", broker.port, "-t", topic, "-f", tmp_path / "payload")
    run("pub", "-p", broker.port, "-t", topic, "-n")

    assert [receiver.receive_publish().payload for _ in range(2)] == [b"\x00\xff", b""]


def test_a_payload_of_other_bytes_than_utf_8_arrives(
    client: Connect, broker: RunningBroker, topic: str
) -> None:
    receiver = client()
    receiver.subscribe((topic, 0))

    command = [sys.executable, "-m", "mqttcore", "pub", "-p", str(broker.port), "-t", topic]
    subprocess.run([*command, "-m", os.fsdecode(b"\xff\xfe")], check=True)  # noqa: S603 -- our own program

    assert receiver.receive_publish().payload == b"\xff\xfe"


def test_a_url_says_where(run: Run, client: Connect, broker: RunningBroker, topic: str) -> None:
    receiver = client()
    receiver.subscribe((topic, 0))

    done = run("pub", "-L", f"mqtt://127.0.0.1:{broker.port}/{topic}", "-m", "x", "--repeat", 2)

    assert done.status == 0
    assert [receiver.receive_publish().payload for _ in range(2)] == [b"x", b"x"]


def test_properties_and_the_retain_flag_arrive(
    run: Run, client: Connect, broker: RunningBroker, topic: str
) -> None:
    properties = [
        *("-D", "publish", "content-type", "text/plain"),
        *("-D", "publish", "user-property", "a", "b"),
        *("-D", "publish", "payload-format-indicator", "1"),
        *("-D", "connect", "user-property", "c", "d"),
    ]
    done = run("pub", "-p", broker.port, "-t", topic, "-m", "x", "-r", "-q", 1, *properties)

    receiver = client()
    receiver.subscribe((topic, 0))
    message = receiver.receive_publish()
    assert done.status == 0
    assert message.retain
    assert message.property("content_type") == "text/plain"
    assert message.property("user_property") == [("a", "b")]
    assert message.property("payload_format_indicator") == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_line_is_a_message(
    client: Connect, broker: RunningBroker, topic: str, qos: int
) -> None:
    lines = [f"line {number}" for number in range(300)]
    receiver = client()
    receiver.subscribe((topic, 0))

    options = ["-p", str(broker.port), "-t", topic, "-q", str(qos), "-l", "--json"]
    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-m", "mqttcore", "pub", *options],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        check=True,
    )

    assert [receiver.receive_publish().payload.decode() for _ in lines] == lines
    assert json.loads(done.stdout) == {
        "published": 300,
        "acknowledged": 300 if qos else 0,
        "without_subscribers": 0,
        "refused": {},
    }


def test_a_message_of_qos_0_is_sent_although_connections_are_lost_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Fickle:
        """A client whose first connections are lost as soon as it publishes."""

        unsent_bytes = 0

        def __init__(self) -> None:
            self.losses = 3
            self.sent: list[Publish] = []

        def connect(self) -> None:
            self.losses -= 1

        def publish(self, message: Publish) -> None:
            if self.losses:
                raise ConnectionLostError("lost")
            self.sent.append(message)

    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.0)
    client, message = Fickle(), Publish(topic="a")

    Publisher(cast(MqttClient, client), is_quiet=True).publish_repeatedly(message, 2, 0.0)

    assert client.sent == [message, message]


def test_a_refused_message_is_reported(run: Run, start_broker: Callable[..., Broker]) -> None:
    listener = Listener(address="127.0.0.1:0", anonymous=Access(publish=("allowed",)))
    broker = start_broker(listeners=(listener,))

    done = run("pub", "-p", broker.port, "-t", "other", "-m", "x", "-q", 1, "--json")

    assert done.status == 4
    assert json.loads(done.out)["refused"] == {"0x87 Not authorized": 1}
    assert "refused 1 of 1 messages: 1 with 0x87 Not authorized" in done.error


def test_a_refused_connection_is_reported(run: Run, start_broker: Callable[..., Broker]) -> None:
    broker = start_broker(listeners=(Listener(address="127.0.0.1:0"),))

    done = run("pub", "-p", broker.port, "-t", "a", "-m", "x")

    assert done.status == 4
    assert f"localhost:{broker.port} refused the connection: 0x87 Not authorized" in done.error


def test_a_broker_that_is_not_there_is_reported(run: Run, fresh_broker: Broker) -> None:
    port = fresh_broker.port
    fresh_broker.stop()

    done = run("pub", "-p", port, "-t", "a", "-m", "x")

    assert done.status == 3
    assert done.error.startswith(f"mqttcore pub: cannot reach localhost:{port}: ")
    assert run("pub", "-p", port, "-t", "a", "-m", "x", "--quiet") == (3, "", "")


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("-m", "x"), "give a topic with -t"),
        (("-t", "a"), "give a payload with -m, -f, -n, -s or -l"),
        (("-t", "a/+", "-m", "x"), "topic name contains a wildcard"),
        (("-t", "a", "-f", "/nonexistent/file"), "No such file"),
        (("-t", "a", "-m", "x", "-c"), "-c needs -i"),
        (("-t", "a", "-m", "x", "-L", "http://host"), "--url is mqtt://"),
        (("-t", "a", "-m", "x", "-D", "publish", "nonsense", "1"), "unknown property"),
        (("-t", "a", "-m", "x", "-D", "publish", "topic-alias", "0"), "invalid zero value"),
        (("-t", "a", "-m", "x", "-D", "publish", "will-delay-interval", "1"), "not allowed here"),
        (("-t", "a", "-m", "x", "-D", "publish", "user-property", "1"), "takes a name and a value"),
        (("-t", "a", "-m", "x", "-D", "pub", "content-type", "1"), "the packet must be connect, "),
        (
            ("-t", "a", "-m", "x", "-V", "311", "-D", "publish", "content-type", "1"),
            "only MQTT 5.0 (-V 5) has properties",
        ),
        (("-t", "a", "-m", "x", "--cafile", "/nonexistent/ca"), "cannot use /nonexistent/ca"),
        (("-t", "a", "-m", "x", "-q", "3"), "invalid choice"),
    ],
)
def test_a_wrong_command_line_is_refused(run: Run, arguments: tuple[str, ...], why: str) -> None:
    done = run("pub", *arguments)

    assert (done.status, done.out) == (2, "")
    assert why in done.error


@pytest.fixture
def tls_port(start_broker: Callable[..., Broker], certificates: Files) -> int:
    listener = Listener(address="127.0.0.1:0", anonymous=True, tls=certificates.tls())
    return start_broker(listeners=(listener,)).port


@pytest.fixture
def certificates(tmp_path: pathlib.Path) -> Files:
    return Files.make(tmp_path)


def test_tls_with_a_trusted_certificate(run: Run, tls_port: int, certificates: Files) -> None:
    message = ("-p", tls_port, "-t", "a", "-m", "x" * 100_000, "-q", 1)
    ca = ("--cafile", certificates.path("ca.pem"))
    own = ("--cert", certificates.path("client.pem"), "--key", certificates.path("client.key"))

    assert run("pub", *message, *ca) == (0, "", "")
    assert run("pub", *message, *ca, *own) == (0, "", "")
    assert run("pub", "-L", f"mqtts://127.0.0.1:{tls_port}/a", "-m", "x", *ca).status == 0


def test_a_certificate_that_is_not_trusted_is_reported(run: Run, tls_port: int) -> None:
    done = run("pub", "-p", tls_port, "-t", "a", "-m", "x", "--tls-use-os-certs")

    assert done.status == 3
    assert "certificate verify failed" in done.error


def test_insecure_accepts_another_host_name(
    run: Run, start_broker: Callable[..., Broker], certificates: Files
) -> None:
    listener = Listener(address="127.0.0.2:0", anonymous=True, tls=certificates.tls())
    port = start_broker(listeners=(listener,)).port
    message = ("-h", "127.0.0.2", "-p", port, "-t", "a", "-m", "x", "-q", 1)
    ca = ("--cafile", certificates.path("ca.pem"))

    assert run("pub", *message, *ca).status == 3
    assert run("pub", *message, *ca, "--insecure").status == 0


def test_debug_prints_the_packets_and_no_secret(
    run: Run, broker: RunningBroker, topic: str
) -> None:
    login = ("-u", "joe", "-P", "secret", "-i", unique())
    done = run("pub", "-p", broker.port, "-t", topic, "-m", "payload", "-q", 1, "-d", *login)

    lines = done.error.splitlines()
    assert [line.split()[1] for line in lines] == [
        *("CONNECT", "CONNACK", "PUBLISH", "PUBACK", "DISCONNECT")
    ]
    assert lines[2] == f"sent PUBLISH topic {topic}, qos 1, packet_id 1, 7 bytes"
    assert "secret" not in done.error


def test_a_password_comes_from_a_file(
    run: Run, start_broker: Callable[..., Broker], tmp_path: pathlib.Path
) -> None:
    from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, hook

    class Door(Plugin):
        @hook.authenticate
        def login(self, login: Login) -> Allow | Deny:
            is_right = login.password == b"secret"
            return Allow(Grant(publish=["#"])) if is_right else Deny("bad_credentials")

    (tmp_path / "password").write_text("secret\n")
    broker = start_broker(Door(), listeners=(Listener(address="127.0.0.1:0"),))
    message = ("-p", broker.port, "-t", "a", "-m", "x", "-q", 1, "-u", "joe")

    assert run("pub", *message, "--password-file", tmp_path / "password").status == 0
    assert run("pub", *message, "-P", "wrong").status == 4
