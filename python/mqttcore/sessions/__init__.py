"""Sessions: the policy that Python decides at CONNECT, and the view of live ones."""

from mqttcore._core import Session
from mqttcore.sessions.policy import Durability, FullQueuePolicy, SessionLimits, SessionPolicy

__all__ = ["Durability", "FullQueuePolicy", "Session", "SessionLimits", "SessionPolicy"]
