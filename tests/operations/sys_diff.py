"""`python -m tests.operations.sys_diff`: the `$SYS` topics of Mosquitto beside those of mqttcore.

Both get the same load. Prints a table; exit status 1 if a topic of Mosquitto's is missing, or has
another payload grammar, QoS or RETAIN flag.
"""

from __future__ import annotations

import contextlib
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from mqttcore import Broker
from mqttcore.config import Listener, Settings

from tests.operations.sys_topics import MOSQUITTO, SINCE_2_1, Shown, grammar, retained
from tests.wire import Wire

CONFIG = """
listener {port} 127.0.0.1
allow_anonymous true
sys_interval 1
"""


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@contextlib.contextmanager
def mosquitto(command: str) -> Iterator[int]:
    """Runs Mosquitto; yields its port."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "mosquitto.conf")
        config.write_text(CONFIG.format(port=port))
        quiet = subprocess.DEVNULL
        arguments = [command, "-c", str(config)]
        with subprocess.Popen(arguments, stdout=quiet, stderr=quiet) as process:  # noqa: S603 -- found on a fixed path
            try:
                wait_for(port)
                yield port
            finally:
                process.terminate()


def wait_for(port: int) -> None:
    """Waits until somebody listens."""
    until = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise


@contextlib.contextmanager
def mqttcore() -> Iterator[int]:
    """Runs mqttcore; yields its port."""
    listener = Listener(address="127.0.0.1:0", anonymous=True)
    with Broker(Settings(listeners=(listener,), sys_interval_s=1.0)) as broker:
        yield broker.port


def load(port: int) -> None:
    """Sessions, subscriptions, messages of each QoS, and retained ones."""
    with Wire(port, version=4) as away:
        away.connect("away", clean=False)
        away.subscribe(("load/#", 1))
        away.disconnect()
    with Wire(port) as member:
        member.connect("member", props={"session_expiry_interval": 600})
        member.subscribe(("$share/group/shared/#", 1))
    with Wire(port, version=4) as subscriber, Wire(port, version=4) as publisher:
        subscriber.connect("subscriber")
        subscriber.subscribe(("load/#", 2))
        publisher.connect("publisher")
        for number in range(30):
            publisher.publish("load/a", b"x" * 100, qos=number % 3, packet_id=number + 1)
            subscriber.receive_publish()
        publisher.publish("retained/a", b"y" * 50, qos=1, packet_id=40, retain=True)


def shown_by(port: int, names: frozenset[str]) -> dict[str, Shown]:
    """What a broker shows under load."""
    load(port)
    return retained(port, names=names, least={"clients/total": 3, "publish/bytes/received": 3050})


def compare(theirs: dict[str, Shown], ours: dict[str, Shown]) -> Iterator[tuple[str, ...]]:
    """A row for each topic of Mosquitto's."""
    for name in sorted(theirs):
        their, our = theirs[name], ours.get(name)
        if our is None:
            yield name, their.text, "-", their.flags(), "MISSING"
            continue
        faults = []
        if grammar(our.text) != grammar(their.text):
            faults.append("PAYLOAD")
        if our.flags() != their.flags():
            faults.append(f"FLAGS: {our.flags()}")
        yield name, their.text, our.text, their.flags(), ", ".join(faults) or "same"


def main() -> int:
    """Compares and prints."""
    command = shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if command is None:
        print("sys-diff: skipped, mosquitto is not installed")
        return 0
    names = frozenset(MOSQUITTO)
    with mosquitto(command) as port:
        theirs = shown_by(port, names - frozenset(SINCE_2_1))
    with mqttcore() as port:
        ours = shown_by(port, names)
    rows = [("topic", "mosquitto", "mqttcore", "flags", "result"), *compare(theirs, ours)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))
    unknown = sorted(theirs.keys() - names)
    missing = sorted(names - ours.keys())
    bad = [row[0] for row in rows[1:] if row[-1] != "same"]
    print(f"{len(rows) - 1} topics of Mosquitto, {len(bad)} differ; recorded list: {len(names)}")
    print(
        f"not in the recorded list: {unknown or 'none'}; in the list, not here: {missing or 'none'}"
    )
    return 1 if bad or unknown or missing else 0


if __name__ == "__main__":
    sys.exit(main())
