"""`python -m mqttcore.serve` as a process: its banner, its signals, its exit status."""

import gc
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from mqttcore import (
    Broker,
    BrokerFailedError,
    Settings,
    __version__,
    _core,
    _serve_options,
    healthcheck,
    server,
)
from mqttcore import serve as serve_command
from mqttcore.config import Listener

from tests.eventually import eventually
from tests.websocket import WebSocketWire
from tests.wire import CONNACK, DISCONNECT, Wire, connect

Serve = Callable[..., "subprocess.Popen[str]"]
SLOW_MODULES = {
    *("asyncio", "bz2", "difflib", "email", "hashlib", "hmac", "http.client"),
    *("importlib.metadata", "logging.handlers", "lzma", "pickle", "shutil", "ssl", "subprocess"),
    *("tempfile", "tomllib", "typing_extensions", "uuid"),
}
"""Modules that a start with the built-in profile does not need."""
MOST_MODULES = 43
BUILT_IN = "no configuration file, so the built-in profile: anonymous clients may publish to # and"


@pytest.fixture
def serve(tmp_path: pathlib.Path) -> Iterator[Serve]:
    """Starts the command; whatever still runs is killed at the end."""
    running: list[subprocess.Popen[str]] = []
    clean = {name: value for name, value in os.environ.items() if "MQTTCORE" not in name}

    def started(*arguments: str, **environment: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", "mqttcore.serve", *arguments],
            env={**clean, **environment},
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        running.append(process)
        return process

    yield started
    for process in running:
        process.kill()
        process.communicate()


def port_of(process: "subprocess.Popen[str]") -> int:
    """The port in the banner; clients can connect once it is there."""
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.fullmatch(
        r"mqttcore \S+: listening on 127\.0\.0\.1:(\d+); durability: memory\n", line
    )
    assert found, line + (process.stderr.read() if not line and process.stderr else "")
    return int(found[1])


def said(process: "subprocess.Popen[str]", text: str) -> None:
    """Reads the log until ``text`` comes."""
    assert process.stderr is not None
    while line := process.stderr.readline():
        if text in line:
            return
    raise AssertionError(f"never said: {text}")


def outcome(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out, err


def test_it_says_where_it_listens_and_that_nobody_configured_it(serve: Serve) -> None:
    process = serve("--listen", "127.0.0.1:0")

    port = port_of(process)

    assert process.stdout is not None
    assert process.stdout.readline().startswith(BUILT_IN)
    with Wire(port) as wire:
        wire.connect("c")
        assert wire.subscribe(("#", 0), ("$SYS/#", 0)).reasons == (0, 0)


def test_its_banner_shows_every_transport(serve: Serve) -> None:
    process = serve("--listen", "127.0.0.1:0", "--listen", "ws://127.0.0.1:0/web")

    assert process.stdout is not None
    places = r"listening on 127\.0\.0\.1:\d+, ws://127\.0\.0\.1:(\d+)/web; durability"
    found = re.search(places, process.stdout.readline())
    assert found
    with WebSocketWire(int(found[1]), path="/web") as one:
        one.connect("framed")


def test_its_banner_shows_a_unix_socket(serve: Serve, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "mqtt.sock"

    process = serve("--listen", f"unix:{path}", "--listen", "127.0.0.1:0")

    assert process.stdout is not None
    places = rf"listening on unix:{path}, 127\.0\.0\.1:(\d+); durability"
    found = re.search(places, process.stdout.readline())
    assert found
    with Wire(int(found[1])) as wire:
        wire.connect("c")


def imported(stderr: str) -> set[str]:
    """The modules of the lines that PYTHONPROFILEIMPORTTIME writes."""
    lines = (line for line in stderr.splitlines() if line.startswith("import time:"))
    return {line.rpartition("|")[2].strip() for line in lines}


def test_it_loads_no_slow_module_until_a_client_is_connected(serve: Serve) -> None:
    process = serve("--listen", "127.0.0.1:0", PYTHONPROFILEIMPORTTIME="1")
    with Wire(port_of(process)) as wire:
        wire.connect("c")

    process.send_signal(signal.SIGTERM)

    status, _, err = outcome(process)
    found = imported(err)
    assert status == 0
    assert "mqttcore.broker" in found
    assert found & SLOW_MODULES == set()
    assert len({name for name in found if name.startswith("mqttcore")}) <= MOST_MODULES


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it(serve: Serve, number: signal.Signals) -> None:
    process = serve("--listen", "127.0.0.1:0")
    with Wire(port_of(process)) as wire:
        wire.connect("c")

        process.send_signal(number)

        assert wire.expect(DISCONNECT).reason == 0x8B
        wire.expect_close()
        status, _, err = outcome(process)
    assert status == 0
    assert "Traceback" not in err


def test_a_second_signal_ends_it_at_once(serve: Serve, tmp_path: pathlib.Path) -> None:
    (tmp_path / "lingering.py").write_text(
        "import asyncio\nfrom mqttcore.plugin import Plugin\n"
        "class Lingering(Plugin):\n"
        "    async def stop(self) -> None:\n"
        "        print('lingers', flush=True)\n"
        "        await asyncio.sleep(60)\n"
    )
    process = serve("--listen", "127.0.0.1:0", MQTTCORE__PLUGINS__0__USE="lingering:Lingering")
    port_of(process)
    assert process.stdout is not None

    process.send_signal(signal.SIGINT)
    while process.stdout.readline() != "lingers\n":
        pass
    process.send_signal(signal.SIGINT)

    assert outcome(process)[0] == -signal.SIGINT


def test_a_client_that_reads_nothing_does_not_hold_up_the_end(serve: Serve) -> None:
    process = serve("--listen", "127.0.0.1:0")
    port = port_of(process)
    with Wire(port) as deaf, Wire(port) as loud:
        deaf.connect("deaf")
        deaf.subscribe(("a", 0))
        loud.connect("loud")
        for _ in range(50):
            loud.publish("a", bytes(100_000))

        process.send_signal(signal.SIGTERM)

        assert outcome(process)[0] == 0


def test_sighup_reads_the_file_anew_or_keeps_the_old_one(
    serve: Serve, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "mqttcore.toml"
    listener = '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = {}\n'.format
    file.write_text(listener('{ publish = ["a"] }'))
    process = serve("-c", str(file))
    port = port_of(process)
    assert process.stderr is not None

    def code() -> int:
        with Wire(port) as wire:
            wire.connect("c")
            return wire.publish("b", qos=1).reason

    assert code() == 0x87

    file.write_text(listener('"nobody"'))
    process.send_signal(signal.SIGHUP)
    said(process, "reload failed, the old configuration stays")
    assert "mqttcore.toml:3:13: listeners[0].anonymous" in process.stderr.readline()
    assert code() == 0x87

    file.write_text(listener('{ publish = ["b"] }'))
    process.send_signal(signal.SIGHUP)
    said(process, "INFO mqttcore: reloaded")
    assert code() in (0, 0x10)


@pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")
def test_it_is_not_ready_while_it_drains_and_a_second_signal_ends_it(
    serve: Serve, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mqttcore.toml"
    file.write_text(
        'data = "data"\ndurability = "memory"\n[http]\naddress = "127.0.0.1:0"\ndrain_s = 600.0\n'
        '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true\n'
    )
    process = serve("-c", str(file))
    port = port_of(process)
    assert process.stdout is not None
    assert re.fullmatch(r"http: http://127\.0\.0\.1:\d+\n", process.stdout.readline())
    with Wire(port) as wire:
        wire.connect("c")
    ready = ["--ready", "--data", str(tmp_path / "data")]
    assert healthcheck.main(ready) == 0

    process.send_signal(signal.SIGTERM)

    said(process, "/readyz fails")
    eventually(lambda: healthcheck.main(ready) == 1)
    with Wire(port) as wire:
        wire.connect("late")
    process.send_signal(signal.SIGTERM)
    status, _, _ = outcome(process)
    assert status == 0
    assert "listeners" in capsys.readouterr().out


def test_a_wrong_configuration_ends_with_2_and_names_every_fault(
    serve: Serve, tmp_path: pathlib.Path
) -> None:
    file = tmp_path / "mqttcore.toml"
    file.write_text("shads = 1\n[limits]\nsessions = 0\n")

    status, out, err = outcome(serve("-c", "mqttcore.toml"))

    assert (status, out) == (2, "")
    assert err.splitlines() == [
        "mqttcore.toml:1:1: shads: unknown key; allowed: data, durability, http, kafka, limits,"
        " listeners, log, log_level, metrics, plugins, scrub_interval_s, shards, shared_strategy,"
        " streams, sys_interval_s, topics; did you mean"
        ' "shards"?',
        "mqttcore.toml:3:12: limits.sessions: 0 is out of range; allowed: 1 to 4_294_967_295",
    ]


@pytest.mark.parametrize(
    ("arguments", "environment", "status"),
    [
        ((), {}, 0),
        (("-c", "nowhere.toml"), {}, 2),
        (("--listen", "0.0.0.0:1883"), {}, 2),
        (("--listen", "0.0.0.0:1883"), {"MQTTCORE__LISTENERS__0__INSECURE": "true"}, 0),
        ((), {"MQTTCORE__PLUGINS__0__USE": "no.such.plugin"}, 2),
        (("--log-level", "loud"), {}, 2),
    ],
)
def test_check_config_says_whether_it_would_start(
    serve: Serve, arguments: tuple[str, ...], environment: dict[str, str], status: int
) -> None:
    found, out, err = outcome(serve("--check-config", *arguments, **environment))

    assert found == status, err
    assert bool(err) == bool(status)
    assert bool(out) != bool(status)


def test_a_taken_port_is_one_line_and_status_1(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        status, out, err = outcome(serve("--listen", address))

    assert (status, out) == (1, "")
    assert re.fullmatch(rf"mqttcore: .*cannot listen on {address}: .*in use.*\n", err), err


CANNOT_GO_ON = """
import sys
from mqttcore import _core, broker, serve

class Engine:
    failure = None

    def __init__(self, *arguments, **options):
        self._engine = _core.Engine(*arguments, **options)

    def wait_for_failure(self, seconds):
        if seconds:
            self.failure = {failure}
        return self.failure

    def __getattr__(self, name):
        return getattr(self._engine, name)

broker.Engine = Engine
sys.exit(serve.main(["--listen", "127.0.0.1:0"]))
"""


@pytest.mark.parametrize(
    ("failure", "status", "says"),
    [
        (("broker", "mqttcore-load panicked"), 70, "the broker has failed: mqttcore-load panicked"),
        (("store", "sync failed"), 74, "the store has failed: sync failed"),
    ],
)
def test_a_broker_that_cannot_go_on_says_so_and_ends_with_a_status(
    failure: tuple[str, str], status: int, says: str
) -> None:
    program = CANNOT_GO_ON.format(failure=failure)

    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )

    assert done.returncode == status, done.stderr
    assert f"stopping, {says}" in done.stderr


SETTINGS = Settings(listeners=(Listener(address="127.0.0.1:0", anonymous=True),))


def test_the_command_keeps_freed_memory_and_a_program_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[None] = []
    monkeypatch.setattr(_core, "keep_freed_memory", lambda: asked.append(None))

    with Broker(SETTINGS):
        assert asked == []
    assert serve_command.main(["--check-config"]) == 0

    assert asked == [None]


def test_an_embedded_broker_that_cannot_go_on_raises_what_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = Broker(SETTINGS).start()
    monkeypatch.setattr("mqttcore.broker.failure_of", lambda *_: BrokerFailedError("panicked"))

    with pytest.raises(BrokerFailedError, match="panicked"):
        broker.stats()

    assert not broker.is_running
    with pytest.raises(BrokerFailedError, match="panicked"):
        broker.__exit__(None, None, None)


def test_a_plugin_that_does_not_start_is_status_1(serve: Serve, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mqttcore.toml").write_text(
        '[[plugins]]\nuse = "mqttcore.auth.password_file"\nconfig = { path = "none" }\n'
    )

    started = outcome(serve("-c", "mqttcore.toml"))
    checked = outcome(serve("-c", "mqttcore.toml", "--check-config"))

    status, _, err = started
    assert status == 1
    assert "PasswordFile did not start: none: cannot be read" in err
    assert "Traceback" not in err
    assert checked == started


def test_check_config_tries_the_addresses_as_the_start_does(serve: Serve) -> None:
    # for documentation alone (RFC 5737), so no machine has it
    arguments = ("--listen", "192.0.2.1:1883")
    environment = {"MQTTCORE__LISTENERS__0__INSECURE": "true"}

    started = outcome(serve(*arguments, **environment))
    checked = outcome(serve(*arguments, "--check-config", **environment))

    assert started[0] == 1
    assert "cannot listen on 192.0.2.1:1883" in started[2]
    assert checked == started


def test_check_config_may_be_asked_while_the_broker_runs(serve: Serve) -> None:
    address = f"127.0.0.1:{port_of(serve('--listen', '127.0.0.1:0'))}"

    assert outcome(serve("--listen", address, "--check-config"))[0] == 0


@pytest.mark.parametrize("flags", [(), ("--accept-clock",)])
def test_accept_clock_reaches_the_broker(
    monkeypatch: pytest.MonkeyPatch, flags: tuple[str, ...]
) -> None:
    asked: list[bool] = []

    def start(_self: Broker, *, accept_clock: bool) -> None:
        asked.append(accept_clock)
        raise BrokerFailedError("far enough")

    monkeypatch.setattr(Broker, "start", start)

    assert serve_command.main(["--listen", "127.0.0.1:0", *flags]) == 1
    assert asked == [bool(flags)]


@pytest.mark.parametrize(
    "line",
    [
        "",
        "--listen 127.0.0.1:0 --listen ws://127.0.0.1:0 --log-level debug",
        "--config a.toml --data kept --accept-loss --accept-clock --check-config --print-defaults",
    ],
)
def test_a_plain_command_line_is_read_as_argparse_reads_it(line: str) -> None:
    options = _serve_options.plain_options(line.split())

    assert options is not None
    read = serve_command.parser().parse_args(line.split(), _serve_options.Options())
    assert vars(options) == vars(read)


@pytest.mark.parametrize(
    "line",
    ["-c a", "--data=kept", "--conf a", "--data", "--data -x", "--accept_loss", "--listen --", "x"],
)
def test_argparse_reads_what_is_not_plain(line: str) -> None:
    assert _serve_options.plain_options(line.split()) is None


def test_garbage_is_collected_from_the_start_on(monkeypatch: pytest.MonkeyPatch) -> None:
    during: list[bool] = []

    def wait(_self: server.Signals) -> int:
        during.append(gc.isenabled())
        return signal.SIGINT

    monkeypatch.setattr(server.Signals, "wait", wait)
    monkeypatch.setattr(server.Signals, "__init__", lambda _self: None)
    monkeypatch.setattr(server.Signals, "release", lambda _self: None)

    assert serve_command.main(["--listen", "127.0.0.1:0"]) == 0
    gc.unfreeze()
    assert during == [True]
    assert gc.isenabled()


def test_the_command_says_its_version() -> None:
    said = [
        subprocess.run(  # noqa: S603 - our own command
            [sys.executable, "-m", *command, "--version"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for command in (["mqttcore.cli"], ["mqttcore.serve"])
    ]

    assert said == [f"mqttcore {__version__}\n"] * 2


HOLDS_THE_INTERPRETER = """
import ctypes, os
from mqttcore.plugin import Login, Plugin, hook

class Holder(Plugin):
    @hook.authenticate(timeout=2.0)
    def login(self, login: Login) -> None:
        os.write(1, b"\\nholds\\n")  # one write: lines of the main thread may come between two
        # until somebody else opens the pipe; PyDLL: the interpreter stays locked
        ctypes.PyDLL(None).open(b"pipe", os.O_RDONLY)
"""


def test_a_hook_that_locks_the_interpreter_refuses_in_time_and_holds_up_nobody(
    serve: Serve, tmp_path: pathlib.Path
) -> None:
    """Abuse H12."""
    (tmp_path / "holder.py").write_text(HOLDS_THE_INTERPRETER)
    (tmp_path / "mqttcore.toml").write_text(
        '[[listeners]]\naddress = "127.0.0.1:0"\nanonymous = true\n[[plugins]]\nuse = "holder"\n'
    )
    os.mkfifo(tmp_path / "pipe")
    process = serve("-c", "mqttcore.toml")
    port = port_of(process)
    with Wire(port) as other, Wire(port) as held:
        other.connect("other")
        other.subscribe(("a", 0))

        held.send(connect("held", username="joe", password=b""))
        assert process.stdout is not None
        while (line := process.stdout.readline()) != "holds\n":
            assert line, "the process ended"
        for _ in range(20):
            other.publish("a", b"x")
        assert held.expect(CONNACK).reason == 0x88

    os.close(os.open(tmp_path / "pipe", os.O_RDWR))
    process.send_signal(signal.SIGTERM)
    assert outcome(process)[0] == 0


def test_a_configuration_that_lets_nobody_in_says_so(serve: Serve, tmp_path: pathlib.Path) -> None:
    (tmp_path / "mqttcore.toml").write_text('[[listeners]]\naddress = "127.0.0.1:0"\n')
    process = serve("-c", "mqttcore.toml")
    port_of(process)

    assert process.stdout is not None
    assert process.stdout.readline() == (
        "no plugin and no anonymous access: every client is rejected\n"
    )


def test_the_command_and_its_alias_are_the_same(serve: Serve) -> None:
    command = pathlib.Path(sys.executable).with_name("mqttcore")

    direct = subprocess.run(
        [sys.executable, "-m", "mqttcore.serve", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    alias = subprocess.run(  # noqa: S603 - our own command
        [command, "serve", "--version"], capture_output=True, text=True, check=True
    )
    unknown = subprocess.run([command, "serv"], capture_output=True, text=True, check=False)  # noqa: S603

    assert direct.stdout == alias.stdout
    assert direct.stdout.startswith("mqttcore ")
    assert unknown.returncode == 2
    assert 'did you mean "serve"?' in unknown.stderr
