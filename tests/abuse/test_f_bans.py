"""Abuse tables C and F: bans, by operators and for flapping."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from mqttcore import ban
from mqttcore.plugin import Allow, Grant, Login, Plugin, hook

from tests import wire as mqtt
from tests.wire import PATIENCE_S, Wire, unique

if TYPE_CHECKING:
    from mqttcore import Broker

Start = Callable[..., "Broker"]
Open = Callable[..., Wire]


@pytest.mark.parametrize("kind", ["client_id", "address"])
def test_f08_the_will_of_a_banned_client_is_not_published(
    fresh_broker: Broker, client: Open, topic: str, kind: str
) -> None:
    port = fresh_broker.port
    watcher = client(port=port)
    watcher.subscribe(topic)
    source = socket.create_connection(
        ("127.0.0.1", port), PATIENCE_S, source_address=("127.0.0.2", 0)
    )
    with Wire(port, using=source) as banned:
        name = unique("c")
        banned.connect(name, will=mqtt.Will(topic=topic, payload=b"gone"))

        client_id, address = (name, None) if kind == "client_id" else (None, "127.0.0.2/31")
        assert fresh_broker.ban(client_id=client_id, address=address, reason="hostile") == 1

        assert banned.expect(mqtt.DISCONNECT).reason == 0x98
        banned.expect_close()
    watcher.ping()
    watcher.publish(topic, b"next")
    assert watcher.receive_publish().payload == b"next"
    assert fresh_broker.stats()["dropped_will"] == 1


def test_c25_a_banned_client_is_refused_until_the_ban_is_lifted(
    fresh_broker: Broker, wire: Open
) -> None:
    port = fresh_broker.port
    fresh_broker.ban(client_id="storm", reason="two of them", seconds=3_600)

    one = wire(port=port)
    one.send(mqtt.connect("storm"))
    assert one.expect(mqtt.CONNACK).reason == 0x8A
    one.expect_close()
    [ban] = fresh_broker.bans()
    assert (ban.kind, ban.value, ban.reason) == ("client_id", "storm", "two of them")
    assert ban.by == "the program"
    assert 3_000 < (ban.remaining_s or 0) <= 3_600
    assert fresh_broker.stats()["connects_refused_banned"] == 1

    assert fresh_broker.unban(client_id="storm")
    assert not fresh_broker.unban(client_id="storm")
    assert wire(port=port).connect("storm").reason == 0


def test_c25_a_takeover_storm_ends_with_a_ban_and_one_client_stays(
    start_broker: Start, wire: Open
) -> None:
    broker = start_broker(exempt_addresses=(), address_connects_per_second=0)

    storm = []
    for _ in range(15):
        storm.append(wire(port=broker.port))
        assert storm[-1].connect("storm").reason == 0
    late = wire(port=broker.port)
    late.send(mqtt.connect("storm"))

    assert late.expect(mqtt.CONNACK).reason == 0x8A
    storm[-1].ping()
    [ban] = broker.bans()
    assert (ban.kind, ban.value, ban.user) == ("client_id_of_user", "storm", None)
    assert ban.by == "the broker"
    assert 0 < (ban.remaining_s or 0) <= 300
    assert broker.stats()["flapping_bans"] == 1
    assert broker.stats()["clients_connected"] == 3


def test_c25_nobody_has_the_client_identifier_of_another_user_banned(
    start_broker: Start, wire: Open, topic: str
) -> None:
    class Users(Plugin):
        @hook.authenticate
        def login(self, login: Login) -> Allow | None:
            return Allow(Grant(publish=("#",), subscribe=("#",))) if login.username else None

    broker = start_broker(Users(), exempt_addresses=(), address_connects_per_second=0)
    victim = wire(port=broker.port)
    victim.connect("victim", username="ann", will=mqtt.Will(topic=topic, payload=b"gone"))

    for _ in range(40):
        one = wire(port=broker.port)
        one.send(mqtt.connect("victim", username="eve"))
        assert one.expect(mqtt.CONNACK).reason == 0x85

    assert broker.bans() == []
    victim.ping()
    watcher = wire(port=broker.port)
    watcher.connect(unique("c"))
    watcher.subscribe(topic)
    victim.close()
    assert watcher.receive_publish().payload == b"gone"
    assert wire(port=broker.port).connect("victim", username="ann").reason == 0


def test_c25_a_user_that_flaps_is_banned_and_the_owner_of_the_client_identifier_is_not(
    tmp_path: Path,
    start_broker: Start,
    wire: Open,
    capsys: pytest.CaptureFixture[str],
) -> None:
    class Users(Plugin):
        @hook.authenticate
        def login(self, login: Login) -> Allow:
            return Allow(Grant(publish=("#",), subscribe=("#",)))

    def answer(user: str) -> int:
        one = wire(port=broker.port)
        one.send(mqtt.connect("truck-7", username=user))
        reason = one.expect(mqtt.CONNACK).reason
        if reason == 0:
            one.disconnect()
        else:
            one.expect_close()
        return reason

    folder = str(tmp_path / "data")
    limits = {"exempt_addresses": (), "address_connects_per_second": 0}
    broker = start_broker(Users(), data=folder, **limits)

    assert [answer("eve") for _ in range(17)] == [0] * 15 + [0x8A] * 2

    assert answer("ann") == 0
    assert ban.main(["list", folder]) == 0
    [listed] = json.loads(capsys.readouterr().out)["bans"]
    named = (listed["kind"], listed["value"], listed["user"])
    assert named == ("client_id_of_user", "truck-7", "eve")
    assert answer("eve") == 0x8A
    assert ban.main(["lift", folder, "--client-id", "truck-7"]) == 0
    assert answer("eve") == 0
    broker.stop()
    broker = start_broker(Users(), data=folder, **limits)
    assert (answer("eve"), answer("ann"), broker.bans()) == (0, 0, [])


def test_c25_a_ban_names_one_target(fresh_broker: Broker) -> None:
    with pytest.raises(ValueError, match="name one of"):
        fresh_broker.ban()
    with pytest.raises(ValueError, match="name one of"):
        fresh_broker.ban(user="a", client_id="b")
    with pytest.raises(ValueError, match="not an IP address"):
        fresh_broker.ban(address="not one")
    with pytest.raises(ValueError, match="not a regular expression"):
        fresh_broker.ban(client_id_regex="(")
    with pytest.raises(ValueError, match="a ban cannot last -1"):
        fresh_broker.ban(user="a", seconds=-1)


def test_c25_an_operator_bans_at_the_control_socket_and_the_ban_outlives_the_broker(
    tmp_path: Path, start_broker: Start, wire: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "data")
    broker = start_broker(data=folder)
    bot = wire(port=broker.port)
    bot.connect("bot-1")

    target = ["--client-id-regex", r"bot-\d+"]
    assert ban.main(["add", folder, *target, "--reason", "bots", "--seconds", "3600"]) == 0

    assert json.loads(capsys.readouterr().out) == {"disconnected": 1}
    assert bot.expect(mqtt.DISCONNECT).reason == 0x98
    broker.stop()
    broker = start_broker(data=folder)
    refused = wire(port=broker.port)
    refused.send(mqtt.connect("bot-2"))
    assert refused.expect(mqtt.CONNACK).reason == 0x8A
    assert ban.main(["list", folder]) == 0
    [listed] = json.loads(capsys.readouterr().out)["bans"]
    assert (listed["kind"], listed["value"], listed["reason"]) == (
        "client_id_regex",
        r"bot-\d+",
        "bots",
    )
    assert ban.main(["add", folder, "--client-id-regex", "("]) == 1
    assert "not a regular expression" in capsys.readouterr().err
    assert ban.main(["lift", folder, *target]) == 0
    assert ban.main(["lift", folder, *target]) == 1
    assert wire(port=broker.port).connect("bot-2").reason == 0
    broker.stop()
    assert ban.main(["list", folder]) == 1
    assert "no broker runs" in capsys.readouterr().err
