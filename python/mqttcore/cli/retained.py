"""`mqttcore retained`: retained messages of a running broker."""

import argparse
import base64
import functools
import json
import pathlib
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TextIO

from mqttcore.cli.api import Api, Json, NotFoundError, add_command, asking, path_of
from mqttcore.cli.confirmed import confirmation, remove_many
from mqttcore.cli.failure import OK, USAGE, CommandError
from mqttcore.cli.listing import paging_options, print_list, with_default
from mqttcore.cli.table import Column, duration
from mqttcore.cli.terminal import json_text, printable_bytes

COLUMNS: Final = (
    Column("TOPIC", lambda message: message["topic"]),
    Column("QOS", lambda message: message["qos"], is_number=True),
    Column("BYTES", lambda message: message["payload_bytes"], is_number=True),
    Column("EXPIRES IN", lambda message: remaining(message["expires_in_s"]), is_number=True),
    Column("CONTENT TYPE", lambda message: message["content_type"]),
)
PROPERTIES: Final = {
    "expires_in_s": "expiry_s",
    "content_type": "content_type",
    "response_topic": "response_topic",
}
"""Fields of a retained message that are properties when it is published."""
BULK: Final = 1_000
BULK_BYTES: Final = 200 * 1_024
"""The most messages of a request, and most bytes of them: the API takes 256 KiB."""


def remaining(seconds: int | None) -> str | None:
    """The rest of a Message Expiry Interval."""
    return None if seconds is None else duration(seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints or changes retained messages; returns the exit status."""
    given = sys.argv[1:] if arguments is None else arguments
    options = parser().parse_args(with_default(given, "list"))
    return asking("retained", options, options.run)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore retained",
        description="Retained messages of a running broker. Without a subcommand: list.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    command = functools.partial(add_command, commands)
    listing = command("list", "list retained messages", paging_options())
    listing.add_argument(
        "--filter", metavar="FILTER", help="only topics that this filter matches (default: #)"
    )
    listing.set_defaults(run=list_messages)
    get = command("get", "print the payload of one topic; with --json the whole message")
    get.add_argument("topic", metavar="TOPIC", help="topic")
    get.set_defaults(run=get_message)
    delete = command("delete", "remove retained messages; subscribers get an empty message")
    delete.add_argument("filter", metavar="FILTER", help="filter of the topics")
    confirmation(delete, "remove")
    delete.set_defaults(run=delete_messages)
    export = command(
        "export",
        "print retained messages as JSON, one a line, with their payloads, but without user"
        " properties, correlation data and payload format",
    )
    export.add_argument(
        "--filter", metavar="FILTER", help="only topics that this filter matches (default: #)"
    )
    export.set_defaults(run=export_messages)
    load = command("import", "publish the retained messages of an export")
    load.add_argument(
        "file", type=pathlib.Path, metavar="FILE", help="file written by export; -: standard input"
    )
    load.set_defaults(run=import_messages)
    return made


def list_messages(api: Api, options: argparse.Namespace) -> int:
    """Prints a table of retained messages."""
    return print_list(api, "/retained", {"filter": options.filter}, COLUMNS, options)


def get_message(api: Api, options: argparse.Namespace) -> int:
    """Prints one retained message."""
    message = api.get(path_of("retained", options.topic))
    if options.json:
        print(json_text(message))
        return OK
    payload = base64.b64decode(payload_of(message))
    sys.stdout.buffer.write(printable_bytes(payload) if sys.stdout.isatty() else payload)
    sys.stdout.buffer.flush()
    return OK


def payload_of(message: Json) -> str:
    """The payload in base64.

    Raises:
        CommandError: the key does not allow to read it.
    """
    if "payload_base64" not in message:
        raise CommandError("the key has no scope payload: payloads are not shown")
    return str(message["payload_base64"])


def delete_messages(api: Api, options: argparse.Namespace) -> int:
    """Removes retained messages, if their number is confirmed."""
    query = {"filter": options.filter}
    what = "retained messages"
    return remove_many(api, "/retained", query, options, what=what, action="remove")


def export_messages(api: Api, options: argparse.Namespace) -> int:
    """Prints retained messages as lines of JSON."""
    for page in api.pages("/retained", {"filter": options.filter}):
        for item in page["items"]:
            try:
                message = api.get(path_of("retained", item["topic"]))
            except NotFoundError:  # it has expired, or was removed
                continue
            payload_of(message)
            message.pop("payload", None)
            print(json_text(message))
    return OK


def import_messages(api: Api, options: argparse.Namespace) -> int:
    """Publishes the messages of an export."""
    count = 0
    try:
        with opened(options.file) as file:
            for batch in batches(read_export(file)):
                done = api.call("POST", "/publish/bulk", body=batch)
                count += len(batch) - done["failed"]
                for message, item in zip(batch, done["items"], strict=True):
                    if item["error"]:
                        text = f"{message['topic']!r} and perhaps others are not published"
                        raise CommandError(f"{text}, {count} are: {item['error']['detail']}")
    except OSError as error:
        raise CommandError(f"{options.file}: {error.strerror}", status=USAGE) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{options.file}: not UTF-8: {error.reason}", status=USAGE) from error
    print(json.dumps({"imported": count}) if options.json else f"{count} messages imported")
    return OK


def opened(path: pathlib.Path) -> TextIO:
    """The file, or standard input."""
    return sys.stdin if str(path) == "-" else path.open(encoding="utf-8")


def batches(messages: Iterable[Json]) -> Iterator[list[Json]]:
    """The messages in requests that the API takes; one of a size of its own is alone."""
    batch: list[Json] = []
    size = 0
    for message in messages:
        more = len(json.dumps(message))
        if batch and (len(batch) == BULK or size + more > BULK_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(message)
        size += more
    if batch:
        yield batch


def read_export(file: TextIO) -> Iterator[Json]:
    """The messages to publish.

    Raises:
        CommandError: a line is not one of an export.
    """
    for number, line in enumerate(file, start=1):
        try:
            message = json.loads(line)
            properties = {
                name: message[field] for field, name in PROPERTIES.items() if message.get(field)
            }
            content = {
                "topic": str(message["topic"]),
                "payload_base64": message["payload_base64"],
                "qos": message["qos"],
                "retain": True,
                "properties": properties,
            }
            if not content["payload_base64"]:  # it would remove the message of its topic
                raise ValueError("the payload is empty")
        except (ValueError, KeyError, TypeError) as error:
            text = f"line {number} is not a line of `mqttcore retained export`: {error!r}"
            raise CommandError(text, status=USAGE) from error
        yield content


if __name__ == "__main__":
    sys.exit(main())
