"""`make kafka-up`, `make kafka-down`: a Kafka node that stays until it is stopped.

It keeps what it has in `.make/kafka/node`; ``servers`` there says where it is, ``pid`` which
process it is. Where Java or Maven is missing, ``up`` says so and ends with 3.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import pathlib
import signal
import sys
import time
from typing import Final

from tests.kafka.jars import HOME, MissingToolError
from tests.kafka.node import Node, NodeError

FOLDER: Final = HOME / "node"
SKIPPED: Final = 3


def main() -> int:
    """Does what the command line says; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.kafka")
    parser.add_argument("what", choices=("up", "down"))
    return {"up": up, "down": down}[parser.parse_args().what]()


def up() -> int:
    """Starts the node, unless it is there."""
    if (number := running()) is not None:
        print(f"Kafka runs already (process {number}): {servers()}")
        return 0
    try:
        node = Node(FOLDER).start()
    except MissingToolError as missing:
        print(f"kafka-up: {missing}", file=sys.stderr)
        return SKIPPED
    except NodeError as error:
        print(f"kafka-up: the node did not come up:\n{error}", file=sys.stderr)
        return 1
    assert node.process is not None
    (FOLDER / "pid").write_text(str(node.process.pid))
    (FOLDER / "servers").write_text(node.servers)
    print(f"Kafka is up (process {node.process.pid}): {node.servers}")
    return 0


def down() -> int:
    """Stops the node in order, unless it is gone; what it kept stays."""
    number = running()
    if number is None:
        print("Kafka does not run")
        return 0
    os.kill(number, signal.SIGTERM)
    while running() is not None:
        time.sleep(0.1)
    (FOLDER / "pid").unlink()
    print(f"Kafka has ended (process {number})")
    return 0


def running() -> int | None:
    """The process of the node, if it is still one."""
    with contextlib.suppress(OSError, ValueError):
        number = int((FOLDER / "pid").read_text())
        line = pathlib.Path(f"/proc/{number}/cmdline").read_bytes()
        return number if str(FOLDER).encode() in line else None
    return None


def servers() -> str:
    """Where the node is."""
    return (FOLDER / "servers").read_text()


if __name__ == "__main__":
    sys.exit(main())
