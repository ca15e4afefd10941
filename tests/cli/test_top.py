"""`mqttcore top`."""

from __future__ import annotations

import json
import os
import pathlib
import pty
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.cli import screen, top
from mqttcore.cli.api import Json
from mqttcore.cli.samples import Sample, rates
from mqttcore.config import HttpListener, Listener

from tests.cli.conftest import Run
from tests.eventually import eventually
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")


def overview(*, received: int, dropped: int) -> dict[str, object]:
    return {
        "version": "1.2.3",
        "node": "broker\x1b[2J",
        "uptime_s": 3_700,
        "now_ms": 1_700_000_000_000,
        "durability": "fsync",
        "clients": {"connected": 2, "sessions": 3, "to_come": 0},
        "subscriptions": 4,
        "retained_messages": 5,
        "messages": {"received": received, "sent": 2 * received},
        "bytes": {"received": 100 * received, "sent": 200 * received},
        "dropped": {"queue_full": dropped, "expired": 0},
        "refused": {},
        "memory": {"budget_bytes": 2_000_000_000, "used_bytes": 1_500_000},
        "disk_pressure": "none",
        "store": {"sync_p50_us": 500, "sync_p99_us": 32_100, "log_bytes": 9, "live_bytes": 8},
        "warnings": [{"code": "disk", "text": "little room", "fix": "make room"}],
    }


CLIENT: Json = {
    "client_id": "truck\x1b[2J",
    "username": None,
    "address": "127.0.0.1",
    "connected_at_ms": None,
    "queue": {"messages": 7},
    "inflight": {"out": 1, "in": 0},
    "backlog_bytes": 12_345,
    "rates": {"in": 12_345.6, "out": 0.4},
    "latency": {"last_ms": 1.5, "worst_ms": 2_345.678},
    "port": 4_000,
    "bytes": {"in": 2_000, "out": 34_567},
}
EARLIER: Json = {**CLIENT, "bytes": {"in": 1_000, "out": 10_000}}
BEFORE = Sample(overview(received=100, dropped=0), [EARLIER], [0.1, 0.1], 7.0)
AFTER = Sample(overview(received=3_100, dropped=10), [CLIENT] * 50, [0.1, 12.0], 9.0)


def hook(name: str, p99_us: int | None, *, calls: int = 1, waiting: int = 0) -> Json:
    run = {"count": calls, "p50_us": p99_us, "p99_us": p99_us}
    return {"plugin": "a.B", "hook": name, "waiting": waiting, "paused": not calls, "run": run}


def test_the_store_and_the_slowest_hooks_are_shown() -> None:
    hooks = [hook("quick", 50), hook("slow", 20_000, waiting=7), hook("off", None, calls=0)]
    sample = AFTER._replace(hooks=hooks)

    shown = screen.summary(screen.Shown(sample, rates(BEFORE, sample), "queue"))

    assert "store      sync p50 0.5 ms, p99 32.1 ms" in shown
    assert "hooks      B.slow p99 20 ms, 7 waiting; B.quick p99 0.05 ms; B.off, paused" in shown


def test_rates_are_differences_by_time() -> None:
    found = rates(BEFORE, AFTER)

    assert (found.received, found.sent, found.bytes_in) == (1_500, 3_000, 150_000)
    assert found.dropped == {"queue_full": 5}


def test_a_broker_that_was_started_again_has_no_negative_rates() -> None:
    assert rates(AFTER, BEFORE).received == 0


def test_bytes_a_second_of_a_client_are_those_of_one_connection() -> None:
    def byte_rates(before: Json, after: Json) -> object:
        old, new = (
            Sample(overview(received=0, dropped=0), [client], [], taken_s)
            for client, taken_s in ((before, 7.0), (after, 9.0))
        )
        return rates(old, new).clients[0]["byte_rates"]

    assert byte_rates(EARLIER, CLIENT) == {"in": 500, "out": 12_283.5}
    assert byte_rates({**EARLIER, "port": 5}, CLIENT) is None, "another connection"
    assert byte_rates({**EARLIER, "client_id": "b"}, CLIENT) is None
    assert byte_rates(CLIENT, EARLIER) == {"in": 0, "out": 0}
    uncounted = {name: value for name, value in CLIENT.items() if name != "bytes"}
    assert byte_rates(EARLIER, uncounted) is None
    assert byte_rates(uncounted, CLIENT) is None


def test_a_wide_terminal_has_the_bytes_of_clients() -> None:
    shown = screen.lines(screen.Shown(AFTER, rates(BEFORE, AFTER), "queue"), 120, 24)

    row = next(line.split() for line in shown if line.startswith("truck\\x1b[2J"))
    assert row[-3:] == ["2.3s", "500", "12.3k"]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 60), (20, 5), (1, 1)])
def test_a_screen_has_the_size_of_the_terminal(width: int, height: int) -> None:
    shown = screen.lines(screen.Shown(AFTER, rates(BEFORE, AFTER), "queue"), width, height)

    assert len(shown) == height
    assert max(map(len, shown)) <= width


def test_a_screen_of_80_by_24_has_all_there_is_to_say() -> None:
    shown = screen.lines(screen.Shown(AFTER, rates(BEFORE, AFTER), "queue", "tru"), 80, 24)

    assert shown[0].startswith("mqttcore 1.2.3 on broker\\x1b[2J  up 1h1m")
    assert "in         1.5k msg/s, 150kB/s" in shown
    assert "dropped    queue_full 5/s" in shown
    assert "memory     1.5MB of 2.0GB; disk pressure: none" in shown
    assert "shards     2, 1 is 12.0 s late" in shown
    assert "WARNING    little room: make room" in shown
    assert "clients by queue, with 'tru'" in shown
    row = next(line.split() for line in shown if line.startswith("truck\\x1b[2J"))
    assert row[-4:] == ["12.3k", "12.3k", "0.4", "2.3s"]
    assert shown[-1] == screen.HELP


def test_numbers_are_short() -> None:
    values = (0, 7, 999, 1_000, 12_345, 123_456, 1_500_000, 10**15)

    assert [screen.short(value) for value in values] == [
        *("0", "7", "999", "1.0k", "12.3k", "123k", "1.5M", "1000T")
    ]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    """The data folder of a broker with a client `truck1`."""
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    data = tmp_path / "data"
    settings = Settings(listeners=(listener,), http=HttpListener(), data=str(data))
    with Broker(settings) as broker, Wire(broker.port) as truck:
        truck.connect("truck1")
        yield data


def test_once_prints_a_screen_and_json(run: Run, folder: pathlib.Path) -> None:
    once = ("top", "--once", "--interval", "0.1", "--data", folder)

    text, found = run(*once), run(*once, "--json")

    assert (text.status, found.status) == (0, 0)
    assert "clients    1 connected, 1 sessions" in text.out
    assert "truck1" in text.out
    sample = json.loads(found.out)
    assert sample["clients"][0]["client_id"] == "truck1"
    assert sample["clients"][0]["byte_rates"] == {"in": 0, "out": 0}
    assert sample["rates"]["dropped"] == {}
    assert "clients" not in sample["rates"]
    assert [shard["shard"] for shard in sample["shards"]] == list(range(len(sample["shards"])))


def test_without_a_terminal_it_says_what_to_do(run: Run, folder: pathlib.Path) -> None:
    done = run("top", "--data", folder)

    assert done.status == 2
    assert "use --once" in done.error


class Terminal:
    """A terminal of 80 by 24 with the command in it."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._own, theirs = pty.openpty()
        self.shown = ""
        arguments = ["top", "--data", str(folder), "--interval", "0.1"]
        self.process = subprocess.Popen(  # noqa: S603 -- our own program
            [sys.executable, "-m", "mqttcore", *arguments],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm", "LINES": "24", "COLUMNS": "80"},
        )
        os.close(theirs)

    def press(self, keys: str) -> None:
        """Types."""
        os.write(self._own, keys.encode())

    def wait_for(self, text: str, *, within_s: float = 30) -> None:
        """Waits until this was shown."""
        deadline = time.monotonic() + within_s
        while text not in self.shown:
            ready, _, _ = select.select([self._own], [], [], deadline - time.monotonic())
            assert ready, f"{text!r} was not shown, but {self.shown!r}"
            raw = os.read(self._own, 65_536).decode(errors="replace")
            self.shown += re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", " ", raw)

    def close(self) -> None:
        """Ends it."""
        self.process.kill()
        self.process.wait()
        os.close(self._own)


@pytest.fixture
def terminal(folder: pathlib.Path) -> Iterator[Terminal]:
    made = Terminal(folder)
    yield made
    made.close()


def test_the_full_screen_shows_clients_and_q_ends_it(terminal: Terminal) -> None:
    terminal.wait_for("truck1")
    terminal.wait_for(screen.HELP)

    terminal.press("q")

    assert terminal.process.wait(timeout=30) == 0


def test_enter_opens_the_chosen_client_and_closes_it(
    terminal: Terminal, folder: pathlib.Path
) -> None:
    terminal.wait_for("truck1")
    terminal.press("\x1bOB")
    terminal.press("\r")
    terminal.wait_for("session expiry")
    terminal.wait_for("session_created")
    terminal.wait_for("Enter: all clients")
    terminal.shown = ""
    terminal.press("\r")
    terminal.wait_for("clients by")
    terminal.press("k\r")
    terminal.wait_for("truck1 was disconnected")
    terminal.press("q")

    assert terminal.process.wait(timeout=30) == 0


def test_arrows_choose_among_the_listed_clients() -> None:
    listed = ["a", "b", "c"]

    assert [top.beside(chosen, listed, 1) for chosen in ("", "a", "c", "gone")] == [*"abca"]
    assert [top.beside(chosen, listed, -1) for chosen in ("c", "a")] == [*"ba"]
    assert top.beside("a", [], 1) == ""


def test_keys_find_sort_trace_and_kick(terminal: Terminal) -> None:
    terminal.wait_for("truck1")
    terminal.press("s")
    terminal.wait_for("inflight")
    terminal.press("/nobody\r")
    terminal.wait_for("with 'nobody'")
    terminal.press("ttruck1\r")
    terminal.wait_for("to follow it: mqttcore trace tail --all ")
    terminal.press("ktruck1\r")
    terminal.wait_for("truck1 was disconnected")
    terminal.press("k\x1b")
    terminal.press("q")

    eventually(lambda: terminal.process.poll() == 0)
