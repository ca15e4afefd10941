"""An MQTT broker: Python decides, Rust enforces.

from mqttcore import Broker

with Broker() as broker:
    broker.publish("greeting", b"hello", retain=True)

Names are imported when they are used first, so that a tool loads only what it needs.
"""

# `typing` would take a fifth of the time of `mqttcore --help`.
TYPE_CHECKING = False
if TYPE_CHECKING:
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

_HOMES = {
    **dict.fromkeys(
        ("Directory", "Match", "Matches", "TopicFilter", "TopicName", "__version__"), "_core"
    ),
    "Broker": "broker",
    "Settings": "config",
}
"""The module of each name; the others are errors."""

_MODULES = frozenset({"_core", "broker", "config", "errors", "plugin", "sessions", "streams"})
"""Reached as `mqttcore.config` without an import of their own."""


def __getattr__(name: str) -> object:
    if name not in __all__ and name not in _MODULES:
        raise AttributeError(f"module 'mqttcore' has no attribute {name!r}", name=__name__)
    from importlib import import_module

    home = import_module(f"mqttcore.{name if name in _MODULES else _HOMES.get(name, 'errors')}")
    value: object = home if name in _MODULES else getattr(home, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
