"""`mqttcore passwd FILE USER`: writes password files for `mqttcore.auth.password_file`.

With ``--scram`` it writes files for `mqttcore.auth.scram`; a file has one kind of users.
"""

import argparse
import getpass
import json
import os
import pathlib
import sys
from collections.abc import Sequence

from mqttcore._core import check_password_hash, hash_password
from mqttcore._replace import replace_file
from mqttcore.auth.password_file import read_password_file
from mqttcore.auth.scram import ITERATIONS, ITERATIONS_MIN, Verifier
from mqttcore.errors import PasswordFileError

ITERATIONS_MAX = 10_000_000
"""Maximum number of iterations; clients compute them, too, at each login."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Sets or removes one user's password; returns the exit status."""
    options = parser().parse_args(arguments)
    try:
        check_folder(options.file.parent)
        check = Verifier.parse if options.scram else check_password_hash
        users = read_password_file(options.file, check=check) if options.file.exists() else {}
        if options.delete:
            if users.pop(options.user, None) is None:
                raise PasswordFileError(f"{options.file}: has no user {options.user!r}")
            done = "removed"
        else:
            user, password = checked_user(options.user), ask()
            iterations = options.iterations if options.scram else None
            done = "changed" if user in users else "added"
            users[user] = hashed(password, scram_iterations=iterations)
        write(options.file, users)
    except (PasswordFileError, ValueError, OSError) as error:
        print(f"mqttcore passwd: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"file": str(options.file), "user": options.user, "done": done}))
    return 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(
        prog="mqttcore passwd",
        description="Sets a user's password in a file for mqttcore.auth.password_file or scram."
        " Asks for the password, or reads it from standard input if that is not a terminal.",
    )
    made.add_argument(
        "file",
        type=pathlib.Path,
        metavar="FILE",
        help="password file; created if it does not exist",
    )
    made.add_argument("user", metavar="USER", help="name of the user")
    made.add_argument("-D", "--delete", action="store_true", help="remove the user")
    made.add_argument(
        "--scram",
        action="store_true",
        help="write a file for mqttcore.auth.scram instead of password_file",
    )
    made.add_argument(
        "--iterations",
        type=int,
        default=ITERATIONS,
        metavar="N",
        help=f"iterations for --scram: {ITERATIONS_MIN} or more (default: {ITERATIONS})",
    )
    made.add_argument(
        "--json", action="store_true", help="print whether the user was added, changed or removed"
    )
    return made


def check_folder(folder: pathlib.Path) -> None:
    """Refuses a missing folder before anybody types a password."""
    if not folder.is_dir():
        raise PasswordFileError(f"{folder}: no such folder; create it first")


def hashed(password: bytes, *, scram_iterations: int | None) -> str:
    """The entry for the file: a hash, or a verifier of SCRAM."""
    salt = os.urandom(16)
    if scram_iterations is None:
        return hash_password(password, salt=salt)
    if not ITERATIONS_MIN <= scram_iterations <= ITERATIONS_MAX:
        raise ValueError(f"--iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return str(Verifier.of(password.decode(), salt=salt, iterations=scram_iterations))


def checked_user(user: str) -> str:
    """A user name that fits into a line."""
    if not user or user.startswith("#") or any(mark in user for mark in ":\r\n"):
        raise ValueError("a user name must not be empty, begin with # or contain a colon")
    return user


def ask() -> bytes:
    """Reads the password; twice from a terminal."""
    if not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\n")
    else:
        password = getpass.getpass("Password: ")
        if getpass.getpass("Again: ") != password:
            raise ValueError("the two passwords differ")
    if not password:
        raise ValueError("the password is empty")
    return password.encode()


def write(path: pathlib.Path, users: dict[str, str]) -> None:
    """Replaces the file in one step. Only its owner may read a new one."""
    replace_file(path, "".join(f"{user}:{text}\n" for user, text in users.items()))


if __name__ == "__main__":
    sys.exit(main())
