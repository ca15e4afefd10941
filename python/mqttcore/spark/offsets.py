"""Offsets of a streaming query as Spark stores them: a dict that is compared as its JSON text.

``{"0": 17, "1": 4, "epoch": "<uuid>:<n>"}`` is an end: the first row of each partition that is not
read. The end of a query's first batch carries its beginning too, so that Spark's offset log pins
what ``latest`` meant: ``{"epoch": ..., "from": {"0": 3, ...}, "to": {"0": 17, ...}}``. Both have
``"reads"``, the topic filters of what the query takes in: a sink looks there, so that it does not
feed its own query.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from mqttcore.errors import StreamEpochError, StreamOptionError

__all__ = [
    "UNRESOLVED",
    "WORDS",
    "SourceOffset",
    "advanced",
    "check_epoch",
    "lag_rows",
    "split_start",
]

UNRESOLVED: Final[dict[str, Any]] = {"unresolved": True}
"""What ``initialOffset`` returns: it is asked twice and its answer is not stored, so it must not
depend on what the stream holds. The first ``latestOffset`` says what it means."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOffset:
    """How far a query has come."""

    epoch: str
    ends: tuple[int, ...]
    starts: tuple[int, ...] | None = None
    """Where the query began; only in the end of its first batch."""
    reads: tuple[str, ...] = field(default=(), compare=False)
    """Filters of the topics that the query takes in."""

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> "SourceOffset | None":
        """The offset in Spark's dict; None for the beginning of a new query.

        Raises:
            StreamOptionError: the dict is not of this source, so the checkpoint is another's.
        """
        if value == UNRESOLVED:
            return None
        try:
            epoch, reads = value["epoch"], tuple(map(str, value.get("reads", ())))
            if "to" in value:
                starts, ends = numbers(value["from"]), numbers(value["to"])
                return cls(epoch=epoch, starts=starts, ends=ends, reads=reads)
            ends = numbers({key: end for key, end in value.items() if key not in WORDS})
            return cls(epoch=epoch, ends=ends, reads=reads)
        except (KeyError, TypeError, ValueError) as error:
            raise StreamOptionError(
                f"checkpoint: {dict(value)!r} is not an offset of this source; each query needs"
                f" its own checkpointLocation"
            ) from error

    def to_dict(self) -> dict[str, Any]:
        """The dict for Spark; the same offset makes the same JSON text, always."""
        reads = {"reads": list(self.reads)} if self.reads else {}
        if self.starts is None:
            return {**keyed(self.ends), "epoch": self.epoch, **reads}
        places = {"from": keyed(self.starts), **reads, "to": keyed(self.ends)}
        return {"epoch": self.epoch, **places}

    def check_epoch(self, epoch: str, stream: str) -> None:
        """Refuses offsets of another life of the stream.

        Raises:
            StreamEpochError: the stream has another epoch.
        """
        check_epoch("the checkpoint", self.epoch, stream=stream, has=epoch)


WORDS: Final = frozenset({"epoch", "reads"})
"""Keys of a dict that are no partitions."""


def check_epoch(what: str, epoch: str, *, stream: str, has: str) -> None:
    """Refuses offsets that were taken in another life of a stream than it ``has`` now.

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
    """The offsets of partitions 0, 1, 2 ... out of a dict."""
    ends = tuple(value[str(partition)] for partition in range(len(value)))
    if not ends or not all(type(end) is int and end >= 0 for end in ends):
        raise ValueError(value)
    return ends


def keyed(offsets: Sequence[int]) -> dict[str, int]:
    """A dict whose JSON is canonical: keys in their order as text."""
    return dict(sorted((str(partition), int(end)) for partition, end in enumerate(offsets)))


def split_start(
    start: Mapping[str, Any], end: Mapping[str, Any]
) -> tuple[SourceOffset, tuple[int, ...]]:
    """The end of a batch, and the offsets that it begins at.

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
    """``end``, but in no partition before ``start``: Spark itself accepts offsets that go back."""
    return tuple(max(pair) for pair in zip(start, end, strict=True))


def lag_rows(start: Sequence[int], end: Sequence[int]) -> int:
    """Rows between two places, none of which is negative."""
    return sum(max(0, last - first) for first, last in zip(start, end, strict=True))
