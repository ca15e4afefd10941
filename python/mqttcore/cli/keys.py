"""`mqttcore keys add|list|revoke [FILE]`: keys of the HTTP API, of a file or a running broker.

The broker reads the file again within seconds; it need not run. The file has the SHA-256 of each
secret; the secret itself is printed once, by ``add``.

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
import tomllib
from collections.abc import Sequence
from typing import Any, Final

from mqttcore._replace import replace_file
from mqttcore.cli.api import Api, asking, endpoint_options, path_of
from mqttcore.cli.failure import NOT_DONE, OK, USAGE, tell
from mqttcore.cli.terminal import json_text, printable
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
    if options.file is None:
        return asking("keys", options, options.ask)
    if options.data or options.url:
        tell("keys", f"give a file or a broker, not both: {options.file}")
        return USAGE
    try:
        text: str = options.run(options)
    except (KeyFileError, OSError) as error:
        tell("keys", f"{options.file}: {error}")
        return NOT_DONE
    print(text, end="\n" if text else "")
    return OK


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore keys",
        description="Keys of the HTTP API, in the keys_file of [http]. Without FILE, a running"
        " broker changes its file.",
    )
    commands = made.add_subparsers(required=True, metavar="COMMAND")
    for name, run, act, words in (
        ("add", add, have_added, "add a key and print its secret"),
        ("list", show, have_listed, "print the keys, without secrets"),
        ("revoke", revoke, have_revoked, "remove a key"),
    ):
        aliases = ("new",) if name == "add" else ()
        parents = [endpoint_options()]
        command = commands.add_parser(
            name, help=words, description=words, aliases=aliases, parents=parents
        )
        command.add_argument(
            "file",
            nargs="?",
            type=pathlib.Path,
            metavar="FILE",
            help="the keys_file of [http]; default: that of the running broker",
        )
        command.set_defaults(run=run, ask=act)
        if name != "list":
            command.add_argument("name", metavar="NAME", help="name of the key")
        if name == "add":
            add_rights(command)
    return made


def add_rights(command: argparse.ArgumentParser) -> None:
    """Adds the options of a new key."""
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
        type=day,
        metavar="DATE",
        help="first day on which the key is not valid, in UTC, as 2030-01-31 (default: never)",
    )


def day(text: str) -> datetime.date:
    """A date."""
    try:
        return datetime.date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r}: {error}; a date is as 2030-01-31") from error


def add(options: argparse.Namespace) -> str:
    """Adds a key; returns its secret."""
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
        "scopes": scopes_of(options),
    }
    if options.stream:
        key["streams"] = options.stream
    if options.expires is not None:
        key["expires"] = options.expires
    write(options.file, [*keys, key])
    return json_text({**shown(key), "secret": secret}) if options.json else secret


def scopes_of(options: argparse.Namespace) -> list[str]:
    """The scopes of a new key, in the order of the documentation."""
    return [scope for scope in SCOPES if scope in options.scope]


def have_added(api: Api, options: argparse.Namespace) -> int:
    """Has the broker add a key; prints its secret."""
    expires = options.expires and options.expires.isoformat()
    given = {"streams": options.stream, "expires": expires}
    asked = {"name": options.name, "scopes": scopes_of(options)}
    added = api.call("POST", "/keys", body=asked | {k: v for k, v in given.items() if v})
    print(json_text({**asked, **given, **added}) if options.json else added["secret"])
    return OK


def have_listed(api: Api, options: argparse.Namespace) -> int:
    """Prints the keys of the broker."""
    items = api.get("/keys")["items"]
    if options.json:
        print(json_text({"items": items}))
    elif items:
        print(lines_of([{k: v for k, v in item.items() if v is not None} for item in items]))
    return OK


def have_revoked(api: Api, options: argparse.Namespace) -> int:
    """Has the broker remove a key."""
    api.call("DELETE", path_of("keys", options.name))
    if options.json:
        print(json_text({"name": options.name, "revoked": True}))
    return OK


def show(options: argparse.Namespace) -> str:
    """The keys, without secrets."""
    keys = read(options.file)
    return json_text({"items": list(map(shown, keys))}) if options.json else lines_of(keys)


def lines_of(keys: list[Key]) -> str:
    """The keys for people, one a line."""
    lines = []
    for key in keys:
        streams = f", streams {', '.join(key['streams'])}" if "streams" in key else ""
        expires = f", expires {key['expires']}" if "expires" in key else ""
        lines.append(printable(f"{key['name']}: {', '.join(key['scopes'])}{streams}{expires}"))
    return "\n".join(lines)


def shown(key: Key) -> Key:
    """A key as JSON, with the fields of the HTTP API."""
    expires = key.get("expires")
    return {
        "name": key["name"],
        "scopes": key["scopes"],
        "streams": key.get("streams"),
        "expires": expires and expires.isoformat(),
    }


def revoke(options: argparse.Namespace) -> str:
    """Removes a key."""
    keys = read(options.file)
    left = [key for key in keys if key["name"] != options.name]
    if len(left) == len(keys):
        raise KeyFileError(f"there is no key named {options.name!r}")
    write(options.file, left)
    return json_text({"name": options.name, "revoked": True}) if options.json else ""


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
    """Replaces the file.

    Raises:
        KeyFileError: its folder does not exist.
    """
    if not file.parent.is_dir():
        raise KeyFileError(f"{file.parent} does not exist: create it first")
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
