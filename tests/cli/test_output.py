"""Output of commands: closed and full streams, encodings, hostile messages and arguments."""

from __future__ import annotations

import io
import json
import os
import pathlib
import socket
import subprocess
import sys
import threading

import pytest
from mqttcore import cli
from mqttcore.cli import screen
from mqttcore.cli.message_format import MessageFormat
from mqttcore.cli.sub import format_of
from mqttcore.cli.sub import parser as sub_parser
from mqttcore.cli.terminal import json_text, printable_bytes
from mqttcore.packets import Publish

from tests.cli.conftest import Outcome, Run

NOWHERE = ("--url", "http://127.0.0.1:1")
HOSTILE = Publish(topic="a/\x1b]0;x\x07", payload=b"\x1b[2J\xff\tb\r\nc\xc2\x9b")


LOUD = """
from mqttcore.plugin import Allow, Deny, Login, Plugin, hook

class Loud(Plugin):
    async def start(self) -> None:
        print("loud")

    @hook.authenticate
    def login(self, login: Login) -> Allow | Deny | None:
        return None
"""


def ended(command: str) -> Outcome:
    """How a line of a shell ends in which `$mqttcore` is the command."""
    done = subprocess.run(  # noqa: S603 -- our own program
        ["/bin/sh", "-c", command],
        env={**os.environ, "PYTHONUNBUFFERED": "", "mqttcore": f"{sys.executable} -m mqttcore"},
        capture_output=True,
        text=True,
        check=False,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("arguments", ["--help", "--version", "keys --help", "completion bash"])
def test_a_full_disk_is_a_line_on_standard_error(arguments: str) -> None:
    done = ended(f"$mqttcore {arguments} > /dev/full")

    assert done.status == 1
    assert done.error.startswith("mqttcore")
    assert done.error.endswith("cannot write to standard output: No space left on device\n")
    assert done.error.count("\n") == 1


def test_the_end_of_the_reader_is_no_error_of_a_help() -> None:
    done = ended("{ $mqttcore sub --help; echo $? >&2; } | true")

    assert done.error in ("141\n", "0\n")


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_a_closed_stream_is_no_error_and_its_descriptor_is_for_no_socket(closed: str) -> None:
    done = ended(f"$mqttcore kick --json x --url http://127.0.0.1:1 {closed}")

    assert (done.status, done.out) == (3, "")
    assert ("cannot ask http://127.0.0.1:1" in done.error) == ("2>&-" not in closed)


def test_text_that_the_encoding_does_not_have_is_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))

    cli.prepare_streams()
    print("ü…\U0001f600")
    print(json_text({"ü": "…\U0001f600"}))
    sys.stdout.flush()

    text, found = raw.getvalue().splitlines()
    assert text == "ü\\u2026\\U0001f600".encode("latin-1")
    assert found.isascii()
    assert json.loads(found) == {"ü": "…\U0001f600"}


@pytest.mark.parametrize(
    "arguments",
    [
        ("kick", "\udcff", *NOWHERE),
        ("clients", "--find", "\udcff", *NOWHERE),
        ("pub", "-t", "a", "-m", "x", "-i", "\udcff"),
        ("pub", "-t", "\udcff", "-m", "x"),
        ("sub", "-t", "a", "-u", "\udcff"),
        ("bench", "conn", "-u", "\udcff"),
    ],
)
def test_arguments_that_are_not_utf_8_are_refused(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments)

    assert (done.status, done.out) == (2, "")
    assert "\\udcff" in done.error


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("-p", "65536"), 2, "the number is from 1 to 65535"),
        (("-k", "-1"), 2, "the number is from 0 to 65535"),
        (("-W", "nan"), 2, "argument -W/--timeout"),
        (("-C", "0"), 2, "argument -C/--count"),
        (("-i", "x" * 70_000), 2, "the options make no CONNECT"),
        (("-u", "x" * 70_000), 2, "the options make no CONNECT"),
        (("-h", ".example"), 3, "cannot reach .example:1883"),
        (("-h", "ü" * 70), 3, "cannot reach"),
        (("-h", "nobody.invalid"), 3, "is the host (-h) right?"),
        (("-p", "1"), 3, "does a broker listen there?"),
        (("--unix", "/" + "x" * 200), 3, "cannot reach"),
    ],
)
def test_values_that_cannot_be_used_are_named(
    run: Run, arguments: tuple[str, ...], status: int, why: str
) -> None:
    done = run("sub", "-t", "a", *arguments)

    assert (done.status, done.out) == (status, "")
    assert why in done.error


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("ban", "add", "--user", "x", "--seconds", "nan", *NOWHERE), 2, "argument --seconds"),
        (("certs", "dev", "/proc/none/x"), 1, "cannot write to /proc/none/x: No such file"),
        (("plugins", "list", "-c", "/nonexistent"), 1, "/nonexistent: cannot be read"),
    ],
)
def test_other_commands_name_what_is_wrong(
    run: Run, arguments: tuple[str, ...], status: int, why: str
) -> None:
    done = run(*arguments)

    assert (done.status, done.out) == (status, "")
    assert why in done.error


@pytest.mark.parametrize(("name", "status"), [("conf check", 0), ("doctor", 1)])
def test_what_plugins_print_is_not_in_the_json(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, name: str, status: int
) -> None:
    (tmp_path / "loud_plugin.py").write_text(LOUD)
    (tmp_path / "c.toml").write_text('[[plugins]]\nuse = "loud_plugin:Loud"\n')
    monkeypatch.syspath_prepend(tmp_path)

    done = run(*name.split(), "-c", tmp_path / "c.toml", "--json")

    assert (done.status, done.error) == (status, "loud\n")
    assert json.loads(done.out)


@pytest.mark.parametrize(
    ("answer", "why"),
    [(b"", "the broker closed the connection"), (b"HTTP/1.1 400 Bad Request\r\n\r\n", "[MQTT-")],
)
def test_a_server_that_is_no_listener_of_mqtt_is_told(run: Run, answer: bytes, why: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            line, _ = server.accept()
            with line:
                line.recv(1_000)
                line.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        done = run("sub", "-h", "127.0.0.1", "-p", server.getsockname()[1], "-t", "a")
        thread.join()

    assert (done.status, done.out) == (3, "")
    assert why in done.error
    assert "without a CONNACK; is it a listener of MQTT, without TLS (--cafile)?" in done.error


def test_control_characters_of_messages_are_escapes_on_a_terminal_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options = sub_parser().parse_args(["-t", "#", "-F", "\\e[1m%t %p"])
    piped = format_of(options).render(HOSTILE, 0)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)

    shown = format_of(options).render(HOSTILE, 0)

    assert piped == b"\x1b[1ma/\x1b]0;x\x07 \x1b[2J\xff\tb\r\nc\xc2\x9b\n"
    assert shown == b"\x1b[1ma/\\x1b]0;x\\x07 \\x1b[2J\\xff\tb\\r\nc\\x9b\n"


@pytest.mark.parametrize("letter", ["C", "P", "R", "D"])
def test_properties_of_messages_are_escaped_too(letter: str) -> None:
    properties = (
        ("content_type", "\x1b"),
        ("response_topic", "\x1b"),
        ("correlation_data", b"\x1b"),
        ("user_property", ("\x1b", "")),
    )
    message = Publish(topic="a", properties=properties)

    line = MessageFormat(f"%{letter}", is_for_terminal=True).render(message, 0)

    assert line.rstrip(b":") == b"\\x1b"


def test_text_in_any_script_is_shown_as_it_is() -> None:
    for raw in ("ü € 漢 \U0001f600".encode(), b"", b"a"):
        assert printable_bytes(raw) == raw
    assert printable_bytes("a\u202eb\ufeff".encode()) == b"a\\u202eb\\ufeff"


def test_the_last_line_of_a_screen_has_no_control_characters() -> None:
    shown = screen.page([], "truck\x1b[2J was disconnected", 80, 24)

    assert shown[-1] == "truck\\x1b[2J was disconnected"


@pytest.mark.parametrize(
    ("typed", "text"),
    [
        (b"a\xc3\xbc\xe6\xbc\xa2\x7f\xf0\x9f\x98\x80\r", "aü\U0001f600"),
        (b"a\xff\xc3b\x01\n", "ab"),
        (b"abc\x1b", ""),
        (b"abc", ""),
    ],
)
def test_a_text_for_top_may_be_in_any_script(typed: bytes, text: str) -> None:
    terminal = object.__new__(screen.Terminal)
    terminal._window = Keys(typed)  # type: ignore[assignment]

    assert terminal.ask("find: ", lambda _: None) == text


class Keys:
    """A window whose user types these bytes, and is gone then."""

    def __init__(self, typed: bytes) -> None:
        self._typed = iter(typed)

    def timeout(self, _: int) -> None:
        """Waits as long as it takes."""

    def getch(self) -> int:
        """The next byte."""
        return next(self._typed, -1)
