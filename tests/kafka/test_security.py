"""A node that demands TLS and a user: the broker writes to it, and a wrong secret is named."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
from mqttcore import Broker, _core, certs
from mqttcore import config as configuration
from mqttcore.errors import StartError

from tests import wire as mqtt
from tests.kafka.jars import MissingToolError
from tests.kafka.node import Node, Security
from tests.wire import Wire

pytestmark = [
    pytest.mark.skipif(
        not getattr(_core, "has_kafka_tls", False),
        reason="this build has no TLS to Kafka: FEATURES=kafka-tls",
    ),
    pytest.mark.timeout(600),
]
MESSAGES = 20
RIGHT = "correct-horse"  # of the node


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """A folder with the certificates of a node, and their CA."""
    folder = tmp_path_factory.mktemp("certs")
    certs.main(["dev", str(folder), "--host", "127.0.0.1"])
    return folder


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory, authority: pathlib.Path) -> Iterator[Node]:
    """A node with a listener that demands TLS and SASL."""
    security = Security(certificate=authority / "server.pem", key=authority / "server.key")
    made = Node(tmp_path_factory.mktemp("kafka") / "node", security=security)
    try:
        made.start()
    except MissingToolError as missing:
        pytest.skip(str(missing))
    yield made
    made.remove()


def config(
    folder: pathlib.Path, node: Node, security: str, *, password: str = RIGHT, deadline_s: int = 60
) -> pathlib.Path:
    """A broker whose messages are records of a topic of this test."""
    secret = folder / "password"
    secret.write_text(f"{password}\n")
    secret.chmod(0o600)
    path = folder / "mqttcore.toml"
    path.write_text(
        f"""\
        [[listeners]]
        address = "127.0.0.1:0"
        anonymous = true

        [[streams]]
        name = "plant"
        filter = ["plant/#"]
        log = "kafka"
        topic = "{folder.name}"

        [kafka]
        servers = ["{node.secure_servers}"]
        compression = "none"
        start_deadline_s = {deadline_s}
        {security}
        """,
        encoding="utf-8",
    )
    return path


def tls(authority: pathlib.Path) -> str:
    return f'[kafka.tls]\nca = "{authority / "ca.pem"}"\n'


def sasl(mechanism: str) -> str:
    return (
        f'[kafka.sasl]\nmechanism = "{mechanism}"\nusername = "mqttcore"\n'
        'password_file = "password"\n'
    )


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_acknowledged_messages_are_on_a_node_that_demands_tls_and_a_user(
    tmp_path: pathlib.Path, secured: Node, authority: pathlib.Path, mechanism: str
) -> None:
    file = config(tmp_path, secured, tls(authority) + sasl(mechanism))
    with Broker(configuration.load(file)) as broker, Wire(broker.port) as publisher:
        publisher.send(mqtt.connect("meter", clean=True))
        publisher.expect(mqtt.CONNACK)
        for number in range(1, MESSAGES + 1):
            payload = f"{mechanism}-{number};".encode()
            publisher.send(mqtt.publish("plant/1", payload, qos=1, packet_id=number))
            publisher.expect(mqtt.PUBACK)

    log = secured.folder / "logs" / f"{tmp_path.name}-0" / f"{0:020}.log"
    kept = log.read_bytes()
    missing = [
        number for number in range(1, MESSAGES + 1) if f"{mechanism}-{number};".encode() not in kept
    ]
    assert missing == []


@pytest.mark.parametrize(
    ("is_trusted", "mechanism", "password", "said"),
    [
        (True, "SCRAM-SHA-256", "wrong", "uthentication failed"),
        (True, "PLAIN", "wrong", "uthentication failed"),
        (False, "PLAIN", "correct-horse", "certificate verify failed"),
        (True, None, "", "brokers are down"),
    ],
    ids=["a wrong password", "a wrong plain password", "another CA", "no user"],
)
def test_the_broker_does_not_start_without_what_the_node_demands(
    tmp_path: pathlib.Path,
    secured: Node,
    authority: pathlib.Path,
    is_trusted: bool,
    mechanism: str | None,
    password: str,
    said: str,
) -> None:
    if not is_trusted:
        certs.main(["dev", str(tmp_path / "other"), "--host", "127.0.0.1"])
    security = tls(authority if is_trusted else tmp_path / "other")
    security += sasl(mechanism) if mechanism else ""
    file = config(tmp_path, secured, security, password=password or "unused", deadline_s=5)

    with pytest.raises(StartError, match=said) as refused:
        Broker(configuration.load(file)).start()

    assert secured.secure_servers in str(refused.value)
    assert "correct-horse" not in str(refused.value)
