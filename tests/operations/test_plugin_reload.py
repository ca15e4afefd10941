"""A plugin that reads its files again while its broker runs: HTTP API and `mqttcore plugins`."""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
from mqttcore import Broker, _core
from mqttcore.cli import plugins
from mqttcore.config import Origin
from mqttcore.plugin import Plugin, hook

from tests.dynsec import PASSWORD, PBKDF2
from tests.eventually import eventually
from tests.operations.api import Api
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

ADMINISTRATIVE = 0x98
PASSWORDS = "mqttcore.auth.password_file"
CONFIGURATION = """
data = "data"
[http]
[[listeners]]
address = "127.0.0.1:0"
[[plugins]]
use = "mqttcore.auth.password_file"
[plugins.config]
path = "passwords"
acl_file = "acl"
[[plugins]]
use = "mqttcore.auth.dynamic_security"
[plugins.config]
path = "dynsec.json"
"""
ACL = "user ann\ntopic readwrite plant/#\nuser bob\ntopic read news/#\n"


class Counting(Plugin):
    """A plugin of a program, which counts its starts."""

    starts = 0

    async def start(self) -> None:
        """Counts."""
        self.starts += 1

    @hook.every(3600)
    def tick(self) -> None:
        """Does nothing."""


def passwords(*names: str) -> str:
    return "".join(f"{name}:{_core.hash_password(b'pw', salt=bytes(16))}\n" for name in names)


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def broker(tmp_path: pathlib.Path, counting: Counting) -> Iterator[Broker]:
    (tmp_path / "acl").write_text(ACL)
    (tmp_path / "passwords").write_text(passwords("ann", "bob"))
    (tmp_path / "dynsec.json").write_text(dynsec("cid"))
    (tmp_path / "mqttcore.toml").write_text(CONFIGURATION)
    origin = Origin(path=tmp_path / "mqttcore.toml", environment={})
    with Broker(origin, plugins=[counting]) as running:
        yield running


def dynsec(client: str) -> str:
    clients = [{"username": client, **PBKDF2, "roles": []}]
    return json.dumps({"clients": clients, "groups": [], "roles": [], "defaultACLAccess": {}})


@pytest.fixture
def api(broker: Broker, tmp_path: pathlib.Path) -> Api:
    assert broker.is_running
    return Api(tmp_path / "data")


def connected(broker: Broker, user: str, password: bytes = b"pw") -> Wire:
    wire = Wire(broker.port)
    wire.connect(user, username=user, password=password)
    return wire


def reload(api: Api, name: str) -> tuple[int, dict[str, Any]]:
    return api.ask("POST", f"/plugins/{name}/reload")


def test_only_the_files_of_the_named_plugin_are_read_again(
    api: Api, broker: Broker, counting: Counting
) -> None:
    home = api.folder.parent
    with connected(broker, "ann") as ann, connected(broker, "bob") as bob:
        ann.subscribe(("plant/1", 0))
        bob.subscribe(("news/1", 0))
        (home / "acl").write_text(ACL.replace("plant/#", "plant/2"))
        (home / "dynsec.json").write_text("wrong")
        (home / "mqttcore.toml").write_text("wrong")

        assert reload(api, PASSWORDS) == (200, {"changed_users": 1})

        ann.expect_refusal(ADMINISTRATIVE)  # no `grant` hook: ann logs in again
        with connected(broker, "ann") as again:
            assert again.publish("plant/1", qos=1).reason == 0x87
            assert again.publish("plant/2", qos=1).reason != 0x87
        bob.ping()
    assert counting.starts == 1


def test_users_with_another_password_are_disconnected(api: Api, broker: Broker) -> None:
    with connected(broker, "ann") as ann, connected(broker, "bob") as bob:
        other = _core.hash_password(b"other", salt=bytes(16))
        (api.folder.parent / "passwords").write_text(f"{passwords('ann')}bob:{other}\n")

        assert reload(api, f"{PASSWORDS}.PasswordFile") == (200, {"changed_users": 1})

        bob.expect_refusal(ADMINISTRATIVE)
        ann.ping()
    connected(broker, "bob", b"other").close()


def test_files_that_cannot_be_used_change_nothing(api: Api, broker: Broker) -> None:
    home = api.folder.parent
    with connected(broker, "ann") as ann:
        (home / "passwords").write_text(passwords("bob"))
        (home / "acl").write_text("user ann\ntopic nonsense plant/#\n")

        status, problem = reload(api, PASSWORDS)

        assert status == 409
        assert "PasswordFile is as before" in problem["detail"]
        ann.ping()
    connected(broker, "ann").close()


def test_a_file_of_dynamic_security_that_was_edited_is_taken_over(
    api: Api, broker: Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    path = api.folder.parent / "dynsec.json"
    path.write_text(dynsec("other"))
    os.utime(path, ns=(1, 1))
    name = "mqttcore.auth.dynamic_security"

    assert plugins.main(["reload", name, "--data", str(api.folder)]) == 0

    assert "the rights of 2 users may have changed" in capsys.readouterr().out
    connected(broker, "other", PASSWORD.encode()).close()


def test_a_plugin_has_metrics_of_its_own(api: Api) -> None:
    names = {item["plugin"] for item in api.ask("GET", "/plugins")[1]["items"]}
    own = next(name for name in names if name.endswith("Counting"))

    for name in (own, own.rpartition(".")[0]):
        found = api.ask("GET", f"/plugins/{name}/metrics")[1]["items"]
        assert {item["plugin"] for item in found} == {own}
    assert api.ask("GET", "/plugins/nobody/metrics")[0] == 404


def test_what_cannot_be_reloaded_is_refused(api: Api) -> None:
    status, problem = reload(api, "nobody")
    assert (status, problem["hint"]) == (404, "GET /api/v1/plugins lists them")
    names = {item["plugin"] for item in api.ask("GET", "/plugins")[1]["items"]}
    own = next(name for name in names if name.endswith("Counting"))
    status, problem = reload(api, own)
    assert status == 409
    assert "reads no files: reload the configuration" in problem["detail"]


def test_a_lost_file_keeps_the_rights(api: Api, broker: Broker) -> None:
    with connected(broker, "bob") as bob:
        (api.folder.parent / "passwords").unlink()

        assert reload(api, PASSWORDS)[0] == 409

        bob.ping()
    eventually(lambda: not [one for one in broker.clients() if one.connected])
