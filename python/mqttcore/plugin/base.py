"""`Plugin`, the base class of plugins."""

from collections.abc import Mapping
from typing import Protocol

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
        """Returns how many of them are connected."""


class Plugin:
    """A set of hooks with a life of its own: made, started, asked, stopped.

    ``Config`` says what may stand in the file; a plugin that has its own repeats ``config:
    Config``, so that type checkers know it. ``__init__`` keeps its arguments.
    """

    class Config(PluginConfig):
        """Nothing to configure."""

    hooks: Mapping[str, Mark] = {}
    """The hooks of the class by method name, in the order of their definition. An instance may set
    others for itself in ``__init__``: without some of them, or with other times."""

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

    config: PluginConfig
    """What the file says, checked."""

    def __init__(self, config: PluginConfig | None = None, /) -> None:
        self.config = self.Config() if config is None else config

    _invalidate: Invalidate | None = None

    def invalidate(
        self,
        *,
        client_id: str | None = None,
        username: str | None = None,
        everything: bool = False,
    ) -> int:
        """As `mqttcore.Broker.invalidate`: call it when the rights of clients have changed.

        It may be called from any thread, and by hooks. Until the broker has started, there is
        nothing to invalidate.
        """
        if self._invalidate is None:
            return 0
        return self._invalidate(client_id=client_id, username=username, everything=everything)

    @property
    def name(self) -> str:
        """How logs call it."""
        return f"{type(self).__module__}.{type(self).__qualname__}"

    async def start(self) -> None:
        """Gets ready. An exception here stops the broker from starting, or skips an observer.

        Only where the file says ``on_error = "skip"`` is it skipped: logged, and told nothing.

        It runs on the event loop of the `async def` hooks that decide; where there are none, on
        that of the hooks of events. When a hook blocks that loop, another one takes over and
        `start` is called again there, since what it opened belongs to a loop.
        """

    async def stop(self) -> None:
        """Lets go of what `start` took. Called once, after the last hook."""
