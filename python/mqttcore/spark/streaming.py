"""``spark.readStream.format("mqttcore")``: plans micro-batches on the driver.

Spark asks in this order, and exactly once hangs on each answer: `initialOffset` (twice, and never
stored: so it is a constant), `latestOffset` (stored before anything is read), `partitions` (the
same rows for the same offsets, always), `commit` (a batch late, and not at all after the last).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from mqttcore.errors import StreamOptionError
from mqttcore.spark.admission import FEW_ROWS, Admission, Pace
from mqttcore.spark.log import State, open_log
from mqttcore.spark.offsets import UNRESOLVED, SourceOffset, advanced, split_start
from mqttcore.spark.planner import ranges_between
from mqttcore.spark.planning import check_ends, not_before_earliest, place_of, tasks_of
from mqttcore.spark.prefetch import few_rows
from mqttcore.spark.reading import RowReader, tasks_for
from mqttcore.spark.retry import RETRY_S
from mqttcore.spark.workers import spare_collector

try:
    from pyspark.sql.streaming import datasource as limits
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

    TAKES_LIMITS = True
except ImportError:  # before Spark 4.2: each batch takes all there is
    TAKES_LIMITS = False
    limits = None  # type: ignore[assignment]  # and nobody asks for one
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]  # a class like any

try:
    from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper

    TAKES_ROWS = True
except ImportError:  # it is private to PySpark: without it tasks read all rows
    TAKES_ROWS = False
    _SimpleStreamReaderWrapper = object  # type: ignore[assignment,misc]  # a class like any

if TYPE_CHECKING:
    import pyarrow as pa

    from mqttcore.spark.options import SourceOptions

__all__ = ["MqttcoreStreamReader"]

logger = logging.getLogger(__name__)


class MqttcoreStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's view of a stream.

    One object lives on the driver for as long as the query; others, in the workers, only `read`.
    """

    def __init__(self, options: SourceOptions) -> None:
        if options.ending is not None:
            raise StreamOptionError(
                "options endingOffsets and endingTimestamp are for batches; a stream ends with"
                " trigger(availableNow=True)"
            )
        wanted = (options.max_rows, options.max_bytes, options.min_rows, options.batch_time_s)
        if not TAKES_LIMITS and any(wanted):
            logger.warning("limits of rows and bytes a trigger need Spark 4.2 or newer")
        self.options = options
        self.log = open_log(options)
        self.admission = Admission(
            max_rows=options.max_rows,
            max_bytes=options.max_bytes,
            min_rows=options.min_rows,
            max_delay_s=options.max_delay_s,
            pace=Pace(options.batch_time_s, options.max_rows) if options.batch_time_s else None,
        )
        self.seen: State | None = None
        """The last known state of the stream."""
        self.target: tuple[int, ...] | None = None
        """The end of an AvailableNow query."""
        self.holds = False
        """Whether a hold was placed since this object began."""
        self.last: dict[str, Any] = UNRESOLVED
        """The last offsets, for versions of Spark that do not pass the start of a batch."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 -- Spark's name
        """The start of every new query, not resolved yet."""
        return dict(UNRESOLVED)

    def getDefaultReadLimit(self) -> limits.ReadLimit:  # noqa: N802 -- Spark's name
        """Returns the default limit. Spark passes it back, or "all" to read everything."""
        if self.options.max_rows is not None:
            return limits.ReadMaxRows(self.options.max_rows)
        if self.options.max_bytes is not None:
            return limits.ReadMaxBytes(self.options.max_bytes)
        if self.options.min_rows is not None:
            return limits.ReadMinRows(self.options.min_rows)
        if self.options.batch_time_s is not None:
            return limits.ReadMaxRows(FEW_ROWS)
        return limits.ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 -- Spark's name
        """Fixes the end: later rows belong to the next run."""
        self.target = self.log.with_retries(self.log.state).end
        # such a limit would never be reached
        self.admission.min_rows = None

    def latestOffset(  # noqa: N802 -- Spark's name
        self, start: dict[str, Any] | None = None, limit: limits.ReadLimit | None = None
    ) -> dict[str, Any]:
        """The end of the next batch; the same dict as ``start`` if there is nothing to read."""
        start = self.last if start is None else start
        # before a broker that is away is waited for
        self.admission.batch_ended(monotonic())
        # a broker that was never reachable has failed already, when the stream was opened
        return self.log.with_retries(partial(self.next_offset, start, limit))

    def next_offset(self, start: dict[str, Any], limit: limits.ReadLimit | None) -> dict[str, Any]:
        """The end of the next batch; raises an error while the broker is away."""
        state = self.log.state()
        if not state.is_configured and (self.seen is None or self.seen.is_configured):
            logger.warning(
                "stream %s: the broker has it no more in its configuration, so it gets no new rows",
                state.name,
            )
        self.seen = state
        offset, begun = SourceOffset.parse(start), None
        limited = limit is not None and not isinstance(limit, limits.ReadAllAvailable)
        if offset is None:
            begin = begun = self.first_place(state)
        else:
            offset.check_epoch(state.epoch, self.log.name)
            begin = not_before_earliest(offset.ends, state, self.options)
        made = SourceOffset(
            epoch=state.epoch,
            starts=begun,
            ends=self.next_end(begin, state, limited=limited),
            reads=self.reads(state),
            stream=state.name,
        )
        self.hold_first(begin)
        if offset is not None and made.ends == offset.ends:
            return start
        self.last = made.to_dict()
        return self.last

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 -- Spark's name
        """The end of the stream, for the progress of the query."""
        if self.seen is None:
            return None
        seen = self.seen
        return SourceOffset(epoch=seen.epoch, ends=seen.end, stream=seen.name).to_dict()

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        """The tasks of one batch; it may have begun before a restart."""
        offset, begin = split_start(start, end)
        if self.seen is None:
            self.seen = self.log.with_retries(self.log.state)
            offset.check_epoch(self.seen.epoch, self.log.name)
        begin = not_before_earliest(begin, self.seen, self.options)
        ranges = ranges_between(begin, advanced(begin, offset.ends))
        tasks = tasks_for(self.seen, tasks_of(ranges, self.options), self.log)
        rows = few_rows(tasks, self.rows_reader(retry_s=0.0)) if TAKES_ROWS else None
        if rows is not None:
            Carrying.take(self, rows)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        spare_collector()
        try:
            yield from self.rows_reader().read(partition)
        finally:
            self.log.close()

    def rows_reader(self, *, retry_s: float = RETRY_S) -> RowReader:
        """Reads rows of this query."""
        return RowReader(
            log=self.log, options=self.options, topic=self.options.topic, retry_s=retry_s
        )

    def commit(self, end: Mapping[str, Any]) -> None:
        """Releases the rows of a completed batch: this consumer no longer needs them."""
        offset = SourceOffset.parse(end)
        if self.options.consumer is not None and offset is not None:
            self.log.hold(self.options.consumer, offset.ends)

    def stop(self) -> None:
        """Ends the query; its hold stays until it expires, for the next run."""
        self.log.close()

    def reads(self, state: State) -> tuple[str, ...]:
        """The topics that this query reads."""
        return state.filters if self.options.topic is None else (self.options.topic,)

    def first_place(self, state: State) -> tuple[int, ...]:
        """The start of a new query."""
        position = self.options.starting or "latest"
        begin = place_of("startingOffsets", position, state, self.log)
        check_ends(ranges_between((0,) * len(begin), begin), state)
        return not_before_earliest(begin, state, self.options)

    def next_end(self, begin: tuple[int, ...], state: State, *, limited: bool) -> tuple[int, ...]:
        """The end of a batch that starts at ``begin``."""
        end = state.end
        if self.target is not None:
            end = tuple(min(pair) for pair in zip(end, self.target, strict=True))
        # after a crash, or while the broker is away, the end may be before the query's position
        end = advanced(begin, end)
        if not limited:
            return end
        return self.admission.end(begin, end, row_bytes=self.row_bytes(), now_s=monotonic())

    def row_bytes(self) -> float:
        """Bytes of a row, if a limit needs them."""
        return self.log.row_bytes() if self.options.max_bytes is not None else 1.0

    def hold_first(self, begin: Sequence[int]) -> None:
        """Sets the hold before the first batch: `commit` comes late, and not after the last one."""
        if self.holds or self.options.consumer is None:
            return
        self.log.hold(self.options.consumer, begin)
        self.holds = True


class Carrying(MqttcoreStreamReader, _SimpleStreamReaderWrapper):
    """A reader that has the rows of a planned batch, until Spark takes them.

    Spark asks only readers of this class for rows, directly after `partitions`, and does not ask
    them for the end of the stream. So a reader has this class only in between.
    """

    rows: list[pa.RecordBatch]

    @classmethod
    def take(cls, reader: MqttcoreStreamReader, rows: list[pa.RecordBatch]) -> None:
        """Converts a reader and stores its rows."""
        reader.__class__ = cls
        cast("Carrying", reader).rows = rows

    def getCache(  # noqa: N802 -- Spark's name
        self, start: dict[str, Any], end: dict[str, Any]
    ) -> Iterator[Any]:
        """Returns the rows of the batch, once."""
        self.__class__ = MqttcoreStreamReader  # type: ignore[assignment]  # as it was
        rows, self.rows = self.rows, []
        return iter(rows)
