"""`python -m tests.interop`: the table of foreign clients; exits with 1 when a check failed."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import pathlib
import sys
import tempfile
from collections.abc import Iterator

from mqttcore import certs
from mqttcore.config import Tls

from tests.conftest import both_transports, start
from tests.interop.clients import CLIENTS, ROOT, BuildError, Client
from tests.interop.recorder import (
    HTTP_PORT,
    MQTT_PORT,
    Capture,
    Proxy,
    read,
    tshark_is_missing,
)
from tests.interop.table import Row, drive, markdown, plan

PAGE = ROOT / "docs" / "interop.md"


def main() -> int:
    """Runs all that can run, prints and writes the table."""
    options = arguments()
    chosen = [one for one in CLIENTS if not options.only or one.key in options.only]
    ready, skipped = prepare(chosen)
    with tempfile.TemporaryDirectory() as folder:
        capture = Capture(pathlib.Path(options.capture or f"{folder}/interop.pcap"))
        rows, handled = run(ready, capture)
        capture.close()
        reading, is_clean = judge(capture, handled)
    print(reading)
    faults = [f"{row}: {fault}" for row in rows for fault in row.faults]
    done = sum(not row.why_not for row in rows)
    print(f"rows {done}, failing checks {len(faults)}, clients not run {len(skipped)}")
    print(*faults, *(f"not run: {name}: {why}" for name, why in skipped.items()), sep="\n")
    if not options.only:
        PAGE.write_text(markdown(rows, skipped, reading), encoding="utf-8")
    return 0 if is_clean and not faults else 1


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.interop")
    parser.add_argument("--capture", metavar="FILE", help="keep what was said, for Wireshark")
    parser.add_argument(
        "only", nargs="*", metavar="CLIENT", help="these only, and the page stays as it is"
    )
    return parser.parse_args()


def prepare(clients: list[Client]) -> tuple[list[Client], dict[str, str]]:
    """Builds drivers; the others are skipped by name."""
    ready, skipped = [], {}
    for client in clients:
        why = client.lacks()
        if not why:
            print(f"preparing {client.name}", file=sys.stderr, flush=True)
            try:
                client.build()
            except BuildError as error:
                why = str(error)
        if why:
            skipped[client.name] = " ".join(why.split())
        else:
            ready.append(client)
    return ready, skipped


def run(clients: list[Client], capture: Capture) -> tuple[list[Row], int]:
    """All rows, and how many packets the broker has counted."""
    rows = []
    with contextlib.ExitStack() as stack:
        broker = stack.enter_context(start(listeners=both_transports(), sys_interval_s=0.0))
        (_, plain), (_, framed) = broker.addresses
        ports = {
            "tcp": stack.enter_context(Proxy(capture, plain, MQTT_PORT)).port,
            "websocket": stack.enter_context(Proxy(capture, framed, HTTP_PORT)).port,
        }
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        ports |= stack.enter_context(encrypted(folder))
        for client, version, transport in plan(clients):
            why = client.why_not(version, transport)
            if why:
                row = Row(client=client, version=version, transport=transport, why_not=why)
            else:
                row = drive(client, version, transport, ports[transport], ca=folder / "ca.pem")
                print(row, "fails" if row.faults else "fine", file=sys.stderr, flush=True)
            rows.append(row)
        stats = broker.stats()
    return rows, stats["packets_received"] + stats["packets_sent"]


@contextlib.contextmanager
def encrypted(folder: pathlib.Path) -> Iterator[dict[str, int]]:
    """A broker with TLS, whose certificates are in `folder`; its ports by transport."""
    certs.main(["dev", str(folder)])
    tls = Tls(certificate=folder / "server.pem", key=folder / "server.key")
    listeners = [dataclasses.replace(one, tls=tls) for one in both_transports()]
    with start(listeners=tuple(listeners), sys_interval_s=0.0) as broker:
        (_, plain), (_, framed) = broker.addresses
        yield {"tls": plain, "wss": framed}


def judge(capture: Capture, handled: int) -> tuple[str, bool]:
    """What tshark says, and whether nothing was malformed."""
    if tshark_is_missing():
        return "tshark is missing: nobody has decoded the run", True
    reading = read(capture)
    return f"{reading}; the broker counted {handled} packets", reading.malformed == 0


if __name__ == "__main__":
    sys.exit(main())
