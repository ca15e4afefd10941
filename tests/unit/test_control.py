"""The socket of a running broker for tools: one request never ends those that come behind it."""

import json
import pathlib
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from mqttcore import control
from mqttcore._core import CopyProgress, store_backup
from mqttcore._socket_path import short
from mqttcore.control import NAME, Control, NobodyThereError, ask
from mqttcore.errors import StoreError

NOT_KNOWN = "unknown request"


def done(argument: str, _: object) -> int:
    """Takes as long as the path has bytes, in bytes."""
    return len(argument.encode())


def broken(argument: str, _: object) -> int:
    """A fault of ours."""
    raise AssertionError(argument)


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> Iterator[pathlib.Path]:
    running = Control(tmp_path, {"backup": done, "break": broken})
    yield tmp_path
    running.stop()


def said(folder: pathlib.Path, request: bytes) -> bytes:
    """What a request is answered with."""
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(20)
        with short(folder / NAME) as address:
            line.connect(address)
        line.sendall(request + b"\n")
        with line.makefile("rb") as lines:
            return lines.readline()


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (rb'{"do": "backup", "with": "\ud800"}', b"surrogates not allowed"),
        (b"[" * 60_000, NOT_KNOWN.encode()),
        (b"\xff", NOT_KNOWN.encode()),
        (b"{}", NOT_KNOWN.encode()),
        (b'{"do": [], "with": "x"}', NOT_KNOWN.encode()),
        (b'{"do": "break", "with": "x"}', b""),
    ],
)
def test_an_odd_request_ends_nothing_but_itself(
    folder: pathlib.Path, request_: bytes, answer: bytes
) -> None:
    assert answer in said(folder, request_)

    assert ask(folder, "backup", "/copy") == 5


def test_a_request_that_takes_long_is_waited_for(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "BEAT_S", 0.01)
    beats = threading.Event()
    sent: list[bytes] = []

    class Line(socket.socket):
        """Records what is read, and says when two beats have come."""

        def recv_into(self, *given: object, **named: object) -> int:
            count = super().recv_into(*given, **named)  # type: ignore[arg-type]
            sent.append(bytes(memoryview(given[0])[:count]))  # type: ignore[arg-type]
            if b"".join(sent).count(b" ") > 1:
                beats.set()
            return count

    def slow(*_: object) -> int:
        assert beats.wait(20)
        return 7

    running = Control(tmp_path, {"backup": slow})
    monkeypatch.setattr("mqttcore.control.socket.socket", Line)
    try:
        assert ask(tmp_path, "backup", "/copy") == 7
    finally:
        monkeypatch.undo()
        running.stop()


@pytest.mark.parametrize("is_told", [True, False])
def test_how_far_a_copy_is_is_said_to_who_asks_for_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, is_told: bool
) -> None:
    monkeypatch.setattr(control, "BEAT_S", 0.01)
    source = tmp_path / "source"
    source.mkdir()
    (source / "00000000000000000001.log").write_bytes(b"12345")
    is_copied, may_end = threading.Event(), threading.Event()

    def copy(to: str, progress: CopyProgress) -> int:
        copied = store_backup(source, to, progress)
        is_copied.set()
        assert may_end.wait(20)
        return copied

    running = Control(tmp_path, {"backup": copy})
    try:
        with socket.socket(socket.AF_UNIX) as line, line.makefile("rb") as lines:
            line.settimeout(20)
            with short(tmp_path / NAME) as address:
                line.connect(address)
            asked = {"do": "backup", "with": str(tmp_path / "copy"), "progress": is_told}
            line.sendall(json.dumps(asked).encode() + b"\n")
            assert is_copied.wait(20)
            if is_told:
                assert json.loads(lines.readline()) == {"copied": [5, 5, 0]}
            else:
                assert lines.read(5) == b" " * 5
            may_end.set()
            assert json.loads(lines.readlines()[-1]) == {"done": 5}
    finally:
        may_end.set()
        running.stop()


@pytest.fixture
def impostor(tmp_path: pathlib.Path) -> Iterator[Callable[[Callable[[socket.socket], None]], None]]:
    """Answers one connection as it is told."""
    listening = socket.socket(socket.AF_UNIX)
    with short(tmp_path / NAME) as address:
        listening.bind(address)
    listening.listen()
    threads = []

    def acting(act: Callable[[socket.socket], None]) -> None:
        def run() -> None:
            line, _ = listening.accept()
            with line:
                act(line)

        threads.append(threading.Thread(target=run))
        threads[-1].start()

    yield acting
    for thread in threads:
        thread.join(20)
    listening.close()


def test_who_asks_is_told_how_far_a_copy_is(
    impostor: Callable[[Callable[[socket.socket], None]], None], tmp_path: pathlib.Path
) -> None:
    asked: list[bytes] = []

    def copy(line: socket.socket) -> None:
        asked.append(line.recv(1024))
        line.sendall(b'  {"copied": [1, 8, null]}\n{"copied": [4, 8, 2]}\n {"done": 8}\n')

    impostor(copy)
    told: list[tuple[int, int, int | None]] = []

    assert ask(tmp_path, "backup", "/copy", lambda *copied: told.append(copied)) == 8

    assert told == [(1, 8, None), (4, 8, 2)]
    assert json.loads(asked[0]) == {"do": "backup", "with": "/copy", "progress": True}


@pytest.mark.parametrize("answer", [b"", b"   ", b'{"done"'])
def test_a_broker_that_ended_has_not_done_it(
    tmp_path: pathlib.Path,
    impostor: Callable[[Callable[[socket.socket], None]], None],
    answer: bytes,
) -> None:
    def end(line: socket.socket) -> None:
        line.recv(1_000)
        line.sendall(answer)

    impostor(end)

    with pytest.raises(StoreError, match="ended before the request was done"):
        ask(tmp_path, "backup", "/copy")


def test_a_broker_that_says_nothing_any_more_is_not_waited_for(
    tmp_path: pathlib.Path,
    impostor: Callable[[Callable[[socket.socket], None]], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(control, "SILENCE_S", 0.05)
    given_up = threading.Event()

    def be_silent(_: socket.socket) -> None:
        given_up.wait(20)

    impostor(be_silent)

    with pytest.raises(StoreError, match=r"did not answer within 0\.05 s"):
        ask(tmp_path, "backup", "/copy")
    given_up.set()


def test_nobody_is_there_when_it_has_stopped(tmp_path: pathlib.Path) -> None:
    Control(tmp_path, {}).stop()

    with pytest.raises(NobodyThereError):
        ask(tmp_path, "backup", "/copy")
