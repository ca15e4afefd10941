"""A broker in a process of its own, which answers questions about itself."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from mqttcore import Broker, Settings
from mqttcore.config import Listener
from mqttcore.plugin import Plugin

READY_S = 60.0


class Server:
    """The broker as the measuring process sees it."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self.port = int(self._answer())

    def cpu_s(self) -> float:
        """Seconds of CPU time that the process has used, all of its threads together."""
        return float(self._ask("cpu"))

    def calls(self) -> int:
        """Calls of hooks so far."""
        return int(self._ask("calls"))

    def running(self) -> int:
        """Calls of hooks that have not come back."""
        return int(self._ask("running"))

    def invalidate(self) -> None:
        """Has the plugins asked again what all clients may do."""
        self._ask("invalidate")

    def reload_s(self) -> float:
        """Seconds of a reload, which starts the plugins anew."""
        return float(self._ask("reload"))

    def stop(self) -> None:
        """Ends it."""
        self._ask("stop")

    def _ask(self, question: str) -> Any:  # noqa: ANN401 - each question has its own answer
        self._pipe.send(question)
        return self._answer()

    def _answer(self) -> Any:  # noqa: ANN401 - as above
        if not self._pipe.poll(READY_S):
            raise TimeoutError("the broker does not answer")
        return self._pipe.recv()


def answer(broker: Broker, question: str) -> object:
    """What a `Server` is told."""
    if question == "cpu":
        return time.process_time()
    if question == "calls":
        return sum(stats.calls for stats in broker.hook_stats())
    if question == "running":
        return sum(stats.in_flight for stats in broker.hook_stats())
    if question == "invalidate":
        return broker.invalidate(everything=True)
    if question == "reload":
        began = time.perf_counter()
        broker.reload(broker.settings)
        return time.perf_counter() - began
    return None


def serve(pipe: Connection, kinds: Sequence[type[Plugin]]) -> None:
    """Runs the broker until it is told to stop. Without plugins, everybody may do everything."""
    listener = Listener(address="127.0.0.1:0", anonymous=not kinds)
    with Broker(Settings(listeners=(listener,)), plugins=[kind() for kind in kinds]) as broker:
        pipe.send(broker.port)
        while True:
            question = pipe.recv()
            pipe.send(answer(broker, question))
            if question == "stop":
                return


@contextmanager
def running(*kinds: type[Plugin]) -> Iterator[Server]:
    """A broker with these plugins."""
    context = multiprocessing.get_context("spawn")
    ours, its = context.Pipe()
    process = context.Process(target=serve, args=(its, kinds), daemon=True)
    process.start()
    try:
        server = Server(ours)
        yield server
        server.stop()
        process.join(READY_S)
    finally:
        if process.is_alive():
            process.kill()
