"""`mqttcore acl dry-run`: what another ACL file would change for live sessions."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Iterator

import pytest
from mqttcore import Broker, _core
from mqttcore._core import TopicFilter
from mqttcore.auth.acl_file import Rule
from mqttcore.cli.acl import NOTHING, reading
from mqttcore.config import Origin

from tests.cli.conftest import Run
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
