"""JSON Web Tokens as passwords: user, permissions and end of the connection are claims.

`mqttcore.auth.jwt` does this and more: public keys, key sets at a URL, issuer and audience.
"""

from datetime import UTC, datetime

from joserfc import errors, jwk, jwt
from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, PluginConfig, Secret, hook


class Tokens(Plugin):
    class Config(PluginConfig):
        secret: Secret[str]

    config: Config

    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny:
        key = jwk.OctKey.import_key(self.config.secret.reveal())
        try:
            found = jwt.decode(login.password or b"", key, algorithms=["HS256"]).claims
            jwt.JWTClaimsRegistry(exp={"essential": True}, sub={"essential": True}).validate(found)
        except (errors.JoseError, ValueError):
            return Deny("bad_credentials")
        until = datetime.fromtimestamp(found["exp"], UTC)
        return Allow(Grant(publish=found.get("publ", []), expires_at=until), username=found["sub"])
