"""An HTTP service decides: it gets the credentials as a form and answers with permissions."""

import aiohttp
from mqttcore.plugin import Allow, Deny, Grant, Login, Plugin, PluginConfig, hook


class HttpLogin(Plugin):
    class Config(PluginConfig):
        url: str

    config: Config

    async def start(self) -> None:
        self.session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2.0))

    async def stop(self) -> None:
        await self.session.close()

    @hook.authenticate(timeout=3.0, cache=60.0)
    async def login(self, login: Login) -> Allow | Deny:
        password = (login.password or b"").decode(errors="replace")
        form = {"client": login.client_id, "user": login.username or "", "password": password}
        async with self.session.post(self.config.url, data=form, allow_redirects=False) as reply:
            if reply.status in (401, 403):
                return Deny("bad_credentials")
            reply.raise_for_status()  # anything else is a fault: the client is told to come again
            rules = await reply.json()
        return Allow(Grant(publish=rules["publish"], subscribe=rules["subscribe"]))
