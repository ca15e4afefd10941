"""Abuse table I: sockets that serve something else, and connections that end in the middle."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mqttcore import Broker
from mqttcore.auth.certificate import Certificate
from mqttcore.config import Listener
from mqttcore.errors import StartError
from mqttcore.plugin import Login, Plugin, hook

from tests import wire as mqtt
from tests.abuse.beside import Beside, clients_of_test
from tests.conftest import both_transports
from tests.crash.process import ServerProcess
from tests.streams.plant import TOKEN, plant_settings
from tests.websocket import HttpWire, WebSocketWire, upgrade
from tests.wire import Will, Wire, unique

Open = Callable[..., Wire]


def test_i12_mqtt_has_no_path_where_only_streams_are_served(tmp_path: Path) -> None:
    with Broker(plant_settings(tmp_path)) as broker, Beside(broker.port):
        _, port = broker.http_address or ("", 0)
        bearer = {"Authorization": f"Bearer {TOKEN}", "Sec_WebSocket_Protocol": "mqtt"}
        # At "/" is the page for operators, with or without an upgrade.
        for path, status in (("/mqtt", 404), ("/", 200), ("/ws", 404), ("/mqtt/", 404)):
            one = HttpWire(port)
            one.send(upgrade(path, **bearer))
            assert one.response().status == status
            one.close()
        one = HttpWire(port)
        one.send(upgrade("/mqtt", Sec_WebSocket_Protocol="mqtt"))
        assert one.response().status == 401
        one.close()
        assert clients_of_test(broker) == []


def test_i14_an_address_that_a_header_claims_is_not_believed(
    start_broker: Callable[..., Broker], web: Callable[..., WebSocketWire]
) -> None:
    running = start_broker(listeners=both_transports())
    spoof = {"X_Forwarded_For": "192.0.2.7", "Forwarded": "for=192.0.2.7", "X_Real_IP": "192.0.2.7"}
    one = web(port=running.addresses[1][1], headers=spoof)
    one.connect("i14")

    (session,) = clients_of_test(running)

    assert session.peer == one.socket.getsockname()


def open_sockets(pid: int, table: str) -> set[str]:
    """The sockets of a process that stand in a table of the kernel, by their inodes."""
    links = [each.readlink().name for each in Path(f"/proc/{pid}/fd").iterdir()]
    owned = {link.removeprefix("socket:[").rstrip("]") for link in links if "socket:" in link}
    rows = Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]
    return owned & {row.split()[9] for row in rows}


def test_i16_nothing_speaks_quic(tmp_path: Path) -> None:
    server = ServerProcess(data=tmp_path / "data")
    server.start()
    assert server.process is not None

    assert open_sockets(server.process.pid, "tcp")
    assert (
        open_sockets(server.process.pid, "udp") | open_sockets(server.process.pid, "udp6") == set()
    )
    server.stop()


def local(path: Path, **keys: Any) -> Listener:  # noqa: ANN401 -- keys of a listener
    """A listener at a Unix socket."""
    return Listener(address=f"unix:{path}", **keys)


def open_local(path: Path) -> Wire:
    """A connection to the socket at `path`, without a CONNECT."""
    one = socket.socket(socket.AF_UNIX)
    one.connect(str(path))
    return Wire(0, using=one)


def test_i15_a_unix_socket_has_mode_0660_and_is_removed_at_the_end(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    path = tmp_path / "mqtt.sock"
    running = start_broker(listeners=(local(path),))

    found = path.stat()
    assert stat.S_ISSOCK(found.st_mode)
    assert stat.S_IMODE(found.st_mode) == 0o660
    assert [file.name for file in tmp_path.iterdir()] == ["mqtt.sock"]

    running.stop()
    assert list(tmp_path.iterdir()) == []


def test_i15_a_socket_that_a_broker_listens_at_is_not_taken_from_it(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    path = tmp_path / "mqtt.sock"
    start_broker(listeners=(local(path, anonymous=True),))

    with pytest.raises(StartError, match=f"cannot listen on unix:{path}: the socket is in use"):
        start_broker(listeners=(local(path),))

    with open_local(path) as one:
        one.connect(unique("i15"))


def test_i15_a_plugin_sees_the_user_of_the_peer(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    seen: list[Login] = []

    class Watch(Plugin):
        @hook.authenticate()
        def login(self, login: Login) -> None:
            seen.append(login)

    path, uid = tmp_path / "mqtt.sock", os.getuid()
    start_broker(Watch(), listeners=(local(path),))

    with open_local(path) as one:
        one.connect("i15", username="root", reason=0x86)

    [login] = seen
    assert (login.peer, login.uid, login.username) == ((f"uid:{uid}", 0), uid, "root")
    assert not login.is_certified


def test_i15_the_user_of_the_peer_is_the_user_name_and_its_rules_hold(
    start_broker: Callable[..., Broker], tmp_path: Path
) -> None:
    path, uid = tmp_path / "mqtt.sock", os.getuid()
    rules = Certificate.Config(publish=("user/%u/#",), subscribe=("user/%u/#",))
    running = start_broker(Certificate(rules), listeners=(local(path, identity="uid"),))

    with open_local(path) as one:
        # Whatever user it says that it is.
        one.connect(unique("i15"), username="admin")
        [session] = clients_of_test(running)
        assert (session.username, session.peer) == (str(uid), (f"uid:{uid}", 0))
        assert one.subscribe(f"user/{uid}/#", "user/other/#").reasons == (0, 0x87)


@pytest.fixture
def watcher(client: Open, topic: str) -> Wire:
    """Sees what is published, and then the will."""
    one = client()
    one.subscribe((f"{topic}/#", 2))
    return one


def test_i17_a_reset_before_the_acknowledgement_leaves_whole_messages_and_the_will(
    client: Open, topic: str, watcher: Wire, version: int
) -> None:
    whole = mqtt.publish(f"{topic}/a", b"whole", qos=1, packet_id=7, version=version)
    for cut in range(1, len(whole) + 1, 3):
        one = client(version=version, will=Will(topic=f"{topic}/will", payload=b"%d" % cut))
        one.send(whole[:cut])
        one.reset()

        found = watcher.receive_publish()
        if found.payload == b"whole":
            assert cut == len(whole)
            found = watcher.receive_publish()
        assert found.payload == b"%d" % cut


def test_i17_a_repeat_after_a_reset_is_no_second_message(
    client: Open, topic: str, watcher: Wire
) -> None:
    name = unique("c")
    keep = {"version": 4, "clean": False}
    for number in range(20):
        one = client(name, **keep)
        one.send(mqtt.publish(f"{topic}/a", b"%d" % number, qos=2, packet_id=1, version=4))
        one.reset()

        again = client(name, **keep)
        again.publish(f"{topic}/a", b"%d" % number, qos=2, packet_id=1, dup=True)
        again.disconnect()

        assert watcher.receive_publish().payload == b"%d" % number
    watcher.ping()


def test_i17_half_of_a_connection_that_is_closed(client: Open, topic: str, watcher: Wire) -> None:
    one = client(will=Will(topic=f"{topic}/will", payload=b"will"))
    one.send(mqtt.publish(f"{topic}/a", b"whole", qos=1, packet_id=1), b"\x32\x20\x00")

    one.socket.shutdown(socket.SHUT_WR)

    one.expect(mqtt.PUBACK)
    assert [watcher.receive_publish().payload for _ in range(2)] == [b"whole", b"will"]
