"""`make tier` in small, and proof that its books notice a loss, a repeat and a wrong window."""

from __future__ import annotations

import dataclasses
import datetime
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.marks import NIGHTLY
from tests.pipeline import store_server
from tests.pipeline.gate import Gate
from tests.pipeline.tier import torment
from tests.pipeline.tier_books import Books, verdict

START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
MARK_US = int((START + datetime.timedelta(seconds=10)).timestamp()) * 1_000_000
PATIENCE_S = 10.0


def reading(offset: int, number: int, second: float) -> dict[str, Any]:
    """A row of bronze and of silver."""
    payload = json.dumps({"number": number}).encode()
    at = START + datetime.timedelta(seconds=second)
    values = {"machine": "m1", "number": number, "temperature": 20.0 + number, "at": at}
    return {"partition": 0, "offset": offset, "payload": payload, **values}


ROWS = [reading(0, 0, 1), reading(1, 1, 2), reading(2, 1, 2), reading(3, 2, 3), reading(4, 3, 11)]
"""The third repeats the second, the fourth is wrong; the last one is behind the watermark."""
SOUND = Books(
    rows=frozenset((0, offset) for offset in range(5)),
    acknowledged=5,
    bronze=ROWS,
    silver=[ROWS[0], ROWS[1], ROWS[4]],
    quarantine=[ROWS[3]],
    gold=[{"window_start": START, "machine": "m1", "measured": 2, "highest": 21.0}],
    mark_us=MARK_US,
)


def test_correct_counts_pass() -> None:
    found = verdict(SOUND)

    assert found.is_good, found
    assert (found.rows, found.silver, found.quarantine, found.repeats) == (5, 3, 1, 1)


@pytest.mark.parametrize(
    ("changes", "lost", "doubled", "wrong"),
    [
        ({"bronze": ROWS[:4]}, 1, 0, 0),
        ({"acknowledged": 6}, 1, 0, 0),
        ({"quarantine": []}, 1, 0, 0),
        ({"silver": [ROWS[0], ROWS[4]]}, 2, 0, 1),
        ({"silver": [ROWS[0], ROWS[1]]}, 1, 0, 0),
        ({"bronze": [*ROWS, ROWS[4]]}, 0, 1, 0),
        ({"silver": [ROWS[0], ROWS[1], ROWS[2], ROWS[4]]}, 0, 1, 1),
        ({"quarantine": [ROWS[3], ROWS[4]]}, 0, 1, 0),
        ({"quarantine": [ROWS[3], ROWS[3]]}, 0, 1, 0),
        ({"gold": []}, 0, 0, 1),
        ({"gold": [*SOUND.gold, *SOUND.gold]}, 0, 0, 1),
        ({"gold": [{**SOUND.gold[0], "measured": 3}]}, 0, 0, 1),
    ],
)
def test_wrong_counts_are_reported(
    changes: dict[str, Any], lost: int, doubled: int, wrong: int
) -> None:
    found = verdict(dataclasses.replace(SOUND, **changes))

    assert (found.lost, found.duplicates, found.wrong_windows) == (lost, doubled, wrong)
    assert not found.is_good


@pytest.fixture
def echo() -> Iterator[tuple[Gate, socket.socket]]:
    """A gate to a server that this test plays."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE_S)
        with Gate(server.getsockname()[1]) as gate:
            yield gate, server


def test_a_gate_that_refuses_ends_connections_and_opens_again(
    echo: tuple[Gate, socket.socket],
) -> None:
    gate, server = echo
    with socket.create_connection(("127.0.0.1", gate.port), PATIENCE_S) as client:
        client.sendall(b"one")
        store, _ = server.accept()
        with store:
            assert store.recv(9) == b"one"
            gate.shut("refused")
            assert client.recv(9) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", gate.port), PATIENCE_S)

    gate.open()

    with socket.create_connection(("127.0.0.1", gate.port), PATIENCE_S) as client:
        client.sendall(b"two")
        store, _ = server.accept()
        with store:
            assert store.recv(9) == b"two"


def test_a_silent_gate_holds_answers_back(echo: tuple[Gate, socket.socket]) -> None:
    gate, server = echo
    with socket.create_connection(("127.0.0.1", gate.port), PATIENCE_S) as client:
        client.sendall(b"ask")
        store, _ = server.accept()
        with store:
            assert store.recv(9) == b"ask"
            gate.shut("silent")
            store.sendall(b"answer")
            client.settimeout(0.2)
            with pytest.raises(TimeoutError):
                client.recv(9)
            client.settimeout(PATIENCE_S)

            gate.open()

            assert client.recv(9) == b"answer"


@NIGHTLY
@pytest.mark.timeout(1_200)
@pytest.mark.skipif(
    store_server.is_missing(), reason="moto is missing: make .make/moto installs it"
)
def test_rows_are_in_tables_of_a_store_once_after_kills_and_an_outage(tmp_path: Path) -> None:
    outcome = torment(tmp_path, kills=2, outages=1, seed=1)

    assert outcome.verdict.is_good, outcome.figures()
    assert outcome.verdict.rows > 1_000
