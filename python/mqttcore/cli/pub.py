"""`mqttcore pub`: publishes messages, with Mosquitto's letters."""

import argparse
import contextlib
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final

from mqttcore._core import TopicName
from mqttcore.cli.client import FIRST_ERROR, ConnectionLostError, MqttClient, Pauses
from mqttcore.cli.client_options import (
    VERSIONS,
    add_client_options,
    client_of,
    count,
    parser_of,
    read_url,
    seconds,
)
from mqttcore.cli.failure import OK, REFUSED, USAGE, CommandError, reporting, tell
from mqttcore.cli.message_properties import properties_of
from mqttcore.errors import MqttError
from mqttcore.packets import PubAck, PubComp, Publish, PubRec, encode_packet, reason_text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from mqttcore.cli.recording import Recorded

STDIN: Final = 0
READ_BYTES: Final = 1 << 16
UNSENT_BYTES: Final = 1 << 20
"""Unsent bytes above which QoS 0 messages wait."""
TURN_S: Final = 3600.0
"""Maximum seconds of one wait of the event loop."""
NO_MATCHING_SUBSCRIBERS: Final = 0x10


def main(arguments: Sequence[str] | None = None) -> int:
    """Publishes; returns the exit status."""
    options = parser().parse_args(arguments)
    return reporting("pub", lambda: publish(options), is_quiet=options.quiet)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = parser_of("pub", "Publishes messages. The options are those of mosquitto_pub.")
    add_client_options(made)
    add_message_options(made, "topic of the messages")
    source = made.add_mutually_exclusive_group()
    add_payload_options(source)
    source.add_argument(
        "-l",
        "--stdin-line",
        action="store_true",
        help="one message for each line of standard input",
    )
    source.add_argument(
        "--replay",
        metavar="FILE",
        help="the messages of `sub --record`, with their topics and pauses",
    )
    made.add_argument(
        "--speed",
        type=speed,
        default=1.0,
        metavar="FACTOR",
        help="with --replay: pauses are so many times shorter; 0: no pauses (default: 1)",
    )
    made.add_argument(
        "--repeat", type=count, default=1, metavar="COUNT", help="publish COUNT times"
    )
    made.add_argument(
        "--repeat-delay",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="pause between them (default: 0)",
    )
    made.add_argument(
        "--json", action="store_true", help="print counts and refused messages as one JSON object"
    )
    return made


def speed(text: str) -> float:
    """A factor of the speed."""
    factor = float(text)
    if not 0 <= factor < math.inf:
        raise argparse.ArgumentTypeError("the factor is 0 or more")
    return factor


def add_message_options(made: argparse.ArgumentParser, topic: str) -> None:
    """Adds the options of messages."""
    made.add_argument("-t", "--topic", metavar="TOPIC", help=topic)
    made.add_argument(
        "-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="QoS (default: 0)"
    )
    made.add_argument("-r", "--retain", action="store_true", help="retain the messages")


def add_payload_options(source: argparse._MutuallyExclusiveGroup) -> None:
    """Adds the sources of the payload."""
    source.add_argument("-m", "--message", metavar="TEXT", help="payload of the message")
    source.add_argument("-f", "--file", metavar="FILE", help="payload: a file")
    source.add_argument("-n", "--null-message", action="store_true", help="empty payload")
    source.add_argument(
        "-s", "--stdin-file", action="store_true", help="payload: all of standard input"
    )


def payload_of(options: argparse.Namespace) -> bytes:
    """The payload of a single message.

    Raises:
        CommandError: it cannot be read, or no option names it.
    """
    if options.message is not None:
        return os.fsencode(options.message)
    if options.null_message:
        return b""
    if options.stdin_file:
        return sys.stdin.buffer.read()
    if options.file is None:
        raise CommandError("give a payload with -m, -f, -n, -s or -l", status=USAGE)
    try:
        with open(options.file, "rb") as file:
            return file.read()
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}", status=USAGE) from error


def message_of(options: argparse.Namespace, topic: str | None, payload: bytes) -> Publish:
    """The message of the options.

    Raises:
        CommandError: it cannot be sent.
    """
    topic = options.topic or topic
    if not topic:
        raise CommandError("give a topic with -t", status=USAGE)
    version = VERSIONS[options.protocol_version]
    message = Publish(
        topic=topic,
        payload=payload,
        qos=options.qos,
        packet_id=1 if options.qos else None,
        retain=options.retain,
        properties=properties_of(options.property, "publish", version=version),
    )
    try:
        TopicName(topic)
        encode_packet(message, version=version)
    except (MqttError, ValueError) as error:
        raise CommandError(f"-t {topic!r}: {error}", status=USAGE) from error
    return message


def publish(options: argparse.Namespace) -> int:
    """Publishes; returns the exit status."""
    topic = read_url(options)
    properties = properties_of(
        options.property, "disconnect", version=VERSIONS[options.protocol_version]
    )
    with contextlib.ExitStack() as opened:
        send = replaying(options, topic, opened) if options.replay else publishing(options, topic)
        client = opened.enter_context(client_of(options))
        publisher = Publisher(client, is_quiet=options.quiet)
        client.connect()
        send(publisher)
        publisher.finish()
        client.close(properties=properties)
    return publisher.report(is_json=options.json)


def publishing(options: argparse.Namespace, topic: str | None) -> "Callable[[Publisher], None]":
    """Publishes the message of the options, or one for each line of standard input."""
    payload = b"" if options.stdin_line else payload_of(options)
    message = message_of(options, topic, payload)
    if options.stdin_line:
        return lambda publisher: publisher.publish_lines(message)
    return lambda publisher: publisher.publish_repeatedly(
        message, options.repeat, options.repeat_delay
    )


def replaying(
    options: argparse.Namespace, topic: str | None, opened: contextlib.ExitStack
) -> "Callable[[Publisher], None]":
    """Publishes the messages of a recording; its file is open as long as ``opened``.

    Raises:
        CommandError: the file cannot be opened, or an option contradicts the recording.
    """
    has_properties = any(words[0] == "publish" for words in options.property)
    given = (topic, options.topic, options.qos, options.retain, has_properties)
    if any(given) or options.repeat != 1:
        text = "--replay publishes the messages as they were recorded, once: it takes no"
        raise CommandError(f"{text} -t, -q, -r, -D publish, --repeat", status=USAGE)
    from mqttcore.cli.recording import read_lines

    version = VERSIONS[options.protocol_version]
    try:
        file = opened.enter_context(open(options.replay, "rb"))  # noqa: SIM115 -- ends with `opened`
    except OSError as error:
        raise CommandError(f"{options.replay}: {error.strerror}", status=USAGE) from error
    recorded = read_lines(file, options.replay, version=version)
    return lambda publisher: publisher.publish_recording(recorded, options.speed)


class Publisher:
    """Publishes messages within the window, and connects again when the connection is lost."""

    def __init__(self, client: MqttClient, *, is_quiet: bool) -> None:
        self.client = client
        self._is_quiet = is_quiet
        self._pauses = Pauses()
        self._published = 0
        self._acknowledged = 0
        self._unmatched = 0
        self._refused: dict[str, int] = {}

    def publish_repeatedly(self, message: Publish, count: int, pause_s: float) -> None:
        """Publishes one message several times."""
        for number in range(count):
            if number:
                self._idle(pause_s)
            self._publish(message)

    def publish_lines(self, message: Publish) -> None:
        """Publishes each line of standard input, else as ``message``."""
        for line in self._lines():
            self._publish(message.replaced(payload=line))

    def publish_recording(self, recorded: "Iterable[Recorded]", speed: float) -> None:
        """Publishes messages with the pauses between them, divided by ``speed``; 0: at once.

        What was late, as after a lost connection, is sent at once, so that later messages are on
        time.
        """
        begun = first = None
        for at, message in recorded:
            if begun is None or first is None:
                begun, first = time.monotonic(), at
            if speed:
                self._idle(begun + (at - first) / speed - time.monotonic())
            self._publish(message)

    def finish(self) -> None:
        """Waits for the acknowledgements of all messages."""
        while self.client.in_flight or self.client.unsent_bytes:
            self._turn(TURN_S)

    def report(self, *, is_json: bool) -> int:
        """Prints the results of the messages; returns the exit status."""
        if is_json:
            import json

            print(
                json.dumps(
                    {
                        "published": self._published,
                        "acknowledged": self._acknowledged,
                        "without_subscribers": self._unmatched,
                        "refused": self._refused,
                    }
                )
            )
        if not self._refused:
            return OK
        reasons = ", ".join(f"{count} with {reason}" for reason, count in self._refused.items())
        raise CommandError(
            f"{self.client.endpoint} refused {sum(self._refused.values())} of {self._published}"
            f" messages: {reasons}",
            status=REFUSED,
        )

    def _publish(self, message: Publish) -> None:
        while not self._has_room(message):
            self._turn(TURN_S)
        self._published += 1
        while True:
            try:
                self.client.publish(message)
            except ConnectionLostError as error:
                self._reconnect(error)
                if not message.qos:
                    continue
                # QoS 1 and 2: it was in flight, and `_reconnect` has sent it again.
            return

    def _has_room(self, message: Publish) -> bool:
        if message.qos:
            return self.client.has_room
        return self.client.unsent_bytes < UNSENT_BYTES

    def _turn(self, timeout_s: float, other: int | None = None) -> bool:
        """Waits once; returns whether ``other`` can be read."""
        try:
            is_other = self.client.poll(timeout_s, other=other)
        except ConnectionLostError as error:
            self._reconnect(error)
            return False
        while (packet := self.client.take()) is not None:
            if isinstance(packet, PubAck | PubRec | PubComp):
                self._count(packet)
        return is_other

    def _count(self, packet: PubAck | PubRec | PubComp) -> None:
        if packet.reason >= FIRST_ERROR:
            text = reason_text(packet.reason)
            self._refused[text] = self._refused.get(text, 0) + 1
            return
        self._acknowledged += 1
        self._unmatched += packet.reason == NO_MATCHING_SUBSCRIBERS

    def _reconnect(self, lost: ConnectionLostError) -> None:
        """Connects again, until that succeeds."""
        while True:
            pause_s = self._pauses.next_s()
            if not self._is_quiet:
                tell("pub", f"{lost}; next attempt in {pause_s:g} s")
            time.sleep(pause_s)
            try:
                self.client.connect()
            except ConnectionLostError as error:
                lost = error
            else:
                self._pauses.connected()
                return

    def _idle(self, pause_s: float) -> None:
        """Handles packets of the broker until the pause has passed."""
        deadline = time.monotonic() + pause_s
        while (rest := deadline - time.monotonic()) > 0:
            self._turn(rest)

    def _lines(self) -> Iterator[bytes]:
        """Lines of standard input, without line ends; handles packets of the broker meanwhile."""
        rest = b""
        while True:
            while not self._turn(TURN_S, other=STDIN):
                pass
            part = os.read(STDIN, READ_BYTES)
            *lines, rest = (rest + part).split(b"\n")
            yield from lines
            if not part:
                break
        if rest:
            yield rest


if __name__ == "__main__":
    sys.exit(main())
