"""Checks a plugin: its hooks can be called, and how they answer unusual clients.

Used by `mqttcore plugins check`.
"""

import asyncio
import inspect
import itertools
import queue
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any

from mqttcore._core import Ask, Login, Message
from mqttcore._schema import Entry, Faults, read_record
from mqttcore.plugin.answers import Allow
from mqttcore.plugin.base import Plugin
from mqttcore.plugin.bound_hook import TIMED
from mqttcore.plugin.marks import Mark
from mqttcore.testing.plugin_harness import AsyncHarness

LIMIT_S = 60.0
"""Maximum seconds without a result of a plugin; then a plugin that blocks its thread is
abandoned."""
START_S = 30.0
CHALLENGES_MAX = 8
LOGINS = {
    "no user name": Login(client_id="c"),
    "an empty user name": Login(client_id="c", username="", password=b""),
    "an unknown user": Login(client_id="c", username="nobody-knows-me", password=b"guess"),
    "wildcards as names": Login(client_id="#", username="+/#", password=b"guess"),
    "a password that is not UTF-8": Login(client_id="c", username="joe", password=b"\xff\x00"),
    "long names": Login(client_id="c" * 1_000, username="u" * 65_000, password=b"p" * 65_000),
    "MQTT 3.1": Login(client_id="c", username="joe", password=b"guess", version=3),
}
REQUESTS = {
    "nothing": b"",
    "no UTF-8": b"\xff\x00",
    "an empty object": b"{}",
    "deep": b"[" * 100_000,
}
TOPICS = {"publish": "mqttcore/check", "subscribe": "mqttcore/check/#"}


@dataclass(frozen=True, slots=True)
class Passed:
    """A check that passed."""

    what: str

    def __str__(self) -> str:
        return f"ok: {self.what}"


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault that would refuse clients, or admit strangers."""

    what: str

    def __str__(self) -> str:
        return f"fault: {self.what}"


Line = Passed | Fault


def check_plugin(kind: type[Plugin], config: Entry) -> Iterator[Line]:
    """Checks the class, then starts it with this configuration and asks its hooks."""
    yield from check_hooks(kind)
    faults = Faults()
    read = read_record(kind.Config, config, key="config", faults=faults)
    if read is None or faults:
        yield from (Fault(line) for line in faults.lines())
        return
    try:
        plugin = kind(read)
    except Exception as error:  # the plugin's own code
        yield Fault(f"its configuration is refused: {error_text(error)}")
        return
    yield from on_a_thread(plugin)


def check_hooks(kind: type[Plugin]) -> Iterator[Line]:
    """Checks that the hooks of a class accept their arguments."""
    if not kind.hooks:
        yield Fault(f"{kind.__name__} has no hooks: mark its methods with @hook...")
    for name, mark in kind.hooks.items():
        signature = inspect.signature(getattr(kind, name))
        is_timed = mark.point in TIMED
        arguments = [None] if is_timed else [None, None]
        try:
            signature.bind(*arguments)
        except TypeError:
            wanted = "self alone" if is_timed else "self and one argument"
            yield Fault(f"{name}{signature} must take {wanted}")
        else:
            kind_of_call = "async, " if mark.is_async else ""
            yield Passed(f"{name}: {mark.point} ({kind_of_call}timeout {mark.timeout:g} s)")


def on_a_thread(plugin: Plugin) -> Iterator[Line]:
    """Asks the hooks on a thread, which is abandoned if a hook blocks it."""
    lines: queue.Queue[Line | None] = queue.Queue()

    def run() -> None:
        try:
            asyncio.run(collect(plugin, lines))
        finally:
            lines.put(None)

    threading.Thread(target=run, name="mqttcore-check", daemon=True).start()
    try:
        while (line := lines.get(timeout=LIMIT_S)) is not None:
            yield line
    except queue.Empty:
        yield Fault(f"it blocks its thread for {LIMIT_S:g} s")


async def collect(plugin: Plugin, lines: "queue.Queue[Line | None]") -> None:
    """Starts the plugin, asks its hooks, stops it."""
    hooks = AsyncHarness(plugin)
    try:
        async with asyncio.timeout(START_S):
            await plugin.start()
    except BaseException as error:
        lines.put(Fault(f"it does not start: {error_text(error)}"))
        return
    lines.put(Passed("it starts"))
    async for line in ask_hooks(hooks):
        lines.put(line)
    try:
        async with asyncio.timeout(START_S):
            await plugin.stop()
    except BaseException as error:
        lines.put(Fault(f"it does not stop: {error_text(error)}"))
    else:
        lines.put(Passed("it stops"))


async def ask_hooks(hooks: AsyncHarness[Any]) -> AsyncIterator[Line]:  # Any: of every plugin
    """Asks each kind of hook that decides."""
    marks = list(hooks.plugin.hooks.values())
    points = {mark.point for mark in marks}
    if "authenticate" in points:
        for about, login in LOGINS.items():
            yield await ask_login(hooks, about, login)
    for mark in marks:
        if mark.point == "enhanced_auth":
            yield await ask_exchange(hooks, mark)
    requests = [mark for mark in marks if mark.point == "control"]
    for mark, what in itertools.product(requests, REQUESTS):
        yield await ask_control(hooks, mark, what)
    if "authorize" in points:
        for action, topic in TOPICS.items():
            yield await ask_topic(hooks, action, topic)


async def ask_login(hooks: AsyncHarness[Any], about: str, login: Login) -> Line:  # Any: as above
    """Asks about one CONNECT."""
    try:
        answer = await hooks.authenticate(login)
    except BaseException as error:
        return Fault(f"asked about a client with {about}: {error_text(error)}")
    if isinstance(answer, Allow) and not login.username:
        return Fault(f"a client with {about} is allowed")
    return Passed(f"a client with {about}: {type(answer).__name__.replace('NoneType', 'passed')}")


async def ask_exchange(hooks: AsyncHarness[Any], mark: Mark) -> Line:  # Any: as above
    """Runs one exchange with a client that sends invalid data."""
    method = mark.method
    nonsense = [b"\xff" * 64] * CHALLENGES_MAX
    try:
        found = await hooks.converse(
            Login(client_id="c"), method=method, data=b"nonsense", respond=nonsense
        )
    except BaseException as error:
        return Fault(f"{method} with nonsense: {error_text(error)}")
    if isinstance(found.answer, Allow):
        return Fault(f"{method} with nonsense is allowed")
    return Passed(f"{method} with nonsense: {type(found.answer).__name__}")


async def ask_control(
    hooks: AsyncHarness[Any],  # Any: as above
    mark: Mark,
    what: str,
) -> Line:
    """Sends one request without a meaning."""
    try:
        request = Message(LOGINS["an unknown user"], topic=mark.filter, payload=REQUESTS[what])
        await hooks.control(request)
    except BaseException as error:
        return Fault(f"{mark.filter} with {what}: {error_text(error)}")
    return Passed(f"{mark.filter} with {what}: it answers")


async def ask_topic(hooks: AsyncHarness[Any], action: str, topic: str) -> Line:  # Any: as above
    """Asks about one topic."""
    client = LOGINS["an unknown user"]
    try:
        ask = Ask(client, action="publish" if action == "publish" else "subscribe", topic=topic)
        answer = await hooks.authorize(ask)
    except BaseException as error:
        return Fault(f"asked to {action} {topic}: {error_text(error)}")
    return Passed(f"{action} {topic}: {answer}")


def error_text(error: BaseException) -> str:
    """An exception in one line."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return " ".join(text.split())
