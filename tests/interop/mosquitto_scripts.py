"""Mosquitto's own test scripts of ACL files and dynamic security, run against mqttcore.

`python -m tests.interop.mosquitto_scripts FOLDER`: the unpacked source of Mosquitto 2.0.11
(`apt-get source mosquitto`; no part of it is in this repository).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from tests.operations.sys_diff import free_port

PATTERNS: Final = ("04-retain-check-source.py", "09-acl-*.py", "14-dynsec-*.py")
STAYS: Final = "clients whose rights change stay connected (ADR 0071)"
CODE: Final = "a wrong password is 0x86 or 4, not 0x87 or 5"
DIFFERENT: Final[dict[str, str]] = {
    "04-retain-check-source.py": "a publisher without user name is not known (ADR 0029)",
    "09-acl-change.py": "a dropped message uses no packet identifier",
    "14-dynsec-acl.py": STAYS,
    "14-dynsec-anon-group.py": STAYS,
    "14-dynsec-auth.py": CODE,
    "14-dynsec-disable-client.py": CODE,
}
"""Scripts that end at something that differs, and what."""
ROOT: Final = Path(__file__).parents[2]
TIMEOUT_S: Final = 120


def outcome(script: Path) -> str:
    """The result of a script: empty if it passes, otherwise the first line that says why."""
    command = [sys.executable, script.name, str(free_port())]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'python'}"}
    log = script.with_suffix(".log")
    with log.open("w") as output:
        running = subprocess.Popen(  # noqa: S603 - a script that the caller names
            command,
            cwd=script.parent,
            env=environment,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            status: int | None = running.wait(TIMEOUT_S)
        except subprocess.TimeoutExpired:
            status = None
        with contextlib.suppress(ProcessLookupError):  # a script that fails may leave its broker
            os.killpg(running.pid, signal.SIGTERM)
        running.wait()
    if status == 0:
        return ""
    lines = [line for line in log.read_text().splitlines() if line.strip()]
    return lines[0] if status and lines else f"more than {TIMEOUT_S} s"


def main() -> int:
    """Runs the scripts, prints a line for each; returns how many fail that should not."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("source", type=Path, help="folder with the source of Mosquitto")
    options.add_argument("--only", default="", help="part of the names of scripts")
    options.add_argument("--keep", action="store_true", help="keep the folder with the logs")
    found = options.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="mosquitto-scripts-"))
    shutil.copytree(found.source / "test", folder / "test")
    (folder / "src").mkdir()
    stand_in = folder / "src" / "mosquitto"
    stand_in.write_text(
        f'#!/bin/sh\nexec {sys.executable} -m tests.interop.mosquitto_stand_in "$@"\n'
    )
    stand_in.chmod(0o755)
    broker = folder / "test" / "broker"
    scripts = sorted(path for pattern in PATTERNS for path in broker.glob(pattern))
    results = {path.name: outcome(path) for path in scripts if found.only in path.name}
    for name, why in results.items():
        known = DIFFERENT.get(name)
        note = f"differs: {known}" if why and known else why
        print(f"{name:36} {'passed' if not why else note}")
    failed = sum(1 for name, why in results.items() if why and name not in DIFFERENT)
    print(f"{sum(not why for why in results.values())} of {len(results)} passed, {failed} failed")
    if found.keep:
        print(folder)
    else:
        shutil.rmtree(folder)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
