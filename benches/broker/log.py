"""How large our log is, as it stands in its files."""

from __future__ import annotations

import mmap
from pathlib import Path
from typing import Any

from benches.broker.brokers import ReportError

SEGMENT_HEADER_BYTES = 64
UNCOUNTED_BYTES = 8
"""Of a frame, beside those that its length counts."""


def extra_bytes(folder: Path, line: dict[str, Any]) -> float:
    """Bytes of the log for each message that the load sent, beyond topic and payload.

    Raises:
        ReportError: A checkpoint removed segments already: the load was too long.
    """
    segments = sorted(folder.glob("*.log"))
    if not segments or int(segments[0].stem) != 1:
        raise ReportError("the log has lost its first segment: use fewer --seconds")
    used = sum(used_bytes(segment) for segment in segments)
    own: float = line["topic_bytes"] + line["payload_bytes"]
    return float(used / line["sent"] - own)


def used_bytes(segment: Path) -> int:
    """Bytes of one segment that are written to; behind them there are zeros."""
    with (
        segment.open("rb") as file,
        mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as content,
    ):
        at = SEGMENT_HEADER_BYTES
        while length := int.from_bytes(content[at : at + 4], "little"):
            at += UNCOUNTED_BYTES + length
    return at
