"""Properties on the command line: `-D publish content-type text/plain`."""

from collections.abc import Callable, Sequence
from typing import Final

from mqttcore.cli.failure import USAGE, CommandError
from mqttcore.errors import PacketError
from mqttcore.packets import (
    Connect,
    Disconnect,
    Packet,
    Properties,
    PropertyValue,
    Publish,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
    encode_packet,
)

EXAMPLES: Final[dict[str, Callable[[Properties], Packet]]] = {
    "connect": lambda found: Connect(properties=found),
    "publish": lambda found: Publish(topic="a", properties=found),
    "subscribe": lambda found: Subscribe(
        packet_id=1, filters=(Subscription(filter="a"),), properties=found
    ),
    "unsubscribe": lambda found: Unsubscribe(packet_id=1, filters=("a",), properties=found),
    "disconnect": lambda found: Disconnect(properties=found),
    "will": lambda found: Connect(will=Will(topic="a", properties=found)),
}
"""Example packets for properties: the codec checks whether they are allowed."""
FLAGS: Final = frozenset(
    {
        *("payload_format_indicator", "request_problem_information"),
        "request_response_information",
    }
)
BYTES: Final = frozenset({"correlation_data", "authentication_data"})
TEXTS: Final = frozenset({"content_type", "response_topic", "authentication_method"})
FIRST_VERSION: Final = 5
"""The version of MQTT that has properties."""


def properties_of(given: Sequence[Sequence[str]], packet: str, *, version: int) -> Properties:
    """The properties of one packet, out of all ``-D``.

    Raises:
        CommandError: one of them is wrong, or the version has none.
    """
    for words in given:
        if words[0] not in EXAMPLES:
            raise refusal(words, f"the packet must be {', '.join(EXAMPLES)}")
    mine = [words for words in given if words[0] == packet]
    if mine and version < FIRST_VERSION:
        raise refusal(mine[0], "only MQTT 5.0 (-V 5) has properties")
    found: Properties = ()
    for words in mine:
        try:
            found = (*found, property_of(words))
            encode_packet(EXAMPLES[packet](found))
        except (PacketError, ValueError, TypeError, OverflowError) as error:
            raise refusal(words, str(error)) from error
    return found


def property_of(words: Sequence[str]) -> tuple[str, PropertyValue]:
    """One property; its words are packet, name and value.

    Raises:
        ValueError: they are too few, too many, or not a number where there has to be one.
    """
    match words[1:]:
        case ["user-property", name, value]:
            return "user_property", (name, value)
        case ["user-property", *_]:
            raise ValueError("user-property takes a name and a value")
        case [name, text]:
            name = name.replace("-", "_")
            return name, value_of(name, text)
    raise ValueError("give the packet, the name of the property, and its value")


def value_of(name: str, text: str) -> PropertyValue:
    """The value with its type."""
    if name in TEXTS:
        return text
    if name in BYTES:
        return text.encode()
    if name not in FLAGS:
        return int(text)
    if text not in ("0", "1"):
        raise ValueError("the value must be 0 or 1")
    return text == "1"


def refusal(words: Sequence[str], why: str) -> CommandError:
    """A ``-D`` that is wrong."""
    return CommandError(f"-D {' '.join(words)}: {why}", status=USAGE)
