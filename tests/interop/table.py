"""Runs drivers against a broker, and makes the table of what they say."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.interop.clients import TRANSPORTS, VERSIONS, Client

DRIVER_DEADLINE_S = 90
CA_FILES = ("SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS")
"""Variables that name more CAs: for OpenSSL and Go, and for Node.js."""
CHECKS = ("connect", "qos0", "qos1", "qos2", "retained", "will", "resume", "shared")
HEADS = ("connect", "QoS 0", "QoS 1", "QoS 2", "retained", "will", "resume", "shared")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one client did, in one version over one transport."""

    client: Client
    version: int
    transport: str
    release: str = ""
    """Which release of the client it was."""
    results: Mapping[str, str] = field(default_factory=dict)
    """By check: "yes", "n/a: why" or "no: why"."""
    why_not: str = ""
    """Why it did nothing."""

    @property
    def expected(self) -> tuple[str, ...]:
        """The checks that there are in this version."""
        return CHECKS if self.version == 5 else CHECKS[:-1]

    @property
    def faults(self) -> list[str]:
        """What did not work."""
        if self.why_not:
            return []
        found = {name: self.results.get(name, "no: the driver ended") for name in self.expected}
        return [f"{name}: {found[name]}" for name in found if found[name].startswith("no")]

    def __str__(self) -> str:
        """How people call it."""
        return f"{self.client.name}, {VERSIONS[self.version]}, {self.transport}"


def drive(
    client: Client, version: int, transport: str, port: int, *, ca: pathlib.Path | None = None
) -> Row:
    """Runs a client's driver; with TLS it trusts the CA of this PEM file."""
    topic = f"{client.key}-{version}-{transport}"
    words = [*client.command, "127.0.0.1", port, version, transport, topic]
    try:
        done = subprocess.run(  # noqa: S603 -- our own drivers
            [str(word) for word in words],
            env={**os.environ, **({name: str(ca) for name in CA_FILES} if ca else {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DRIVER_DEADLINE_S,
            check=False,
        )
        printed, said = done.stdout, done.stderr
    except subprocess.TimeoutExpired as late:
        printed = (late.stdout or b"").decode(errors="replace")
        said = f"not done within {DRIVER_DEADLINE_S} s"
    release, results = understand(printed)
    if not results:
        results = {"connect": f"no: {said.strip()[-300:] or 'the driver said nothing'}"}
    return Row(
        client=client, version=version, transport=transport, release=release, results=results
    )


def understand(printed: str) -> tuple[str, dict[str, str]]:
    """The lines of a driver."""
    release, results = "", {}
    for text in printed.splitlines():
        if not text.startswith("{"):
            continue
        line = json.loads(text)
        if "client" in line:
            release = line["version"]
        elif "na" in line:
            results[line["check"]] = f"n/a: {line['na']}"
        else:
            results[line["check"]] = "yes" if line["ok"] else f"no: {line.get('why', '')}"
    return release, results


def plan(clients: Sequence[Client]) -> Iterator[tuple[Client, int, str]]:
    """Every row that there could be."""
    for client in clients:
        for version in VERSIONS:
            for transport in TRANSPORTS:
                yield client, version, transport


def cells(row: Row) -> list[str]:
    """The results of a row, a word each."""
    if row.why_not:
        return ["n/a"] * len(CHECKS)
    words = []
    for name in CHECKS:
        if name not in row.expected:
            words.append("")
        else:
            words.append(row.results.get(name, "no").partition(":")[0])
    return words


def markdown(rows: Sequence[Row], skipped: Mapping[str, str], reading: str) -> str:
    """The page."""
    lines = [
        "# Foreign clients",
        "",
        "Written by `make interop`: clients of other projects with this broker, per version and",
        "transport. `tests/interop/README.md` says what the checks are.",
        "",
        "| client | release | from | MQTT | transport | " + " | ".join(HEADS) + " |",
        "| --- " * (5 + len(HEADS)) + "|",
    ]
    for row in rows:
        start = [row.client.name, row.release, row.client.source]
        start += [VERSIONS[row.version], row.transport]
        lines.append("| " + " | ".join([*start, *cells(row)]) + " |")
    reasons = {f"{row.client.name}: {row.why_not}" for row in rows if row.why_not}
    reasons |= {
        f"{row.client.name}: {result.removeprefix('n/a: ')}"
        for row in rows
        for result in row.results.values()
        if result.startswith("n/a")
    }
    lines += ["", "## n/a", "", *(f"* {reason}" for reason in sorted(reasons))]
    if skipped:
        lines += ["", "## Not run", "", *(f"* {name}: {why}" for name, why in skipped.items())]
    faults = [f"* {row}: {fault}" for row in rows for fault in row.faults]
    if faults:
        lines += ["", "## Faults", "", *faults]
    lines += ["", "## What a dissector says", "", reading + "."]
    return "\n".join(lines) + "\n"
