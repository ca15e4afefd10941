"""The control socket of a running broker, in its data folder, for tools such as `store backup`.

A request is one line of JSON, ``{"do": "backup", "with": "/copy"}``; so is the answer, with
``"done"`` or ``"error"``. Only users who may enter the folder can reach the socket.
"""

import contextlib
import json
import logging
import os
import pathlib
import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Final

from mqttcore._socket_path import short
from mqttcore.auditing import Caller, called_by
from mqttcore.errors import MqttError, StoreError

log = logging.getLogger("mqttcore")

NAME: Final = "control"
LONGEST_LINE: Final = 64 * 1_024
PATIENCE_S: Final = 5.0
JOIN_TIMEOUT_S: Final = 1.0
BEAT_S: Final = 1.0
"""Interval in which a broker that works on a request sends a space before its answer."""
SILENCE_S: Final = 30.0
"""Seconds of silence after which a broker counts as not answering."""

Actions = Mapping[str, Callable[[str], object]]
"""Functions for requests; the results must fit into JSON."""


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
        except (KeyError, TypeError, ValueError, RecursionError):
            answer = {"error": "unknown request for this version"}
        else:
            with beating(line), called_by(peer_of(line)):
                answer = self._do(action, argument)
        line.sendall(json.dumps(answer).encode() + b"\n")

    @staticmethod
    def _do(action: Callable[[str], object], argument: str) -> dict[str, object]:
        try:
            return {"done": action(argument)}
        except (MqttError, OSError, ValueError) as error:
            return {"error": str(error)}


def peer_of(line: socket.socket) -> Caller:
    """The user at the other end."""
    ids = line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    _, user, _ = struct.unpack("3i", ids)
    return Caller(who=f"user {user}", how="control")


@contextlib.contextmanager
def beating(line: socket.socket) -> Iterator[None]:
    """Sends a space every `BEAT_S` until the answer: JSON may begin with spaces."""
    done = threading.Event()

    def beat() -> None:
        with contextlib.suppress(OSError):  # who asked has gone
            while not done.wait(BEAT_S):
                line.sendall(b" ")

    beats = threading.Thread(target=beat, name="mqttcore-beat", daemon=True)
    beats.start()
    try:
        yield
    finally:
        done.set()
        beats.join()


def ask(folder: pathlib.Path, action: str, argument: str) -> int:
    """Like `request`, for answers that are numbers."""
    done = request(folder, action, argument)
    if not isinstance(done, int):
        raise StoreError(f"{folder}: its broker gave an answer that is no number")
    return done


def request(folder: pathlib.Path, action: str, argument: str) -> object:
    """Sends a request to the broker that runs on `folder`, and waits for the result.

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
            line.sendall(json.dumps({"do": action, "with": argument}).encode() + b"\n")
            with line.makefile("rb") as lines:
                answer = lines.readline()
        except TimeoutError as error:
            raise StoreError(
                f"{folder}: its broker did not answer within {SILENCE_S:g} s"
            ) from error
        except OSError as error:
            raise StoreError(f"the broker ended before the request was done: {error}") from error
    if not answer.endswith(b"\n"):
        raise StoreError("the broker ended before the request was done")
    found = json.loads(answer)
    if "error" in found:
        raise StoreError(found["error"])
    done: object = found["done"]
    return done
