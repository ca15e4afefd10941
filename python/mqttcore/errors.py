"""All exceptions of mqttcore; `MqttError` is their base."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mqttcore._core import (
    MqttError,
    PasswordHashError,
    StartError,
    StoppedError,
    StoreError,
    TopicFilterError,
    TopicNameError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mqttcore._schema import Place

__all__ = [
    "AclFileError",
    "BrokerFailedError",
    "ConfigError",
    "DynsecFileError",
    "EndpointError",
    "EndpointUnreachableError",
    "FileChangedError",
    "LoopError",
    "MqttError",
    "OverloadedError",
    "PacketError",
    "PasswordFileError",
    "PasswordHashError",
    "PipelineError",
    "PluginError",
    "RangeBeyondError",
    "RangeGoneError",
    "RangeSealedError",
    "StartError",
    "StoppedError",
    "StoreError",
    "StoreFailedError",
    "StreamDecodeError",
    "StreamEpochError",
    "StreamFileError",
    "StreamFolderError",
    "StreamOptionError",
    "StreamRangeError",
    "TopicFilterError",
    "TopicNameError",
    "UndeliveredError",
]


class ConfigError(MqttError):
    """A configuration cannot be used; ``faults`` has all its faults.

    ``placed`` has the same ones as (place, text), if their places are known.
    """

    def __init__(
        self, faults: Sequence[str], /, *, placed: Sequence[tuple[Place, str]] = ()
    ) -> None:
        super().__init__("\n".join(faults))
        self.faults = tuple(faults)
        self.placed = tuple(placed)


class OverloadedError(MqttError):
    """A queue is full; the client gets "Server busy" and may try again."""


class PacketError(MqttError):
    """Bytes are not a packet, or values cannot be encoded as one.

    ``reason_code`` is the reason code for the peer if bytes were wrong; ``statement`` is the
    violated statement of the specification, if there is one.
    """

    def __init__(self, text: str, reason_code: int | None = None, statement: str = "") -> None:
        super().__init__(text)
        self.reason_code = reason_code
        self.statement = statement


class BrokerFailedError(StoppedError):
    """A thread of the broker panicked, so the broker stopped: a fault of mqttcore."""


class StoreFailedError(StoppedError):
    """Data could not be stored, so the broker stopped and accepted nothing further."""


class EndpointError(MqttError):
    """The endpoint of the streams refuses a request; ``code`` is its code of the reason."""

    def __init__(self, text: str, *, status: int = 0, code: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        return (_restored, (type(self), str(self), self.status, self.code))


def _restored(kind: type[EndpointError], text: str, status: int, code: str) -> EndpointError:
    """An error that was pickled."""
    return kind(text, status=status, code=code)


class EndpointUnreachableError(EndpointError):
    """The endpoint does not answer, or a response was incomplete; a retry may succeed."""


class StreamUnknownError(EndpointError):
    """The stream does not exist."""


class RangeSealedError(EndpointError):
    """Rows of the range are in files, and must be read there."""


class FileChangedError(EndpointError):
    """A file of sealed rows was removed or replaced: read the index again."""


class RangeGoneError(EndpointError):
    """Rows of the range do not exist any more."""


class RangeBeyondError(EndpointError):
    """Rows of the range do not exist yet."""


class PluginError(MqttError):
    """A plugin cannot be loaded or did not start."""


class AclFileError(MqttError):
    """An ACL file cannot be used; the text names the file and the line."""


class DynsecFileError(MqttError):
    """A file of dynamic security cannot be used; the text names the file and the line."""


class PasswordFileError(MqttError):
    """A password file cannot be used; the text names the file and the line."""


class PipelineError(MqttError):
    """A pipeline has failed; the text names the failure, its place and the remedy."""


class StreamOptionError(MqttError, ValueError):
    """An option, or a column, of Spark's source or sink cannot be used; the text names it."""


class LoopError(MqttError):
    """Messages of a sink would be read by the query that sends them."""


class UndeliveredError(MqttError):
    """A broker did not acknowledge a message, or not in time; the text names the message."""


class StreamFolderError(MqttError):
    """A folder has no stream that this version reads; the text names the folder."""


class StreamDecodeError(MqttError):
    """A payload does not fit its schema, and the reader must fail then; the text names the row."""


class StreamEpochError(MqttError):
    """A stream was restored, repaired or created again: earlier offsets now mean other rows."""


class StreamFileError(MqttError):
    """A file of a stream cannot be read or written; the text names the file."""


class StreamRangeError(MqttError):
    """Requested rows do not exist; the text names the range."""
