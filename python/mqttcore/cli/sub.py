"""`mqttcore sub`: subscribes and prints messages, with Mosquitto's letters."""

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO, Final, Self

from mqttcore._core import TopicFilter
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
from mqttcore.cli.failure import OK, REFUSED, TIMEOUT, USAGE, CommandError, reporting, tell
from mqttcore.cli.message_format import JSON_FORMAT, PAYLOAD, TOPIC_AND_PAYLOAD, MessageFormat
from mqttcore.cli.message_properties import properties_of
from mqttcore.errors import TopicFilterError
from mqttcore.packets import Publish, Subscription, reason_text

SHARED: Final = "$share/"
TURN_S: Final = 3600.0
"""Maximum seconds of one wait of the event loop."""
Render = Callable[[Publish, float], bytes]
"""Returns the output for a message that came at a time, in unix seconds."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Subscribes; returns the exit status."""
    options = parser().parse_args(arguments)
    return reporting("sub", lambda: subscribe(options), is_quiet=options.quiet)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = parser_of(
        "sub", "Subscribes and prints messages. The options are those of mosquitto_sub."
    )
    add_client_options(made)
    add_subscription_options(made.add_argument_group("subscriptions"))
    output = add_output_options(made)
    output.add_argument(
        "--record",
        metavar="FILE",
        help="write the messages to a new file for `pub --replay`, and print none",
    )
    output.add_argument(
        "--watch",
        action="store_true",
        help="show a table on the terminal: topics, rates and last values, each second",
    )
    end = made.add_argument_group("end")
    end.add_argument("-C", "--count", type=count, metavar="COUNT", help="end after COUNT messages")
    end.add_argument(
        "-W",
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="end with exit status 27 after this time",
    )
    end.add_argument(
        "-E",
        "--exit-subscribed",
        action="store_true",
        help="end when the subscription is acknowledged",
    )
    end.add_argument(
        "--retained-only",
        action="store_true",
        help="print only retained messages; end at the first other one",
    )
    return made


FILTERS: Final = {
    ("-t", "--topic"): "topic filter to subscribe to",
    ("-T", "--filter-out"): "do not print messages of these topics",
    ("-U", "--unsubscribe"): "end this subscription of the session (-c)",
}


def add_subscription_options(group: argparse._ArgumentGroup) -> None:
    """Adds the options of subscriptions."""
    for names, words in FILTERS.items():
        group.add_argument(
            *names, action="append", default=[], metavar="FILTER", help=f"{words}; may be repeated"
        )
    group.add_argument(
        "-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="QoS (default: 0)"
    )
    group.add_argument(
        "--no-local",
        action="store_true",
        help="do not receive messages of this client. MQTT 5.0 only",
    )
    group.add_argument(
        "--retain-as-published",
        action="store_true",
        help="receive RETAIN as it was published. MQTT 5.0 only",
    )
    group.add_argument(
        "--retain-handling",
        type=int,
        choices=(0, 1, 2),
        default=0,
        help="retained messages: 0 all, 1 for new subscriptions, 2 none. MQTT 5.0 only",
    )
    group.add_argument(
        "--remove-retained", action="store_true", help="remove each received retained message"
    )


def add_output_options(made: argparse.ArgumentParser) -> argparse._MutuallyExclusiveGroup:
    """Adds the options of the output; returns the group of those that exclude each other."""
    group = made.add_argument_group("output")
    form = group.add_mutually_exclusive_group()
    form.add_argument("-v", "--verbose", action="store_true", help="print topic and payload")
    form.add_argument(
        "-F",
        "--format",
        metavar="FORMAT",
        help="print in this format, as '%%I %%t %%p'; the sequences are those of mosquitto_sub",
    )
    form.add_argument("--json", action="store_true", help="print JSON, one line for each message")
    group.add_argument(
        "--pretty",
        action="store_true",
        help="print JSON on several lines, also of payloads that are CBOR or Sparkplug B",
    )
    group.add_argument(
        "-N", "--no-eol", action="store_true", help="print no newline after a message"
    )
    group.add_argument(
        "-R", "--no-stale", action="store_true", help="do not print retained messages"
    )
    made.set_defaults(record=None)  # `rr` prints, too, but does not record
    return form


def format_of(options: argparse.Namespace) -> MessageFormat:
    """The format of messages."""
    text = options.format or PAYLOAD
    if options.verbose:
        text = TOPIC_AND_PAYLOAD
    if options.json:
        text = JSON_FORMAT
    end = b"" if options.no_eol else b"\n"
    is_for_terminal = sys.stdout.isatty()
    return MessageFormat(text, end=end, is_pretty=options.pretty, is_for_terminal=is_for_terminal)


def subscribe(options: argparse.Namespace) -> int:
    """Subscribes; returns the exit status."""
    topic = read_url(options)
    if topic:
        options.topic.insert(0, topic)
    if not options.topic and not options.unsubscribe:
        raise CommandError("give a topic filter with -t", status=USAGE)
    if options.unsubscribe and not options.disable_clean_session:
        raise CommandError("-U needs -c: a new session has no subscriptions", status=USAGE)
    with printer_of(options) as printer, client_of(options) as client:
        return Subscriber(options, client, printer).run()


def filters_of(texts: Sequence[str], option: str) -> list[Callable[[str], bool]]:
    """Matchers of topic filters.

    Raises:
        CommandError: one of them is not a filter.
    """
    found: list[Callable[[str], bool]] = []
    for text in texts:
        try:
            found.append(TopicFilter(text).matches)
        except TopicFilterError as error:
            raise CommandError(f"{option} {text!r}: {error}", status=USAGE) from error
    return found


def output_of(options: argparse.Namespace) -> tuple[BinaryIO, Render]:
    """The output, and the function that makes the bytes of a message.

    Raises:
        CommandError: the file of a recording cannot be created.
    """
    if options.record is None:
        return sys.stdout.buffer, format_of(options).render
    from mqttcore.cli.recording import line_of

    try:
        return open(options.record, "xb"), line_of
    except OSError as error:
        raise CommandError(f"--record {options.record}: {error.strerror}", status=USAGE) from error


def printer_of(options: argparse.Namespace) -> "Printer":
    """The output of messages: line by line, or as a table."""
    if not options.watch:
        return Printer(options)
    from mqttcore.cli.watch import Watch

    return Watch(options)


class Printer:
    """Prints or records the messages that the options want to see."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._out, self._render = output_of(options)
        self._record = options.record
        self._unwanted = filters_of(options.filter_out, "-T")
        self._has_stale = not options.no_stale
        self._only_retained = options.retained_only
        self.count = 0
        """Messages that were printed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._record is not None:
            with contextlib.suppress(OSError):  # `flush` has reported it
                self._out.close()

    @property
    def pause_s(self) -> float:
        """Seconds after which `flush` is to be called without a message, too."""
        return TURN_S

    def wants(self, message: Publish) -> bool:
        """Whether a message is printed."""
        if message.retain and not self._has_stale:
            return False
        return not any(matches(message.topic) for matches in self._unwanted)

    def show(self, message: Publish) -> None:
        """Prints a message."""
        try:
            raw = self._render(message, time.time())
        except CommandError as error:
            tell("sub", str(error))
            return
        self.count += 1
        with self._recording():
            self._out.write(raw)

    def flush(self) -> None:
        """Flushes the output."""
        with self._recording():
            self._out.flush()

    @contextlib.contextmanager
    def _recording(self) -> Iterator[None]:
        """Names the file if a recording fails, as on a full disk."""
        try:
            yield
        except OSError as error:
            if self._record is None:
                raise
            text = f"--record {self._record}: {error.strerror}"
            raise CommandError(text) from error


class Subscriber:
    """Receives messages until a limit of the options."""

    def __init__(self, options: argparse.Namespace, client: MqttClient, printer: Printer) -> None:
        self._options = options
        self._client = client
        self._printer = printer
        self._pauses = Pauses()
        self._is_subscribed = False
        self._shown: list[Publish] = []
        """Printed messages to acknowledge after the output is flushed."""
        self._deadline = None if options.timeout is None else time.monotonic() + options.timeout
        self._version = VERSIONS[options.protocol_version]
        filters_of([text.removeprefix(SHARED) for text in options.topic], "-t")

    def run(self) -> int:
        """Subscribes and prints; returns the exit status."""
        self._begin()
        if self._options.exit_subscribed:
            return self._end(OK)
        while True:
            try:
                if not self._turn():
                    return self._end(OK)
            except ConnectionLostError as error:
                self._reconnect(error)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return self._end(TIMEOUT)

    def _begin(self) -> None:
        """Connects and subscribes."""
        is_resumed = self._client.connect().session_present
        options = self._options
        if options.unsubscribe:
            properties = properties_of(options.property, "unsubscribe", version=self._version)
            self._client.unsubscribe(options.unsubscribe, properties=properties)
            options.unsubscribe = []
        if options.topic and not (is_resumed and self._is_subscribed):
            self._subscribe()
            self._is_subscribed = True
        self._pauses.connected()

    def _subscribe(self) -> None:
        options = self._options
        wanted = [
            Subscription(
                filter=text,
                qos=options.qos,
                no_local=options.no_local and not text.startswith(SHARED),
                retain_as_published=options.retain_as_published,
                retain_handling=options.retain_handling,
            )
            for text in options.topic
        ]
        properties = properties_of(options.property, "subscribe", version=self._version)
        answer = self._client.subscribe(wanted, properties=properties)
        refused = [
            f"{text}: {reason_text(reason)}"
            for text, reason in zip(options.topic, answer.reasons, strict=False)
            if reason >= FIRST_ERROR
        ]
        if not refused:
            return
        text = f"{self._client.endpoint} refused the subscription to {'; '.join(refused)}"
        if len(refused) == len(options.topic):
            raise CommandError(text, status=REFUSED)
        tell("sub", text)

    def _turn(self) -> bool:
        """Waits for messages and prints them; returns whether more are wanted."""
        rest = TURN_S if self._deadline is None else self._deadline - time.monotonic()
        self._client.poll(min(rest, self._printer.pause_s))
        try:
            while (packet := self._client.take()) is not None:
                if isinstance(packet, Publish) and not self._take(packet):
                    return False
        finally:
            self._printer.flush()
            while self._shown:
                self._client.acknowledge(self._shown.pop(0))
        return True

    def _take(self, message: Publish) -> bool:
        """Prints a message, if it is wanted; returns whether more are wanted."""
        options = self._options
        if options.retained_only and not message.retain:
            return False
        self._shown.append(message)
        if not self._printer.wants(message):
            return True
        self._printer.show(message)
        if options.remove_retained and message.retain:
            self._client.publish(Publish(topic=message.topic, retain=True))
        return not options.count or self._printer.count < options.count

    def _reconnect(self, lost: ConnectionLostError) -> None:
        """Connects again, until that succeeds or the time is over."""
        while True:
            pause_s = self._pauses.next_s()
            if self._deadline is not None:
                pause_s = min(pause_s, max(self._deadline - time.monotonic(), 0))
            if not self._options.quiet:
                tell("sub", f"{lost}; next attempt in {pause_s:g} s")
            time.sleep(pause_s)
            if self._deadline is not None and time.monotonic() >= self._deadline:
                return
            try:
                self._begin()
            except ConnectionLostError as error:
                lost = error
            else:
                return

    def _end(self, status: int) -> int:
        """Disconnects; returns the exit status."""
        properties = properties_of(self._options.property, "disconnect", version=self._version)
        with contextlib.suppress(ConnectionLostError):
            self._client.close(properties=properties)
        return status


if __name__ == "__main__":
    sys.exit(main())
