"""Mosquitto's dynamic security: clients, groups and roles that `mosquitto_ctrl dynsec` changes.

    [[plugins]]
    use = "mqttcore.auth.dynamic_security"
    [plugins.config]
    path = "dynamic-security.json"      # made by: mosquitto_ctrl dynsec init FILE ADMIN

The file is that of Mosquitto's plugin, and Mosquitto reads what the broker writes. Commands arrive
on ``$CONTROL/dynamic-security/v1``; who may send them is for the ACLs of the file to say. A change
is in the file before it is answered, and holds for connected clients at once.
"""

import base64
import logging
import pathlib
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Annotated

from mqttcore._core import Login, Message
from mqttcore._schema import Range
from mqttcore.auditing import Entry
from mqttcore.auth.dynsec_commands import Outcome, answer_of, run
from mqttcore.auth.dynsec_file import StateFile
from mqttcore.auth.dynsec_state import Client, Password, State
from mqttcore.auth.hashing import password_matches
from mqttcore.errors import DynsecFileError
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.base import Plugin, invalidate_users
from mqttcore.plugin.hooks import hook
from mqttcore.plugin.options import PluginConfig

log = logging.getLogger(__name__)

TOPIC = "$CONTROL/dynamic-security/v1"
EXPELLED_S = 60.0
"""How long clients of a user with a new password are disconnected when they are asked about."""


class DynamicSecurity(Plugin):
    """Admits the clients of a file, and answers the commands that change it."""

    class Config(PluginConfig):
        """Keys of ``[plugins.config]``."""

        path: pathlib.Path
        """The file; relative to the configuration file."""
        allow_anonymous: bool = False
        """Whether clients without user name and password are admitted, with the roles of the
        anonymous group, if there is one."""
        iterations: Annotated[int, Range(1_000, 10_000_000)] = 100_000
        """Iterations of PBKDF2 for new passwords."""

    config: Config

    def __init__(self, config: Config, /, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(config)
        # of the plugin alone: another one may have a user of the same name
        self.hooks = {
            name: replace(mark, is_alone=True) if mark.point == "grant" else mark
            for name, mark in type(self).hooks.items()
        }
        self._file = StateFile(config.path)
        self._changing = threading.Lock()
        self._expelled: dict[str, float] = {}
        self._clock = clock

    async def start(self) -> None:
        """Reads the file.

        Raises:
            DynsecFileError: it cannot be used; the text names the line.
        """
        self._state = self._file.read()
        passwords = (client.password for client in self._state.clients.values())
        dummy = Password(
            hash=base64.b64encode(bytes(64)).decode(),
            salt=base64.b64encode(bytes(12)).decode(),
            iterations=self.config.iterations,
        )
        self._stand_in = str(next((found for found in passwords if found is not None), dummy))

    async def reload(self) -> None:
        """Reads the file again."""
        with self._changing:
            self._state = self._file.read()

    @hook.authenticate(timeout=10.0)
    async def login(self, login: Login) -> Allow | Deny | None:
        """Admits a client of the file with the right password; another one is the next plugin's."""
        name = login.username
        if name is None:
            return None if login.password is not None else self._anonymous(login)
        client = self._state.clients.get(name)
        password = None if client is None else client.password
        matches = await password_matches(
            login.password,
            None if password is None else str(password),
            stand_in=self._stand_in,
            peer=login.peer[0],
        )
        if client is None:
            return None
        # what has changed meanwhile is for `invalidate` to tell the broker
        if not matches or not may_enter(client, login):
            return Deny("bad_credentials")
        return Allow(self._state.grant_for(user=name, client_id=login.client_id))

    @hook.grant
    async def present(self, login: Login) -> Allow | Deny | None:
        """The present rights of a connected client."""
        name, state = login.username, self._state
        if name is None:
            return self._anonymous(login)
        client = state.clients.get(name)
        if client is None:
            return None
        is_expelled = self._clock() < self._expelled.get(name, float("-inf"))
        if is_expelled or client.password is None or not may_enter(client, login):
            return Deny("not_authorized")
        return Allow(state.grant_for(user=name, client_id=login.client_id))

    @hook.control(TOPIC, timeout=30.0)
    def command(self, request: Message) -> bytes:
        """Does the commands of a request, in one step: all that can be done, or nothing."""
        with self._changing:  # the hook may run on two threads, if one of them was late
            before = self._state
            outcome = run(before, request.payload, iterations=self.config.iterations)
            if not outcome.done:
                return outcome.answer()
            try:
                self._state = self._file.write(outcome.state)
            except (OSError, DynsecFileError) as error:
                log.error("dynamic security: nothing is changed: %s", error)
                self._note(request, outcome.done, result=f"failed: {error}")
                return answer_of(unsaved(outcome, error))
            self._expel(before, outcome.state)
        self._note(request, outcome.done, result="done")
        invalidate_users(self.invalidate, outcome.state.changed_users(before))
        return outcome.answer()

    def changed_users(self, before: Plugin, /) -> Collection[str] | None:
        """After a reload: the users whose rights in the file are not those of before."""
        if not isinstance(before, DynamicSecurity):
            return None
        self._expelled = dict(before._expelled)
        self._expel(before._state, self._state)
        return self._state.changed_users(before._state)

    def _note(self, request: Message, commands: list[str], *, result: str) -> None:
        """Writes commands that change something into the log and the audit log."""
        client = request.client
        for line in commands:
            who = f"{client.username!a} ({client.client_id!a})"
            log.info("dynamic security: %s: %s: %s", who, line, result)
            if self._audit is not None:
                entry = Entry(
                    who="anonymous" if client.username is None else f"user {client.username}",
                    how="mqtt",
                    action="dynsec",
                    target=line.partition(" ")[0],
                    details=[("command", line), ("client_id", client.client_id)],
                    result=result,
                )
                self._audit(entry)

    def _anonymous(self, login: Login) -> Allow | None:
        if not self.config.allow_anonymous:
            return None
        return Allow(self._state.grant_for(user=None, client_id=login.client_id))

    def _expel(self, before: State, after: State) -> None:
        """Notes whose password has changed: a client that knew the old one has to log in again."""
        now = self._clock()
        self._expelled = {name: end for name, end in self._expelled.items() if now < end} | {
            name: now + EXPELLED_S
            for name, client in after.clients.items()
            if name in before.clients and client.password != before.clients[name].password
        }


def may_enter(client: Client, login: Login) -> bool:
    """Whether it is not disabled, and has the client identifier that it has to have."""
    return not client.is_disabled and client.client_id in {None, login.client_id}


def unsaved(outcome: Outcome, error: Exception) -> list[dict[str, object]]:
    """Responses to commands that were not saved: nothing has changed, so all of them failed."""
    text = f"Nothing is changed: {error}"
    return [
        {key: response[key] for key in ("command", "correlationData") if key in response}
        | {"error": text}
        for response in outcome.responses
    ]
