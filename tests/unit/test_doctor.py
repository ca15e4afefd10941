"""`mqttcore doctor`: a line for each risk."""

from __future__ import annotations

import ctypes
import json
import os
import pathlib
import resource
import types
from typing import NamedTuple

import pytest
from mqttcore import _core, certs, config, doctor, risks
from mqttcore._core import hash_password
from mqttcore.errors import MqttError


class Disk(NamedTuple):
    """What `os.statvfs` answers."""

    f_bavail: int
    f_blocks: int
    f_frsize: int
    f_files: int
    f_favail: int


def what_of(text: str, folder: pathlib.Path, subject: str) -> list[str]:
    """The risks of one subject in a configuration."""
    path = folder / "mqttcore.toml"
    path.write_text(text, encoding="utf-8")
    found = doctor.all_risks(config.load(path))
    return [f"{risk.what}: {risk.remedy}" for risk in found if risk.subject == subject]


@pytest.fixture(autouse=True)
def _quiet_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(risks, "is_synchronized", lambda: True)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    infinite = resource.RLIM_INFINITY
    monkeypatch.setattr(resource, "getrlimit", lambda _: (infinite, infinite))
    monkeypatch.setattr(os, "statvfs", lambda _: Disk(50, 100, 1 << 30, 100, 50))
    monkeypatch.setattr(risks, "file_system", lambda _: "ext4")


def test_strangers_and_plain_text_are_risks_where_other_machines_come_in(
    tmp_path: pathlib.Path,
) -> None:
    open_to_all = (
        '[[listeners]]\naddress = "0.0.0.0:0"\nname = "all"\nanonymous = true\ninsecure = true\n'
    )
    (stranger, plain) = what_of(open_to_all, tmp_path, "listener")
    assert "listener all: clients without a login" in stranger
    assert "not encrypted: add [listeners.tls]" in plain

    local = '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true\n'
    assert what_of(local, tmp_path, "listener") == []


def test_exempt_addresses_of_other_machines_are_a_risk_without_a_login(
    tmp_path: pathlib.Path,
) -> None:
    def exempted(address: str, exempt: str) -> list[str]:
        text = (
            f'[[listeners]]\naddress = "{address}"\nanonymous = true\ninsecure = true\n'
            f"[limits]\nexempt_addresses = {exempt}\n"
        )
        return [risk for risk in what_of(text, tmp_path, "listener") if "exempt" in risk]

    (risk,) = exempted("0.0.0.0:0", '["127.0.0.0/8", "192.0.2.0/24"]')
    assert "at 192.0.2.0/24 (exempt_addresses) have no rates and no shares" in risk
    assert exempted("0.0.0.0:0", '["127.0.0.0/8", "::1"]') == []
    assert exempted("127.0.0.1:0", '["192.0.2.1"]') == []


def test_a_unix_socket_for_all_is_a_risk_without_a_login(tmp_path: pathlib.Path) -> None:
    text = f'[[listeners]]\naddress = "unix:{tmp_path}/mqtt"\nanonymous = true\n'
    assert what_of(text, tmp_path, "listener") == []
    (risk,) = what_of(f'{text}mode = "0666"\n', tmp_path, "listener")
    assert f"any user of this machine may connect to {tmp_path}/mqtt without a login" in risk


def test_every_page_on_the_web_is_a_risk_even_on_this_machine(tmp_path: pathlib.Path) -> None:
    text = '[[listeners]]\naddress = "127.0.0.1:0"\ntransport = "websocket"\norigins = ["*"]\n'
    (risk,) = what_of(text, tmp_path, "listener")
    assert "every web page may connect" in risk


def test_rows_over_plain_http_are_a_risk(tmp_path: pathlib.Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    token.chmod(0o600)
    text = (
        f'data = "{tmp_path}/data"\n[[streams]]\nname = "a"\nfilter = ["#"]\n'
        f'[http]\naddress = "0.0.0.0:0"\ninsecure = true\ntoken_file = "{token}"\n'
    )
    (risk,) = what_of(text, tmp_path, "http")
    assert "http 0.0.0.0:0: the token and the rows are not encrypted" in risk


def test_metrics_for_everybody_are_a_risk(tmp_path: pathlib.Path) -> None:
    text = '[http]\naddress = "0.0.0.0:0"\ninsecure = true\nmetrics = "open"\n'
    _, risk = what_of(text, tmp_path, "http")
    assert "http 0.0.0.0:0: metrics can be read without a token" in risk

    assert what_of('[http]\naddress = "127.0.0.1:0"\n', tmp_path, "http") == []


def test_a_key_for_all_is_a_risk(tmp_path: pathlib.Path) -> None:
    assert certs.main(["dev", str(tmp_path)]) == 0
    settings = config.load(tmp_path / "mqttcore.toml", listen=["127.0.0.1:0"])
    assert [risk for risk in doctor.all_risks(settings) if risk.subject == "tls"] == []

    (tmp_path / "server.key").chmod(0o644)

    (risk,) = (risk for risk in doctor.all_risks(settings) if risk.subject == "tls")
    assert "server.key" in risk.what
    assert risk.remedy == "chmod 600 it"


@pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")
def test_the_files_of_http_are_checked_like_those_of_listeners(tmp_path: pathlib.Path) -> None:
    assert certs.main(["dev", str(tmp_path)]) == 0
    (tmp_path / "server.key").chmod(0o644)
    text = """
    [http]
    address = "127.0.0.1:0"
    tls = { certificate = "server.pem", key = "server.key" }
    """

    (risk,) = what_of(text, tmp_path, "tls")

    assert risk.startswith(f"http: key {tmp_path}/server.key: ")
    assert risk.endswith(": chmod 600 it")
    (tmp_path / "server.pem").unlink()
    with pytest.raises(MqttError, match=r"server\.pem"):
        what_of(text, tmp_path, "tls")


def test_a_password_file_for_all_is_a_risk(tmp_path: pathlib.Path) -> None:
    passwords = tmp_path / "passwords"
    passwords.write_text(f"ann:{hash_password(b'secret', salt=bytes(16))}\n")
    text = (
        '[[plugins]]\nuse = "mqttcore.auth.password_file"\n'
        'config = { path = "passwords", publish = ["#"], subscribe = [] }\n'
    )
    passwords.chmod(0o644)
    (risk,) = what_of(text, tmp_path, "files")
    assert f"any user may read {passwords} (mode 0644)" in risk
    passwords.chmod(0o662)
    (risk,) = what_of(text, tmp_path, "files")
    assert "any user may change" in risk
    passwords.chmod(0o660)
    assert what_of(text, tmp_path, "files") == []


def test_fewer_descriptors_than_connections_are_a_risk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
    (risk,) = what_of("", tmp_path, "limits")
    assert "1024 descriptors, but limits.connections is 100000" in risk
    assert what_of("[limits]\nconnections = 960\n", tmp_path, "limits") == []


@pytest.mark.parametrize(
    ("disk", "kind", "wanted"),
    [
        (Disk(9, 100, 1 << 30, 0, 0), "ext4", "9 % of the disk is free (9.0 GiB)"),
        (Disk(50, 100, 1 << 30, 100, 9), "ext4", "9 inodes are free"),
        (Disk(50, 100, 1 << 30, 0, 0), "tmpfs", "in memory (tmpfs)"),
        (Disk(50, 100, 1 << 30, 0, 0), "nfs4", "on another machine (nfs4)"),
    ],
)
def test_a_disk_that_is_short_or_none_is_a_risk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, disk: Disk, kind: str, wanted: str
) -> None:
    monkeypatch.setattr(os, "statvfs", lambda _: disk)
    monkeypatch.setattr(risks, "file_system", lambda _: kind)
    (risk,) = what_of(f'data = "{tmp_path}/not/yet"\n', tmp_path, "disk")
    assert wanted in risk


def test_memory_alone_is_a_risk_and_so_is_a_folder_for_all(tmp_path: pathlib.Path) -> None:
    assert "in memory only" in what_of("", tmp_path, "disk")[0]
    folder = tmp_path / "data"
    folder.mkdir(mode=0o750)
    (risk,) = what_of(f'data = "{folder}"\n', tmp_path, "files")
    assert "other users may look into it (mode 0750): chmod 700 it" in risk


def test_a_clock_that_is_wrong_or_alone_is_a_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    (wrong,) = risks.clock_risks(0)
    assert "1970-01-01" in wrong.what
    assert list(risks.clock_risks(risks.BUILT + 1)) == []
    monkeypatch.setattr(risks, "is_synchronized", lambda: False)
    (alone,) = risks.clock_risks(risks.BUILT + 1)
    assert "nothing synchronizes" in alone.what


def test_a_broker_that_runs_as_root_is_a_risk(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    (risk,) = what_of("", tmp_path, "process")
    assert "the user of the broker is root: run it as a user of its own" in risk


@pytest.mark.parametrize(("answer", "is_kept"), [(0, True), (risks.TIME_ERROR, False), (-1, True)])
def test_the_kernel_is_asked_about_the_clock(
    monkeypatch: pytest.MonkeyPatch, answer: int, is_kept: bool
) -> None:
    monkeypatch.undo()
    kernel = types.SimpleNamespace(adjtimex=lambda _: answer)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: kernel)
    assert risks.is_synchronized() is is_kept


def test_a_folder_that_may_not_be_entered_is_reported_with_advice(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: os.PathLike[str]) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(os, "statvfs", refuse)
    path = tmp_path / "mqttcore.toml"
    path.write_text(f'data = "{tmp_path}/data"\n')
    assert doctor.main(["-c", str(path)]) == 2
    assert "Permission denied: run it as the user that runs the broker" in capsys.readouterr().err


def test_the_exit_status_says_whether_there_is_a_risk(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mqttcore.toml"
    path.write_text(f'data = "{tmp_path}/data"\n[[listeners]]\naddress = "127.0.0.1:0"\n')
    assert doctor.main(["-c", str(path)]) == 0
    assert capsys.readouterr().out == "no risks\n"

    path.write_text('[[listeners]]\naddress = "127.0.0.1:0"\n')
    assert doctor.main(["-c", str(path), "--json"]) == 1
    (risk,) = json.loads(capsys.readouterr().out)
    assert risk["subject"] == "disk"

    path.write_text("listeners = 5\n")
    assert doctor.main(["-c", str(path)]) == 2
    assert "listeners" in capsys.readouterr().err


def test_the_file_system_of_a_folder_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert risks.file_system(pathlib.Path("/proc")) == "proc"
