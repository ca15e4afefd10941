"""`Plugin`, the base class of plugins."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from mqttcore.auditing import Entry
from mqttcore.plugin.marks import MARK, Mark
from mqttcore.plugin.options import PluginConfig


class Invalidate(Protocol):
    """Invalidates the rights of clients; see `mqttcore.Broker.invalidate`."""

    def __call__(
        self,
        *,
        client_id: str | None = None,
        username: str | None = None,
        everything: bool = False,
    ) -> int:
        """Returns how many of these clients are connected."""


Stored = tuple[int, int, int, int | None]
"""The number of a message (`Replace`), and when its records were made, written, and synced, in Unix
nanoseconds. None: its acknowledgement does not wait for the disk."""

HookFunction = Callable[..., Any]  # Any: each hook point has its own arguments and answer

NAMED_MAX = 256
"""More users than that are not invalidated one by one."""


def invalidate_users(invalidate: Invalidate, users: Collection[str] | None) -> None:
    """Invalidates the rights of these users; None: of everybody."""
    if users is None or len(users) > NAMED_MAX:
        invalidate(everything=True)
        return
    for user in sorted(users):
        invalidate(username=user)


class Plugin:
    """A set of hooks with a lifecycle: made, started, asked, stopped.

    ``Config`` declares the keys of the configuration; a plugin with its own class repeats ``config:
    Config``, so that type checkers know the type. ``__init__`` keeps its arguments.
    """

    if TYPE_CHECKING:
        Config: Any  # Any: a class of its own in each plugin, which type checkers refuse otherwise
    else:

        class Config(PluginConfig):
            """There are no keys."""

    hooks: Mapping[str, Mark] = {}
    """The hooks of the class by method name, in the order of their definition. An instance may
    replace them in ``__init__``: leave out some, or change times."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        found = dict(cls.hooks)
        for name, member in vars(cls).items():
            mark = getattr(member, MARK, None)
            if mark is not None:
                found[name] = mark
            else:
                found.pop(name, None)
        cls.hooks = found

    config: Any  # Any: as above
    """The checked configuration."""

    def __init__(self, config: PluginConfig | None = None, /) -> None:
        self.config = self.Config() if config is None else config

    _invalidate: Invalidate | None = None
    _read_figures: Callable[[], Mapping[str, int]] | None = None
    """`mqttcore.Broker.stats`; empty while the broker does not run."""
    _audit: Callable[[Entry], None] | None = None
    """Writes a change of its users into the audit log."""
    _publish: Callable[..., int] | None = None
    """`mqttcore.Broker.publish`."""

    def invalidate(
        self,
        *,
        client_id: str | None = None,
        username: str | None = None,
        everything: bool = False,
    ) -> int:
        """Like `mqttcore.Broker.invalidate`: call it when the rights of clients have changed.

        It may be called from any thread, and by hooks. Before the broker has started, it does
        nothing.
        """
        if self._invalidate is None:
            return 0
        return self._invalidate(client_id=client_id, username=username, everything=everything)

    def changed_users(self, before: "Plugin", /) -> Collection[str] | None:
        """Users whose clients may have other rights than ``before`` gave them; None: everybody.

        It is called in a reload, after `start`, with the plugin of the same class that this one
        replaces. Then the broker invalidates the rights of these users. If it raises, the reload
        is refused, and ``before`` goes on. If a plugin does not override it, connected clients
        keep their rights until `invalidate`.
        """
        return ()

    def _try_acl_file(
        self, acl_file: str, sessions: Sequence[tuple[str, str | None, Sequence[str]]]
    ) -> Mapping[str, object] | None:
        """What the text of an ACL file would change for sessions; None: the plugin has none.

        A session has client identifier, user name and topic filters.
        """
        return None

    def _observe(self, title: str, mark: Mark, function: HookFunction, /) -> HookFunction:
        """The function to call for a hook of another plugin: ``function``, or one that calls it."""
        return function

    def _note_stored(self, times: Stored) -> None:
        """Called when the records of a message are safe that a plugin has given a number."""

    @property
    def name(self) -> str:
        """The name in logs."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    async def start(self) -> None:
        """Prepares the plugin. If it raises, the broker does not start.

        With ``on_error = "skip"`` in the file, a plugin that has only event hooks is skipped
        instead: that is logged, and it gets no events.

        It runs on the event loop of the `async def` hooks that decide; without such hooks, on that
        of the event hooks. If a hook blocks this loop, another loop replaces it and `start` is
        called again there, since connections belong to a loop.
        """

    async def reload(self) -> None:
        """Reads its files again, while its hooks are asked: `mqttcore plugins reload NAME`.

        It runs on the event loop of `start`. If it raises, it has changed nothing. The broker then
        invalidates the rights of `changed_users`, whose argument is a copy from before. A plugin
        that does not override it is only replaced by a reload of the configuration.
        """

    async def stop(self) -> None:
        """Releases what `start` opened. Called once, after the last hook."""
