"""Session policies: a plugin chooses one at CONNECT, the engine enforces it."""

from typing import Annotated, Literal

from mqttcore._record import Record
from mqttcore._schema import Range

Count = Annotated[int, Range(0, 2**32 - 1)]
"""A number of objects or bytes."""

Durability = Literal["memory", "os", "fsync"]
"""Storage before an acknowledgement: in the broker's memory, in the system, or on the disk. The
message then survives nothing, the end of the process, or a power failure."""

FullQueuePolicy = Literal["drop", "refuse"]
"""Treatment of a QoS 1 or 2 publish for a kept session with a full queue: it is acknowledged, and
the session drops a message; or it is refused. A 3.x client waits for room instead, and is
disconnected without an acknowledgement after ``limits.queue_deadline_s``."""


class SessionLimits(Record):
    """Limits of one session; None: the limit of the broker applies."""

    subscriptions: Count | None = None
    """Maximum number of subscriptions."""
    queue_messages: Count | None = None
    """Maximum number of queued messages."""
    queue_bytes: Count | None = None
    """Maximum bytes of queued messages."""


class SessionPolicy(Record):
    """Policy of a client's session."""

    resume: bool = True
    """An existing session may be resumed; else it is discarded at CONNECT."""
    expiry_max_s: Annotated[float, Range(0, 2**32 - 1)] | None = None
    """Maximum seconds that it outlives its connection; None: the limit of the broker."""
    takeover: Literal["same_user", "anyone", "never"] = "same_user"
    """Clients that may take over a connected session: with the same user name, any, or none."""
    limits: SessionLimits = SessionLimits()
    """Limits of this session."""
