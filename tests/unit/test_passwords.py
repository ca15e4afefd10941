"""Password hashes, the file that holds them, and the tool that writes it."""

import io
import json
import logging
import os
import pathlib
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker, ConfigError, PluginError, Settings, passwd
from mqttcore._core import Login, check_password_hash, hash_password, verify_password
from mqttcore.auth import rules as auth_rules
from mqttcore.auth.password_file import PasswordFile, read_password_file
from mqttcore.auth.rules import UserRules, filled, grant_of
from mqttcore.config import Listener, PluginUse
from mqttcore.errors import PasswordFileError, PasswordHashError
from mqttcore.plugin.limited_log import LimitedLog

from tests.clock import Clock
from tests.wire import Wire

BAD_CREDENTIALS = 0x86
SALT = bytes(range(16))
# made for "secret" by mosquitto_passwd 2.0.11, and by argon2-cffi
PBKDF2 = (
    "$7$101$4Te8pFJl6QXpv8zD$lkyRQVLcUW8HKM+7B6gI5SMhabV3800EXLq06IFcvBnRckalaYYDkNw0EWG+WIcIu8d8"
    "D1LHHh0HEHf7Sv6/hw=="
)
SHA512 = (
    "$6$jqT4WAYM0FcFh0ri$3XS26u3qTjSRADobo31DQTvO2hJpuMlvfPaMuXAqGNeflznyoPMslT5Tm6Qdex5c0BIBDA/Q"
    "YPZFszAFcxUSZg=="
)
ARGON2ID = (
    "$argon2id$v=19$m=19456,t=2,p=1$MDEyMzQ1Njc4OWFiY2RlZg$"
    "8qPpaWig0H31wvibKAgpght2Ry2M8rtRQYtZ93ooMus"
)


@pytest.mark.parametrize("stored", [PBKDF2, SHA512, ARGON2ID], ids=["$7$", "$6$", "argon2id"])
def test_a_hash_of_another_program_is_understood(stored: str) -> None:
    assert verify_password(stored, b"secret")
    assert not verify_password(stored, b"secret\n")
    assert not verify_password(stored, b"")
    assert not verify_password(stored, b"s" * 1025)


def test_what_we_write_we_read() -> None:
    stored = hash_password("pässword".encode(), salt=SALT)

    assert stored.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert verify_password(stored, "pässword".encode())
    assert not verify_password(stored, b"password")
    assert hash_password(b"x", salt=SALT) != hash_password(b"x", salt=SALT[::-1])


@pytest.mark.parametrize(
    "stored",
    [
        "",
        "secret",
        "$1$a$b",
        "$7$x$AAAA$AAAA",
        "$6$AAAA",
        ARGON2ID.replace("19456", "1"),
        ARGON2ID[:-20] + "!",
    ],
)
def test_what_is_no_hash_is_refused(stored: str) -> None:
    with pytest.raises(PasswordHashError) as caught:
        check_password_hash(stored)
    assert stored not in str(caught.value) or not stored


# --- the file


@pytest.fixture
def file(tmp_path: pathlib.Path) -> Callable[[str], pathlib.Path]:
    def written(text: str) -> pathlib.Path:
        path = tmp_path / "passwords"
        path.write_text(text, encoding="utf-8")
        return path

    return written


def test_a_file_of_mosquitto_is_read(file: Callable[[str], pathlib.Path]) -> None:
    path = file(f"# made by hand\njoe:{PBKDF2}\njürgen:{SHA512}\n")

    assert read_password_file(path) == {"joe": PBKDF2, "jürgen": SHA512}


def test_every_wrong_line_is_named_and_no_hash_is_shown(
    file: Callable[[str], pathlib.Path],
) -> None:
    path = file(f"joe:{PBKDF2}\n\njim\n:{PBKDF2}\njoe:{SHA512}\nann:canary\n")

    with pytest.raises(PasswordFileError) as caught:
        read_password_file(path)

    assert str(caught.value).splitlines() == [
        f"{path}:2: expected user:hash",
        f"{path}:3: expected user:hash",
        f"{path}:4: expected user:hash",
        f"{path}:5: duplicate user 'joe'",
        f"{path}:6: unknown format: expected $argon2id$, $7$ or $6$",
    ]
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "# nobody\n"])
def test_a_file_without_users_is_refused(file: Callable[[str], pathlib.Path], text: str) -> None:
    with pytest.raises(PasswordFileError, match="has no users"):
        read_password_file(file(text))


def test_a_broker_does_not_start_without_its_file(tmp_path: pathlib.Path) -> None:
    use = PluginUse(use="mqttcore.auth.password_file", config={"path": str(tmp_path / "none")})
    broker = Broker(Settings(listeners=(Listener(address="127.0.0.1:0"),), plugins=(use,)))

    with pytest.raises(PluginError, match="none: cannot be read"):
        broker.start()


def test_a_rule_with_a_wrong_filter_is_a_fault_of_the_configuration() -> None:
    use = PluginUse(use="mqttcore.auth.password_file", config={"path": "x", "publish": ["a#"]})

    with pytest.raises(ConfigError, match=r"plugins\[0\].config.publish\[0\]: .*MQTT-4.7.1-1"):
        Broker(Settings(plugins=(use,))).start()


@pytest.mark.parametrize(
    ("user", "client_id", "rules"),
    [
        ("joe", "c1", ["u/joe/#", "c/c1", "joe/c1/joe", "plain"]),
        ("Xaver", "c1", ["u/Xaver/#", "c/c1", "Xaver/c1/Xaver", "plain"]),
        ("+", "c1", ["c/c1", "plain"]),
        ("a/b", "c1", ["c/c1", "plain"]),
        ("joe", "a/b", ["u/joe/#", "plain"]),
        ("$SYS", "c1", ["u/$SYS/#", "c/c1", "plain"]),
        ("#", "#", ["plain"]),
        ("", "c1", ["c/c1", "plain"]),
        ("%c", "c1", ["u/%c/#", "c/c1", "%c/c1/%c", "plain"]),
    ],
)
def test_names_go_into_rules_and_never_change_their_shape(
    user: str, client_id: str, rules: list[str]
) -> None:
    """Abuse G01."""
    templates = ("u/%u/#", "c/%c", "%u/%c/%u", "plain")

    assert filled(templates, {"%u": user, "%c": client_id}) == rules


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of the log of rules, in which there is no line yet."""
    made = Clock()
    monkeypatch.setattr(auth_rules, "log", LimitedLog(logging.getLogger("rules"), made))
    return made


@pytest.mark.usefixtures("clock")
def test_a_rule_that_does_not_hold_is_logged_with_the_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    filled(("c/%c",), {"%u": "joe", "%c": "a/ä"})

    (record,) = caplog.records
    told = (
        "rule 'c/%c' does not apply for %c 'a/\\xe4': the name is empty, contains +, # or /, or"
        " begins with $"
    )
    assert record.getMessage() == told


def test_clients_with_odd_names_do_not_flood_the_log(
    clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(5):
        filled(("c/%c", "long/%u"), {"%c": f"{number}/x", "%u": "u" * 65_535})
    clock.now += 1
    filled(("c/%c",), {"%c": "5/x"})

    name, length, later = [record.getMessage() for record in caplog.records]
    assert "for %c '0/x'" in name
    assert length.endswith("it is no topic filter")
    assert "for %c '5/x'" in later
    assert later.endswith("(4 similar since the last line)")


@pytest.mark.usefixtures("clock")
def test_a_long_name_is_cut_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    filled(("c/%c",), {"%c": "a/" + "x" * 60_000})

    assert len(caplog.records[0].getMessage()) < 300


@pytest.mark.parametrize(
    ("client_id", "deny"),
    [
        ("c1", ["own/c1/x", "c1/#", "of/joe/c1", "pre-c1", "c1/b/c1", "plain"]),
        ("a/b", ["own/#", "#", "of/joe/#", "#", "#", "plain"]),
        ("+", ["own/#", "#", "of/joe/#", "#", "#", "plain"]),
        ("", ["own/#", "#", "of/joe/#", "#", "#", "plain"]),
    ],
)
def test_a_denial_that_a_name_does_not_fit_covers_all_that_it_could_mean(
    client_id: str, deny: list[str]
) -> None:
    """Abuse G16: left out, the rule would give rights."""
    rules = UserRules(deny=("own/%c/x", "%c/#", "of/%u/%c", "pre-%c", "%c/b/%c", "plain"))

    assert list(grant_of(rules, user="joe", client_id=client_id).deny) == deny


@pytest.mark.parametrize("user", ["$SYS", "$a/b", "$"])
def test_a_denial_that_a_name_would_have_begin_with_a_dollar_covers_those_topics(user: str) -> None:
    """`#` alone would leave the topics that begin with `$`, which grants can open."""
    rules = UserRules(publish=("#", "$#"), deny=("%u/x",))

    assert list(grant_of(rules, user=user, client_id="c").deny) == ["#", "$#"]


def test_a_rule_that_a_long_name_makes_too_long_is_left_out_and_a_denial_covers_more() -> None:
    """A client identifier may have 65,535 bytes if `client_id_bytes` of the limits says so."""
    rules = UserRules(publish=("c/%c", "plain"), deny=("d/%c", "%u/%c/x/%u"))

    grant = grant_of(rules, user="joe", client_id="x" * 65_535)

    assert (grant.publish, grant.deny) == (("plain",), ("d/#", "#"))


def test_a_denial_whose_names_are_all_impossible_covers_everything() -> None:
    rules = UserRules(deny=("%{a}/%{b}",))

    grant = grant_of(rules, user="", client_id="c", values={"%{a}": "\ud800", "%{b}": "#"})

    assert grant.deny == ("#", "$#")


@pytest.fixture
def broker(file: Callable[[str], pathlib.Path]) -> Iterator[Broker]:
    text = f"joe:{ARGON2ID}\nold:{PBKDF2}\n"
    rules = ["u/%u/#", "c/%c/#"]
    config = {"path": str(file(text)), "publish": rules, "subscribe": rules}
    use = PluginUse(use="mqttcore.auth.password_file", config=config)
    listener = Listener(address="127.0.0.1:0")
    with Broker(Settings(listeners=(listener,), plugins=(use,))) as running:
        yield running


@pytest.mark.parametrize("user", ["joe", "old"])
def test_the_right_password_opens(broker: Broker, user: str) -> None:
    with Wire(broker.port) as wire:
        wire.connect("c", username=user, password=b"secret")
        assert wire.publish(f"u/{user}/x", qos=1).reason in (0, 0x10)
        assert wire.publish("u/other/x", qos=1, packet_id=2).reason == 0x87


def test_a_client_whose_name_does_not_fit_a_rule_is_denied_that_rule_only(broker: Broker) -> None:
    """Abuse C12, G01: `/` in a client identifier closes ``%c`` to it, and nothing else."""
    with Wire(broker.port) as wire:
        wire.connect("a/b", username="joe", password=b"secret")

        assert wire.publish("u/joe/x", qos=1).reason in (0, 0x10)
        for number, topic in enumerate(("c/a/b", "c/a", "c/x"), 2):
            assert wire.publish(topic, qos=1, packet_id=number).reason == 0x87


@pytest.mark.parametrize(
    ("user", "password"),
    [("joe", b"Secret"), ("joe", b""), ("joe", None), ("", b"secret"), ("nobody", b"secret")],
)
def test_anything_else_does_not_and_says_the_same(
    broker: Broker, user: str, password: bytes | None
) -> None:
    """Abuse C07, C16: absent, empty, wrong and unknown cannot be told apart."""
    with Wire(broker.port) as wire:
        wire.connect("c", username=user, password=password, reason=BAD_CREDENTIALS)


def test_an_unknown_user_costs_the_same_hash_as_a_known_one(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Abuse C16."""
    computed = []

    def noted(stored: str, login: Login) -> bool:
        computed.append((stored, login.password))
        return verify_password(stored, login)

    monkeypatch.setattr("mqttcore.auth.hashing.verify_password", noted)

    for user in ("joe", "nobody"):
        with Wire(broker.port) as wire:
            wire.connect("c", username=user, password=b"wrong", reason=BAD_CREDENTIALS)

    assert computed == [(ARGON2ID, b"wrong")] * 2


def test_hashing_holds_up_nobody_else(broker: Broker) -> None:
    with Wire(broker.port) as busy, Wire(broker.port) as other:
        other.connect("other", username="joe", password=b"secret")
        from tests.wire import CONNACK, connect

        busy.send(connect("busy", username="joe", password=b"secret"))
        other.ping()
        assert busy.expect(CONNACK).reason == 0


# --- the tool


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def test_the_tool_writes_what_the_plugin_reads(
    tmp_path: pathlib.Path, typed: Callable[[str], None]
) -> None:
    path = tmp_path / "passwords"
    typed("first\n")
    assert passwd.main([str(path), "joe"]) == 0
    typed("second\n")
    assert passwd.main([str(path), "jim"]) == 0
    typed("third\n")
    assert passwd.main([str(path), "joe"]) == 0

    users = read_password_file(path)

    assert list(users) == ["joe", "jim"]
    assert verify_password(users["joe"], b"third")
    assert verify_password(users["jim"], b"second")
    assert path.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["passwords"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root changes files of others")
def test_a_file_that_the_tool_rewrites_keeps_its_owner_and_rights(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"joe:{PBKDF2}\njim:{PBKDF2}\n")
    path.chmod(0o640)
    os.chown(path, 0, 12345)

    assert passwd.main([str(path), "joe", "--delete"]) == 0

    found = path.stat()
    assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (0, 12345, 0o640)


def test_the_tool_removes_users(tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "passwords"
    path.write_text(f"joe:{PBKDF2}\njim:{PBKDF2}\n")

    assert passwd.main([str(path), "joe", "--delete"]) == 0
    assert list(read_password_file(path)) == ["jim"]
    assert passwd.main([str(path), "joe", "--delete"]) == 1
    assert "has no user 'joe'" in capsys.readouterr().err


def test_json_says_what_was_done(
    tmp_path: pathlib.Path,
    typed: Callable[[str], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = str(tmp_path / "passwords")
    typed("secret\nsecret\n")
    done = []

    for arguments in ([], [], ["--delete"]):
        assert passwd.main([path, "joe", "--json", *arguments]) == 0
        done.append(json.loads(capsys.readouterr().out))

    assert [one.pop("done") for one in done] == ["added", "changed", "removed"]
    assert done == [{"file": path, "user": "joe"}] * 3


@pytest.mark.parametrize(
    ("user", "password"), [("a:b", "x\n"), ("", "x\n"), ("#a", "x\n"), ("a", "\n")]
)
def test_the_tool_refuses_what_no_line_can_hold(
    tmp_path: pathlib.Path,
    typed: Callable[[str], None],
    user: str,
    password: str,
) -> None:
    typed(password)

    assert passwd.main([str(tmp_path / "passwords"), user]) == 1
    assert not (tmp_path / "passwords").exists()


def test_the_tool_says_that_the_folder_is_missing(
    tmp_path: pathlib.Path, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    typed("secret\n")

    assert passwd.main([str(tmp_path / "none" / "passwords"), "joe"]) == 1

    said = capsys.readouterr().err
    assert said == f"mqttcore passwd: {tmp_path / 'none'}: no such folder; create it first\n"


@pytest.mark.skipif(
    not shutil.which("mosquitto_passwd"), reason="mosquitto_passwd is not installed"
)
@pytest.mark.parametrize("method", [[], ["-H", "sha512"], ["-H", "sha512-pbkdf2"]])
def test_what_the_installed_mosquitto_passwd_writes_is_read(
    tmp_path: pathlib.Path, method: list[str]
) -> None:
    path = tmp_path / "passwords"
    command = ["mosquitto_passwd", *method, "-c", "-b", str(path), "joe", "secret"]
    subprocess.run(command, check=True, capture_output=True)  # noqa: S603 - fixed words

    users = read_password_file(path)

    assert verify_password(users["joe"], b"secret")
    assert not verify_password(users["joe"], b"Secret")


def test_the_plugin_is_the_only_one_of_its_module() -> None:
    from mqttcore.plugin.loading import find_class

    assert find_class("mqttcore.auth.password_file") is PasswordFile
