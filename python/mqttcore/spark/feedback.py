"""The feedback check: a query may not publish messages that it would read again.

Spark does not tell a sink what its query reads. But the offsets in the query's checkpoint name the
topic filters of each source.
"""

from __future__ import annotations

import urllib.parse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mqttcore._core import TopicFilter
from mqttcore.errors import LoopError, StreamOptionError
from mqttcore.spark.checkpoint import newest_offsets
from mqttcore.spark.offsets import SourceOffset

if TYPE_CHECKING:
    from mqttcore.spark.sink_options import SinkOptions
    from mqttcore.streams.client import StreamClient

__all__ = ["Guard", "guard_of"]


@dataclass(frozen=True, slots=True)
class Guard:
    """The topics that the query reads, as filters."""

    reads: tuple[str, ...] = ()

    def check(self, topics: Iterable[str | None]) -> None:
        """Checks topics; an empty guard accepts all.

        Raises:
            LoopError: the query reads one of them.
        """
        filters = [TopicFilter(text) for text in self.reads]
        for topic in topics if filters else ():
            for taken in filters:
                if topic is not None and taken.matches(topic):
                    raise LoopError(
                        f"topic {topic!r}: the query reads {str(taken)!r}, so it would read this"
                        f" message again. Use another topic, or set option allowLoop = true"
                    )


def guard_of(options: SinkOptions, client: StreamClient | None) -> Guard:
    """The guard for a sink with these options; ``client`` is its mqttcore broker.

    Raises:
        LoopError: option topic is such a topic.
        EndpointError: option stream names no stream of the broker.
    """
    if options.allow_loop:
        return Guard()
    if options.stream is not None and client is not None:
        guard = Guard(client.stream(options.stream).filters)
    else:
        guard = Guard(query_reads(options, client))
    guard.check([options.topic])
    return guard


def query_reads(options: SinkOptions, client: StreamClient | None) -> tuple[str, ...]:
    """The topic filters that the query reads, according to its checkpoint."""
    offsets = query_offsets(options.checkpoint) if options.checkpoint else []
    if client is not None and offsets:
        # messages for another broker do not come back
        here = {store_of(stream.epoch) for stream in client.streams()}
        offsets = [offset for offset in offsets if store_of(offset.epoch) in here]
    return tuple(dict.fromkeys(text for offset in offsets for text in offset.reads))


def query_offsets(checkpoint: str) -> list[SourceOffset]:
    """The offsets of mqttcore's sources; none if this machine cannot read the checkpoint."""
    url = urllib.parse.urlsplit(checkpoint)
    if url.scheme not in {"", "file"}:
        return []
    path = Path(urllib.parse.unquote(url.path) if url.scheme else checkpoint)
    offsets = []
    for value in newest_offsets(path):
        try:
            offset = SourceOffset.parse(value) if isinstance(value, dict) else None
        except StreamOptionError:
            continue  # of another source
        if offset is not None:
            offsets.append(offset)
    return offsets


def store_of(epoch: str) -> str:
    """The broker's part of a stream's epoch."""
    return epoch.rpartition(":")[0]
