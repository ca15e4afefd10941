"""The client of the commands, against a server that loses connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from mqttcore.cli import client as client_module

from tests.cli.conftest import Run
from tests.wire import split_var_int

CONNACK = bytes.fromhex("20 03 00 00 00")
RESUMED = bytes.fromhex("20 03 01 00 00")


def packets(line: socket.socket, count: int) -> list[bytes]:
    """The next packets of a client."""
    found: list[bytes] = []
    unread = b""
    while len(found) < count:
        part = line.recv(4_096)
        assert part, f"the client closed the connection after {found}"
        unread += part
        while (split := split_var_int(unread[1:])) and len(split[1]) >= split[0]:
            length = len(unread) - len(split[1]) + split[0]
            found.append(unread[:length])
            unread = unread[length:]
    assert len(found) == count
    return found


@contextmanager
def server(*connections: Callable[[socket.socket], None]) -> Iterator[int]:
    """A server that treats each connection with one of these; yields its port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            for treat in connections:
                line, _ = listener.accept()
                with line:
                    line.settimeout(10)
                    treat(line)

        thread = threading.Thread(target=serve)
        thread.start()
        yield listener.getsockname()[1]
        thread.join()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "FIRST_PAUSE_S", 0.0)


def taking(
    seen: list[bytes], connack: bytes, answer: str = "", *, before: str = ""
) -> Callable[[socket.socket], None]:
    """A connection that takes a packet, and is lost then; with ``answer``, it goes on to the end.

    With ``before``, there is one more packet in front, which has this answer.
    """

    def treat(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(connack)
        if before:
            packets(line, 1)
            line.sendall(bytes.fromhex(before))
        seen.extend(packets(line, 1))
        if answer:
            line.sendall(bytes.fromhex(answer))
            packets(line, 1)

    return treat


def test_a_message_without_acknowledgement_is_sent_again_with_dup(run: Run) -> None:
    seen: list[bytes] = []

    with server(taking(seen, CONNACK), taking(seen, RESUMED, "40 02 00 01")) as port:
        done = run("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1, "-c", "-i", "me")

    first, second = seen
    assert done.status == 0
    assert (first[0], second[0]) == (0x32, 0x3A)
    assert first[1:] == second[1:]


def test_a_new_session_gets_the_message_anew(run: Run) -> None:
    seen: list[bytes] = []

    with server(taking(seen, CONNACK), taking(seen, CONNACK, "40 02 00 01")) as port:
        assert run("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1).status == 0

    assert seen[0] == seen[1]


def test_a_released_message_is_released_again(run: Run) -> None:
    seen: list[bytes] = []
    lose = taking(seen, CONNACK, before="50 02 00 01")

    with server(lose, taking(seen, RESUMED, "70 02 00 01")) as port:
        assert run("pub", "-p", port, "-t", "a", "-m", "x", "-q", 2, "-c", "-i", "me").status == 0

    assert seen[0] == seen[1] == bytes.fromhex("62 02 00 01")


def test_a_qos_2_message_that_comes_twice_is_printed_once(run: Run) -> None:
    message = bytes.fromhex("34 06 00 01 61 00 07 00")

    def send_twice(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        packets(line, 1)
        line.sendall(bytes.fromhex("90 04 00 01 00 02") + message)
        assert packets(line, 1) == [bytes.fromhex("50 02 00 07")]
        line.sendall(bytes([message[0] | 8]) + message[1:])
        assert packets(line, 1) == [bytes.fromhex("50 02 00 07")]
        line.sendall(bytes.fromhex("62 02 00 07"))
        assert packets(line, 1) == [bytes.fromhex("70 02 00 07")]
        line.sendall(bytes.fromhex("30 05 00 01 61 00 65"))
        packets(line, 1)

    with server(send_twice) as port:
        done = run("sub", "-p", port, "-t", "a", "-q", 2, "-C", 2, "-F", "%q%p")

    assert done.out == "2\n0e\n"


def test_the_send_quota_is_that_of_the_broker(run: Run) -> None:
    def hold(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(bytes.fromhex("20 06 00 00 03 21 00 02"))
        packets(line, 2)
        line.setblocking(False)
        with pytest.raises(BlockingIOError):
            line.recv(1)
        line.settimeout(10)
        line.sendall(bytes.fromhex("40 02 00 01 40 02 00 02"))
        packets(line, 1)
        line.sendall(bytes.fromhex("40 02 00 03"))
        packets(line, 1)

    with server(hold) as port:
        done = run("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1, "--repeat", 3)

    assert done.status == 0


def test_what_is_not_mqtt_is_reported(run: Run) -> None:
    def answer(line: socket.socket) -> None:
        line.recv(4_096)
        line.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with server(answer) as port:
        done = run("pub", "-p", port, "-t", "a", "-m", "x")

    assert done.status == 3
    assert f"mqttcore pub: localhost:{port}: " in done.error


@pytest.mark.parametrize("command", ["pub", "sub"])
@pytest.mark.parametrize(
    ("reason", "name"), [(0x82, "Protocol Error"), (0x87, "Not authorized"), (0x95, "too large")]
)
def test_a_refusal_that_does_not_pass_ends_the_command(
    run: Run, command: str, reason: int, name: str
) -> None:
    def refuse(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        packets(line, 1)
        line.sendall(bytes([0xE0, 2, reason, 0]))

    payload = ("-m", "x") if command == "pub" else ()
    with server(refuse) as port:
        done = run(command, "-p", port, "-t", "a", "-q", 1, *payload)

    assert done.status == 4
    assert name.lower() in done.error.lower()


def test_a_message_that_is_never_acknowledged_is_not_sent_for_ever(run: Run) -> None:
    def lose(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        packets(line, 1)

    def accept(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)

    with server(*[lose] * client_module.FRUITLESS, accept) as port:
        done = run("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1)

    assert done.status == 3
    assert "without an acknowledgement" in done.error


@pytest.mark.parametrize(
    ("limits", "options", "what"),
    [
        ("27 00 00 00 10", ("-q", 0), "a packet of 37 bytes: the limit is 16"),
        ("24 00", ("-q", 1), "messages of QoS 1"),
        ("25 00", ("-r",), "retained messages"),
    ],
)
def test_what_the_broker_does_not_take_is_not_sent(
    run: Run, limits: str, options: tuple[object, ...], what: str
) -> None:
    unwanted: list[bytes] = []

    def limit(line: socket.socket) -> None:
        packets(line, 1)
        properties = bytes.fromhex(limits)
        body = bytes([0, 0, len(properties)]) + properties
        line.sendall(bytes([0x20, len(body)]) + body)
        unwanted.append(line.recv(4_096))

    with server(limit) as port:
        done = run("pub", "-p", port, "-t", "a", "-m", "x" * 31, *options)

    assert done.status == 4
    assert f"does not take {what}" in done.error
    assert unwanted == [b""]


@pytest.mark.parametrize(("qos", "answer"), [(1, 0x40), (2, 0x50)])
def test_what_is_not_printed_is_not_acknowledged(run: Run, qos: int, answer: int) -> None:
    seen: list[bytes] = []

    def send_three(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        packets(line, 1)
        messages = [bytes([0x30 | qos << 1, 6, 0, 1, 0x61, 0, number, 0]) for number in (7, 8, 9)]
        line.sendall(b"".join([bytes.fromhex("90 04 00 01 00 02"), *messages]))
        seen.extend(packets(line, 2))

    with server(send_three) as port:
        run("sub", "-p", port, "-t", "a", "-q", qos, "-c", "-i", "me", "-C", 1)

    assert seen == [bytes([answer, 2, 0, 7]), bytes.fromhex("e0 00")]


@pytest.mark.parametrize("command", ["pub", "sub"])
def test_control_characters_of_a_broker_are_escapes(run: Run, command: str) -> None:
    told = "\x1b]0;owned\x07\x9b2J".encode()
    properties = bytes([0x1F, 0, len(told)]) + told

    def end(*packet: int) -> bytes:
        body = bytes([*packet[1:], len(properties)]) + properties
        return bytes([packet[0], len(body)]) + body

    def lose(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        packets(line, 1)
        if command == "sub":
            line.sendall(bytes.fromhex("90 04 00 01 00 01"))
        line.sendall(end(0xE0, 0x8B))

    def refuse(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(end(0x20, 0, 0x87))

    payload = ("-m", "x") if command == "pub" else ()
    with server(lose, refuse) as port:
        done = run(command, "-d", "-p", port, "-t", "a", "-q", 1, *payload)

    assert done.status == 4
    assert done.error.count(r"\x1b]0;owned\x07\x9b2J") == 2
    assert done.error.replace("\n", "").isprintable()


def test_quiet_means_no_word_about_reconnects(run: Run) -> None:
    def lose(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        packets(line, 1)

    def take(line: socket.socket) -> None:
        lose(line)
        line.sendall(bytes.fromhex("40 02 00 01"))
        packets(line, 1)

    with server(lose, take) as port:
        done = run("pub", "-p", port, "-t", "a", "-m", "x", "-q", 1, "--quiet")

    assert done == (0, "", "")


def test_an_interrupted_client_disconnects(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []

    def accept(line: socket.socket) -> None:
        packets(line, 1)
        line.sendall(CONNACK)
        seen.extend(packets(line, 1))

    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(client_module.MqttClient, "subscribe", interrupt)
    with server(accept) as port:
        done = run("sub", "-p", port, "-t", "a", "--will-topic", "gone")

    assert done.status == 130
    assert seen == [bytes.fromhex("e0 00")]


@pytest.mark.parametrize("count", ["0", "-1", "65536"])
def test_the_send_quota_allows_a_message(run: Run, count: str) -> None:
    done = run("pub", "-M", count, "-t", "a", "-m", "x", "-p", 1)

    assert done.status == 2
    assert "the number is from 1 to 65535" in done.error
