"""Texts of brokers and clients on the terminal, and in errors."""

from __future__ import annotations

import contextlib
import json
import pathlib

import pytest
from mqttcore.cli.client_options import printed
from mqttcore.cli.failure import CommandError
from mqttcore.cli.message_format import MessageFormat
from mqttcore.cli.terminal import json_text, printable_json, without_login
from mqttcore.packets import Publish

from tests.cli.conftest import Run

HOSTILE = "a\x1b[31m\x7f\x9b2J\u202e\U000e0001\ud800ü"


def test_json_has_escapes_for_what_is_not_printable() -> None:
    shown = json_text({HOSTILE: HOSTILE}, indent=2)

    assert shown.replace("\n", "").isprintable()
    assert "ü" in shown
    assert json.loads(shown) == {HOSTILE: HOSTILE}


def test_json_of_the_broker_stays_json_without_control_characters() -> None:
    raw = json.dumps({"client_id": "a\x7f\u202e\x9b\U000e0001ü"}, ensure_ascii=False)

    shown = printable_json(raw)

    assert shown.isprintable()
    assert json.loads(shown) == json.loads(raw)


def test_debug_lines_have_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    printed("received", Publish(topic="a\x1b[31m\x9b2J/b"))

    assert capsys.readouterr().err == "received PUBLISH topic a\\x1b[31m\\x9b2J/b, 0 bytes\n"


@pytest.mark.parametrize("payload", [b'"\\ud800"', b'{"\\udfff": 1}'])
def test_a_lone_surrogate_in_a_payload_is_printed(payload: bytes) -> None:
    line = MessageFormat("%J").render(Publish(topic="t", payload=payload), 0)

    assert json.loads(line)["payload"] == json.loads(payload)


@pytest.mark.parametrize("is_pretty", [False, True])
@pytest.mark.parametrize("payload", [b"NaN", b"1e999", b"[" * 900 + b"]" * 900, b"[" * 100_000])
def test_each_payload_is_json_or_told(payload: bytes, is_pretty: bool) -> None:
    message = Publish(topic="t", payload=payload)

    with contextlib.suppress(CommandError):
        line = MessageFormat("%J", is_pretty=is_pretty).render(message, 0)
        json.loads(line, parse_constant=pytest.fail)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://me:secret@h/t", "http://h/t"),
        ("http://me:se/cret@h", "http://h"),
        ("me:secret@h", "h"),
        ("http://h:1", "http://h:1"),
    ],
)
def test_a_url_is_shown_without_its_password(url: str, shown: str) -> None:
    assert without_login(url) == shown


@pytest.mark.parametrize(
    "url", ["http://me:secret@h/t", "mqtt://me:secret@h:99999/t", "mqtt://me:secret@[::1/t"]
)
@pytest.mark.parametrize("command", ["pub", "sub"])
def test_a_wrong_url_is_reported_without_its_password(run: Run, command: str, url: str) -> None:
    done = run(command, "-L", url)

    assert done.status == 2
    assert done.error.startswith(f"mqttcore {command}: --url is mqtt://HOST[:PORT][/TOPIC]")
    assert "secret" not in done.error


@pytest.mark.parametrize("url", ["ftp://me:secret@h", "http://me:secret@h:99999", "http://[::1"])
def test_a_wrong_address_of_the_api_is_reported_without_its_password(run: Run, url: str) -> None:
    done = run("clients", "--url", url)

    assert done.status == 2
    assert done.error.startswith("mqttcore clients: --url is http://HOST:PORT")
    assert "secret" not in done.error


@pytest.mark.parametrize("raw", [b"mq_secret\nsecond\n", b"mq_secret\xff", b"mq_secret more", b""])
def test_a_file_without_one_key_is_reported_without_its_text(
    run: Run, tmp_path: pathlib.Path, raw: bytes
) -> None:
    (tmp_path / "key").write_bytes(raw)

    done = run("clients", "--url", "http://127.0.0.1:1", "--key-file", tmp_path / "key")

    assert done.status == 2
    assert done.error.startswith(f"mqttcore clients: --key-file {tmp_path / 'key'}: ")
    assert "secret" not in done.error
