"""An MQTT broker: Python decides, Rust enforces.

from mqttcore import Broker

with Broker() as broker:
    broker.publish("greeting", b"hello", retain=True)
"""

from mqttcore._core import Directory, Match, Matches, TopicFilter, TopicName, __version__
from mqttcore.broker import Broker
from mqttcore.config import Settings
from mqttcore.errors import (
    BrokerFailedError,
    ConfigError,
    MqttError,
    PacketError,
    PluginError,
    StartError,
    StoppedError,
    StoreFailedError,
    TopicFilterError,
    TopicNameError,
)

__all__ = [
    "Broker",
    "BrokerFailedError",
    "ConfigError",
    "Directory",
    "Match",
    "Matches",
    "MqttError",
    "PacketError",
    "PluginError",
    "Settings",
    "StartError",
    "StoppedError",
    "StoreFailedError",
    "TopicFilter",
    "TopicFilterError",
    "TopicName",
    "TopicNameError",
    "__version__",
]
