"""The public names for plugin authors: hooks, their arguments, and their answers.

A plugin is a class with hooks. It runs only where the configuration names it, in that order:

    from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, hook

    class Doors(Plugin):
        @hook.authenticate(timeout=2.0)
        async def login(self, login: Login) -> Allow | Deny | None:
            if login.username != "door":
                return None  # not mine: the next plugin is asked
            return Allow(Grant(publish=[f"door/{login.client_id}/#"]))

If a hook raises, hangs or returns a wrong type, the client is refused, and the log names the hook.
After 20 such failures within 10 s the hook is not called for 5 s, and its requests are refused at
once. Then one trial call decides whether it works again. `OverloadedError` does not count.
`@hook.enhanced_auth("METHOD")` runs the exchange with a client that names this method in CONNECT:
one coroutine, which calls `Exchange.challenge` when the client has to answer.

Each plugin has its own threads: one for `def` hooks, one with an event loop for `async def` hooks,
others for event hooks. Only CONNECT and the requests of `@hook.authorize`, `@hook.subscribe`,
`@hook.publish`, `@hook.deliver` and `@hook.control` wait for them. If a hook blocks its thread
beyond its timeout (`time.sleep`, an endless loop), another thread takes over; a `def` hook may then
run in both. While a hook blocks four threads, it is not called.

Names are imported when they are used first: a broker without plugins needs few of them.
"""

# As in `mqttcore`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from mqttcore._core import (
        Ask,
        Client,
        ClientCertificate,
        Event,
        Login,
        Message,
        Subscribe,
        SubscribeEntry,
    )
    from mqttcore.plugin.answers import (
        Allow,
        Degraded,
        Deny,
        DisconnectClient,
        Drop,
        Grant,
        Limits,
        OrderedRules,
        Redirect,
        Replace,
        ReplaceConnect,
        ReplaceOptions,
    )
    from mqttcore.plugin.base import Plugin
    from mqttcore.plugin.exchange import Exchange
    from mqttcore.plugin.hooks import hook
    from mqttcore.plugin.options import PluginConfig, Secret
    from mqttcore.plugin.stats import HookStats
    from mqttcore.sessions.policy import SessionLimits, SessionPolicy

__all__ = [
    "Allow",
    "Ask",
    "Client",
    "ClientCertificate",
    "Degraded",
    "Deny",
    "DisconnectClient",
    "Drop",
    "Event",
    "Exchange",
    "Grant",
    "HookStats",
    "Limits",
    "Login",
    "Message",
    "OrderedRules",
    "Plugin",
    "PluginConfig",
    "Redirect",
    "Replace",
    "ReplaceConnect",
    "ReplaceOptions",
    "Secret",
    "SessionLimits",
    "SessionPolicy",
    "Subscribe",
    "SubscribeEntry",
    "hook",
]

_NAMES = {
    "_core": (
        "Ask",
        "Client",
        "ClientCertificate",
        "Event",
        "Login",
        "Message",
        "Subscribe",
        "SubscribeEntry",
    ),
    "plugin.answers": (
        "Allow",
        "Degraded",
        "Deny",
        "DisconnectClient",
        "Drop",
        "Grant",
        "Limits",
        "OrderedRules",
        "Redirect",
        "Replace",
        "ReplaceConnect",
        "ReplaceOptions",
    ),
    "plugin.base": ("Plugin",),
    "plugin.exchange": ("Exchange",),
    "plugin.hooks": ("hook",),
    "plugin.options": ("PluginConfig", "Secret"),
    "plugin.stats": ("HookStats",),
    "sessions.policy": ("SessionLimits", "SessionPolicy"),
}
_HOMES = {name: home for home, names in _NAMES.items() for name in names}
"""The module of each name."""


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=__name__)
    from importlib import import_module

    value: object = getattr(import_module(f"mqttcore.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
