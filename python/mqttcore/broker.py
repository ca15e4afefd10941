"""The broker embedded in a Python program.

Modules that a plain start does not need are imported where they are used.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import threading
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from mqttcore._core import CopyProgress, Engine, MessageProperties, Session
from mqttcore._log import load, logger
from mqttcore.auditing import ENDPOINT, Change, called_by, caller_name
from mqttcore.bans import Ban, ban_actions, target_of
from mqttcore.changes import Bound, Changes, changes
from mqttcore.config import Listener, Origin, Settings
from mqttcore.config.reading import Loaded, loaded_of, origin_of
from mqttcore.errors import (
    BrokerFailedError,
    ConfigError,
    StoppedError,
    StoreFailedError,
)

if TYPE_CHECKING:
    from mqttcore.control import Control
    from mqttcore.plugin.base import Plugin
    from mqttcore.plugin.host import PluginHost
    from mqttcore.plugin.no_plugins import NoPlugins
    from mqttcore.plugin.stats import HookStats
    from mqttcore.streams.delta import DeltaTables
    from mqttcore.streams.info import StreamInfo

log = logger("mqttcore")

T = TypeVar("T")

STOP_DEADLINE_S = 0.8


class Broker:
    """An MQTT broker with its own threads; safe to call from any thread.

    ``settings`` are `Settings`, the path of a TOML file, or an `Origin`, which adds variables and
    flags; the default is 127.0.0.1:1883, anonymous, in memory. ``plugins`` are asked after the
    plugins of the settings. Use the broker as a context manager, ``with`` or ``async with``, or
    call `start` and `stop`.

    If data can no longer be stored, or a thread of the broker panicked, the broker accepts no
    clients. Every call, and the end of the block, then raises `StoreFailedError` or
    `BrokerFailedError`.
    """

    def __init__(
        self,
        settings: Settings | Origin | pathlib.Path | str | None = None,
        *,
        plugins: Sequence[Plugin] = (),
    ) -> None:
        self._origin = settings if isinstance(settings, Origin) else origin_of(settings)
        self._loaded = loaded_of(settings, self._origin)
        self._settings = self._loaded.settings
        self._own_plugins = tuple(plugins)
        # settings at the start, and the listeners of its sockets since the last reload
        self._begun = self._settings
        self._bound: list[Listener | None] = []
        self._lock = threading.Lock()
        # held during a whole reload; `stop` does not wait for it
        self._reloading = threading.Lock()
        self._engine: Engine | None = None
        self._plugin_host: PluginHost | NoPlugins | None = None
        self._control: Control | None = None
        self._tables: DeltaTables | None = None
        self._leaving: list[threading.Thread] = []
        self._failure: StoppedError | None = None
        self._process = os.getpid()

    @property
    def settings(self) -> Settings:
        """The settings in force."""
        return self._settings

    def start(self, *, accept_clock: bool = False) -> Self:
        """Starts plugins and engine. Clients can connect when it returns.

        Args:
            accept_clock: Believes the system's clock about the time that the broker was down,
                however long that is; else an hour, or twice the longest pause before.

        Raises:
            ConfigError: a plugin cannot be made as the settings say.
            PluginError: a plugin did not start.
            StartError: an address cannot be had.
        """
        with self._lock:
            if self._engine is not None:
                return self
            plugin_host = self._make_plugin_host(self._settings)
            try:
                self._engine = Engine(
                    self._settings,
                    plugin_host.queues,
                    accepts_clock=accept_clock,
                    operate=self._operate,
                )
            except BaseException:
                plugin_host.stop()
                raise
            self._plugin_host = plugin_host
            plugin_host.tell_health_to(self._tell_health)
            self._begun, self._bound = self._settings, list(self._settings.listeners)
            self._control = self._open_control()
            if streams := [stream.name for stream in self._settings.streams if stream.delta]:
                from mqttcore.streams.delta import DeltaTables

                self._tables = DeltaTables(pathlib.Path(self._settings.data), streams)
            self._failure, self._process = None, os.getpid()
            running.add(self)
        return self

    def check(self) -> list[str]:
        """Checks whether the broker could start: starts and stops the plugins, tries the addresses.

        An address that is in use is accepted, so that a running broker can be asked about its next
        configuration. The data folder is not opened.

        Returns:
            The warnings that a start would log, as of a certificate that expires soon.

        Raises:
            ConfigError: a plugin cannot be made as the settings say.
            PluginError: a plugin did not start.
            StartError: an address cannot be had.
        """
        plugin_host = self._make_plugin_host(self._settings)
        try:
            return Engine.check(self._settings)
        finally:
            plugin_host.stop()

    def stop(self, *, deadline: float = STOP_DEADLINE_S) -> None:
        """Disconnects every client, then ends. A second call does nothing.

        Args:
            deadline: Seconds that a client has to take its last bytes.
        """
        with self._lock:
            engine, self._engine = self._engine, None
            plugin_host, self._plugin_host = self._plugin_host, None
            control, self._control = self._control, None
            tables, self._tables = self._tables, None
            running.discard(self)
            if self._process != os.getpid():
                return  # the threads are the parent's: a fork has none to wait for
        if control is not None:
            control.stop()
        try:
            if engine is not None:
                engine.stop(deadline)
                self._failure = failure_of(engine)
        finally:
            if tables is not None:
                tables.stop()
            if plugin_host is not None:
                plugin_host.stop()
            for leaving in self._leaving:
                leaving.join()

    def drain(self) -> None:
        """Has ``/readyz`` fail from now on, before a `stop`; clients are served as before.

        Raises:
            StoppedError: the broker does not run.
        """
        self._started().drain()

    def reload(self, settings: Settings | pathlib.Path | str) -> None:
        """Applies other settings; sockets, shards and data stay.

        A bound listener becomes the new one with its address, otherwise with its name. The log
        lists the changes, and those that need a restart. New plugins start before old ones stop. If
        anything fails, nothing has changed.

        Clients that connect after the call meet the new plugins. The old plugins answer the
        questions that they were asked, and stop in the background.

        Raises:
            ConfigError: the settings cannot be used.
            PluginError: a plugin did not start.
        """
        origin = origin_of(settings)
        self._take(origin, lambda: loaded_of(settings, origin))

    def reload_origin(self) -> Changes:
        """Reads the settings again from their source, and applies them.

        Raises:
            ConfigError: they cannot be used, or there is nowhere to read them from.
            PluginError: a plugin did not start.
        """
        return self._take(self._origin, lambda: self._known_origin().load())

    def _known_origin(self) -> Origin:
        if self._origin is None:
            what = "the program that runs this broker made its settings: it has to reload them"
            raise ConfigError([what])
        return self._origin

    def _take(self, origin: Origin | None, read: Callable[[], Loaded]) -> Changes:
        details: dict[str, object] = {}

        def reload() -> Changes:
            loaded = read()
            found = self._reload(loaded.settings)
            self._origin, self._loaded = origin, loaded
            details.update(changed=", ".join(found.applied), restart=", ".join(found.restart))
            return found

        return self._change(Change(action="reload", details=details), reload)

    def _reload(self, new: Settings) -> Changes:
        with self._reloading:
            plugin_host = self._make_plugin_host(new)
            try:
                users = plugin_host.changed_users(self._plugin_host)
                with self._lock:
                    found, old = self._put_in_force(new, plugin_host)
            except BaseException:
                plugin_host.stop()
                raise
            plugin_host.invalidate(users)
            if old is not None:
                drain = threading.Thread(target=old.drain, name="mqttcore-old-plugins", daemon=True)
                self._leaving = [*(each for each in self._leaving if each.is_alive()), drain]
                drain.start()
        found.write_to(log)
        return found

    def _put_in_force(
        self, new: Settings, plugin_host: PluginHost | NoPlugins
    ) -> tuple[Changes, PluginHost | NoPlugins | None]:
        """Replaces settings and plugins; returns what changed, and the plugins from before."""
        places = self._started().reload(new, plugin_host.queues)
        old, self._plugin_host = self._plugin_host, plugin_host
        found, bound = self._changes(new, places)
        self._settings, self._bound = new, bound
        if old is not None:
            old.close()
        plugin_host.tell_health_to(self._tell_health)
        return found, old

    def preview(self, new: Settings) -> Changes:
        """What a `reload` with these settings would change; nothing changes.

        Raises:
            StoppedError: the broker does not run.
        """
        with self._lock:
            return self._changes(new, self._started().places(new))[0]

    def _changes(
        self, new: Settings, places: Sequence[int | None]
    ) -> tuple[Changes, list[Listener | None]]:
        """What changes, and the new listener of each socket; its index is in ``places``."""
        bound = [None if place is None else new.listeners[place] for place in places]
        both = Bound(before=self._bound, after=bound)
        return changes(self._settings, new, begun=self._begun, bound=both), bound

    def publish(
        self,
        topic: str,
        payload: bytes | bytearray | str = b"",
        *,
        qos: int = 0,
        retain: bool = False,
        user_properties: Sequence[tuple[str, str]] = (),
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | bytearray | None = None,
        message_expiry_interval: int | None = None,
    ) -> int:
        """Publishes as the broker itself, without a check of permissions. Text is sent as UTF-8.

        Returns:
            How many subscriptions matched.

        Raises:
            TopicNameError: ``topic`` is not a topic name.
            ValueError: another argument is not what a message may have.
            StoppedError: the broker does not run.
            StoreFailedError: the message may not be kept, or nothing can be kept any more.
            OverloadedError: it would have to be kept, and the disk is nearly full; or it was
                delivered, and Kafka did not take it.
        """
        properties = MessageProperties(
            user_properties=list(user_properties),
            content_type=content_type,
            response_topic=response_topic,
            correlation_data=correlation_data,
            message_expiry_interval=message_expiry_interval,
            payload_is_text=isinstance(payload, str),
        )
        body = payload.encode() if isinstance(payload, str) else payload
        engine = self._started()
        try:
            return engine.publish(topic, body, qos=qos, retain=retain, properties=properties)
        except StoppedError:
            self._started()  # says better why, if the store failed meanwhile
            raise

    def clients(self) -> list[Session]:
        """All sessions, connected or not."""
        return self._started().clients()

    def streams(self) -> list[StreamInfo]:
        """The streams, with the first and the end offset of each partition."""
        import json

        from mqttcore.streams.info import info

        return [info(json.loads(text)) for text in self._started().streams()]

    def stats(self) -> dict[str, int]:
        """Counters and gauges by name."""
        return self._started().stats()

    def hook_stats(self) -> list[HookStats]:
        """Results of the calls of each plugin's hooks, since its start or reload.

        Raises:
            StoppedError: the broker does not run.
        """
        plugin_host = self._plugin_host
        if plugin_host is None:
            raise StoppedError("the broker is not running")
        return plugin_host.hook_stats()

    def backup(self, to: pathlib.Path | str, progress: CopyProgress | None = None) -> int:
        """Copies the data folder into a new or empty folder while the broker runs.

        The copy contains everything that was acknowledged before, and a broker can start on it.
        Full segments of the log are hard links where the file system allows.

        Args:
            to: The folder.
            progress: Tells other threads how far the copy is.

        Returns:
            The bytes of the copy.

        Raises:
            StoreError: nothing is kept, or the folder cannot be made.
            StoppedError: the broker does not run.
        """
        folder = pathlib.Path(to).absolute()
        engine = self._started()
        change = Change(action="backup", target=str(folder), details={})
        return self._change(change, lambda: engine.backup(folder, progress or CopyProgress()))

    def disconnect(self, client_id: str) -> bool:
        """Ends a client's connection; False: the client is not connected."""
        engine = self._started()
        change = Change(action="disconnect", target=client_id, details={})
        return self._change(change, lambda: engine.disconnect(client_id))

    def ban(
        self,
        *,
        client_id: str | None = None,
        client_id_regex: str | None = None,
        user: str | None = None,
        address: str | None = None,
        reason: str = "",
        seconds: float | None = None,
    ) -> int:
        """Bans a client identifier, a user name, an IP address or a network such as 10.0.0.0/8.

        ``client_id_regex`` bans all clients whose whole identifier it matches: a regular expression
        without look-around and back-references, compared with each login in linear time.

        Connected clients that it covers are disconnected, and their wills are not published;
        returns their number. New connections get 0x8A (Banned); those of a banned address are
        closed at once. The ban lasts for ``seconds``, or until `unban`. With a data folder it
        survives a restart, and its time also runs while the broker is down; without one it ends
        with the broker. It replaces a ban of the same target.

        Raises:
            ValueError: not exactly one target is given, ``address`` or ``client_id_regex`` is none,
                or ``seconds`` is negative; or there are already 1,000 bans of networks, 1,000 of
                expressions, or 65,536 of client identifiers and user names.
        """
        kind, value = target_of(client_id, client_id_regex, user, address)
        engine = self._started()
        details: dict[str, object] = {"reason": reason, "seconds": seconds}
        change = Change(action="ban", target=f"{kind} {value}", details=details)
        by = caller_name()
        return self._change(
            change, lambda: engine.ban(kind, value, reason=reason, by=by, seconds=seconds)
        )

    def unban(
        self,
        *,
        client_id: str | None = None,
        client_id_regex: str | None = None,
        user: str | None = None,
        address: str | None = None,
    ) -> bool:
        """Lifts a ban; returns False if there is no ban of this target.

        With that of a ``client_id``, its bans for flapping are lifted, too.

        Raises:
            ValueError: not exactly one target is given, or ``address`` or ``client_id_regex`` is
                none.
        """
        kind, value = target_of(client_id, client_id_regex, user, address)
        engine = self._started()
        change = Change(action="unban", target=f"{kind} {value}", details={})
        return self._change(change, lambda: engine.unban(kind, value))

    def bans(self) -> list[Ban]:
        """The bans in force, those for flapping among them."""
        return [
            Ban(kind=kind, value=value, user=user, reason=reason, by=by, remaining_s=remaining_s)
            for kind, value, user, reason, by, remaining_s in self._started().bans()
        ]

    def invalidate(
        self,
        *,
        client_id: str | None = None,
        username: str | None = None,
        plugin: str | None = None,
        everything: bool = False,
    ) -> int:
        """Asks the plugins again about the rights of clients: one, those of a user, or all.

        With ``plugin``, the name of a plugin or of its module, these are the clients whose grant is
        of this plugin; if it has an `authorize` hook, which may have answered about every client,
        all.

        Their cached answers of plugins are dropped. In the background, the hook `grant` is asked
        for their grant, and `authorize` hooks about subscriptions that the grant does not cover. A
        subscription that is not allowed any more ends, and its queued messages are dropped. Without
        a `grant` hook the clients are disconnected with 0x98 and log in again.

        A client that gets no grant is disconnected, and its will is not published. A question
        without an answer is asked up to four times; then it counts as a denial. A client that no
        plugin admitted keeps the grant of its listener.

        Do not call this in a `grant` hook about the same client: the hook would be asked without
        end.

        Returns:
            How many of them are connected.

        Raises:
            ValueError: not exactly one of the arguments is given.
            PluginError: no such plugin runs.
            StoppedError: the broker does not run.
        """
        given = {"client_id": client_id, "username": username, "plugin": plugin}
        chosen = {kind: value for kind, value in given.items() if value is not None}
        if len(chosen) + everything != 1:
            raise ValueError("give exactly one of client_id, username, plugin and everything=True")
        engine, plugin_host = self._started(), self._plugin_host
        if plugin_host is not None:
            if plugin is not None and plugin_host.authorizes(plugin):
                chosen = {}
            plugin_host.forget()
        return engine.invalidate(*next(iter(chosen.items()), ("everything", "")))

    @property
    def is_running(self) -> bool:
        """Whether it is running: started, not stopped, and not failed."""
        return self._engine is not None and self.failure() is None

    @property
    def guarantees(self) -> str:
        """The durability of messages and sessions, with all exceptions, in one line."""
        return self._started().guarantees()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Addresses of its TCP listeners, as (host, port), in the order of the settings."""
        return self._started().addresses()

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Address of HTTP over TCP; None: Unix sockets only, if any."""
        return self._started().http_address()

    @property
    def port(self) -> int:
        """The port of its first TCP listener."""
        return self.addresses[0][1]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self._refuse_to_end_well(error)

    async def __aenter__(self) -> Self:
        import asyncio  # only here: it takes a third of the start

        return await asyncio.to_thread(self.start)

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        import asyncio  # as above

        await asyncio.to_thread(self.stop)
        self._refuse_to_end_well(error)

    def _refuse_to_end_well(self, error: BaseException | None) -> None:
        """Raises the failure at the end of a block."""
        if error is None and (failure := self.failure()):
            raise failure

    def failure(self, *, within: float = 0.0) -> StoppedError | None:
        """The failure of the broker, as the error that every call raises; None without one.

        After a failure of the store (`StoreFailedError`: check the disk) or a panic of a thread
        (`BrokerFailedError`: a fault of mqttcore, please report it) the broker acknowledges
        nothing, disconnects its clients and accepts no new ones: stop it. A stopped broker still
        returns its failure.

        Args:
            within: Seconds to wait for a failure.
        """
        engine = self._engine
        return failure_of(engine, within) if engine is not None else self._failure

    def _started(self) -> Engine:
        if self._engine is None:
            raise StoppedError("the broker is not running")
        if failure := self.failure():
            raise failure
        return self._engine

    def _operate(self, action: str, argument: str) -> str:
        """Functions for the HTTP endpoint, which pass JSON."""
        import json

        from mqttcore.endpoint import Actions

        actions = Actions(
            broker=self,
            loaded=self._loaded,
            read=lambda text: self._known_origin().load(text),
            plugin_host=self._plugin_host,
        )
        with called_by(ENDPOINT):
            return json.dumps(actions.call(action, argument))

    def _change(self, change: Change, make: Callable[[], T]) -> T:
        """Makes a change of an operator, which the audit log records."""
        return change.record(make, self._started().audit)

    def _open_control(self) -> Control | None:
        if not self._settings.data:
            return None
        from mqttcore.control import Control

        try:
            return Control(
                pathlib.Path(self._settings.data),
                {"backup": self.backup, **ban_actions(self.ban, self.unban, self.bans)},
            )
        except OSError as error:
            log.warning("tools such as `mqttcore store` cannot reach this broker: %s", error)
            return None

    def _make_plugin_host(self, settings: Settings) -> PluginHost | NoPlugins:
        sessions = {entry.title: entry.session for entry in settings.listeners}
        if not settings.plugins and not self._own_plugins:
            from mqttcore.plugin.no_plugins import NoPlugins

            return NoPlugins(sessions)
        load()  # plugins have loggers of their own
        from mqttcore.plugin.host import PluginHost
        from mqttcore.plugin.loading import load_plugins

        named = load_plugins(settings)
        uses = zip(named, settings.plugins, strict=True)
        return PluginHost(
            [*named, *self._own_plugins],
            sessions,
            observers=[plugin for plugin, use in uses if use.on_error == "skip"],
            invalidate=self._invalidate_if_running,
            figures=lambda: engine.stats() if (engine := self._engine) else {},
            audit=lambda entry: engine.audit(entry) if (engine := self._engine) else None,
            publish=self.publish,
        )

    def _tell_health(self, reasons: Sequence[str]) -> None:
        if (engine := self._engine) is not None:
            engine.set_degraded_plugins(reasons)

    def _invalidate_if_running(
        self,
        *,
        client_id: str | None = None,
        username: str | None = None,
        everything: bool = False,
    ) -> int:
        if self._engine is None:
            return 0  # plugins start before the engine, and stop after it
        return self.invalidate(client_id=client_id, username=username, everything=everything)


def failure_of(engine: Engine, within: float = 0.0) -> StoppedError | None:
    """Returns the failure of an engine; waits up to ``within`` seconds for one."""
    failed = engine.wait_for_failure(within)
    if failed is None:
        return None
    what, why = failed
    return StoreFailedError(why) if what == "store" else BrokerFailedError(why)


running: set[Broker] = set()
"""Running brokers; their threads end before the interpreter does."""


def stop_all() -> None:
    """Stops running brokers, except in a fork of the process that runs them."""
    for broker in list(running):
        broker.stop(deadline=0.0)


atexit.register(stop_all)
