"""A node that demands TLS and a user: the broker writes to it, and a wrong secret is named."""

from __future__ import annotations

import base64
import json
import pathlib
import time
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


def token(folder: pathlib.Path, life_s: float) -> str:
    """The settings for a file with a token that expires then; the node takes tokens unsigned."""
    now = time.time()
    claims = {"sub": "mqttcore", "iat": now - 60, "exp": now + life_s}
    parts = [json.dumps(part).encode() for part in ({"alg": "none"}, claims)]
    text = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
    draft = folder / "token.draft"
    draft.write_text(f"{'.'.join(text)}.\n")
    draft.chmod(0o600)
    draft.rename(folder / "token")
    return '[kafka.sasl]\nmechanism = "OAUTHBEARER"\ntoken_file = "token"\n'


def has(node: Node, topic: str, payload: bytes) -> bool:
    """Whether the node has a record with this payload."""
    return payload in (node.folder / "logs" / f"{topic}-0" / f"{0:020}.log").read_bytes()


def test_a_token_is_read_again_before_it_expires(
    tmp_path: pathlib.Path, secured: Node, authority: pathlib.Path
) -> None:
    life_s = 12.0
    file = config(tmp_path, secured, tls(authority) + token(tmp_path, life_s))
    expires = time.monotonic() + life_s
    with Broker(configuration.load(file)) as broker, Wire(broker.port) as publisher:
        publisher.send(mqtt.connect("meter", clean=True))
        publisher.expect(mqtt.CONNACK)
        token(tmp_path, 3_600)
        number = 0
        while number == 0 or time.monotonic() < expires + 2:
            number += 1
            publisher.send(mqtt.publish("plant/1", f"{number};".encode(), qos=1, packet_id=1))
            publisher.expect(mqtt.PUBACK)

    assert has(secured, tmp_path.name, f"{number};".encode())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"token_file .*token: the token expired 5[0-9] s ago|expired 6[0-9] s ago"),
        ("opaque\n", "uthentication"),
    ],
    ids=["an expired token", "no token of this node"],
)
def test_a_token_that_is_not_valid_is_named(
    tmp_path: pathlib.Path,
    secured: Node,
    authority: pathlib.Path,
    text: str | None,
    said: str,
) -> None:
    security = tls(authority) + token(tmp_path, -60)
    if text is not None:
        (tmp_path / "token").write_text(text)
    file = config(tmp_path, secured, security, deadline_s=5)

    with pytest.raises(StartError, match=said) as refused:
        Broker(configuration.load(file)).start()

    assert secured.secure_servers in str(refused.value)
    assert (tmp_path / "token").read_text().strip() not in str(refused.value)


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
