"""`mqttcore sub --watch`: a table of topics on a terminal, refreshed each second."""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Final

from mqttcore.cli.failure import USAGE, CommandError
from mqttcore.cli.sub import Printer
from mqttcore.cli.table import Column, Table
from mqttcore.packets import Publish

INTERVAL_S: Final = 1.0
TOPICS_MAX: Final = 10_000
"""Further topics are counted, but not shown."""
VALUE_BYTES: Final = 200
CLEAR: Final = "\x1b[H\x1b[J"
COLUMNS: Final = (
    Column("TOPIC", lambda topic: topic.name),
    Column("MESSAGES", lambda topic: topic.count, is_number=True),
    Column("MSG/S", lambda topic: f"{topic.rate:.1f}", is_number=True),
    Column("LAST", lambda topic: value(topic.payload)),
)


class Topic:
    """The messages of a topic."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.count = 0
        self.before = 0
        """The count when the table was drawn last."""
        self.rate = 0.0
        self.payload = b""


class Watch(Printer):
    """Shows the topics with most messages a second, or those that fit, instead of messages."""

    def __init__(self, options: argparse.Namespace) -> None:
        if not sys.stdout.isatty():
            raise CommandError("--watch needs a terminal: use -v", status=USAGE)
        super().__init__(options)
        self._topics: dict[str, Topic] = {}
        self._others = 0
        self._drawn_at = time.monotonic()

    @property
    def pause_s(self) -> float:
        """Seconds until the table is drawn again."""
        return max(self._drawn_at + INTERVAL_S - time.monotonic(), 0)

    def show(self, message: Publish) -> None:
        """Counts a message."""
        self.count += 1
        topic = self._topics.get(message.topic)
        if topic is None:
            if len(self._topics) >= TOPICS_MAX:
                self._others += 1
                return
            topic = self._topics[message.topic] = Topic(message.topic)
        topic.count += 1
        topic.payload = message.payload

    def flush(self) -> None:
        """Draws the table, if it is due."""
        now = time.monotonic()
        passed = now - self._drawn_at
        if passed < INTERVAL_S:
            return
        self._drawn_at = now
        for topic in self._topics.values():
            topic.rate = (topic.count - topic.before) / passed
            topic.before = topic.count
        size = shutil.get_terminal_size()
        lines = [line[: size.columns] for line in self.lines(size.columns, size.lines)]
        sys.stdout.write(CLEAR + "\n".join(lines))
        sys.stdout.flush()

    def lines(self, width: int, height: int) -> Iterator[str]:
        """The lines of a screen of this size."""
        topics = sorted(self._topics.values(), key=lambda topic: (-topic.rate, topic.name))
        shown = topics[: max(height - 2, 0)]
        yield from Table(COLUMNS, width=width).lines(shown)
        rate = sum(topic.rate for topic in topics)
        text = f"{len(topics)} topics, {self.count} messages, {rate:.1f} a second"
        if self._others:
            text += f"; {self._others} messages of further topics"
        yield text


def value(payload: bytes) -> str:
    """A payload in a cell: text, or its beginning in hexadecimal."""
    begin = payload[:VALUE_BYTES]
    try:
        return begin.decode()
    except UnicodeDecodeError as error:
        if error.start > VALUE_BYTES - 4 and len(payload) > VALUE_BYTES:  # cut in a character
            return begin[: error.start].decode()
        return begin[:16].hex(" ") + (" …" if len(payload) > 16 else "")
