"""Commands that ask a running broker over its HTTP API."""

from __future__ import annotations

import argparse
import json
import pathlib
import sys
from collections.abc import Callable, Iterator

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.cli import audit
from mqttcore.cli.api import Api
from mqttcore.config import HttpListener, Listener
from mqttcore.streams.settings import Stream

from tests.cli.conftest import Run
from tests.eventually import eventually
from tests.wire import PUBLISH, Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

Ask = Callable[..., object]
TOKEN = "0123456789abcdef"  # noqa: S105 -- of this test alone


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    """A broker with an endpoint that no other test uses."""
    (tmp_path / "token").write_text(TOKEN)
    (tmp_path / "token").chmod(0o600)
    http = HttpListener(
        address="127.0.0.1:0", token_file=tmp_path / "token", keys_file=tmp_path / "keys.toml"
    )
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", name="main", anonymous=True),),
        http=http,
        data=str(tmp_path / "data"),
        streams=(Stream(name="plant", filter=("plant/#",)),),
    )
    with Broker(settings) as started:
        yield started


@pytest.fixture
def ask(run: Run, tmp_path: pathlib.Path, broker: Broker) -> Callable[..., str]:
    """Runs a command on that broker, which must succeed; returns what it printed."""
    assert broker.is_running

    def asked(*arguments: object) -> str:
        done = run(*arguments, "--data", tmp_path / "data")
        assert (done.status, done.error) == (0, "")
        return done.out

    return asked


@pytest.fixture
def truck(broker: Broker) -> Iterator[Wire]:
    """A client `truck/1` with a kept session and a subscription to `road/+`."""
    with Wire(broker.port) as wire:
        wire.connect("truck/1", clean=False, props={"session_expiry_interval": 3_600})
        wire.subscribe(("road/+", 1))
        yield wire


@pytest.mark.usefixtures("truck")
def test_clients_are_listed_as_a_table_and_as_json(ask: Callable[..., str]) -> None:
    titles, line = ask("clients").splitlines()
    assert titles.split()[:2] == ["CLIENT", "USER"]
    assert line.split()[:2] == ["truck/1", "-"]
    assert json.loads(ask("clients", "list", "--json"))["items"][0]["client_id"] == "truck/1"
    for options, count in {
        ("--find", "ruck"): 1,
        ("--find", "car"): 0,
        ("--connected",): 1,
        ("--offline",): 0,
        ("--user", "joe"): 0,
        ("--ip", "127.0.0.0/8"): 1,
        ("--mqtt", "3.1"): 0,
        ("--listener", "main"): 1,
        ("--min-queue", "1"): 0,
        ("--sort", "queue"): 1,
    }.items():
        assert len(json.loads(ask("clients", *options, "--json"))["items"]) == count, options


def test_one_client_is_shown_with_its_subscriptions_and_messages(
    ask: Callable[..., str], truck: Wire, broker: Broker
) -> None:
    broker.publish("road/7", b"x", qos=1)
    assert truck.expect(PUBLISH).topic == "road/7"  # without PUBACK

    shown = ask("clients", "show", "truck/1")
    found = json.loads(ask("clients", "show", "truck/1", "--json"))

    assert "session expiry  1h" in shown
    assert ", created " in shown
    assert "road/+" in shown
    assert "road/7" in shown
    assert found["subscriptions"][0]["filter"] == "road/+"
    assert found["inflight_messages"][0]["topic"] == "road/7"


@pytest.mark.parametrize("command", [("kick",), ("clients", "kick")])
def test_a_kicked_client_is_disconnected(
    ask: Callable[..., str], truck: Wire, command: tuple[str, ...]
) -> None:
    assert ask(*command, "truck/1", "--reason", "0x89") == ""

    truck.expect_refusal(0x89)
    assert json.loads(ask("sessions", "--json"))["items"][0]["client_id"] == "truck/1"


def test_a_session_is_ended(ask: Callable[..., str], truck: Wire) -> None:
    truck.close()
    eventually(lambda: "truck/1" in ask("sessions"))

    ask("sessions", "end", "truck/1")

    assert json.loads(ask("sessions", "list", "--json"))["items"] == []


def test_sessions_are_ended_by_their_confirmed_number(
    ask: Callable[..., str], run: Run, truck: Wire, tmp_path: pathlib.Path
) -> None:
    truck.close()
    eventually(lambda: "truck/1" in ask("sessions"))
    end = ("sessions", "end-offline", "--find", "truck", "--data", tmp_path / "data")
    line = ask("sessions", "--sort", "expires", "--expires-within", 3_600).splitlines()[1]

    counted = run(*end)
    wrong = run(*end, "--yes", 2)
    done = run(*end, "--yes", 1)

    assert line.split()[:2] == ["truck/1", "-"]
    assert (counted.status, counted.out) == (1, "1 sessions match\n  truck/1\n")
    assert "--yes 1 ends them" in counted.error
    assert wrong.status == 1
    assert "1 sessions without a connection match now" in wrong.error
    assert (done.status, done.out) == (0, "1 sessions ended\n")
    assert len(ask("sessions").splitlines()) == 1


@pytest.mark.usefixtures("truck")
def test_subscriptions_are_listed(ask: Callable[..., str]) -> None:
    def found(*options: str) -> list[tuple[str | None, ...]]:
        items = json.loads(ask("subs", *options, "--json"))["items"]
        return [(item.get("client_id"), item["filter"]) for item in items]

    assert ask("subs").splitlines()[1].split() == ["truck/1", "road/+", "-", "1"]
    assert found() == [("truck/1", "road/+")]
    assert found("--filter", "road/+") == [("truck/1", "road/+")]
    assert found("--filter", "other") == []
    assert found("--topic", "road/7") == [("truck/1", None)]
    assert found("--client", "truck/1") == [(None, "road/+")]


def test_members_of_a_group_are_listed_with_their_queues(
    ask: Callable[..., str], broker: Broker
) -> None:
    with Wire(broker.port) as busy, Wire(broker.port) as away:
        busy.connect("busy")
        busy.subscribe(("$share/g/jobs", 1))
        away.connect("away", props={"session_expiry_interval": 3_600})
        away.subscribe(("$share/g/jobs", 1), ("away", 1))
        away.disconnect()
        eventually(lambda: not json.loads(ask("clients", "show", "away", "--json"))["connected"])
        broker.publish("away", b"x", qos=1)

        lines = ask("subs", "--filter", "$share/g/jobs").splitlines()

    assert sorted(line.split() for line in lines[1:]) == [
        ["away", "$share/g/jobs", "1", "no", "1", "0"],
        ["busy", "$share/g/jobs", "1", "yes", "0", "0"],
    ]


def retain(broker: Broker, *topics: str) -> None:
    for topic in topics:
        broker.publish(topic, topic.encode(), retain=True, qos=1)


def test_retained_messages_are_listed_and_printed(ask: Callable[..., str], broker: Broker) -> None:
    retain(broker, "plant/1/a", "plant/1/b", "road")

    lines = ask("retained").splitlines()
    some = json.loads(ask("retained", "list", "--filter", "plant/#", "--json"))["items"]

    assert [line.split()[0] for line in lines] == ["TOPIC", "plant/1/a", "plant/1/b", "road"]
    assert [item["topic"] for item in some] == ["plant/1/a", "plant/1/b"]
    assert ask("retained", "get", "plant/1/a") == "plant/1/a"
    assert json.loads(ask("retained", "get", "road", "--json"))["payload"] == "road"


def test_a_payload_is_escaped_on_a_terminal_only(
    ask: Callable[..., str], broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.publish("road", b"\x1b[2J\n", retain=True, qos=1)

    assert ask("retained", "get", "road") == "\x1b[2J\n"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert ask("retained", "get", "road") == "\\x1b[2J\n"


def test_retained_messages_are_removed_by_their_confirmed_number(
    ask: Callable[..., str], run: Run, broker: Broker, tmp_path: pathlib.Path
) -> None:
    retain(broker, "plant/1/a", "plant/1/b", "road")
    delete = ("retained", "delete", "plant/#", "--data", tmp_path / "data")

    counted = run(*delete)
    wrong = run(*delete, "--yes", 3)
    done = run(*delete, "--yes", 2)

    assert (counted.status, wrong.status, done.status) == (1, 1, 0)
    assert "2 retained messages match" in counted.out
    assert "nothing was removed: --yes 2 removes them" in counted.error
    assert "the filter matches 2 retained messages now" in wrong.error
    assert [item["topic"] for item in json.loads(ask("retained", "--json"))["items"]] == ["road"]


def test_an_export_is_imported(
    ask: Callable[..., str], broker: Broker, tmp_path: pathlib.Path
) -> None:
    retain(broker, "plant/1", "plant/ü %2F")
    (tmp_path / "export").write_text(ask("retained", "export"))
    ask("retained", "delete", "#", "--yes", 2)

    assert ask("retained", "import", tmp_path / "export") == "2 messages imported\n"
    assert ask("retained", "get", "plant/ü %2F") == "plant/ü %2F"


def test_a_large_export_is_imported_in_several_requests(
    ask: Callable[..., str], broker: Broker, tmp_path: pathlib.Path
) -> None:
    for number in range(1_100):
        broker.publish(f"small/{number}", b"x", retain=True)
    for number in range(5):
        broker.publish(f"large/{number}", bytes([number]) * 60_000, retain=True)
    (tmp_path / "export").write_text(ask("retained", "export"))
    ask("retained", "delete", "#", "--yes", 1_105)

    assert ask("retained", "import", tmp_path / "export") == "1105 messages imported\n"

    assert len(ask("retained", "--limit", 0).splitlines()) == 1_106
    assert ask("retained", "get", "large/3") == "\x03" * 60_000


def test_an_empty_payload_is_not_imported(
    run: Run, ask: Callable[..., str], broker: Broker, tmp_path: pathlib.Path
) -> None:
    retain(broker, "a")
    (tmp_path / "export").write_text('{"topic": "a", "payload_base64": "", "qos": 1}\n')

    done = run("retained", "import", tmp_path / "export", "--data", tmp_path / "data")

    assert (done.status, done.out) == (2, "")
    assert "line 1" in done.error
    assert ask("retained", "get", "a") == "a"


def test_a_file_that_is_no_export_is_refused(
    run: Run, broker: Broker, tmp_path: pathlib.Path
) -> None:
    assert broker.is_running
    (tmp_path / "export").write_text('{"topic": "a"}\n')

    done = run("retained", "import", tmp_path / "export", "--data", tmp_path / "data")

    assert done.status == 2
    assert "line 1 is not a line of `mqttcore retained export`" in done.error


def test_topics_are_a_tree(ask: Callable[..., str], broker: Broker) -> None:
    retain(broker, "plant/1/a", "plant/1/b", "plant/2/a", "road", "plant")

    with Wire(broker.port) as wire:
        wire.connect("watcher")
        wire.subscribe(("plant/1/+", 1))

        assert ask("topics").splitlines() == ["plant  4", "  1  2", "  2  1", "road  1"]
        assert ask("topics", "plant", "--depth", 0).splitlines() == [
            "1  2",
            "  a  1  1 subscriber",
            "  b  1  1 subscriber",
            "2  1",
            "  a  1",
        ]
    [plant, road] = json.loads(ask("topics", "--depth", 1, "--json"))["items"]
    assert (plant["topic"], plant["retained"], plant["messages"]) == ("plant", True, 4)
    assert (road["topic"], road["retained"], road["messages"]) == ("road", True, 1)


def test_streams_are_listed_by_partition(ask: Callable[..., str], broker: Broker) -> None:
    broker.publish("plant/1", b"x", qos=1)

    titles, *rows = ask("streams").splitlines()

    assert titles.split()[:3] == ["STREAM", "PARTITION", "EARLIEST"]
    assert rows[0].split()[:2] == ["plant", "0"]
    assert json.loads(ask("streams", "--json"))["items"][0]["name"] == "plant"


def test_long_lists_are_cut_with_a_note_or_printed_whole(
    run: Run, broker: Broker, tmp_path: pathlib.Path
) -> None:
    retain(broker, *(f"road/{number:04}" for number in range(1_200)))
    where = ("--data", tmp_path / "data")

    some = run("retained", *where, "--limit", 5)
    everything = run("retained", *where, "--limit", 0)
    default = run("retained", *where)

    assert len(some.out.splitlines()) == 1 + 5
    assert some.error == "there are more: --limit 0 prints all\n"
    assert len(everything.out.splitlines()) == 1 + 1_200
    assert everything.error == ""
    assert len(default.out.splitlines()) == 1 + 100


def test_a_key_is_sent_over_tcp(run: Run, broker: Broker, tmp_path: pathlib.Path) -> None:
    assert broker.http_address is not None
    host, port = broker.http_address
    url = ("--url", f"http://{host}:{port}")
    (tmp_path / "wrong").write_text("0000000000000000")

    assert run("clients", *url, "--key-file", tmp_path / "token").status == 0
    without = run("clients", *url)
    wrong = run("clients", *url, "--key-file", tmp_path / "wrong")

    assert (without.status, wrong.status) == (4, 4)
    assert without.error.startswith("mqttcore clients: ")


@pytest.mark.parametrize(
    ("arguments", "status", "why"),
    [
        (("clients", "show", "nobody"), 1, 'no client "nobody" has a session'),
        (("kick", "nobody"), 1, 'no client "nobody" has a session'),
        (("clients", "kick", "nobody"), 1, 'no client "nobody" has a session'),
        (("kick", "nobody", "--reason", "7"), 2, "no reason code with which a server disconnects"),
        (("retained", "get", "nothing"), 1, 'topic "nothing" has no retained message'),
        (("subs", "--topic", "a/#"), 2, "topic: "),
        (("retained", "--filter", "a/#/b"), 2, "filter: "),
        (("clients", "--ip", "nonsense"), 2, "ip: "),
    ],
)
def test_a_refusal_says_why(
    run: Run,
    broker: Broker,
    tmp_path: pathlib.Path,
    arguments: tuple[str, ...],
    status: int,
    why: str,
) -> None:
    assert broker.is_running

    done = run(*arguments, "--data", tmp_path / "data")

    assert (done.status, done.out) == (status, "")
    assert why in done.error


def test_a_broker_that_is_not_there_is_reported(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MQTTCORE__DATA", raising=False)

    absent = run("clients", "--data", tmp_path)
    unnamed = run("clients")
    wrong = run("clients", "--url", "ftp://host")

    assert absent.status == 3
    assert f"cannot ask {tmp_path}/http: " in absent.error
    assert "does a broker with [http] run on this folder?" in absent.error
    assert unnamed.status == 2
    assert "Give --data DIR" in unnamed.error
    assert wrong.status == 2


@pytest.mark.usefixtures("truck")
def test_the_variable_of_the_broker_names_the_folder(
    run: Run, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MQTTCORE__DATA", str(tmp_path / "data"))

    assert "truck/1" in run("clients").out


def test_keys_of_a_running_broker(
    ask: Callable[..., str], run: Run, tmp_path: pathlib.Path
) -> None:
    secret = ask("keys", "add", "grafana", "--scope", "view", "--expires", "2090-01-31").strip()
    added = json.loads(ask("keys", "add", "reader", "--scope", "rows", "--stream", "a", "--json"))

    assert secret.startswith("mq_")
    assert added["secret"].startswith("mq_")
    assert (added["name"], added["scopes"], added["streams"]) == ("reader", ["rows"], ["a"])
    listed = "grafana: view, expires 2090-01-31\nreader: rows, streams a\n"
    assert ask("keys", "list") == listed
    assert run("keys", "list", tmp_path / "keys.toml").out == listed
    assert [key["name"] for key in json.loads(ask("keys", "list", "--json"))["items"]] == [
        "grafana",
        "reader",
    ]

    assert ask("keys", "revoke", "grafana") == ""
    again = run("keys", "revoke", "grafana", "--data", tmp_path / "data")
    both = run("keys", "list", tmp_path / "keys.toml", "--data", tmp_path / "data")

    assert ask("keys", "list") == "reader: rows, streams a\n"
    assert (again.status, again.error) == (
        1,
        'mqttcore keys: there is no key named "grafana"\n',
    )
    assert (both.status, both.out) == (2, "")


def test_the_audit_log_of_a_running_broker(
    ask: Callable[..., str], run: Run, tmp_path: pathlib.Path
) -> None:
    ask("keys", "add", "first", "--scope", "view")
    ask("keys", "revoke", "first")

    lines = ask("audit", "show").splitlines()
    found = [json.loads(line) for line in ask("audit", "show", "--json").splitlines()]
    both = run("audit", "show", tmp_path / "data", "--data", tmp_path / "data")

    assert [one["action"] for one in found] == ["POST /keys", "DELETE /keys/{name}"]
    assert lines == run("audit", "show", tmp_path / "data").out.splitlines()
    assert ask("audit", "show", "--who", "nobody") == ""
    assert run("audit", "tail", tmp_path / "data", "--url", "http://127.0.0.1:1").status == 2
    assert (both.status, both.out) == (2, "")


@pytest.mark.parametrize(
    ("before", "last", "shown"), [([], 10, []), (["a", "b", "c"], 2, ["b", "c"]), (["a"], 0, [])]
)
def test_audit_tail_of_a_running_broker_prints_each_change_once(
    broker: Broker, tmp_path: pathlib.Path, before: list[str], last: int, shown: list[str]
) -> None:
    for name in before:
        broker.ban(client_id=name)
    later = iter([[], ["d", "e"], [], ["f"]])

    def wait() -> None:
        for name in next(later):
            broker.ban(client_id=name)

    options = argparse.Namespace(data=str(tmp_path / "data"), url=None, key_file=None, cafile=None)
    with Api(options) as api:
        found = audit.follow_broker(api, last=last, who="program", wait=wait)
        targets = [next(found)["target"] for _ in range(len(shown) + 3)]

    assert targets == [f"client_id {name}" for name in [*shown, "d", "e", "f"]]
