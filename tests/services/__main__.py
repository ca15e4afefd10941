"""`python -m tests.services up` starts the servers of this machine, `down` stops them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from tests.services.servers import SERVERS, NotInstalledError, Server, start
from tests.services.state import ROOT, Running, keep, running

STOP_S = 20.0


def up() -> int:
    """Starts what does not run yet; a server that is not installed is named and left out."""
    now = running()
    missing = [server for server in SERVERS if server.name not in now]
    ROOT.mkdir(parents=True, exist_ok=True)
    with ThreadPoolExecutor(len(SERVERS)) as pool:
        outcomes = list(pool.map(begin, missing))
    now |= {made.name: made for made in outcomes if isinstance(made, Running)}
    keep(now)
    for server in now.values():
        print(f"{server.name:12}127.0.0.1:{server.port}  {server.folder}")
    return int(any(isinstance(outcome, RuntimeError) for outcome in outcomes))


def begin(server: Server) -> Running | RuntimeError | None:
    """Starts one; None: it is not installed."""
    begun = time.monotonic()
    try:
        made = start(server)
    except NotInstalledError as error:
        print(f"{server.name:12}{error}: its tests will be skipped")
        return None
    except RuntimeError as error:
        print(f"{server.name:12}{error}")
        return error
    print(f"{server.name:12}started in {time.monotonic() - begun:.1f} s")
    return made


def down() -> int:
    """Stops the servers that `up` started, and removes their folders."""
    now = running()
    for server in now.values():
        with contextlib.suppress(ProcessLookupError):
            os.kill(server.pid, signal.SIGTERM if server.name != "postgresql" else signal.SIGINT)
    deadline = time.monotonic() + STOP_S
    while any(server.is_alive() for server in now.values()) and time.monotonic() < deadline:
        time.sleep(0.05)
    for server in now.values():
        if server.is_alive():
            os.kill(server.pid, signal.SIGKILL)
        shutil.rmtree(server.folder, ignore_errors=True)
    keep({})
    return 0


if __name__ == "__main__":
    commands = {"up": up, "down": down}
    if sys.argv[1:2] and sys.argv[1] in commands:
        sys.exit(commands[sys.argv[1]]())
    sys.exit("usage: python -m tests.services up|down")
