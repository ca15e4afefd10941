"""Sessions: the policy that Python decides at CONNECT, and the view of live ones."""

from mqttcore._core import Session
from mqttcore.sessions.policy import FullQueuePolicy, Promise, SessionLimits, SessionPolicy

__all__ = ["FullQueuePolicy", "Promise", "Session", "SessionLimits", "SessionPolicy"]
