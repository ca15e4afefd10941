"""The options of the loads of `mqttcore bench`."""

import argparse
from typing import Final

from mqttcore.cli.bench_compare import place_of
from mqttcore.cli.client_options import seconds, within
from mqttcore.cli.load import STAMPS

RATE_MAX: Final = 1e9
COUNT_MAX: Final = 1_000_000_000
PAYLOAD_MAX: Final = 256 << 20


def add_comparison(command: argparse.ArgumentParser) -> None:
    """Adds the options of a comparison."""
    group = command.add_argument_group("comparison")
    group.add_argument(
        "--against",
        type=place_of,
        metavar="HOST[:PORT]",
        help="measure this broker and that of -h in turn, and print the ratios",
    )
    add_count(group, "--rounds", 3, "with --against: measurements of each broker")


def add_pairs(command: argparse.ArgumentParser) -> None:
    """Adds the options of `bench pairs`."""
    add_count(command, "--pairs", 1, "number of pairs", dest="publishers")
    command.set_defaults(fan=1)
    add_schedule(command, "messages per second of all publishers together")
    add_window(command, "messages of each publisher that have not arrived", 100)
    add_messages(command)


def add_fan(command: argparse.ArgumentParser) -> None:
    """Adds the options of `bench fan`."""
    add_count(command, "--publishers", 1, "number of publishers, each with its topic")
    add_count(command, "--subscribers", 10, "subscribers of each topic", dest="fan")
    add_schedule(command, "messages per second of all publishers together")
    add_window(command, "messages of each publisher that have not arrived everywhere", 10)
    add_messages(command)


def add_pub(command: argparse.ArgumentParser) -> None:
    """Adds the options of `bench pub`."""
    add_count(command, "--publishers", 1, "number of publishers, each with its topic")
    command.set_defaults(fan=0, window=1)
    add_schedule(command, "messages per second of all publishers together; without: see -M")
    add_messages(command)


def add_conn(command: argparse.ArgumentParser) -> None:
    """Adds the options of `bench conn`."""
    add_count(command, "--clients", 100, "number of connections")
    add_schedule(command, "connections per second")
    words = "connections that are being made at a time, also with --rate"
    add_count(command, "--window", 10, words)
    command.add_argument(
        "--hold",
        type=seconds,
        default=0.0,
        metavar="SECONDS",
        help="keep the connections open for this time after the last one (default: 0)",
    )


def add_sub(command: argparse.ArgumentParser) -> None:
    """Adds the options of `bench sub`."""
    add_count(command, "--clients", 10, "number of clients")
    add_count(command, "--subscriptions", 1_000, "number of subscriptions of all clients together")
    add_schedule(command, "subscriptions per second of all clients together")
    add_window(command, "SUBSCRIBEs without an answer of all clients together", 100)
    add_topic(command)


def add_retained(command: argparse.ArgumentParser) -> None:
    """Adds the options of `bench retained`."""
    add_count(command, "--messages", 1_000, "number of retained messages; they are removed again")
    add_count(command, "--clients", 10, "number of clients that subscribe to all of them")
    add_schedule(command, "subscriptions per second")
    add_window(command, "clients that receive at a time", 1)
    add_size(command)
    add_topic(command)


def add_count(
    to: argparse._ActionsContainer, name: str, default: int, words: str, *, dest: str = ""
) -> None:
    """Adds an option with a number."""
    to.add_argument(
        name,
        type=positive,
        default=default,
        metavar="COUNT",
        help=f"{words} (default: {default})",
        dest=dest or name[2:],
    )


def add_schedule(command: argparse.ArgumentParser, words: str) -> None:
    """Adds the rate."""
    command.add_argument(
        "--rate",
        type=rate,
        default=0.0,
        metavar="RATE",
        help=f"{words} (default: as many as the broker allows)",
    )


def add_window(command: argparse.ArgumentParser, words: str, default: int) -> None:
    """Adds the window of a load without a rate."""
    add_count(command, "--window", default, f"without --rate: {words}")


def add_messages(command: argparse.ArgumentParser) -> None:
    """Adds the options of messages."""
    command.add_argument(
        "--seconds", type=duration, default=10.0, metavar="SECONDS", help="duration (default: 10)"
    )
    add_size(command)
    add_topic(command)


def add_size(command: argparse.ArgumentParser) -> None:
    """Adds the size of payloads."""
    words = f"bytes of a payload, {STAMPS.size} or more (default: 64)"
    command.add_argument("--size", type=size, default=64, metavar="BYTES", help=words)


def add_topic(command: argparse.ArgumentParser) -> None:
    """Adds QoS and topic."""
    command.add_argument(
        "-q", "--qos", type=int, choices=(0, 1, 2), default=0, help="QoS (default: 0)"
    )
    command.add_argument(
        "-t", "--topic", metavar="TOPIC", help="prefix of the topics (default: bench/ID)"
    )


def positive(text: str) -> int:
    """A whole number of at least 1."""
    return int(within(int(text), 1, COUNT_MAX))


def rate(text: str) -> float:
    """A rate; 0: none."""
    return within(float(text), 0, RATE_MAX)


def duration(text: str) -> float:
    """A time of at least a millisecond."""
    return within(seconds(text), 0.001, RATE_MAX)


def size(text: str) -> int:
    """A size of a payload, which begins with two times."""
    return int(within(int(text), STAMPS.size, PAYLOAD_MAX))


OPTIONS: Final = {
    "pairs": add_pairs,
    "fan": add_fan,
    "pub": add_pub,
    "conn": add_conn,
    "sub": add_sub,
    "retained": add_retained,
}
"""By the name of the subcommand."""
