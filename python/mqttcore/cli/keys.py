"""`mqttcore keys new|list|revoke FILE`: the file with the keys of the HTTP API.

The broker reads the file again within seconds; it need not run. The file has the SHA-256 of each
secret; the secret itself is printed once, by ``new``.

Exit status: 0 all is well, 1 it cannot be done, or there is no such key, 2 the command line is
wrong.
"""

import argparse
import base64
import datetime
import hashlib
import json
import os
import pathlib
import re
import secrets
import sys
import tomllib
from collections.abc import Sequence
from typing import Any, Final

from mqttcore._replace import replace_file
from mqttcore.cli.terminal import printable
from mqttcore.errors import MqttError

SCOPES: Final = ("view", "payload", "operate", "admin", "rows", "publish")
KEYS_MAX: Final = 1_000
NAME_BYTES: Final = 128
CONTROL: Final = re.compile("[\\x00-\\x1f\\x7f-\\x9f]")
"""Control characters, which no name may have: the broker would refuse the whole file."""
SECRET_BYTES: Final = 32
OTHERS: Final = 0o077
"""Permissions that only the owner may have."""

Key = dict[str, Any]  # values of TOML


class KeyFileError(MqttError):
    """The file of keys cannot be read or changed."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        options.run(options)
    except (KeyFileError, OSError) as error:
        print(f"mqttcore keys: {options.file}: {error}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore keys", description="Keys of the HTTP API, in the keys_file of [http]."
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, run, words in (
        ("new", new, "add a key and print its secret"),
        ("list", show, "print the keys, without secrets"),
        ("revoke", revoke, "remove a key"),
    ):
        command = commands.add_parser(name, help=words, description=words)
        command.add_argument(
            "file", type=pathlib.Path, metavar="FILE", help="the keys_file of [http]"
        )
        command.set_defaults(run=run)
        if name != "list":
            command.add_argument("name", metavar="NAME", help="name of the key")
        if name == "new":
            command.add_argument(
                "--scope",
                action="append",
                choices=SCOPES,
                required=True,
                help="scope of the key; may be repeated",
            )
            command.add_argument(
                "--stream",
                action="append",
                metavar="NAME",
                help="stream that the key may read; may be repeated (default: all)",
            )
            command.add_argument(
                "--expires",
                type=datetime.date.fromisoformat,
                metavar="DATE",
                help="first day on which the key is not valid, in UTC (default: never)",
            )
    return made


def new(options: argparse.Namespace) -> None:
    """Adds a key."""
    keys = read(options.file)
    name: str = options.name
    if not name or len(name.encode()) > NAME_BYTES or CONTROL.search(name):
        raise KeyFileError(
            f"a name has 1 to {NAME_BYTES} bytes, and no control characters: {name!r}"
        )
    if any(key["name"] == name for key in keys):
        raise KeyFileError(f"a key named {name!r} exists")
    if len(keys) >= KEYS_MAX:
        raise KeyFileError(f"there are {KEYS_MAX} keys: revoke one first")
    random = base64.b32encode(secrets.token_bytes(SECRET_BYTES)).decode()
    secret = "mq_" + random.rstrip("=").lower()
    key: Key = {
        "name": name,
        "sha256": hashlib.sha256(secret.encode()).hexdigest(),
        "scopes": [scope for scope in SCOPES if scope in options.scope],
    }
    if options.stream:
        key["streams"] = options.stream
    if options.expires is not None:
        key["expires"] = options.expires
    write(options.file, [*keys, key])
    print(secret)


def show(options: argparse.Namespace) -> None:
    """Prints the keys."""
    for key in read(options.file):
        streams = f", streams {', '.join(key['streams'])}" if "streams" in key else ""
        expires = f", expires {key['expires']}" if "expires" in key else ""
        print(printable(f"{key['name']}: {', '.join(key['scopes'])}{streams}{expires}"))


def revoke(options: argparse.Namespace) -> None:
    """Removes a key."""
    keys = read(options.file)
    left = [key for key in keys if key["name"] != options.name]
    if len(left) == len(keys):
        raise KeyFileError(f"there is no key named {options.name!r}")
    write(options.file, left)


def read(file: pathlib.Path) -> list[Key]:
    """The keys of a file; none if it does not exist.

    Raises:
        KeyFileError: it is not a file of keys, or others may read it.
    """
    try:
        with file.open("rb") as opened:
            if os.fstat(opened.fileno()).st_mode & OTHERS:
                raise KeyFileError("others may read or change it: chmod 600")
            found = tomllib.load(opened)
    except FileNotFoundError:
        return []
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise KeyFileError(str(error)) from error
    keys = found.get("keys", [])
    if set(found) - {"keys"} or not isinstance(keys, list) or not all(map(is_key, keys)):
        raise KeyFileError("each [[keys]] needs name, sha256 and scopes, and nothing else is known")
    return keys


def is_key(key: object) -> bool:
    """Whether an entry has the fields of a key."""
    if not isinstance(key, dict) or set(key) - {"name", "sha256", "scopes", "streams", "expires"}:
        return False
    scopes, streams = key.get("scopes"), key.get("streams", [])
    return (
        isinstance(key.get("name"), str)
        and isinstance(key.get("sha256"), str)
        and isinstance(scopes, list)
        and all(scope in SCOPES for scope in scopes)
        and isinstance(streams, list)
        and all(isinstance(stream, str) for stream in streams)
        and isinstance(key.get("expires", datetime.date.min), datetime.date)
    )


def write(file: pathlib.Path, keys: list[Key]) -> None:
    """Replaces the file."""
    replace_file(file, "\n".join(map(toml, keys)))


def quoted(value: object) -> str:
    """Strings as TOML: those of JSON, except U+007F."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml(key: Key) -> str:
    """A key as TOML."""
    name = quoted(key["name"])
    lines = [
        "[[keys]]",
        f"name = {name}",
        f'sha256 = "{key["sha256"]}"',
        f"scopes = {json.dumps(key['scopes'])}",
    ]
    if "streams" in key:
        lines.append(f"streams = {quoted(key['streams'])}")
    if "expires" in key:
        lines.append(f"expires = {key['expires'].isoformat()}")
    return "\n".join(lines) + "\n"
