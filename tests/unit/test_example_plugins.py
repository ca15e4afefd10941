"""`examples/plugins`: each through the harness, then over the wire."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from mqttcore import Broker, Settings
from mqttcore.config import Listener, PluginUse
from mqttcore.plugin import Allow, Deny, Drop, Login, Message, Replace
from mqttcore.testing import harness

from examples.plugins.accounts import Accounts
from examples.plugins.http_login import HttpLogin
from examples.plugins.rate import Rate
from examples.plugins.redact import Redact
from examples.plugins.schema import Schema
from examples.plugins.scram import Scram
from examples.plugins.stamp import Stamp
from examples.plugins.tokens import Tokens
from tests.tokens import SECRET, claims, hmac_token
from tests.wire import AUTH, CONNACK, Wire, auth, connect

FOLDER = Path(__file__).parents[2] / "examples/plugins"
LINES = {
    "accounts": 10,
    "tokens": 18,
    "scram": 25,
    "http_login": 25,
    "hop_count": 13,
    "rate": 20,
    "stamp": 15,
    "schema": 22,
    "redact": 18,
}
MESSAGES = {"rate", "stamp", "schema", "redact"}
"""The examples that decide about messages only."""


def serving(name: str, **config: object) -> AbstractContextManager[Broker]:
    """A broker with one of the examples; with one that admits nobody, everybody comes in."""
    use = PluginUse(use=f"examples.plugins.{name}", config=config)
    listener = Listener(address="127.0.0.1:0", name="examples", anonymous=name in MESSAGES)
    return Broker(Settings(listeners=(listener,), plugins=(use,)))


def message(topic: str, payload: bytes, *, username: str | None = None) -> Message:
    """What a client publishes."""
    return Message(Login(client_id="7", username=username), topic=topic, payload=payload)


@pytest.mark.parametrize("name", LINES)
def test_an_example_is_short(name: str) -> None:
    _, _, code = (FOLDER / f"{name}.py").read_text().partition('.\n"""\n')

    assert len([line for line in code.splitlines() if line.strip()]) <= LINES[name]


# --- accounts


def test_accounts_through_the_harness() -> None:
    def answer(username: str, password: bytes) -> Allow | Deny | None:
        return accounts.authenticate(Login(client_id="7", username=username, password=password))

    with harness(Accounts) as accounts:
        found = answer("door", b"battery")

        assert isinstance(found, Allow)
        assert found.grant.publish == ("door/7/#",)
        assert answer("door", b"correct horse") == Deny("bad_credentials")
        assert answer("joe", b"battery") is None


def test_accounts_over_the_wire() -> None:
    with serving("accounts") as broker, Wire(broker.port) as ann, Wire(broker.port) as thief:
        thief.connect("t", username="ann", password=b"guess", reason=0x86)
        ann.connect("a", username="ann", password=b"correct horse")

        assert ann.subscribe(("door/#", 0)).reasons == (0,)


# --- tokens


def test_tokens_through_the_harness() -> None:
    def answer(password: bytes) -> Allow | Deny | None:
        return tokens.authenticate(Login(client_id="7", password=password))

    with harness(Tokens, {"secret": SECRET}) as tokens:
        found = answer(hmac_token(claims(publ=["a/#"])))

        assert isinstance(found, Allow)
        assert (found.username, found.grant.publish) == ("joe", ("a/#",))
        assert found.grant.expires_at is not None
        for wrong in (
            b"",
            b"a.b.c",
            hmac_token(claims(exp=1)),
            hmac_token(claims(exp=None)),
            hmac_token(claims(sub=None)),
            hmac_token(claims(), secret=b"x" * 32),
        ):
            assert answer(wrong) == Deny("bad_credentials")


def test_tokens_over_the_wire() -> None:
    with serving("tokens", secret=SECRET) as broker, Wire(broker.port) as joe:
        joe.connect("j", username="whoever", password=hmac_token(claims(publ=["a/#"])))

        assert joe.publish("a/b", qos=1, packet_id=1).reason in (0, 0x10)
        assert joe.publish("b", qos=1, packet_id=2).reason == 0x87
        assert broker.clients()[0].username == "joe"


# --- SCRAM


class ScramClient:
    """The client's side."""

    def __init__(self, user: str, password: str) -> None:
        self.bare = f"n={user},r=abc"
        self.first = f"n,,{self.bare}".encode()
        self._password = password.encode()

    def proof(self, challenge: bytes) -> bytes:
        """The answer to the challenge."""
        fields = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salt = base64.b64decode(fields["s"])
        key = hashlib.pbkdf2_hmac("sha256", self._password, salt, int(fields["i"]))
        client_key = hmac.digest(key, b"Client Key", "sha256")
        stored = hashlib.sha256(client_key).digest()
        final = f"c=biws,r={fields['r']}"
        covered = f"{self.bare},{challenge.decode()},{final}".encode()
        signature = hmac.digest(stored, covered, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        return f"{final},p={base64.b64encode(proof).decode()}".encode()


def test_scram_through_the_harness() -> None:
    def answer(client: ScramClient) -> Allow | Deny:
        login = Login(client_id="7")
        return scram.converse(
            login, method="SCRAM-SHA-256", data=client.first, respond=client.proof
        ).answer

    with harness(Scram) as scram:
        found = answer(ScramClient("ann", "correct horse"))

        assert isinstance(found, Allow)
        assert found.username == "ann"
        assert answer(ScramClient("ann", "guess")) == Deny("bad_credentials")
        assert answer(ScramClient("joe", "correct horse")) == Deny("bad_credentials")


def test_scram_over_the_wire() -> None:
    client = ScramClient("ann", "correct horse")
    named = {"authentication_method": "SCRAM-SHA-256"}
    with serving("scram") as broker, Wire(broker.port) as wire:
        wire.send(connect("a", props={**named, "authentication_data": client.first}))
        challenge = wire.expect(AUTH).property("authentication_data")
        assert isinstance(challenge, bytes)
        wire.send(auth(0x18, {**named, "authentication_data": client.proof(challenge)}))

        assert wire.expect(CONNACK).reason == 0
        assert wire.subscribe(("news/a", 0)).reasons == (0,)


# --- HTTP


@pytest.fixture
def service() -> Iterator[str]:
    """The URL of a service that knows ann."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            """Decides by the form."""
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            form = dict(urllib.parse.parse_qsl(body, keep_blank_values=True))
            is_ann = (form["user"], form["password"]) == ("ann", "correct horse")
            self.send_response(500 if form["user"] == "fault" else 200 if is_ann else 403)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            rules = {"publish": [f"door/{form['client']}"], "subscribe": ["#"]}
            self.wfile.write(json.dumps(rules).encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
            """Says nothing."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    server.server_close()
    thread.join()


def test_http_through_the_harness(service: str) -> None:
    def answer(username: str | None, password: bytes | None) -> Allow | Deny | None:
        return web.authenticate(Login(client_id="7", username=username, password=password))

    with harness(HttpLogin, {"url": service}) as web:
        found = answer("ann", b"correct horse")

        assert isinstance(found, Allow)
        assert (found.grant.publish, found.grant.subscribe) == (("door/7",), ("#",))
        assert answer("ann", b"\xff") == Deny("bad_credentials")
        assert answer(None, None) == Deny("bad_credentials")
        with pytest.raises(Exception, match="500"):
            answer("fault", b"")


def test_http_over_the_wire(service: str) -> None:
    with (
        serving("http_login", url=service) as broker,
        Wire(broker.port) as ann,
        Wire(broker.port) as thief,
        Wire(broker.port) as unlucky,
    ):
        ann.connect("7", username="ann", password=b"correct horse")
        thief.connect("8", username="ann", password=b"guess", reason=0x86)
        unlucky.connect("9", username="fault", password=b"", reason=0x88)

        assert ann.publish("door/7", qos=1, packet_id=1).reason in (0, 0x10)
        assert ann.publish("door/8", qos=1, packet_id=2).reason == 0x87


# --- messages


def test_rate_through_the_harness() -> None:
    with harness(Rate, {"messages_per_second": 2}) as rate:
        sent = [rate.publish(message("a", b"", username="ann")) for _ in range(3)]

        refused = Deny("quota_exceeded", "more messages a second than this user may publish")
        assert sent == [[None], [None], [refused]]
        assert rate.publish(message("a", b"", username="bob")) == [None]


def test_rate_over_the_wire() -> None:
    with serving("rate", messages_per_second=2) as broker, Wire(broker.port) as wire:
        wire.connect("a")
        wire.subscribe(("a", 0))

        reasons = [wire.publish("b", qos=1, packet_id=number).reason for number in (1, 2, 3)]

        assert reasons == [0x10, 0x10, 0x97]


def test_stamp_through_the_harness() -> None:
    with harness(Stamp) as stamp:
        (found,) = stamp.publish(message("sensor/1", b'{"value": 3}'))

        assert isinstance(found, Replace)
        assert isinstance(found.payload, bytes)
        fields = json.loads(found.payload)
        assert (fields["value"], fields["client"]) == (3, "7")
        assert fields["received_at"] > 0
        for other in (b"21.5", b"no JSON", b"\xff"):
            assert stamp.publish(message("sensor/1", other)) == [None]
        assert stamp.publish(message("other", b"{}")) == []


def test_stamp_over_the_wire() -> None:
    with serving("stamp") as broker, Wire(broker.port) as wire:
        wire.connect("a")
        wire.subscribe(("sensor/1", 0))
        wire.publish("sensor/1", b'{"value": 3}')

        fields = json.loads(wire.receive_publish().payload)

        assert (fields["value"], fields["client"]) == (3, "a")


def test_redact_through_the_harness() -> None:
    full = b'{"name": "Ann", "floor": 3}'
    with harness(Redact) as redact:
        (shown,) = redact.deliver(message("person/1", full))

        assert isinstance(shown, Replace)
        assert shown.payload == b'{"floor": 3}'
        assert redact.deliver(message("person/1", full, username="ann")) == [None]
        for other in (b"no JSON", b"[]", b"\xff"):
            assert isinstance(redact.deliver(message("person/1", other))[0], Drop)


def test_redact_over_the_wire() -> None:
    with serving("redact") as broker, Wire(broker.port) as wire:
        wire.connect("a")
        wire.subscribe(("person/1", 1))
        wire.publish("person/1", b'{"name": "Ann", "floor": 3}', qos=1)

        assert wire.receive_publish().payload == b'{"floor": 3}'


def test_schema_through_the_harness() -> None:
    def answer(payload: bytes) -> str | None:
        (found,) = schema.publish(message("order/1", payload))
        assert found is None or isinstance(found, Deny)
        return found.text if found else None

    with harness(Schema) as schema:
        assert answer(b'{"number": 1, "article": "x", "price": 2.5}') is None
        assert answer(b"{") == "an order is JSON"
        assert answer(b"[]") == "an order is a JSON object"
        assert answer(b'{"number": 1, "article": 5}') == "field 'article' is missing or wrong"


def test_schema_over_the_wire() -> None:
    order = b'{"number": 1, "article": "x", "price": 2.5}'
    with serving("schema") as broker, Wire(broker.port) as wire:
        wire.connect("a")

        assert wire.publish("order/1", order, qos=1, packet_id=1).reason == 0x10
        assert wire.publish("order/1", b"[]", qos=1, packet_id=2).reason == 0x99
