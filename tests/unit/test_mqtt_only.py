"""The build without streams and HTTP: it starts and serves MQTT (`make mqtt-only`)."""

import pathlib

import pytest
from mqttcore import Broker, ConfigError, Settings, _core
from mqttcore.config import Listener, load

from tests.wire import Wire

pytestmark = pytest.mark.skipif(_core.has_streams, reason="this build has streams")

LISTENER = Listener(address="127.0.0.1:0", name="main", anonymous=True)


def test_it_serves_mqtt_and_keeps_data(tmp_path: pathlib.Path) -> None:
    settings = Settings(listeners=(LISTENER,), data=str(tmp_path / "data"))
    with Broker(settings) as broker, Wire(broker.port) as wire:
        wire.connect("c")
        wire.subscribe(("a/#", 1))

        matched = broker.publish("a/b", b"hello", retain=True)

        assert matched == 1
        message = wire.receive_publish()
        assert (message.topic, message.payload) == ("a/b", b"hello")
    assert not hasattr(_core, "StreamReader")


def test_streams_and_http_name_what_to_install(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mqttcore.toml"
    file.write_text(
        'data = "data"\n[[streams]]\nname = "plant"\nfilter = ["plant/#"]\n'
        '[http]\naddress = "127.0.0.1:0"\ntoken_file = "token"\n'
    )

    with pytest.raises(ConfigError) as refused:
        load(file)

    text = str(refused.value)
    assert text.count("this build of mqttcore serves MQTT only") == 2
    assert "make build" in text
