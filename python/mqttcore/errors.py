"""Every exception that mqttcore raises, one tree under `MqttError`."""

from collections.abc import Sequence

from mqttcore._core import (
    MqttError,
    PacketError,
    PasswordHashError,
    StartError,
    StoppedError,
    TopicFilterError,
    TopicNameError,
)

__all__ = [
    "ConfigError",
    "MqttError",
    "OverloadedError",
    "PacketError",
    "PasswordFileError",
    "PasswordHashError",
    "PluginError",
    "StartError",
    "StoppedError",
    "TopicFilterError",
    "TopicNameError",
]


class ConfigError(MqttError):
    """A configuration cannot be used; ``faults`` names everything that is wrong with it."""

    def __init__(self, faults: Sequence[str], /) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)


class OverloadedError(MqttError):
    """Too much of this waits already; a client that meets it is told to try again."""


class PluginError(MqttError):
    """A plugin cannot be loaded or did not start."""


class PasswordFileError(MqttError):
    """A password file cannot be used; the text names the file and the line."""
