"""`mqttcore rr`: publishes a request and prints the response, with Mosquitto's letters."""

import argparse
import os
import sys
import time
from collections.abc import Sequence
from typing import Final

from mqttcore.cli.client import FIRST_ERROR, MqttClient
from mqttcore.cli.client_options import (
    VERSIONS,
    add_client_options,
    client_of,
    parser_of,
    read_url,
    seconds,
)
from mqttcore.cli.failure import OK, REFUSED, TIMEOUT, CommandError, reporting
from mqttcore.cli.pub import add_message_options, add_payload_options, message_of, payload_of
from mqttcore.cli.sub import Printer, add_output_options, filters_of
from mqttcore.packets import PropertyValue, PubAck, Publish, PubRec, Subscription, reason_text

CORRELATION: Final = "correlation_data"


def main(arguments: Sequence[str] | None = None) -> int:
    """Asks; returns the exit status."""
    options = parser().parse_args(arguments)
    return reporting("rr", lambda: ask(options), is_quiet=options.quiet)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = parser_of(
        "rr",
        "Publishes a request and prints the first response. The options are those of mosquitto_rr."
        " With MQTT 5.0, the request has a response topic and correlation data; a response with"
        " other correlation data is ignored.",
    )
    add_client_options(made)
    add_message_options(made, "topic of the request")
    add_payload_options(made.add_mutually_exclusive_group())
    made.add_argument(
        "-e",
        "--response-topic",
        metavar="TOPIC",
        help="topic of the response (default: response/ID, with the client identifier)",
    )
    made.add_argument(
        "-W",
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="end with exit status 27 if no response has come after this time",
    )
    add_output_options(made)
    made.set_defaults(filter_out=[], retained_only=False)
    return made


def ask(options: argparse.Namespace) -> int:
    """Sends the request and waits for the response; returns the exit status."""
    request = message_of(options, read_url(options), payload_of(options))
    printer = Printer(options)
    client = client_of(options)
    topic = options.response_topic or f"response/{client.login.client_id}"
    filters_of([topic], "-e")
    if client.login.version == VERSIONS["5"]:
        request = with_return_address(request, topic)
    with client:
        client.connect()
        answer = client.subscribe([Subscription(filter=topic, qos=options.qos)])
        if answer.reasons[0] >= FIRST_ERROR:
            text = f"{client.endpoint} refused the subscription to {topic}"
            raise CommandError(f"{text}: {reason_text(answer.reasons[0])}", status=REFUSED)
        client.publish(request)
        response = wait_for(client, request, options.timeout)
        client.close()
    if response is None:
        text = f"no response on {topic} within {options.timeout:g} s"
        raise CommandError(text, status=TIMEOUT)
    printer.show(response)
    printer.flush()
    return OK


def with_return_address(request: Publish, topic: str) -> Publish:
    """The request with a response topic and correlation data, unless it has them."""
    given = dict(request.properties)
    added: dict[str, PropertyValue] = {"response_topic": topic, CORRELATION: os.urandom(8)}
    missing = tuple((name, value) for name, value in added.items() if name not in given)
    return request.replaced(properties=(*request.properties, *missing))


def wait_for(client: MqttClient, request: Publish, timeout_s: float | None) -> Publish | None:
    """The response; `None` if none comes in time.

    Raises:
        CommandError: the broker refuses the request, or the connection is lost.
    """
    wanted = dict(request.properties).get(CORRELATION)
    deadline = None if timeout_s is None else time.monotonic() + timeout_s
    while deadline is None or time.monotonic() < deadline:
        client.poll(None if deadline is None else deadline - time.monotonic())
        while (packet := client.take()) is not None:
            if isinstance(packet, PubAck | PubRec) and packet.reason >= FIRST_ERROR:
                text = f"{client.endpoint} refused the request: {reason_text(packet.reason)}"
                raise CommandError(text, status=REFUSED)
            if isinstance(packet, Publish):
                client.acknowledge(packet)
                found = dict(packet.properties).get(CORRELATION, wanted)
                if found == wanted:
                    return packet
    return None


if __name__ == "__main__":
    sys.exit(main())
