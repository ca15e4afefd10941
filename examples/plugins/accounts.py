"""Accounts in a dictionary: each with its password and its permissions."""

from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, Secret, hook

EVERYTHING, OWN = Grant(publish=["#"], subscribe=["#"]), Grant(publish=["door/7/#"])
ACCOUNTS = {"ann": (Secret("correct horse"), EVERYTHING), "door": (Secret("battery"), OWN)}


class Accounts(Plugin):
    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        if login.username not in ACCOUNTS:
            return None  # not mine: the next plugin is asked
        password, grant = ACCOUNTS[login.username]
        return Allow(grant) if password.matches(login.password) else Deny("bad_credentials")
