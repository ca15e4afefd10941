"""Requests for dynamic security: recorded answers of Mosquitto, and a client that sends them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.wire import PUBACK, Wire, publish

TOPIC = "$CONTROL/dynamic-security/v1"
RECORDED = Path(__file__).with_suffix(".txt")
ADMIN, PASSWORD = "admin", "adminpw"
PBKDF2 = {
    "password": "HNMqovEBK3TqlBOnHdC+xrlcBNevtDBp1OCUQPhinkrnZIOauWf+4fGo0/nCqVFj"
    "JC7BtyDeJtCzSQryf3IYmQ==",
    "salt": "MYUOOawdD/ZM+Ok4",
    "iterations": 101,
}
"""`PASSWORD`, as `mosquitto_ctrl dynsec init` of Mosquitto 2.0.11 has hashed it."""


def acl(kind: str, topic: str, *, allow: bool = True, priority: int = 0) -> dict[str, object]:
    """One ACL, as file and commands have it."""
    return {"acltype": kind, "topic": topic, "allow": allow, "priority": priority}


def initial(**more: object) -> dict[str, object]:
    """A file as `mosquitto_ctrl dynsec init` makes it; ``more`` clients, roles and groups."""
    admin: dict[str, object] = {
        "username": ADMIN,
        "textName": "Dynsec admin user",
        **PBKDF2,
        "roles": [{"rolename": "admin"}],
    }
    about = ("$CONTROL/dynamic-security/#", "$SYS/#", "#")
    acls = [
        acl("publishClientSend", about[0]),
        *(acl("publishClientReceive", topic) for topic in about),
        *(acl("subscribePattern", topic) for topic in about),
        acl("unsubscribePattern", "#"),
    ]
    found: dict[str, object] = {
        "clients": [admin],
        "roles": [{"rolename": "admin", "acls": acls}],
        "defaultACLAccess": {
            "publishClientSend": False,
            "publishClientReceive": True,
            "subscribe": False,
            "unsubscribe": True,
        },
    }
    for key, value in more.items():
        known = found.get(key, [])
        both = isinstance(known, list) and isinstance(value, list)
        found[key] = [*known, *value] if both else value  # type: ignore[misc] # both are lists
    return found


def recorded() -> list[tuple[str, object]]:
    """Commands, and what Mosquitto 2.0.11 answers to each, one after another."""
    lines = RECORDED.read_text(encoding="utf-8").splitlines()
    return [(one, json.loads(two)) for one, two in zip(lines[::2], lines[1::2], strict=True)]


class Admin(Wire):
    """A client that may do everything."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.connect("dynsec-admin", username=ADMIN, password=PASSWORD.encode())
        self.subscribe((f"{TOPIC}/response", 0))

    def ask(self, payload: str | bytes) -> list[dict[str, object]]:
        """Sends a request; the responses."""
        text = payload.encode() if isinstance(payload, str) else payload
        self.send(publish(TOPIC, text, qos=1, packet_id=9))
        assert self.expect(PUBACK).reason == 0
        found: list[dict[str, object]] = json.loads(self.receive_publish().payload)["responses"]
        return found

    def do(self, command: str, **arguments: object) -> dict[str, object]:
        """Sends one command; its response, which must not be an error."""
        (found,) = self.ask(json.dumps({"commands": [{"command": command, **arguments}]}))
        assert "error" not in found, found
        return found
