"""Logins of the tests, and what plugins answer to them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from mqttcore._core import hash_password
from mqttcore.auth.backend import BackendPlugin
from mqttcore.plugin import Allow, Deny, Grant, Login
from mqttcore.testing import async_harness

RED = hash_password(b"red", salt=bytes(16))


def answers(
    plugin: type[BackendPlugin], config: Mapping[str, object], *logins: Login
) -> list[Allow | Deny | None]:
    """The plugin's answers."""

    async def ask() -> list[Allow | Deny | None]:
        async with async_harness(plugin, config) as started:
            return [await started.authenticate(login) for login in logins]

    return asyncio.run(ask())


def user(name: str | None = "ann", password: bytes | None = b"red") -> Login:
    """A login."""
    return Login(client_id="c1", username=name, password=password)


def grant_of(answer: Allow | Deny | None) -> Grant:
    """The grant of an answer that allows."""
    assert isinstance(answer, Allow), answer
    return answer.grant


def reason_of(answer: Allow | Deny | None) -> str:
    """The reason of an answer that refuses."""
    assert isinstance(answer, Deny), answer
    return answer.reason
