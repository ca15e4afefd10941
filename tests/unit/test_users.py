"""`mqttcore.auth.users`: users in the configuration file."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest
from mqttcore import Broker, ConfigError, Settings
from mqttcore._core import hash_password
from mqttcore.auth.users import Users
from mqttcore.config import Listener, PluginUse, load
from mqttcore.plugin import Allow, Deny, Login
from mqttcore.testing import harness

from tests.wire import Wire

LISTENER = Listener(address="127.0.0.1:0", name="users")


def sha512(password: bytes) -> str:
    """As `mosquitto_passwd -H sha512` writes it; quick."""
    digest = hashlib.sha512(password + b"salt").digest()
    return f"$6${base64.b64encode(b'salt').decode()}${base64.b64encode(digest).decode()}"


def pbkdf2(password: bytes) -> str:
    """As `mosquitto_passwd` writes it."""
    digest = hashlib.pbkdf2_hmac("sha512", password, b"salt", 101)
    return f"$7$101${base64.b64encode(b'salt').decode()}${base64.b64encode(digest).decode()}"


def user(name: str, password_hash: str, **rules: object) -> dict[str, object]:
    """A table of the configuration."""
    return {"name": name, "password_hash": password_hash, **rules}


USERS = {
    "users": [
        user("ann", sha512(b"red"), subscribe=["#"]),
        user("door", pbkdf2(b"blue"), publish=["door/%c/#"], deny=["door/%c/x"]),
        user("joe", hash_password(b"green", salt=os.urandom(16)), publish=["%u/#"]),
    ]
}


@pytest.mark.parametrize(
    ("name", "password", "publish"),
    [("ann", b"red", ()), ("door", b"blue", ("door/7/#",)), ("joe", b"green", ("joe/#",))],
)
def test_each_user_has_rules_of_its_own(
    name: str, password: bytes, publish: tuple[str, ...]
) -> None:
    with harness(Users, USERS) as users:
        answer = users.authenticate(Login(client_id="7", username=name, password=password))
        wrong = users.authenticate(Login(client_id="7", username=name, password=b"guess"))
        none = users.authenticate(Login(client_id="7", username=name))

    assert isinstance(answer, Allow)
    assert answer.grant.publish == publish
    assert wrong == none == Deny("bad_credentials")


def test_others_are_left_to_the_next_plugin() -> None:
    with harness(Users, USERS) as users:
        assert users.authenticate(Login(client_id="7")) is None
        assert users.authenticate(Login(client_id="7", username="x", password=b"red")) is None


@pytest.mark.parametrize(
    ("tables", "fault"),
    [
        ([], "at least one user"),
        ([user("", sha512(b"x"))], "each a name"),
        ([user("a", sha512(b"x")), user("a", sha512(b"y"))], "the same name"),
        ([user("a", "canary")], "password_hash of 'a': unknown format"),
        ([{"name": "a"}], r"users\[0\].password_hash: missing"),
        ([user("a", sha512(b"x"), publish=["a#"])], "MQTT-4.7.1-1"),
        ([user("a", sha512(b"x"), acl_file="acl")], "unknown key"),
    ],
)
def test_a_wrong_user_stops_the_start_and_no_hash_is_shown(
    tables: list[dict[str, object]], fault: str
) -> None:
    use = PluginUse(use="mqttcore.auth.users", config={"users": tables})

    with pytest.raises(ConfigError, match=fault) as caught:
        Broker(Settings(listeners=(LISTENER,), plugins=(use,))).start()

    assert "canary" not in str(caught.value)
    assert sha512(b"x") not in str(caught.value)


def test_users_of_a_file_over_the_wire(tmp_path: Path) -> None:
    (tmp_path / "m.toml").write_text(f"""
[[listeners]]
address = "127.0.0.1:0"
[[plugins]]
use = "mqttcore.auth.users"
[[plugins.config.users]]
name = "ann"
password_hash = "{sha512(b"red")}"
subscribe = ["a/#"]
""")
    with (
        Broker(load(tmp_path / "m.toml")) as broker,
        Wire(broker.port) as ann,
        Wire(broker.port) as thief,
    ):
        thief.connect("t", username="ann", password=b"guess", reason=0x86)
        ann.connect("a", username="ann", password=b"red")

        assert ann.subscribe(("a/b", 0), ("b", 0)).reasons == (0, 0x87)
