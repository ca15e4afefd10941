"""Clients whose user name is that of their certificate, all with the same rules.

    [listeners.tls]
    client_certificates = "required"
    client_ca = "ca.pem"
    identity = "cn"

    [[plugins]]
    use = "mqttcore.auth.certificate"
    [plugins.config]
    publish = ["device/%u/#"]
    subscribe = ["device/%u/#", "news/#"]

The broker has verified the certificate; no password is asked for. ``%u`` and ``%c`` are those of
`mqttcore.auth.password_file`. Other clients are left to the next plugin.
"""

from mqttcore._core import Login
from mqttcore.auth.rules import RulesPlugin
from mqttcore.plugin.answers import Allow
from mqttcore.plugin.hooks import hook


class Certificate(RulesPlugin):
    """Admits clients with a certificate, if the listener takes the user name from it."""

    @hook.authenticate()
    def login(self, login: Login) -> Allow | None:
        """Allows a user whom a certificate names; for others, the next plugin is asked."""
        if not login.is_certified or login.username is None:
            return None
        return Allow(self.grant_for(user=login.username, client_id=login.client_id))
