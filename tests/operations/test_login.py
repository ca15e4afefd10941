"""Logins of users at the HTTP API, by a file of passwords."""

import http.client
import json
import pathlib

import pytest
from mqttcore import Broker, _core
from mqttcore.auth.password_file import PasswordFile
from mqttcore.config import Origin
from mqttcore.plugin import Allow, Grant, Login
from mqttcore.testing import harness

from tests.unit.test_users import sha512

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

CONFIGURATION = """\
data = "data"
[http]
address = "127.0.0.1:0"
[[listeners]]
address = "127.0.0.1:0"
[[plugins]]
use = "mqttcore.auth.password_file"
[plugins.config]
path = "passwords"
subscribe = ["#"]
operate = ["view", "operate"]
operators = ["ann"]
"""


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    users = [f"{name}:{sha512(name.encode())}\n" for name in ("ann", "bob")]
    (tmp_path / "passwords").write_text("".join(users))
    (tmp_path / "mqttcore.toml").write_text(CONFIGURATION)
    return tmp_path


def log_in(broker: Broker, username: str, password: str) -> tuple[int, dict[str, object], str]:
    """Status, body and cookie of the answer."""
    assert broker.http_address is not None
    connection = http.client.HTTPConnection(*broker.http_address, timeout=30)
    body = json.dumps({"username": username, "password": password})
    headers = {"Content-Type": "application/json", "X-Mqttcore": "1"}
    connection.request("POST", "/api/v1/login", body, headers)
    answer = connection.getresponse()
    return answer.status, json.load(answer), answer.headers.get("Set-Cookie", "")


def test_an_operator_of_the_file_logs_in_and_another_user_does_not(folder: pathlib.Path) -> None:
    with Broker(Origin(path=folder / "mqttcore.toml", environment={})) as broker:
        status, body, cookie = log_in(broker, "ann", "ann")
        assert (status, body["scopes"]) == (200, ["view", "operate"])
        assert cookie.startswith("mqttcore_session=mq_")
        status, body, cookie = log_in(broker, "bob", "bob")
        assert (status, body["type"], cookie) == (403, "/errors/operate", "")
        assert log_in(broker, "ann", "bob")[0] == 401


@pytest.mark.parametrize(
    ("operators", "of_ann"), [(None, ("view",)), (["bob"], ()), (["ann"], ("view",)), ([], ())]
)
def test_the_rules_name_the_operators(
    folder: pathlib.Path, operators: list[str] | None, of_ann: tuple[str, ...]
) -> None:
    config = {"path": folder / "passwords", "operate": ["view"]}
    if operators is not None:
        config["operators"] = operators
    with harness(PasswordFile, config) as plugin:
        answer = plugin.authenticate(Login(client_id="c", username="ann", password=b"ann"))

    assert isinstance(answer, Allow)
    assert answer.grant.operate == of_ann


def test_a_grant_refuses_scopes_that_do_not_exist() -> None:
    assert Grant(operate={"admin"}).operate == ("admin",)
    with pytest.raises(ValueError, match="operate has 'root': one of view, payload"):
        Grant(operate=["root"])  # type: ignore[list-item]  # on purpose
    with pytest.raises(ValueError, match="must be a set"):
        Grant(operate="view")  # type: ignore[arg-type]  # on purpose
