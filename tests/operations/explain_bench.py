"""`python -m tests.operations.explain_bench`: explanations while the rings of all shards are full.

Each of 64 clients makes more events than a shard keeps, so that the ring of each shard is full.
Another process asks, one question at a time: what would happen to a message for 1,000 receivers,
and what has happened. Meanwhile this process measures round trips of QoS 0 messages. Prints
milliseconds; the exit status is 1 if the median of a question is above 50 ms.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import pathlib
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from typing import Final, NamedTuple

from mqttcore import Broker, Settings
from mqttcore._socket_path import short
from mqttcore.config import HttpListener, Listener, ServerLimits

from tests.operations.api import Api, UnixConnection
from tests.operations.list_bench import Times, round_trips
from tests.wire import Wire

GOAL_MS: Final = 50.0
ASKED: Final = 100
"""How often each question is asked."""
CLIENTS: Final = 64
"""Clients that fill the rings; by their identifiers, each shard has some of them."""
RING_BYTES: Final = 2 << 20
"""Bytes of the rings of all shards together (ADR 0057)."""
EVENT_BYTES: Final = 200
"""An event has at least as many."""
FILTERS: Final = 100
"""Filters in one packet."""
RECEIVERS: Final = 1_000
TOPIC: Final = "plant/1/temp"


class Question(NamedTuple):
    """A request to the API."""

    method: str
    path: str
    body: object = None


QUESTIONS: Final = {
    "before, 1,000 receivers": Question(
        "POST",
        "/explain/delivery",
        {"from": "client-0", "topic": TOPIC, "qos": 1, "bytes": 200, "limit": 1_000},
    ),
    "before, one receiver": Question(
        "POST", "/explain/delivery", {"topic": TOPIC, "qos": 1, "to": "receiver-0"}
    ),
    "after, the newest 1,000": Question("GET", "/explain/delivery?limit=1000"),
    "after, of a client": Question("GET", "/explain/delivery?client=client-63&since_s=3600"),
    "after, of no client": Question("GET", "/explain/delivery?client=nobody"),
    "after, on a topic": Question("GET", f"/explain/delivery?topic={TOPIC}/other"),
}


def make_receivers(port: int) -> None:
    """Makes kept sessions that subscribe to the topic, and are not connected."""
    for number in range(RECEIVERS):
        with Wire(port) as wire:
            wire.connect(f"receiver-{number}", props={"session_expiry_interval": 86_400})
            wire.subscribe((TOPIC, 1))


def fill_rings(port: int, shards: int) -> None:
    """Subscribes and unsubscribes, until each client has made more events than a shard keeps."""
    rounds = RING_BYTES // shards // EVENT_BYTES // (2 * FILTERS) + 1
    filters = [f"plant/{number}/#" for number in range(1_000, 1_000 + FILTERS)]
    for number in range(CLIENTS):
        with Wire(port) as wire:
            wire.connect(f"client-{number}", props={"session_expiry_interval": 86_400})
            for _ in range(rounds):
                wire.subscribe(*filters)
                wire.unsubscribe(*filters)


def ask(connection: UnixConnection, question: Question) -> float:
    """Asks; returns the milliseconds until the whole answer is there."""
    body = None if question.body is None else json.dumps(question.body)
    headers = {} if body is None else {"Content-Type": "application/json"}
    begun = time.perf_counter()
    connection.request(question.method, f"/api/v1{question.path}", body, headers)
    answer = connection.getresponse()
    content = answer.read()
    took_ms = 1e3 * (time.perf_counter() - begun)
    assert answer.status == 200, content
    return took_ms


def measure(folder: pathlib.Path, results: Connection) -> None:
    """Asks each question often; sends the times by question."""
    with short(folder / "http") as place, closing(UnixConnection(place)) as connection:
        found = {}
        for name, question in QUESTIONS.items():
            found[name] = Times.of(ask(connection, question) for _ in range(ASKED))
        results.send(found)


def keep_asking(folder: pathlib.Path, has_begun: Event, stop: Event) -> None:
    """Asks all questions in turn, again and again."""
    with short(folder / "http") as place, closing(UnixConnection(place)) as connection:
        while not stop.is_set():
            for question in QUESTIONS.values():
                ask(connection, question)
            has_begun.set()


def check_rings(folder: pathlib.Path) -> None:
    """Old events had to make room, and both kinds of questions are answered in full."""
    api = Api(folder)
    status, events = api.ask("GET", "/explain/delivery?limit=1000")
    assert (status, len(events["items"]), events["partial"]) == (200, 1_000, [])
    assert events["complete_since_ms"] is not None
    question = QUESTIONS["before, 1,000 receivers"]
    status, explained = api.ask(question.method, question.path, question.body)
    assert (status, len(explained["receivers"]["items"])) == (200, RECEIVERS), explained


def run(shards: int) -> tuple[dict[str, Times], dict[str, Times]]:
    """The times of the answers, and of round trips alone and beside questions."""
    with tempfile.TemporaryDirectory() as home:
        folder = pathlib.Path(home) / "data"
        settings = Settings(
            listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
            shards=shards,
            http=HttpListener(),
            data=str(folder),
            durability="memory",
            limits=ServerLimits(sessions=2 * RECEIVERS, user_sessions=2 * RECEIVERS),
        )
        with Broker(settings) as broker:
            make_receivers(broker.port)
            fill_rings(broker.port, shards)
            check_rings(folder)
            found, results = multiprocessing.Pipe(duplex=False)
            asking = multiprocessing.Process(target=measure, args=(folder, results))
            asking.start()
            results.close()
            answers: dict[str, Times] = found.recv()
            asking.join()
            trips = {"alone": round_trips(broker.port)}
            has_begun, stop = multiprocessing.Event(), multiprocessing.Event()
            asking = multiprocessing.Process(target=keep_asking, args=(folder, has_begun, stop))
            asking.start()
            has_begun.wait()
            trips["beside questions"] = round_trips(broker.port)
            stop.set()
            asking.join()
    return answers, trips


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs it; returns the exit status."""
    made = argparse.ArgumentParser(prog="python -m tests.operations.explain_bench")
    made.add_argument("--shards", type=int, default=4, help="shards of the broker (default: 4)")
    made.add_argument("--json", action="store_true", help="print JSON")
    options = made.parse_args(arguments)
    answers, trips = run(options.shards)
    is_met = all(taken.median_ms <= GOAL_MS for taken in answers.values())
    if options.json:
        figures = {
            "shards": options.shards,
            "goal_ms": GOAL_MS,
            "is_met": is_met,
            "answers": {name: taken._asdict() for name, taken in answers.items()},
            "round_trips": {name: taken._asdict() for name, taken in trips.items()},
        }
        print(json.dumps(figures))
        return int(not is_met)
    for name, taken in answers.items():
        print(f"{name}: {taken}")
    for name, taken in trips.items():
        print(f"round trip {name}: {taken}")
    return int(not is_met)


if __name__ == "__main__":
    sys.exit(main())
