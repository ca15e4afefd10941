"""Offsets of a streaming query as Spark stores them: a dict, compared as its JSON text.

``{"0": 17, "1": 4, "epoch": "<uuid>:<n>", "stream": "plant"}`` is an end: the first row of each
partition that is not read. The end of a query's first batch also has its beginning, so that Spark's
offset log fixes the meaning of ``latest``: ``"from": {"0": 3, ...}``. (Earlier versions wrote the
beginning with the end as ``"to": {...}``.) Both have ``"reads"``, the topic filters of the source,
which a sink uses for the feedback check. ``"stream"`` identifies the source in progress reports.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypedDict

from mqttcore.errors import StreamEpochError, StreamOptionError

__all__ = [
    "UNRESOLVED",
    "WORDS",
    "Lag",
    "SourceOffset",
    "advanced",
    "check_epoch",
    "lag",
    "lag_rows",
    "offset_of",
    "split_start",
]

UNRESOLVED: Final[dict[str, Any]] = {"unresolved": True}
"""The value of ``initialOffset``. That method is called twice and its value is not stored, so it
must not depend on the stream. The first ``latestOffset`` resolves it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """The position of a query."""

    epoch: str
    ends: tuple[int, ...]
    starts: tuple[int, ...] | None = None
    """The start of the query; only in the end of its first batch."""
    reads: tuple[str, ...] = field(default=(), compare=False)
    """Filters of the topics that the query reads."""
    stream: str | None = field(default=None, compare=False)
    """The name of the stream; None in offsets of earlier versions."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "SourceOffset | None":
        """The offset in Spark's dict; None for the beginning of a new query.

        Raises:
            StreamOptionError: the dict is not of this source, so the checkpoint is another's.
        """
        if value == UNRESOLVED:
            return None
        try:
            places = {key: end for key, end in value.items() if key not in WORDS}
            begin = value.get("from")
            return cls(
                epoch=value["epoch"],
                starts=None if begin is None else numbers(begin),
                ends=numbers(places.get("to", places)),
                reads=tuple(map(str, value.get("reads", ()))),
                stream=value.get("stream"),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StreamOptionError(
                f"checkpoint: {dict(value)!r} is not an offset of this source; each query needs"
                f" its own checkpointLocation"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The dict for Spark; the same offset makes the same JSON text, always."""
        return {
            **keyed(self.ends),
            "epoch": self.epoch,
            **({} if self.starts is None else {"from": keyed(self.starts)}),
            **({"reads": list(self.reads)} if self.reads else {}),
            **({} if self.stream is None else {"stream": self.stream}),
        }

    def check_epoch(self, epoch: str, stream: str) -> None:
        """Refuses offsets of another stream of that name.

        Raises:
            StreamEpochError: the stream has another epoch.
        """
        check_epoch("the checkpoint", self.epoch, stream=stream, has=epoch)


WORDS: Final = frozenset({"epoch", "from", "reads", "stream"})
"""Keys of a dict that are not partitions."""


def check_epoch(what: str, epoch: str, *, stream: str, has: str) -> None:
    """Refuses offsets that were taken in another stream of that name than it ``has`` now.

    Raises:
        StreamEpochError: they were.
    """
    if epoch != has:
        raise StreamEpochError(
            f"stream {stream}: {what} is of epoch {epoch}, the stream has epoch {has}: it was"
            f" restored, repaired or created again, so its offsets are other rows. Start the"
            f" query with a new checkpointLocation, and with startingTimestamp if rows must not"
            f" be read twice"
        )


def numbers(value: Mapping[str, Any]) -> tuple[int, ...]:
    """The offsets of partitions 0, 1, 2 ... in a dict."""
    ends = tuple(value[str(partition)] for partition in range(len(value)))
    if not ends or not all(type(end) is int and end >= 0 for end in ends):
        raise ValueError(value)
    return ends


def keyed(offsets: Sequence[int]) -> dict[str, int]:
    """A dict with canonical JSON: keys sorted as text."""
    return dict(sorted((str(partition), int(end)) for partition, end in enumerate(offsets)))


def split_start(
    start: Mapping[str, Any], end: Mapping[str, Any]
) -> tuple[SourceOffset, tuple[int, ...]]:
    """The end and the beginning offsets of a batch.

    Raises:
        StreamOptionError: the first batch of a query does not say where it began.
    """
    last = SourceOffset.parse(end)
    before = SourceOffset.parse(start)
    if last is None:
        raise StreamOptionError("checkpoint: a batch ends at an offset that does not exist yet")
    if before is not None:
        return last, before.ends
    if last.starts is None:
        raise StreamOptionError(f"checkpoint: the first batch, {dict(end)!r}, has no start")
    return last, last.starts


def advanced(start: Sequence[int], end: Sequence[int]) -> tuple[int, ...]:
    """``end``, but in no partition before ``start``: Spark itself accepts decreasing offsets."""
    return tuple(max(pair) for pair in zip(start, end, strict=True))


def lag_rows(start: Sequence[int], end: Sequence[int]) -> int:
    """Number of rows between two positions; no partition counts as negative."""
    return sum(max(0, last - first) for first, last in zip(start, end, strict=True))


class Lag(TypedDict):
    """The lag of a source behind its stream in rows, with the metrics of Spark's Kafka source.

    The numbers are over the partitions of the stream.
    """

    stream: str | None
    minOffsetsBehindLatest: int
    maxOffsetsBehindLatest: int
    avgOffsetsBehindLatest: float


def lag_of(end: SourceOffset, latest: SourceOffset) -> Lag:
    """The lag of a query that has read up to ``end``, in a stream that ends at ``latest``."""
    behind = [max(0, last - read) for read, last in zip(end.ends, latest.ends, strict=True)]
    return Lag(
        stream=latest.stream or end.stream,
        minOffsetsBehindLatest=min(behind),
        maxOffsetsBehindLatest=max(behind),
        avgOffsetsBehindLatest=sum(behind) / len(behind),
    )


def lag(progress: Mapping[str, Any]) -> list[Lag]:
    """The lag of each source of mqttcore in ``query.lastProgress``, or in a listener's event.

    Spark takes no metrics from sources in Python, so they are not in ``sources[].metrics``.
    """
    found = []
    for source in progress["sources"]:
        end, latest = offset_of(source["endOffset"]), offset_of(source["latestOffset"])
        if end is not None and latest is not None:
            found.append(lag_of(end, latest))
    return found


def offset_of(told: object) -> SourceOffset | None:
    """An offset in a query's progress; None if it is from another source."""
    try:
        value = json.loads(told) if isinstance(told, str) else told
        return SourceOffset.parse(value) if isinstance(value, Mapping) else None
    except (ValueError, StreamOptionError):
        return None
