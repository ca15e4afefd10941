"""The rows of the table that need no other runtime than Python and Debian's packages."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.conftest import RunningBroker
from tests.interop.clients import CLIENTS, OPEN, VERSIONS, Client
from tests.interop.recorder import (
    HTTP_PORT,
    MQTT_PORT,
    Capture,
    Proxy,
    Unframed,
    read,
    tshark_is_missing,
)
from tests.interop.table import CHECKS, Row, cells, drive, markdown, plan, understand
from tests.websocket import BINARY, PING, frame

TESTED = [one for one in CLIENTS if one.in_tests]
# Over TLS they run in `make interop`: tshark cannot decode it.
ROWS = [row for row in plan(TESTED) if not row[0].why_not(*row[1:]) and row[2] in OPEN]


@pytest.fixture(scope="module")
def capture(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Capture]:
    """Where all that the clients of this module say is written down."""
    one = Capture(tmp_path_factory.mktemp("interop") / "interop.pcap")
    yield one
    one.close()


@pytest.fixture(scope="module")
def built() -> dict[str, bool]:
    """The clients whose driver is made already."""
    return {}


def ids(row: tuple[Client, int, str]) -> str:
    return f"{row[0].key}-{VERSIONS[row[1]]}-{row[2]}"


@pytest.mark.timeout(180)
@pytest.mark.parametrize("row", ROWS, ids=ids)
def test_a_client_can_do_everything(
    request: pytest.FixtureRequest,
    broker: RunningBroker,
    capture: Capture,
    built: dict[str, bool],
    row: tuple[Client, int, str],
) -> None:
    client, version, transport = row
    if why := client.lacks():
        pytest.skip(f"{client.name}: {why}")
    if not built.setdefault(client.key, False):
        client.build()
        built[client.key] = True
    framed = transport == "websocket"
    port = request.getfixturevalue("websocket_port") if framed else broker.port

    with Proxy(capture, port, HTTP_PORT if framed else MQTT_PORT) as proxy:
        done = drive(client, version, transport, proxy.port)

    assert done.faults == []
    assert [done.results[name] for name in done.expected] == ["yes"] * len(done.expected)


def test_tshark_decodes_all_that_they_said(capture: Capture) -> None:
    """The last of the rows: it reads what the others left."""
    if tshark_is_missing():
        pytest.skip("tshark is missing (Debian: tshark)")
    if not capture.connections:
        pytest.skip("no client has run")
    capture.close()

    reading = read(capture)

    assert reading.malformed == 0
    assert sum(reading.packets.values()) > 10 * capture.connections


def test_tshark_sees_what_is_malformed(tmp_path: pathlib.Path) -> None:
    """So that 0 malformed frames says something."""
    if tshark_is_missing():
        pytest.skip("tshark is missing (Debian: tshark)")
    capture = Capture(tmp_path / "bad.pcap")
    one = capture.begin(MQTT_PORT)
    capture.data(one, True, b"\x10\x0d\x00\x04MQTT\x04\x02\x00\x00\x00\x01w")
    capture.data(one, True, b"\x30\x04\x00\x09ab")
    capture.close()

    reading = read(capture)

    assert reading.malformed == 1
    assert reading.packets[1] == 1


def test_packets_are_taken_out_of_frames_however_they_come() -> None:
    stream = b"GET / HTTP/1.1\r\n\r\n" + frame(PING, b"no") + frame(BINARY, b"ab" * 100)

    for step in (1, 7, len(stream)):
        unframed = Unframed()
        parts = (stream[at : at + step] for at in range(0, len(stream), step))
        assert b"".join(unframed.feed(part) for part in parts) == b"ab" * 100


def row(printed: str, version: int = 5) -> Row:
    release, results = understand(printed)
    return Row(client=TESTED[0], version=version, transport="tcp", release=release, results=results)


def test_a_check_that_is_not_told_is_a_fault() -> None:
    told = "\n".join(f'{{"check": "{name}", "ok": true}}' for name in CHECKS[:3])

    found = row(f'{{"client": "x", "version": "1.2"}}\nnoise\n{told}')

    assert found.release == "1.2"
    assert found.faults == [f"{name}: no: the driver ended" for name in CHECKS[3:]]
    assert cells(found) == ["yes"] * 3 + ["no"] * 5


def test_the_page_names_what_failed_what_cannot_be_and_what_did_not_run() -> None:
    told = [f'{{"check": "{name}", "ok": true}}' for name in CHECKS[:5]]
    told += ['{"check": "will", "ok": false, "why": "late"}', '{"check": "resume", "na": "never"}']

    page = markdown([row("\n".join(told), version=4)], {"Other": "no runtime"}, "nothing said")

    assert "| 3.1.1 | tcp | yes | yes | yes | yes | yes | no | n/a |  |\n" in page
    for line in (
        "* paho-mqtt: never",
        "* Other: no runtime",
        "* paho-mqtt, 3.1.1, tcp: will: no: late",
    ):
        assert line in page.splitlines()
