"""What a wheel was made of: `python -m tests.provenance WHEEL` verifies it against its statement.

`make wheel` writes the statement beside the wheel, as `NAME.whl.provenance.json`: in-toto
Statement v1 with the predicate SLSA Provenance v1. It names the SHA-256 of the wheel, the commit,
the lock files with their hashes, the tools and the command. It is not signed: whoever publishes
wheels signs the file, with a key that this repository has not (docs/adr/0068).
Nothing of mqttcore is imported here.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parent.parent
SUFFIX: Final = ".provenance.json"
STATEMENT: Final = "https://in-toto.io/Statement/v1"
PREDICATE: Final = "https://slsa.dev/provenance/v1"
LOCKS: Final = ("Cargo.lock", "requirements-build.lock")
# Those that decide about the bytes of a build.
ENVIRONMENT: Final = (
    "SOURCE_DATE_EPOCH",
    "RUSTFLAGS",
    "CFLAGS",
    "CXXFLAGS",
    "CARGO_PROFILE_RELEASE_LTO",
    "CARGO_PROFILE_RELEASE_CODEGEN_UNITS",
    "CARGO_PROFILE_DEV_DEBUG",
)


class ProvenanceError(Exception):
    """A wheel and its statement disagree; the text says in what."""


def sha256(data: bytes) -> str:
    """The digest, as 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def output(*command: str) -> str:
    """What a program of this machine prints.

    Raises:
        ProvenanceError: it is not there, or it fails.
    """
    program = shutil.which(command[0])
    if program is None:
        raise ProvenanceError(f"{command[0]} is not installed")
    done = subprocess.run(  # noqa: S603 - fixed programs and arguments
        [program, *command[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise ProvenanceError(f"{' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()


def changes() -> list[str]:
    """The files of this checkout that differ from its commit."""
    found = output("git", "diff", "--name-only", "HEAD", "--", ".").splitlines()
    return found + output("git", "ls-files", "--others", "--exclude-standard").splitlines()


def source() -> dict[str, Any]:
    """The commit, and the files that differ from it."""
    return {
        "name": "source",
        "digest": {"gitCommit": output("git", "rev-parse", "HEAD")},
        "annotations": {"changed": changes()},
    }


def tools() -> dict[str, str]:
    """The versions of what compiles and packs."""
    return {
        "rustc": output("rustc", "-vV"),
        "cargo": output("cargo", "-V"),
        "cc": output("cc", "--version").splitlines()[0],
        "maturin": output(os.environ.get("MATURIN", ".venv/bin/maturin"), "-V"),
        "python": platform.python_version(),
        "platform": platform.platform(),
    }


def settings() -> dict[str, str]:
    """The variables that decide about the bytes, without the flags that replace folders."""
    found = {}
    for name in ENVIRONMENT:
        words = os.environ.get(name, "").split()
        found[name] = " ".join(
            each for each in words if not re.match("--remap-path-prefix=|-ffile-prefix-map=", each)
        )
    return {name: value for name, value in found.items() if value}


def statement(wheel: Path, *, build: str) -> dict[str, Any]:
    """The statement about a wheel that `build` has just made of this checkout."""
    locks = [
        {"name": name, "digest": {"sha256": sha256((ROOT / name).read_bytes())}} for name in LOCKS
    ]
    return {
        "_type": STATEMENT,
        "subject": [{"name": wheel.name, "digest": {"sha256": sha256(wheel.read_bytes())}}],
        "predicateType": PREDICATE,
        "predicate": {
            "buildDefinition": {
                "buildType": "urn:mqttcore:make-wheel:v1",
                "externalParameters": {"command": build},
                "internalParameters": {"environment": settings(), "tools": tools()},
                "resolvedDependencies": [source(), *locks],
            },
            "runDetails": {"builder": {"id": os.environ.get("BUILDER_ID", "urn:mqttcore:by-hand")}},
        },
    }


def read_statement(path: Path) -> dict[str, Any]:
    """A statement of the right types.

    Raises:
        ProvenanceError: it is none.
    """
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        raise ProvenanceError(f"{path} is missing") from None
    except ValueError as error:
        raise ProvenanceError(f"{path.name} is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ProvenanceError(f"{path.name} is not a statement")
    for key, wanted in (("_type", STATEMENT), ("predicateType", PREDICATE)):
        if found.get(key) != wanted:
            raise ProvenanceError(f"{path.name}: {key} is {found.get(key)!r}, not {wanted!r}")
    return found


def verify_wheel(wheel: Path, found: dict[str, Any]) -> None:
    """The wheel is the one that the statement names, byte for byte.

    Raises:
        ProvenanceError: it is another one.
    """
    digests = {each["name"]: each["digest"]["sha256"] for each in found["subject"]}
    if wheel.name not in digests:
        raise ProvenanceError(f"{wheel.name}: the statement is about {', '.join(digests)}")
    digest = sha256(wheel.read_bytes())
    if digest != digests[wheel.name]:
        raise ProvenanceError(
            f"{wheel.name}: its SHA-256 is {digest}, that of the statement {digests[wheel.name]}"
        )


def verify_source(found: dict[str, Any]) -> str:
    """The lock files are those of the commit; returns the commit.

    Raises:
        ProvenanceError: they are others, this checkout lacks the commit, or it was changed.
    """
    parts = {
        part["name"]: part for part in found["predicate"]["buildDefinition"]["resolvedDependencies"]
    }
    commit: str = parts["source"]["digest"]["gitCommit"]
    if changed := parts["source"]["annotations"]["changed"]:
        raise ProvenanceError(f"it was built with changes to {commit}: {', '.join(changed)}")
    for name in LOCKS:
        kept = output("git", "cat-file", "blob", f"{commit}:{name}") + "\n"
        if sha256(kept.encode()) != parts[name]["digest"]["sha256"]:
            raise ProvenanceError(f"{name} is not that of {commit}")
    return commit


def differences(first: Path, second: Path) -> list[str]:
    """The members in which two wheels differ; `(archive)` if only their frames do."""
    if first.read_bytes() == second.read_bytes():
        return []
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        names = sorted({*one.namelist(), *other.namelist()})
        common = {*one.namelist()} & {*other.namelist()}
        found = [n for n in names if n not in common or one.read(n) != other.read(n)]
    return found or ["(archive)"]


def write(wheel: Path, *, build: str) -> None:
    """Writes the statement beside the wheel."""
    path = wheel.with_name(wheel.name + SUFFIX)
    path.write_text(json.dumps(statement(wheel, build=build), indent=2) + "\n")


def verify(wheel: Path, *, only_wheel: bool) -> None:
    """Verifies a wheel against the statement beside it, and prints what it was built of."""
    found = read_statement(wheel.with_name(wheel.name + SUFFIX))
    verify_wheel(wheel, found)
    if not only_wheel:
        print(f"{wheel.name}: built from {verify_source(found)}")


def compare(wheels: list[Path]) -> None:
    """Two wheels have the same bytes.

    Raises:
        ProvenanceError: they have not.
    """
    first, second = wheels
    if found := differences(first, second):
        raise ProvenanceError(f"{first} and {second} differ in {', '.join(found)}")
    print(f"{first.name}: same bytes, SHA-256 {sha256(first.read_bytes())}")


def parser() -> argparse.ArgumentParser:
    """The command line."""
    found = argparse.ArgumentParser(prog="python -m tests.provenance", description=__doc__)
    found.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    how = found.add_mutually_exclusive_group()
    how.add_argument("--write", metavar="COMMAND", help="write the statement of a build by COMMAND")
    how.add_argument("--compare", action="store_true", help="compare the bytes of two wheels")
    how.add_argument(
        "--only-wheel", action="store_true", help="do not look for the commit in this checkout"
    )
    return found


def main(arguments: list[str]) -> int:
    """Runs one command; 1 if something disagrees, with a line that says what."""
    options = parser().parse_args(arguments)
    try:
        if options.compare:
            compare(options.wheels)
        for wheel in () if options.compare else options.wheels:
            if options.write is not None:
                write(wheel, build=options.write)
            else:
                verify(wheel, only_wheel=options.only_wheel)
    except (ProvenanceError, LookupError, TypeError) as error:
        print(f"provenance: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
