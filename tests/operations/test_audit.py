"""The audit log: what Python and the control socket change, and `mqttcore audit`."""

from __future__ import annotations

import json
import os
import pathlib
import stat
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker, Settings, ban
from mqttcore.cli import audit
from mqttcore.config import Listener
from mqttcore.errors import ConfigError

LISTENER = Listener(address="127.0.0.1:0", name="main", anonymous=True)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    return tmp_path / "data"


@pytest.fixture
def broker(folder: pathlib.Path) -> Iterator[Broker]:
    with Broker(Settings(listeners=(LISTENER,), data=str(folder))) as started:
        yield started


def file_of(folder: pathlib.Path) -> pathlib.Path:
    [file] = (folder / "audit").iterdir()
    return file


def entries(folder: pathlib.Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in file_of(folder).read_text().splitlines()]


def three_bans(broker: Broker) -> None:
    for name in ("a", "b", "c"):
        broker.ban(client_id=name)


def head(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> str:
    assert audit.main(["verify", str(folder)]) == 0
    return capsys.readouterr().out.rpartition("head: ")[2].strip()


def test_changes_are_recorded_with_who_made_them(broker: Broker, folder: pathlib.Path) -> None:
    broker.ban(client_id="x", reason="floods", seconds=60.0)
    assert ban.main(["lift", str(folder), "--client-id", "x"]) == 0
    assert not broker.unban(client_id="x")
    assert not broker.disconnect("nobody")
    broker.reload(Settings(listeners=(LISTENER,), data=str(folder), shards=3))
    with pytest.raises(ConfigError):
        broker.reload(folder / "missing.toml")
    broker.bans()
    broker.publish("t", b"secret")

    found = entries(folder)

    program = {"who": "the program", "how": "python"}
    user = {"who": f"user {os.getuid()}", "how": "control"}
    told = [
        {name: entry[name] for name in ("who", "how", "action", "target", "result")}
        for entry in found[:5]
    ]
    assert told == [
        {**program, "action": "ban", "target": "client_id x", "result": "done"},
        {**user, "action": "unban", "target": "client_id x", "result": "done"},
        {**program, "action": "unban", "target": "client_id x", "result": "no effect"},
        {**program, "action": "disconnect", "target": "nobody", "result": "no effect"},
        {**program, "action": "reload", "target": "", "result": "done"},
    ]
    assert found[0]["details"] == {"reason": "floods", "seconds": "60.0"}
    assert found[4]["details"] == {"restart": "shards"}
    assert str(found[5]["result"]).startswith("failed: ")
    assert len(found) == 6
    assert broker.stats()["audit_entries"] == 6


def test_only_the_owner_reads_the_log(broker: Broker, folder: pathlib.Path) -> None:
    broker.ban(client_id="a")

    file = file_of(folder)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


def test_a_broker_without_data_folder_has_no_log() -> None:
    with Broker(Settings(listeners=(LISTENER,))) as broker:
        broker.ban(client_id="a")

        assert broker.stats()["audit_entries"] == 0


def test_a_log_goes_on_after_a_restart(folder: pathlib.Path) -> None:
    settings = Settings(listeners=(LISTENER,), data=str(folder))
    for name in ("a", "b"):
        with Broker(settings) as broker:
            broker.ban(client_id=name)

    assert audit.main(["verify", str(folder)]) == 0
    assert len(entries(folder)) == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda lines: [lines[0], lines[1].replace("client_id b", "client_id z"), lines[2]],
        lambda lines: [lines[0], lines[2]],
        lambda lines: [lines[0], lines[0], *lines[1:]],
        lambda lines: [lines[1], lines[0], lines[2]],
        lambda lines: [*lines[:2], "{", lines[2]],
        lambda lines: [*lines[:2], "7", lines[2]],
    ],
    ids=["changed", "removed", "inserted", "order", "no JSON", "no object"],
)
def test_a_log_that_was_changed_is_found(
    broker: Broker,
    folder: pathlib.Path,
    change: Callable[[list[str]], list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    three_bans(broker)
    file = file_of(folder)
    lines = file.read_text().splitlines()

    file.write_text("".join(f"{line}\n" for line in change(lines)))

    assert audit.main(["verify", str(folder)]) == 1
    assert f"{file}:" in capsys.readouterr().err


def test_lines_that_are_missing_at_the_end_are_found_with_the_head(
    broker: Broker, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_bans(broker)
    kept = head(folder, capsys)
    broker.ban(client_id="d")
    assert audit.main(["verify", str(folder), "--head", kept]) == 0
    file = file_of(folder)

    file.write_text("".join(f"{line}\n" for line in file.read_text().splitlines()[:2]))

    assert audit.main(["verify", str(folder)]) == 0
    assert audit.main(["verify", str(folder), "--head", kept]) == 1
    assert "removed at the end" in capsys.readouterr().err


def test_json_has_the_facts_of_a_verified_log_and_nothing_of_a_changed_one(
    broker: Broker, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_bans(broker)
    kept = head(folder, capsys)

    assert audit.main(["verify", str(folder), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    file = file_of(folder)
    file.write_text(file.read_text().replace("client_id b", "client_id z"))
    assert audit.main(["verify", str(folder), "--json"]) == 1

    assert found == {
        "entries": 3,
        "lost": 0,
        "head": kept,
        "first": f"{file}:1",
        "older_removed": False,
        "incomplete": [],
    }
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "it does not follow the line before" in shown.err


def test_a_line_that_is_being_written_is_no_fault(
    broker: Broker, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_bans(broker)
    with file_of(folder).open("a") as file:
        file.write('{"ts"')

    assert audit.main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("3 entries")


def test_a_file_that_does_not_end_in_a_complete_line_is_named(
    broker: Broker, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_bans(broker)
    file = file_of(folder)
    whole = file.read_text().splitlines(keepends=True)
    file.write_text("".join(whole[:2]) + '{"ts"')
    file.with_name("9999-01-01T00-00-00Z.jsonl").write_text(whole[2])

    assert audit.main(["verify", str(folder)]) == 0
    assert f"{file} does not end in a complete line" in capsys.readouterr().out


def test_files_of_operators_beside_the_log_are_not_of_it(
    broker: Broker, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    three_bans(broker)
    kept = head(folder, capsys)
    for name in ("notes.jsonl", "2026-11-23T12-00-00Z.jsonl.jsonl", "0.jsonl"):
        (folder / "audit" / name).write_text("no entry\n")

    assert head(folder, capsys) == kept


def test_a_file_that_is_removed_meanwhile_is_one_of_the_older_entries(
    broker: Broker,
    folder: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    three_bans(broker)
    file = file_of(folder)
    gone = file.with_name("1999-01-01T00-00-00Z.jsonl")
    monkeypatch.setattr(pathlib.Path, "glob", lambda *_: iter([gone, file]))

    assert audit.main(["verify", str(folder)]) == 0
    assert capsys.readouterr().out.startswith("3 entries")


def test_changes_are_shown_to_people_and_programs(
    broker: Broker, folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.ban(client_id="a\x1b[2J", reason="x")

    assert audit.main(["show", str(folder)]) == 0
    line = capsys.readouterr().out
    assert "the program (python): ban client_id a\\x1b[2J reason=x: done" in line
    assert audit.main(["show", str(folder), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["target"] == "client_id a\x1b[2J"
    for other in (["--since", "9999"], ["--who", "nobody"]):
        assert audit.main(["show", str(folder), *other]) == 0
        assert capsys.readouterr().out == ""


def test_a_folder_without_log_is_reported(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert audit.main(["verify", str(tmp_path)]) == 1
    assert "there is no audit log" in capsys.readouterr().err


def test_tail_begins_with_the_latest_lines_and_prints_new_ones(
    broker: Broker, folder: pathlib.Path
) -> None:
    three_bans(broker)
    later = iter(("x", "d", "e"))

    def wait() -> None:
        name = next(later)
        broker.ban(client_id=name)
        if name == "e":
            # what the broker does after a crash at midnight
            file = file_of(folder)
            *old, new = file.read_bytes().splitlines(keepends=True)
            file.write_bytes(b"".join(old) + b'{"ts": "a line that was cut')
            file.with_name("2099-01-01T00-00-00Z.jsonl").write_bytes(new)

    def is_wanted(line: audit.Line) -> bool:
        return str(line.fields["target"]) != "client_id x"

    found = audit.follow(folder, last=2, is_wanted=is_wanted, wait=wait)

    assert [next(found).fields["target"] for _ in range(4)] == [
        *("client_id b", "client_id c", "client_id d", "client_id e")
    ]
