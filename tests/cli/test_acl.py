"""`mqttcore acl`: which rule decides, and what another ACL file would change for live sessions."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from mqttcore import Broker, _core
from mqttcore._core import TopicFilter
from mqttcore.auth import acl_changes
from mqttcore.auth.acl_changes import NOTHING, reading, try_text
from mqttcore.auth.acl_file import Rule, parse_acl_file
from mqttcore.config import Origin
from mqttcore.plugin import Allow, Grant, Login, Plugin, hook

from tests.cli.conftest import Run
from tests.dynsec import PASSWORD, PBKDF2
from tests.operations.api import Api
from tests.wire import Wire

has_endpoint = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

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
"""
OLD = """\
user ann
topic readwrite plant/#
user bob
topic read news/#
"""
NEW = """\
user ann
topic read plant/#
topic deny plant/secret
user bob
topic read news/#
"""


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    """A broker whose users have an ACL file, with two clients."""
    (tmp_path / "acl").write_text(OLD)
    (tmp_path / "new").write_text(NEW)
    (tmp_path / "passwords").write_text(
        "".join(f"{name}:{_core.hash_password(b'pw', salt=bytes(16))}\n" for name in ("ann", "bob"))
    )
    (tmp_path / "mqttcore.toml").write_text(CONFIGURATION)
    with (
        Broker(Origin(path=tmp_path / "mqttcore.toml")) as started,
        Wire(started.port) as ann,
        Wire(started.port) as bob,
    ):
        ann.connect("a", username="ann", password=b"pw")
        ann.subscribe(("plant/+", 0), ("plant/1", 0))
        bob.connect("b", username="bob", password=b"pw")
        bob.subscribe(("news/#", 0))
        yield started


@has_endpoint
def test_each_client_and_subscription_that_changes_is_printed(
    run: Run, tmp_path: pathlib.Path, broker: Broker
) -> None:
    done = run("acl", "dry-run", tmp_path / "new", "--data", tmp_path / "data", "--json")

    assert done.status == 0, done.error
    shown = json.loads(done.out)
    assert shown["clients"] == 2
    found = [(one["client_id"], one["filter"], one["now"], one["then"]) for one in shown["changes"]]
    assert found == [
        ("a", None, "readwrite plant/#", NOTHING),
        ("a", "plant/+", "everything", "deny plant/secret, read plant/#"),
    ]
    assert len(broker.clients()) == 2
    table = run("acl", "dry-run", tmp_path / "new", "--data", tmp_path / "data")
    assert "plant/+" in table.out
    assert "1 of 2 clients change" in table.error


@has_endpoint
def test_the_file_in_use_changes_nothing_and_a_malformed_one_is_refused(
    run: Run, tmp_path: pathlib.Path, broker: Broker
) -> None:
    assert broker.is_running
    same = run("acl", "dry-run", tmp_path / "acl", "--data", tmp_path / "data")
    (tmp_path / "new").write_text("user ann\ntopic raed x\n")
    wrong = run("acl", "dry-run", tmp_path / "new", "--data", tmp_path / "data")

    assert (same.status, same.out) == (0, "")
    assert "0 of 2 clients change" in same.error
    assert wrong.status == 2
    assert f"{tmp_path / 'new'}:2: unknown access 'raed'" in wrong.error


@has_endpoint
def test_the_api_compares_a_text_with_the_file_in_use(
    tmp_path: pathlib.Path, broker: Broker
) -> None:
    api = Api(tmp_path / "data")

    status, found = api.ask("POST", "/access/dry-run", {"acl_file": NEW})
    _, same = api.ask("POST", "/access/dry-run", {"acl_file": OLD})
    _, empty = api.ask("POST", "/access/dry-run", {"acl_file": ""})
    wrong, problem = api.ask("POST", "/access/dry-run", {"acl_file": "user ann\ntopic raed x"})

    assert (status, found["clients"], found["changed"], found["warnings"]) == (200, 2, 1, [])
    assert (found["has_more"], found["partial"]) == (False, [])
    assert [(one["action"], one["filter"], one["then"]) for one in found["changes"]] == [
        ("publish", None, NOTHING),
        ("receive", "plant/+", "deny plant/secret, read plant/#"),
    ]
    assert (same["changed"], same["changes"]) == (0, [])
    assert empty["warnings"] == ["new ACL file has no rules: a reload refuses it"]
    assert (wrong, problem["detail"].partition(";")[0]) == (
        400,
        "new ACL file:2: unknown access 'raed'",
    )
    assert len(broker.clients()) == 2


@has_endpoint
def test_the_api_has_nothing_to_compare_without_a_file_in_use(tmp_path: pathlib.Path) -> None:
    (tmp_path / "mqttcore.toml").write_text(CONFIGURATION.partition("[[plugins]]")[0])
    with Broker(Origin(path=tmp_path / "mqttcore.toml")):
        asked = Api(tmp_path / "data").ask("POST", "/access/dry-run", {"acl_file": NEW})

    assert (asked[0], asked[1]["detail"]) == (409, "no ACL file is in use")


def explained(run: Run, data: pathlib.Path, *asked: object) -> list[tuple[object, ...]]:
    """Client, verdict, rule, plugin and place of the last step."""
    done = run("acl", "explain", *asked, "--data", data, "--json")
    assert done.status in {0, 1}, done.error
    found = json.loads(done.out)
    lasts = [(one["client_id"], one["verdict"], one["steps"][-1]) for one in found]
    return [
        (client, verdict, last["by"], last["granted_by"], last["place"])
        for client, verdict, last in lasts
    ]


@has_endpoint
def test_explain_names_plugin_file_and_line_of_a_rule_of_an_acl_file(
    run: Run, tmp_path: pathlib.Path, broker: Broker
) -> None:
    assert broker.is_running
    data, acl = tmp_path / "data", tmp_path / "acl"
    plugin = "mqttcore.auth.password_file.PasswordFile.login"

    allowed = explained(run, data, "--user", "ann", "--client", "a", "publish", "plant/1")
    received = explained(run, data, "--user", "bob", "receive", "news/1")
    denied = explained(run, data, "--client", "b", "publish", "plant/1")

    assert allowed == [("a", "ok", "allow plant/#", plugin, f"{acl}:2")]
    assert received == [("b", "ok", "allow news/#", plugin, f"{acl}:4")]
    assert denied == [("b", "denied:publish", "deny (no rule names it)", plugin, None)]
    table = run("acl", "explain", "--client", "a", "publish", "plant/1", "--data", data)
    assert table.status == 0
    assert "client a, user ann" in table.out
    assert f"{acl}:2" in table.out


@has_endpoint
def test_explain_names_who_it_is_asked_about(
    run: Run, tmp_path: pathlib.Path, broker: Broker
) -> None:
    assert broker.is_running
    data = tmp_path / "data"

    nobody = run("acl", "explain", "publish", "t", "--data", data)
    stranger = run("acl", "explain", "--user", "eve", "publish", "t", "--data", data)
    other = run("acl", "explain", "--user", "bob", "--client", "a", "publish", "t", "--data", data)
    unknown = run("acl", "explain", "--client", "x", "publish", "t", "--data", data)

    assert (nobody.status, stranger.status, other.status) == (2, 1, 1)
    assert "--client" in nobody.error
    assert "no session of user eve" in stranger.error
    assert "no session of user bob" in other.error
    assert unknown.status == 1


RULES = """
data = "data"
[http]
[[listeners]]
address = "127.0.0.1:0"
anonymous = { publish = ["public/#"] }
[[plugins]]
use = "mqttcore.auth.users"
[[plugins.config.users]]
name = "ann"
password_hash = "HASH"
publish = [
    "plant/%c/#",
]
deny = ["plant/+/secret"]
[[plugins]]
use = "tests.cli.test_acl:Porter"
[[plugins]]
use = "mqttcore.auth.dynamic_security"
[plugins.config]
path = "dynsec.json"
"""
DYNSEC = {
    "defaultACLAccess": {"publishClientSend": False},
    "clients": [{"username": "dyn", **PBKDF2, "roles": [{"rolename": "r"}]}],
    "roles": [
        {
            "rolename": "r",
            "acls": [
                {"acltype": "publishClientReceive", "topic": "in/#", "allow": True},
                {"acltype": "publishClientSend", "topic": "out/%c", "allow": True},
                {"acltype": "subscribePattern", "topic": "in/#", "allow": True},
            ],
        }
    ],
}


class Porter(Plugin):
    """Lets "joe" in."""

    @hook.authenticate
    def login(self, login: Login) -> Allow | None:
        """Lets in."""
        return Allow(Grant(publish=["porch/#"])) if login.username == "joe" else None


@has_endpoint
def test_explain_names_the_place_of_each_kind_of_rule(run: Run, tmp_path: pathlib.Path) -> None:
    hashed = _core.hash_password(b"pw", salt=bytes(16))
    (tmp_path / "dynsec.json").write_text(json.dumps(DYNSEC, indent=1))
    config, data = tmp_path / "mqttcore.toml", tmp_path / "data"
    config.write_text(RULES.replace("HASH", hashed))

    with Broker(Origin(path=config)) as started, ExitStack() as stack:
        for client_id, user in (("a", "ann"), ("j", "joe"), ("d", "dyn"), ("n", None)):
            wire = stack.enter_context(Wire(started.port))
            password = PASSWORD.encode() if user == "dyn" else None if user is None else b"pw"
            wire.connect(client_id, username=user, password=password)

        def last(client_id: str, *asked: str) -> tuple[object, ...]:
            (found,) = explained(run, data, "--client", client_id, *asked)
            return found[2:]

        users = "mqttcore.auth.users.Users.login"
        dynamic = "mqttcore.auth.dynamic_security.DynamicSecurity.login"
        assert last("a", "publish", "plant/a/x") == (
            "allow plant/a/#",
            users,
            place_of(config, '"plant/%c/#"'),
        )
        assert last("a", "publish", "plant/a/secret") == (
            "deny plant/+/secret",
            users,
            place_of(config, '"plant/+/secret"'),
        )
        assert last("j", "publish", "porch/1") == (
            "allow porch/#",
            "tests.cli.test_acl.Porter.login",
            None,
        )
        assert last("d", "publish", "out/d") == (
            "allow out/d",
            dynamic,
            f"{tmp_path / 'dynsec.json'}:{line_with('publishClientSend')}",
        )
        assert last("n", "publish", "public/1") == (
            "allow public/#",
            "listener 127.0.0.1:0",
            place_of(config, '"public/#"'),
        )
        shown = run("acl", "show", "a", "--data", data)
        assert shown.status == 0
        lines = [" ".join(line.split()) for line in shown.out.splitlines()]
        secret, own = (place_of(config, text) for text in ('"plant/+/secret"', '"plant/%c/#"'))
        assert f"may not publish, receive plant/+/secret no {secret}" in lines
        assert f"may publish plant/a/# no {own}" in lines


def place_of(path: pathlib.Path, text: str) -> str:
    """File, line and column of a text."""
    lines = path.read_text().splitlines()
    found = [(number, line.index(text)) for number, line in enumerate(lines, 1) if text in line]
    return f"{path}:{found[0][0]}:{found[0][1] + 1}"


def line_with(kind: str) -> int:
    """The line of the ACL of this kind in the file of dynamic security."""
    lines = json.dumps(DYNSEC, indent=1).splitlines()
    (found,) = [number for number, line in enumerate(lines, 1) if f'"acltype": "{kind}"' in line]
    return found


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([("read", "#")], "everything"),
        ([("write", "#")], NOTHING),
        ([("deny", "a/b"), ("read", "a/#")], "deny a/b, read a/#"),
        ([("deny", "c"), ("read", "a/#")], "everything"),
        ([("read", "a/b")], "read a/b"),
        ([("deny", "a/#"), ("read", "#")], NOTHING),
        ([], NOTHING),
    ],
)
def test_what_a_subscription_receives(rules: list[Rule], expected: str) -> None:
    assert reading(rules, TopicFilter("a/+")) == expected


def test_a_text_is_compared_until_there_are_enough_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl_changes, "CHANGES_MAX", 2)
    old = parse_acl_file("user ann\ntopic read #", pathlib.Path("old"))

    def found(*filters: str) -> dict[str, object]:
        return try_text("user ann\ntopic read x", [("a", "ann", filters)], old)

    whole, cut = found("a", "b"), found("a", "b", "c")
    assert whole["has_more"] is False
    assert cut == {**whole, "has_more": True}
