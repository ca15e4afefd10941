"""The public names for plugin authors: hooks, their arguments, and their answers.

A plugin is a class with hooks. It runs only where the configuration names it, in that order:

    from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, hook

    class Doors(Plugin):
        @hook.authenticate(timeout=2.0)
        async def login(self, login: Login) -> Allow | Deny | None:
            if login.username != "door":
                return None  # not mine: the next plugin is asked
            return Allow(Grant(publish=[f"door/{login.client_id}/#"]))

A hook that raises, hangs or answers with something else refuses that client, and the log names it.
One that does so 20 times within 10 s is not asked for 5 s: what it would be asked is refused at
once. Then one question tries whether it answers again. `OverloadedError` does not count.
`@hook.enhanced_auth("METHOD")` leads a conversation with a client that names that method in
CONNECT: one coroutine for the whole of it, with `Exchange.challenge` where the client has to
answer.

Each plugin has threads of its own: one for `def` hooks, one with an event loop for `async def`
hooks, others for hooks of events. Nothing waits for them but a CONNECT, and what
`@hook.authorize`, `@hook.subscribe`, `@hook.publish` and `@hook.control` are asked about. A hook
that holds its thread beyond its timeout (`time.sleep`, an endless loop) is left alone on it, and
another thread takes over; a `def` hook may then run in both. While a hook holds four threads it is
not called.
"""

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
    Disconnect,
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
    "Disconnect",
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
