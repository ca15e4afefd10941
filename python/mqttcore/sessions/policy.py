"""Session policies: a plugin chooses one at CONNECT, the engine enforces it."""

from typing import Annotated, Literal

from mqttcore._record import Record
from mqttcore._schema import Range

Count = Annotated[int, Range(0, 2**32 - 1)]
"""A number of things, or of bytes."""

Durability = Literal["memory", "os", "fsync"]
"""How safe something is before it is acknowledged: it was taken in, the system has it, the disk has
it. So it survives nothing, the end of the process, or the loss of power."""

FullQueuePolicy = Literal["drop", "refuse"]
"""Treatment of a QoS 1 or 2 publish for a kept session with a full queue: it is acknowledged, and
the session drops a message; or it is refused. A 3.x client waits for room instead, and is
disconnected without an acknowledgement after ``limits.queue_deadline_s``."""


class SessionLimits(Record):
    """Caps for one session; None leaves the broker's own in force."""

    subscriptions: Count | None = None
    """Subscriptions that it may hold."""
    queue_messages: Count | None = None
    """Messages that wait for the client."""
    queue_bytes: Count | None = None
    """Bytes of messages that wait for the client."""


class SessionPolicy(Record):
    """Policy of a client's session."""

    resume: bool = True
    """An existing session may be resumed; else it is discarded at CONNECT."""
    expiry_max_s: Annotated[float, Range(0, 2**32 - 1)] | None = None
    """Longest time that it outlives its connection, in seconds; None: the broker's own limit."""
    takeover: Literal["same_user", "anyone", "never"] = "same_user"
    """Clients that may take over a connected session: with the same user name, any, or none."""
    limits: SessionLimits = SessionLimits()
    """Caps for this session."""
