"""Mount points of listeners: what their clients see, and what everybody else does."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from mqttcore.errors import ConfigError

from tests.wire import Wire

if TYPE_CHECKING:
    from mqttcore import Broker

Open = Callable[..., Wire]


def test_clients_of_a_listener_see_what_is_behind_its_mount_point(
    start_broker: Callable[..., Broker], client: Open, version: int
) -> None:
    from mqttcore.config import Listener

    plain = Listener(address="127.0.0.1:0", name="plain", anonymous=True)
    plant = Listener(address="127.0.0.1:0", name="plant", anonymous=True, mount_point="plant/1")
    broker = start_broker(listeners=(plain, plant))
    outside_port, inside_port = (port for _, port in broker.addresses)
    outside = client(version=version, port=outside_port)
    inside = client(version=version, port=inside_port)
    outside.subscribe(("plant/1/up", 1))
    inside.subscribe(("#", 1))

    broker.publish("plant/1/down", "to it", qos=1)
    broker.publish("plant/2/down", "to another", qos=1)
    down = inside.receive_publish()
    inside.acknowledge(down)
    inside.unsubscribe("#")
    inside.publish("up", b"from it")
    up = outside.receive_publish()

    assert (down.topic, down.payload) == ("down", b"to it")
    assert (up.topic, up.payload) == ("plant/1/up", b"from it")
    inside.ping()


@pytest.mark.parametrize("text", ["", "plant/#", "$SYS/mine"])
def test_a_mount_point_is_a_topic_name_without_a_dollar_at_its_front(text: str) -> None:
    from mqttcore.config import Listener, Settings

    with pytest.raises(ConfigError, match=r"listeners\[0\].mount_point: .*allowed: a topic name"):
        Settings(listeners=(Listener(mount_point=text),))
