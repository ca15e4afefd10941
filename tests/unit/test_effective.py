"""The configuration in force, for people."""

import pathlib

from mqttcore.config import Origin
from mqttcore.config.effective import effective

TEXT = """\
[[plugins]]
use = "some.plugin"
[plugins.config]
password = "hidden"
password_file = "shown"
url = "db://user:hidden@host/x"
level = 3
peers = [{ api_key = "hidden", name = "shown" }]
secrets = { db = "hidden" }
signing_key = "hidden"
passphrase = "hidden"
pwd = "hidden"
dsn = "host=x password=hidden"
hook = "https://host/?token=hidden&b=hidden#top"
"""


def test_secrets_of_plugins_are_masked(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "mqttcore.toml"
    file.write_text(TEXT)

    found = effective(Origin(path=file).load())

    plugin = {key.key: key.value for key in found if key.key.startswith("plugins[0].config")}
    assert plugin == {
        "plugins[0].config.password": "***",
        "plugins[0].config.password_file": "shown",
        "plugins[0].config.url": "db://***@host/x",
        "plugins[0].config.level": 3,
        "plugins[0].config.peers[0].api_key": "***",
        "plugins[0].config.peers[0].name": "shown",
        "plugins[0].config.secrets.db": "***",
        "plugins[0].config.signing_key": "***",
        "plugins[0].config.passphrase": "***",
        "plugins[0].config.pwd": "***",
        "plugins[0].config.dsn": "***",
        "plugins[0].config.hook": "https://host/?***#top",
    }
    assert not any("hidden" in str(key.value) for key in found)
