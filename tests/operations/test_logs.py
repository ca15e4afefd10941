"""`[log]` of the configuration: lines for people, JSON and logfmt, with the client's address."""

from __future__ import annotations

import io
import json
import logging
import pathlib
import re
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mqttcore import ConfigError, log_formats, logs
from mqttcore.config import LogOutput, Settings

from tests.wire import Wire

CONFIG = """
[[listeners]]
address = "127.0.0.1:0"
name = "main"
anonymous = {{ publish = ["a/#"], subscribe = ["#"] }}
[log]
format = "{form}"
to = "{to}"
"""

BAD_ID = 'x" y=\\ é\\n'


def lines_of(form: str, folder: pathlib.Path) -> list[str]:
    """What a broker logs of clients: denied, with a malformed packet, replaced."""
    (folder / "mqttcore.toml").write_text(CONFIG.format(form=form, to=folder / "log"))
    program = [sys.executable, "-m", "mqttcore.serve", "-c", str(folder / "mqttcore.toml")]
    with subprocess.Popen(program, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 -- our own program
        try:
            assert process.stdout
            port = int(re.findall(r"127\.0\.0\.1:(\d+)", process.stdout.readline())[0])
            with Wire(port) as client:
                client.connect(BAD_ID)
                assert client.publish("b", b"x", qos=1).reason == 0x87
                client.send(b"\xf0\xff\xff\xff\xff")
                client.receive_until_close()
            with Wire(port) as first, Wire(port) as second:
                first.connect("same")
                second.connect("same")
                first.receive_until_close()
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
    return (folder / "log").read_text().splitlines()


def test_json_lines_have_client_address_and_reason(tmp_path: pathlib.Path) -> None:
    found = [json.loads(line) for line in lines_of("json", tmp_path)]

    denied = next(line for line in found if line.get("event") == "denied")
    assert list(denied) == [
        *("ts", "level", "class", "event", "client_id", "ip", "listener", "reason_code", "text"),
    ]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", denied["ts"])
    assert (denied["level"], denied["class"], denied["client_id"]) == ("warning", "denied", BAD_ID)
    assert (denied["ip"], denied["listener"]) == ("127.0.0.1", "main")
    assert denied["reason_code"] == 0x87
    ends = {line["class"]: line for line in found if line.get("event") == "disconnected"}
    assert ends["violation"]["reason_code"] == 0x81
    assert (ends["disconnected"]["client_id"], ends["disconnected"]["level"]) == ("same", "info")
    assert ends["disconnected"]["reason_code"] == 0x8E
    assert all("class" in line and "text" in line for line in found)


def test_logfmt_lines_are_single_lines_that_can_be_read_back(tmp_path: pathlib.Path) -> None:
    found = [read_logfmt(line) for line in lines_of("logfmt", tmp_path)]

    denied = next(line for line in found if line.get("event") == "denied")
    assert (denied["client_id"], denied["ip"], denied["reason_code"]) == (
        BAD_ID,
        "127.0.0.1",
        "135",
    )


def test_pretty_lines_have_the_address_and_the_reason_as_text_and_code(
    tmp_path: pathlib.Path,
) -> None:
    found = "\n".join(lines_of("pretty", tmp_path))

    assert re.search(
        re.escape(f"client {BAD_ID}")
        + r" at 127\.0\.0\.1:\d+ may not publish to b: Not authorized",
        found,
    )
    assert re.search(
        r"at 127\.0\.0\.1:\d+ disconnected: 0x81 Malformed Packet: ", found, re.IGNORECASE
    )
    assert re.search(
        r"client same at 127\.0\.0\.1:\d+ disconnected: 0x8E Session taken over: another", found
    )
    assert "\x1b" not in found


def read_logfmt(line: str) -> dict[str, str]:
    """The pairs of a line: values are bare, or JSON strings."""
    pair = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|[^\s"]+)(?: |$)')
    found, at = {}, 0
    while at < len(line):
        match = pair.match(line, at)
        assert match, f"no pair at {at} of {line!r}"
        value = match[2]
        found[match[1]] = json.loads(value) if value.startswith('"') else value
        at = match.end()
    return found


def written(formatter: logging.Formatter, **known: str) -> str:
    """What a handler writes for a line of the engine."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(formatter)
    record = logging.LogRecord("mqttcore.engine", logging.WARNING, "", 0, "%s", ("text",), None)
    setattr(record, logs.FIELDS, list(known.items()))
    handler.emit(record)
    return out.getvalue()


@given(client_id=st.text(), username=st.text())
def test_any_text_is_one_line_and_comes_back(client_id: str, username: str) -> None:
    known = {"class": "denied", "client_id": client_id, "username": username, "text": client_id}

    in_json = written(log_formats.JsonFormatter(), **known)
    in_logfmt = written(log_formats.LogfmtFormatter(), **known)

    for line in (in_json, in_logfmt):
        assert line.splitlines() == [line.removesuffix("\n")]
    assert known.items() <= json.loads(in_json).items()
    assert known.items() <= read_logfmt(in_logfmt.removesuffix("\n")).items()


def test_lines_of_python_have_their_logger_as_class() -> None:
    record = logging.LogRecord("mqttcore.plugins", logging.ERROR, "", 0, "a %s", ("b",), None)

    found = json.loads(log_formats.JsonFormatter().format(record))

    assert (found["level"], found["class"], found["text"]) == ("error", "mqttcore.plugins", "a b")


@pytest.mark.parametrize("to", ["/nonexistent/log"])
def test_a_file_that_cannot_be_opened_is_a_fault_of_the_configuration(
    to: str, tmp_path: pathlib.Path
) -> None:
    (tmp_path / "mqttcore.toml").write_text(CONFIG.format(form="json", to=to))
    program = [sys.executable, "-m", "mqttcore.serve", "-c", str(tmp_path / "mqttcore.toml")]

    done = subprocess.run(program, capture_output=True, text=True, check=False)  # noqa: S603 -- our own program

    assert done.returncode == 2
    assert "log.to: cannot open /nonexistent/log: No such file or directory" in done.stderr


def fill(handler: logging.Handler, count: int) -> None:
    for number in range(count):
        text = f"{number:09} " + "x" * 990
        handler.emit(logging.LogRecord("mqttcore", logging.INFO, "", 0, text, (), None))


def test_a_full_file_is_renamed_and_the_oldest_one_removed(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    handler = logs.log_file(LogOutput(to=str(path), rotate_mb=1, keep=2))

    fill(handler, 3_600)
    handler.close()

    first = {file.name: int(file.read_text()[:9]) for file in tmp_path.iterdir()}
    assert first == {"log": 2_997, "log.1": 1_998, "log.2": 999}
    assert all(file.stat().st_size <= 1_000_000 for file in tmp_path.iterdir())


def test_a_file_that_logrotate_renames_is_opened_again(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "log"
    handler = logs.log_file(LogOutput(to=str(path)))

    fill(handler, 2)
    path.rename(tmp_path / "log.1")
    fill(handler, 1)
    handler.close()

    assert len((tmp_path / "log.1").read_text().splitlines()) == 2
    assert len(path.read_text().splitlines()) == 1


def test_a_limit_without_a_file_is_a_fault_of_the_configuration() -> None:
    with pytest.raises(ConfigError, match=r"rotate_mb: needs a file in log\.to"):
        Settings(log=LogOutput(rotate_mb=1))
