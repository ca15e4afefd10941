"""The control socket of a running broker, in its data folder, for tools such as `store backup`.

A request is one line of JSON, ``{"do": "backup", "with": "/copy"}``; so is the answer, with
``"done"`` or ``"error"``. If a request has ``"progress": true``, lines with ``"copied"`` may come
before the answer. Only users who may enter the folder can reach the socket.
"""

import contextlib
import json
import os
import pathlib
import socket
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from mqttcore._core import CopyProgress
from mqttcore._log import logger
from mqttcore._socket_path import short
from mqttcore.auditing import Caller, called_by
from mqttcore.errors import MqttError, StoreError

log = logger("mqttcore")

NAME: Final = "control"
LONGEST_LINE: Final = 64 * 1_024
PATIENCE_S: Final = 5.0
JOIN_TIMEOUT_S: Final = 1.0
BEAT_S: Final = 1.0
"""Interval in which a broker that works on a request sends a space before its answer."""
SILENCE_S: Final = 30.0
"""Seconds of silence after which a broker counts as not answering."""

Action = Callable[[str, CopyProgress], object]
"""Does a request; the result must fit into JSON."""
Actions = Mapping[str, Action]
Tell = Callable[[int, int, int | None], None]
"""Called with the bytes that are copied, those of the whole copy, and the seconds left if known."""


class NobodyThereError(MqttError):
    """No broker is running on the folder."""


class Control:
    """Listens in a folder until it is stopped; one request at a time, on its own thread."""

    def __init__(self, folder: pathlib.Path, actions: Actions) -> None:
        self._path = folder.absolute() / NAME
        self._actions = actions
        self._socket = socket.socket(socket.AF_UNIX)
        # Only this broker uses the folder: an existing socket is from a broker that was killed.
        self._path.unlink(missing_ok=True)
        try:
            # Linux creates the file with the mode of the socket, so it is never open to others.
            os.fchmod(self._socket.fileno(), 0o600)
            with short(self._path) as address:
                self._socket.bind(address)
            self._socket.listen()
        except OSError:
            self._socket.close()
            raise
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="mqttcore-control", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stops listening. A request that takes longer than a moment is abandoned."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join(JOIN_TIMEOUT_S)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _run(self) -> None:
        while True:
            try:
                line, _ = self._socket.accept()
            except OSError as error:
                if self._stopped.wait(BEAT_S):
                    return
                log.warning("control: %s", error)
                continue
            with line:
                try:
                    self._answer(line)
                except OSError as error:
                    log.info("control: %s", error)
                except Exception:  # one request must not end all that come behind it
                    log.exception("control: a request failed")

    def _answer(self, line: socket.socket) -> None:
        line.settimeout(PATIENCE_S)
        with line.makefile("rb") as lines:
            request = lines.readline(LONGEST_LINE)
        answer: dict[str, object]
        try:
            asked = json.loads(request)
            action, argument = self._actions[asked["do"]], str(asked["with"])
            is_told = asked.get("progress") is True
        except (KeyError, TypeError, ValueError, RecursionError):
            answer = {"error": "unknown request for this version"}
        else:
            progress = CopyProgress()
            with (
                repeated(lambda: line.sendall(beat(progress) if is_told else b" ")),
                called_by(peer_of(line)),
            ):
                answer = self._do(action, argument, progress)
        line.sendall(json.dumps(answer).encode() + b"\n")

    @staticmethod
    def _do(action: Action, argument: str, progress: CopyProgress) -> dict[str, object]:
        try:
            return {"done": action(argument, progress)}
        except (MqttError, OSError, ValueError) as error:
            return {"error": str(error)}


def peer_of(line: socket.socket) -> Caller:
    """The user at the other end."""
    ids = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", ids)
    return Caller(who=f"user {user}", how="control")


def beat(progress: CopyProgress) -> bytes:
    """How far a copy is; a space while that is unknown: JSON may begin with spaces."""
    if progress.total is None:
        return b" "
    copied = [progress.done, progress.total, progress.eta_s]
    return json.dumps({"copied": copied}).encode() + b"\n"


@contextlib.contextmanager
def repeated(do: Callable[[], None]) -> Iterator[None]:
    """Calls `do` every `BEAT_S` while the block runs."""
    done = threading.Event()

    def run() -> None:
        with contextlib.suppress(OSError):  # who asked has gone
            while not done.wait(BEAT_S):
                do()

    beats = threading.Thread(target=run, name="mqttcore-beat", daemon=True)
    beats.start()
    try:
        yield
    finally:
        done.set()
        beats.join()


def ask(folder: pathlib.Path, action: str, argument: str, tell: Tell | None = None) -> int:
    """Like `request`, for answers that are numbers."""
    done = request(folder, action, argument, tell)
    if not isinstance(done, int):
        raise StoreError(f"{folder}: its broker gave an answer that is no number")
    return done


def request(folder: pathlib.Path, action: str, argument: str, tell: Tell | None = None) -> object:
    """Sends a request to the broker that runs on `folder`, and waits for the result.

    `tell` is called about once a second while the broker copies.

    Raises:
        NobodyThereError: none does.
        StoreError: it could not be done, or the broker ended meanwhile, or says nothing any more.
    """
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(SILENCE_S)
        try:
            with short(folder / NAME) as address:
                line.connect(address)
        except OSError as error:
            raise NobodyThereError(str(error)) from error
        try:
            asked = {"do": action, "with": argument, "progress": tell is not None}
            line.sendall(json.dumps(asked).encode() + b"\n")
            with line.makefile("rb") as lines:
                found = answer_in(lines, tell)
        except TimeoutError as error:
            raise StoreError(
                f"{folder}: its broker did not answer within {SILENCE_S:g} s"
            ) from error
        except OSError as error:
            raise StoreError(f"the broker ended before the request was done: {error}") from error
    if "error" in found:
        raise StoreError(found["error"])
    return found["done"]


def answer_in(lines: Iterable[bytes], tell: Tell | None) -> dict[str, Any]:
    """The answer, which is the first line that does not say how far a copy is."""
    for line in lines:
        if not line.endswith(b"\n"):
            break
        found: dict[str, Any] = json.loads(line)
        if tell is None or "copied" not in found:
            return found
        tell(*found["copied"])
    raise StoreError("the broker ended before the request was done")
