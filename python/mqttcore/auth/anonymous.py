"""Clients without user name, with rules of their own: the public part of a broker with accounts.

    [[plugins]]
    use = "mqttcore.auth.anonymous"
    [plugins.config]
    acl_file = "acl"            # or publish and subscribe

``%c`` in a rule is the client identifier, which anybody may choose. The listener must not have
rights for anonymous clients itself: plugins are not asked about them then. Clients that send a user
name are left to the next plugin.
"""

from mqttcore._core import Login
from mqttcore.auth.rules import RulesPlugin
from mqttcore.plugin.answers import Allow
from mqttcore.plugin.hooks import hook


class Anonymous(RulesPlugin):
    """Admits clients without user name and password."""

    @hook.authenticate()
    def login(self, login: Login) -> Allow | None:
        """Allows a client without credentials; for others, the next plugin is asked."""
        if login.username is not None or login.password is not None:
            return None
        return Allow(self.grant_for(user=None, client_id=login.client_id))
