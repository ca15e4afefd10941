"""`mqttcore keys`: the file with the keys of the HTTP API."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import pathlib
import stat
import tomllib
from contextlib import closing

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.cli import keys
from mqttcore.config import HttpListener, Listener

from tests.operations.api import Api


@pytest.fixture
def file(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "keys.toml"


def made(file: pathlib.Path, name: str, *more: str) -> int:
    return keys.main(["add", str(file), name, *more])


def test_keys_are_added_listed_and_revoked(
    file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(file, "a", "--scope", "admin", "--scope", "view", "--expires", "2030-01-31") == 0
    secret = capsys.readouterr().out.strip()
    assert made(file, 'b "ü" 🎛', "--scope", "rows", "--stream", "plant") == 0
    capsys.readouterr()

    assert keys.main(["list", str(file)]) == 0
    listed = capsys.readouterr().out
    assert keys.main(["revoke", str(file), "a"]) == 0
    assert keys.main(["list", str(file)]) == 0

    assert len(secret) == 55
    assert secret.startswith("mq_")
    assert listed == 'a: view, admin, expires 2030-01-31\nb "ü" 🎛: rows, streams plant\n'
    assert capsys.readouterr().out == 'b "ü" 🎛: rows, streams plant\n'
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_json_has_the_keys_and_a_secret_only_once(
    file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(file, "a", "--scope", "rows", "--stream", "plant", "--json") == 0
    new = json.loads(capsys.readouterr().out)
    assert made(file, "b", "--scope", "view", "--expires", "2030-01-31") == 0
    capsys.readouterr()

    assert keys.main(["list", str(file), "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert keys.main(["revoke", str(file), "a", "--json"]) == 0
    revoked = json.loads(capsys.readouterr().out)
    assert keys.main(["revoke", str(file), "a", "--json"]) == 1

    a = {"name": "a", "scopes": ["rows"], "streams": ["plant"], "expires": None}
    b = {"name": "b", "scopes": ["view"], "streams": None, "expires": "2030-01-31"}
    assert new == {**a, "secret": new["secret"]}
    assert hashlib.sha256(new["secret"].encode()).hexdigest() not in json.dumps(listed)
    assert listed == {"items": [a, b]}
    assert revoked == {"name": "a", "revoked": True}
    assert capsys.readouterr().out == ""


def test_a_date_that_is_none_is_named(
    file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        made(file, "a", "--scope", "view", "--expires", "soon")

    assert ended.value.code == 2
    assert "a date is as 2030-01-31" in capsys.readouterr().err


@pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")
def test_a_broker_knows_a_key_that_was_added(
    file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(file, 'a "b"', "--scope", "view", "--expires", "2999-12-31") == 0
    secret = capsys.readouterr().out.strip()
    endpoint = HttpListener(address="127.0.0.1:0", keys_file=file)
    with Broker(Settings(listeners=(Listener(address="127.0.0.1:0"),), http=endpoint)) as broker:
        assert broker.http_address is not None
        with closing(http.client.HTTPConnection(*broker.http_address, timeout=30)) as connection:
            headers = {"Authorization": f"Bearer {secret}"}
            connection.request("GET", "/api/v1/version", headers=headers)

            assert connection.getresponse().status == 200


def test_what_cannot_be_done_is_reported(
    file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(file, "a", "--scope", "view") == 0
    for arguments, word in (
        (["add", str(file), "a", "--scope", "view"], "exists"),
        (["add", str(file), "", "--scope", "view"], "1 to 128"),
        (["add", str(file), "\n", "--scope", "view"], "1 to 128"),
        (["add", str(file), "ü" * 65, "--scope", "view"], "1 to 128"),
        (["revoke", str(file), "b"], "no key named 'b'"),
        (["add", "/nowhere/keys", "a", "--scope", "view"], "/nowhere does not exist: create it"),
    ):
        assert keys.main(arguments) == 1
        assert word in capsys.readouterr().err


@pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")
def test_the_scopes_are_those_of_the_broker(tmp_path: pathlib.Path) -> None:
    endpoint = HttpListener(keys_file=tmp_path / "keys.toml")
    listener = Listener(address="127.0.0.1:0")
    with Broker(Settings(listeners=(listener,), http=endpoint, data=str(tmp_path / "data"))):
        _, document = Api(tmp_path / "data").ask("GET", "/openapi.json")

    assert document["components"]["schemas"]["Scope"]["enum"] == list(keys.SCOPES)


@pytest.mark.parametrize(
    ("text", "mode", "word"),
    [
        ("", 0o640, "chmod 600"),
        ("[[keys]", 0o600, "Expected"),
        ("[[keys]]\nname = 'a'\n", 0o600, "needs name, sha256 and scopes"),
        ("other = 1\n", 0o600, "needs name, sha256 and scopes"),
        ("[[keys]]\nname='a'\nsha256=''\nscopes=['all']\n", 0o600, "needs name"),
    ],
)
def test_a_file_that_is_wrong_stays_as_it_is(
    file: pathlib.Path, text: str, mode: int, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file.write_text(text)
    file.chmod(mode)

    assert made(file, "b", "--scope", "view") == 1

    assert word in capsys.readouterr().err
    assert file.read_text() == text


def test_a_link_stays(file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(file)

    assert made(link, "a", "--scope", "view") == 0

    assert link.is_symlink()
    assert "[[keys]]" in file.read_text()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes files of others")
def test_a_file_of_the_broker_user_stays_its_own_when_root_changes_it(
    file: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert made(file, "a", "--scope", "view") == 0
    os.chown(file, 12345, 54321)

    assert made(file, "b", "--scope", "view") == 0
    assert keys.main(["revoke", str(file), "a"]) == 0

    found = file.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (12345, 54321, 0o600)
    text = file.read_text()

    def refused(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(os, "fchown", refused)
    assert keys.main(["revoke", str(file), "b"]) == 1
    assert "not yours" in capsys.readouterr().err
    assert file.read_text() == text
    assert [one.name for one in file.parent.iterdir()] == [file.name]


def test_names_of_keys_have_no_control_characters_and_are_written_as_toml(
    file: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("a\x7f", "a\x1b", "a\u009b"):
        assert made(file, name, "--scope", "view") == 1
        assert "control characters" in capsys.readouterr().err
    file.write_text('[[keys]]\nname = "a\\u007f"\nsha256 = "0"\nscopes = ["view"]\n')
    file.chmod(0o600)

    assert made(file, "b", "--scope", "view") == 0

    names = [key["name"] for key in tomllib.loads(file.read_text())["keys"]]
    assert names == ["a\x7f", "b"]
    capsys.readouterr()
    assert keys.main(["list", str(file)]) == 0
    assert "a\\x7f: view" in capsys.readouterr().out
