"""One read for all tables: each message is in silver, in quarantine, or a repeat (ADR 0054)."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deltalake
import pandas as pd
import pyarrow.dataset
import pytest
from mqttcore.errors import PipelineError
from mqttcore.pipeline.batches import BatchWriter, advanced, totals_of
from mqttcore.pipeline.config import Alert, Bronze, Gold, Pipeline, Source, microseconds
from mqttcore.pipeline.definitions import Found
from mqttcore.pipeline.files import replace_file
from mqttcore.pipeline.progress import JsonLines, iso
from mqttcore.pipeline.run import run
from mqttcore.pipeline.table_files import overlaps
from mqttcore.pipeline.tables import Batch, DeltaTable, Seen
from mqttcore.spark.log import State

from tests.marks import NIGHTLY
from tests.pipeline.test_run import START, Make, held, message, pipeline
from tests.spark.endpoint import FakeEndpoint
from tests.stream_folder import START_US, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

MINUTE_US = 60_000_000
GOLD = (
    Gold(
        name="by_minute",
        window="1 minute",
        group_by=("machine",),
        columns=("count(*) AS measured", "max(temperature) AS highest"),
    ),
    Gold(
        name="sliding",
        window="2 minutes",
        slide="30 seconds",
        columns=("count(*) AS measured", "percentile(temperature, 0.5) AS middle"),
    ),
    Gold(name="rare", window="1 hour", columns=("count(*) AS measured",)),
)
NOISY = [
    message(0, "m1", temperature=20.0),
    message(1, "m2", temperature=21.0),
    message(1, "m2", temperature=21.0),  # again in the same batch
    message(70, "m1", temperature=22.0),
    message(1, "m2", temperature=21.0),  # again in a later batch, still before the watermark
    message(65, "m1", temperature=23.0),
    {"payload": b"{"},
    message(130, "m2", temperature=500.0),
    message(150, "m1", temperature=24.0),
    message(2, "m1", temperature=25.0),  # late
    message(150, "m1", temperature=24.0),  # again
    message(145, "m2", temperature=26.0),
    message(300, "m1", temperature=27.0),
    message(20, "m2", temperature=28.0),  # late
    message(299, "m1", at=None),
    message(301, "m2", temperature=29.0),
]


def noisy(folder: Path, **changes: Any) -> Pipeline:  # noqa: ANN401 -- of any field
    """Three messages a batch."""
    source = Source(path=folder, stream="plant", rows_per_batch=3)
    return pipeline(folder, **{"source": source, "gold": GOLD, **changes})


def offsets(folder: Path, table: str) -> Counter[int]:
    return Counter(row["offset"] for row in held(folder, table))


def windows_of(silver: list[dict[str, Any]], gold: Gold, watermark: pd.Timestamp) -> list[Any]:
    """The windows of a gold table that end at or before the watermark, by pandas."""
    frame = pd.DataFrame(silver)
    length = pd.Timedelta(gold.window)
    slide = pd.Timedelta(gold.slide or gold.window)
    parts = []
    for shift in range(int(length / slide)):
        part = frame.copy()
        part["start"] = frame["at"].dt.floor(slide) - shift * slide
        parts.append(part)
    every = pd.concat(parts)
    keys = ["start", *gold.group_by]
    made = every.groupby(keys)["temperature"].agg(["count", "max", "median"]).reset_index()
    made = made[made["start"] + length <= watermark]
    value = "max" if gold.name == "by_minute" else "median"
    columns = [*keys, "count", *([] if gold.name == "rare" else [value])]
    return sorted(made[columns].itertuples(index=False, name=None))


def kept_windows(found: list[dict[str, Any]]) -> list[Any]:
    """The same as the table has it."""
    return sorted(
        tuple(pd.Timestamp(value) if name == "window_start" else value for name, value in row)
        for row in (
            [(name, value) for name, value in each.items() if name != "window_end"]
            for each in found
        )
    )


def check(folder: Path, watermark: pd.Timestamp) -> None:
    """Each message is somewhere, once, and gold is what silver says."""
    bronze, silver = offsets(folder, "bronze"), offsets(folder, "silver")
    quarantine = offsets(folder, "quarantine")
    assert bronze == Counter(range(len(NOISY)))
    assert (silver | quarantine) <= bronze
    assert not silver & quarantine
    repeats = bronze - silver - quarantine
    assert sorted(repeats) == [2, 4, 10]
    kept = held(folder, "silver")
    for gold in GOLD:
        assert kept_windows(held(folder, gold.name)) == windows_of(kept, gold, watermark)


WATERMARK = pd.Timestamp(START + datetime.timedelta(seconds=291))


def test_bronze_is_silver_and_quarantine_and_repeats(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    told = io.StringIO()
    with FakeEndpoint(make_stream()) as endpoint:
        endpoint.write(rows(NOISY))

        run(noisy(tmp_path), spark=spark, once=True, reporter=JsonLines(told))

        reads = [each for each in endpoint.asked if each.startswith("GET /v1/streams/plant/rows")]
    check(tmp_path, WATERMARK)
    faults = Counter(row["fault"] for row in held(tmp_path, "quarantine"))
    assert faults == {
        "late: at is more than 10 seconds behind the newest messages": 2,
        "does not decode": 1,
        "not temperature < 100": 1,
        "at is missing": 1,
    }
    lines = [json.loads(line) for line in told.getvalue().splitlines()]
    assert sum(line["rows"] for line in lines) == len(NOISY)
    assert sum(line["quarantined"] for line in lines) == 5
    assert sum(line["late_rows"] for line in lines) == 2
    assert sum(line["repeats"] for line in lines) == 3
    # three gold tables, and one read of each batch
    assert len(reads) == len(lines) == 6


@pytest.mark.parametrize(
    ("table", "is_done"),
    [
        pytest.param("quarantine", False, marks=NIGHTLY, id="before-quarantine"),
        pytest.param("quarantine", True, marks=NIGHTLY, id="after-quarantine"),
        pytest.param("silver", False, marks=NIGHTLY, id="before-silver"),
        pytest.param("silver", True, marks=NIGHTLY, id="after-silver"),
        pytest.param("by_minute", False, marks=NIGHTLY, id="before-by_minute"),
        pytest.param("by_minute", True, id="after-by_minute"),
    ],
)
def test_rule_9_a_pipeline_that_dies_between_two_tables_goes_on_where_it_was(
    spark: SparkSession,
    tmp_path: Path,
    make_stream: Make,
    monkeypatch: pytest.MonkeyPatch,
    table: str,
    is_done: bool,
) -> None:
    append, deaths = DeltaTable.append, [4]

    def die(
        self: DeltaTable, rows: DataFrame, batch: Batch, *, mark_us: int | None = None
    ) -> int | None:
        dies = self.path.name == table and deaths and batch.number >= deaths[0]
        if dies and not is_done:
            raise PipelineError(f"out of luck {deaths.pop(0)}")
        added = append(self, rows, batch, mark_us=mark_us)
        if dies:
            raise PipelineError(f"out of luck {deaths.pop(0)}")
        return added

    make_stream().seal(rows(NOISY))
    monkeypatch.setattr(DeltaTable, "append", die)
    with pytest.raises(PipelineError, match="out of luck"):
        run(noisy(tmp_path), spark=spark, once=True)

    run(noisy(tmp_path), spark=spark, once=True)

    assert not deaths
    check(tmp_path, WATERMARK)


@pytest.mark.parametrize(
    ("before", "after", "late"),
    [((), GOLD[:1], {13}), pytest.param(GOLD[:1], (), {9}, marks=NIGHTLY)],
    ids=["added", "removed"],
)
def test_rule_9_a_batch_that_quarantine_has_keeps_its_faults_under_other_rules(
    spark: SparkSession,
    tmp_path: Path,
    make_stream: Make,
    monkeypatch: pytest.MonkeyPatch,
    before: tuple[Gold, ...],
    after: tuple[Gold, ...],
    late: set[int],
) -> None:
    """Without gold tables and `dedupe` nothing is late; row 9 is in the repeated batch."""
    append, deaths = DeltaTable.append, [3]

    def die(
        self: DeltaTable, rows: DataFrame, batch: Batch, *, mark_us: int | None = None
    ) -> int | None:
        if self.path.name == "silver" and batch.number in deaths:
            raise PipelineError(f"out of luck {deaths.pop()}")
        return append(self, rows, batch, mark_us=mark_us)

    make_stream().seal(rows(NOISY))
    monkeypatch.setattr(DeltaTable, "append", die)
    chosen = noisy(tmp_path, gold=before)
    chosen = dataclasses.replace(chosen, silver=dataclasses.replace(chosen.silver, dedupe=()))
    with pytest.raises(PipelineError, match="out of luck"):
        run(chosen, spark=spark, once=True)

    run(dataclasses.replace(chosen, gold=after), spark=spark, once=True)

    silver, quarantine = offsets(tmp_path, "silver"), offsets(tmp_path, "quarantine")
    assert silver + quarantine == Counter(range(len(NOISY)))
    assert set(quarantine) == {6, 7, 14} | late
    kept = held(tmp_path, "silver")
    for gold in after:
        assert kept_windows(held(tmp_path, gold.name)) == windows_of(kept, gold, WATERMARK)


def test_rule_9_parquet_tables_take_a_batch_again_that_died_before_its_note(
    spark: SparkSession, tmp_path: Path, make_stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    deaths = ["silver", "by_minute"]

    def die(path: Path, text: str) -> None:
        table = path.parent.parent.name
        if table in deaths and json.loads(text)["batch"] == 4:
            deaths.remove(table)
            raise PipelineError("out of luck")
        replace_file(path, text)

    make_stream().seal(rows(NOISY))
    chosen = noisy(tmp_path, format="parquet", gold=GOLD[:2])
    monkeypatch.setattr("mqttcore.pipeline.parquet_table.replace_file", die)
    for _ in range(2):
        with pytest.raises(PipelineError, match="out of luck"):
            run(chosen, spark=spark, once=True)

    run(chosen, spark=spark, once=True)

    assert not deaths
    silver = parquet_rows(tmp_path, "silver")
    assert len(silver) == len(NOISY) - 5 - 3
    assert len(parquet_rows(tmp_path, "bronze")) == len(NOISY)
    assert len(parquet_rows(tmp_path, "quarantine")) == 5
    for gold in GOLD[:2]:
        found = kept_windows(parquet_rows(tmp_path, gold.name))
        assert found == windows_of(silver, gold, WATERMARK)


def test_a_renamed_pipeline_is_refused(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    folder = make_stream()
    folder.seal(rows(NOISY[:9]))
    run(pipeline(tmp_path, gold=()), spark=spark, once=True)
    folder.seal(rows(NOISY[9:], base=9))

    with pytest.raises(PipelineError, match=r"none of the name new.bronze"):
        run(pipeline(tmp_path, gold=(), name="new"), spark=spark, once=True)
    run(pipeline(tmp_path, gold=()), spark=spark, once=True)

    assert offsets(tmp_path, "bronze") == Counter(range(len(NOISY)))


def parquet_rows(folder: Path, table: str) -> list[dict[str, Any]]:
    """The rows of a Parquet table."""
    files = sorted((folder / "tables" / table).glob("*.parquet"))
    found: list[dict[str, Any]] = pyarrow.dataset.dataset(files).to_table().to_pylist()
    return found


def test_a_gold_table_that_comes_later_has_all_of_silver(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    folder = make_stream()
    folder.seal(rows(NOISY[:9]))
    run(noisy(tmp_path, gold=()), spark=spark, once=True)
    folder.seal(rows(NOISY[9:], base=9))

    run(noisy(tmp_path), spark=spark, once=True)

    check(tmp_path, WATERMARK)


def test_a_gold_table_ahead_of_silver_is_refused(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    folder = make_stream()
    folder.seal(rows(NOISY))
    run(pipeline(tmp_path, gold=GOLD[:1]), spark=spark, once=True)
    for name in ("bronze", "quarantine", "silver", "_checkpoints"):
        (tmp_path / "tables" / name).rename(tmp_path / name)
    with pytest.raises(PipelineError, match="by_minute: has windows of which silver has no rows"):
        run(noisy(tmp_path, gold=GOLD[:1]), spark=spark, once=True)


def test_partitions_that_are_read_at_different_paces_are_not_late(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    """Of a backlog, one partition may be minutes ahead of another one."""
    folder = make_stream(partitions=2)
    folder.seal(rows([message(60 * number) for number in range(4)]))
    folder.seal(rows([message(number, "m2") for number in range(40)], partition=1))
    source = Source(path=tmp_path, stream="plant", rows_per_batch=11)

    run(noisy(tmp_path, source=source, gold=GOLD[:1]), spark=spark, once=True)

    assert held(tmp_path, "quarantine") == []
    assert len(held(tmp_path, "silver")) == 44


@pytest.mark.parametrize(
    "first",
    [
        [],
        [message(0) | {"topic": "elsewhere"}] * 40,
        [{"topic": "plant/m2", "payload": b"{", "timestamp": START_US}] * 40,
    ],
    ids=["nothing", "other topics", "faults"],
)
def test_a_partition_with_few_messages_is_not_late(
    spark: SparkSession, tmp_path: Path, make_stream: Make, first: list[dict[str, Any]]
) -> None:
    """The watermark waits for messages that another partition has and no batch has had."""
    folder = make_stream(partitions=2)
    folder.seal(rows([message(number) for number in range(400)]))
    few = [message(second, "m2") for second in (1, 2, 100, 200)]
    folder.seal(rows([*first, *few], partition=1))
    source = Source(path=tmp_path, stream="plant", topic="plant/#", rows_per_batch=50)

    run(noisy(tmp_path, source=source, gold=GOLD[:1]), spark=spark, once=True)

    faults = [row["fault"] for row in held(tmp_path, "quarantine")]
    assert [fault for fault in faults if fault.startswith("late")] == []
    assert len(held(tmp_path, "silver")) == 404


class AskedLog:
    """A stream that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def with_retries(self, ask: Callable[[], Any]) -> Any:  # noqa: ANN401 -- what `ask` returns
        """The broker is there."""
        return ask()

    def state(self) -> State:
        """Each partition has 9 rows."""
        self.asked.append("state")
        none = (0, 0)
        return State(name="plant", epoch="e", earliest=none, sealed=none, end=(9, 9))

    def offsets_at(self, _timestamp_us: int) -> tuple[int, ...]:
        """Each time is behind 5 of them."""
        self.asked.append("offsets")
        return (5, 5)


@pytest.mark.parametrize(
    ("timed", "ends", "asked", "is_behind"),
    [
        ({0, 1}, (1, 1), [], False),
        ({0}, (1, 9), ["state"], False),
        ({0}, (1, 7), ["state", "offsets"], False),
        ({0}, (1, 4), ["state", "offsets"], True),
    ],
)
def test_the_stream_is_asked_only_about_partitions_without_valid_rows(
    tmp_path: Path, timed: set[int], ends: tuple[int, ...], asked: list[str], is_behind: bool
) -> None:
    log: Any = AskedLog()
    parts = [part(100, 100, number) for number in timed]
    batch = Batch(name="p", query="q", number=0, starts=(0, 0), ends=ends)
    writer = BatchWriter(noisy(tmp_path), lambda name: DeltaTable(tmp_path / name), log)

    assert writer._is_behind(batch, totals_of(parts, 10)) is is_behind
    assert log.asked == asked


def test_nothing_is_late_where_nobody_asks_for_the_order(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    make_stream().seal(rows([message(second) for second in (100, 200, 300, 0, 1)]))
    chosen = noisy(tmp_path, gold=())
    silver = dataclasses.replace(chosen.silver, dedupe=())

    run(dataclasses.replace(chosen, silver=silver), spark=spark, once=True)

    assert len(held(tmp_path, "silver")) == 5


def test_a_repeat_is_known_by_its_key_for_the_time_of_the_watermark(
    spark: SparkSession, tmp_path: Path, make_stream: Make
) -> None:
    """As Spark's dropDuplicatesWithinWatermark has it; the key has no time."""
    seconds = [0, 12, 24, 14, 15, 40, 60, 61]
    machines = ["a", "b", "c", "a", "b", "d", "e", "b"]
    pairs = zip(seconds, machines, strict=True)
    make_stream().seal(rows([message(second, machine) for second, machine in pairs]))
    source = Source(path=tmp_path, stream="plant", rows_per_batch=1)
    chosen = noisy(tmp_path, source=source, gold=(), bronze=Bronze(keep=False))
    silver = dataclasses.replace(chosen.silver, dedupe=("machine",))

    run(dataclasses.replace(chosen, silver=silver), spark=spark, once=True)

    # `a` of second 14 comes when the watermark is 14, and that of second 0 is forgotten at 10
    assert sorted(offsets(tmp_path, "silver")) == [0, 1, 2, 3, 5, 6, 7]


@pytest.mark.parametrize(
    ("mark", "reached", "new"),
    [(None, None, None), (None, 50, 40), (45, 50, 45), (45, 60, 50), (45, None, 45)],
)
def test_the_watermark_never_goes_back(
    mark: int | None, reached: int | None, new: int | None
) -> None:
    assert advanced(mark, reached, 10) == new


def part(newest: int | None, received: int | None, number: int = 0) -> Any:  # noqa: ANN401 -- as a row of Spark
    """The figures of a partition; seconds."""
    from pyspark.sql import Row

    return Row(
        partition=number, rows=1, valid=1, late=0, oldest=newest, newest=newest, received=received
    )


@pytest.mark.parametrize(
    ("parts", "reached"),
    [
        ([], None),
        ([part(None, None)], None),
        ([part(1_000, 1_000), part(None, None)], 1_000),
        # a backlog: the broker received these messages 400 s apart
        ([part(1_000, 1_000), part(600, 600)], 600),
        ([part(1_000, 1_000), part(995, 1_000)], 995),
        # the clock of a device stands, or is far behind
        ([part(1_000, 1_000), part(0, 1_000)], 990),
        ([part(1_000, 1_000), part(0, 600)], 590),
        # messages of the past that are sent now
        ([part(50, 1_000), part(45, 1_001)], 45),
    ],
)
def test_a_clock_that_stands_does_not_hold_the_watermark_back(
    parts: list[Any], reached: int | None
) -> None:
    assert totals_of(parts, 10).reached_us == reached


def test_what_a_device_with_a_clock_that_stands_sends_becomes_late() -> None:
    """Alone in its partition, in each batch."""
    mark = None
    for now in range(0, 5 * 3_600, 3_600):
        reached = totals_of([part(now, now), part(0, now)], 600).reached_us
        mark = advanced(mark, reached, 600)

    assert mark == 4 * 3_600 - 1_200


@pytest.mark.parametrize(
    ("since", "until", "reads"),
    [
        (None, None, True),
        (START_US, None, True),
        (START_US + 2_000, None, True),
        (START_US + MINUTE_US, None, False),
        (None, START_US - MINUTE_US, False),
        (None, START_US + 1, True),
    ],
)
def test_a_file_is_read_if_it_may_have_rows_of_these_times(
    since: int | None, until: int | None, reads: bool
) -> None:
    assert overlaps((START_US, START_US + 1_500), since, until) is reads
    assert overlaps(None, since, until)


def test_a_table_says_how_far_it_was_before_a_batch() -> None:
    batch = Batch(name="p.silver", query="q", number=4, starts=(0,), ends=(9,))
    seen = Seen(number=4, ends=(9,), mark_us=20, mark_before_us=10)

    assert seen.before(batch) == 10
    assert seen.before(dataclasses.replace(batch, number=5)) == 20


def test_durations_and_times_have_the_units_of_a_watermark() -> None:
    assert microseconds("1 minute") == MINUTE_US
    assert microseconds("250 milliseconds") == 250_000
    assert microseconds("2 days") == 48 * 3_600_000_000
    assert iso(START_US) == "2023-11-14T22:13:20.000Z"
    assert iso(None) == ""


def test_alerts_of_all_tables_are_published_at_once(
    spark: SparkSession, tmp_path: Path, make_stream: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One commit for a batch: a second one of its name would be taken for a repeat."""
    from mqttcore.pipeline.alerts import AlertPublisher

    published: list[tuple[int, list[str]]] = []

    def publish(_: AlertPublisher, parts: list[DataFrame], batch: Batch) -> None:
        union = functools.reduce(lambda one, other: one.unionByName(other), parts)
        published.append((batch.number, sorted(row.topic for row in union.collect())))

    monkeypatch.setattr(AlertPublisher, "publish", publish)
    make_stream().seal(rows([message(1, temperature=95.0), message(100)]))
    alerts = tuple(
        Alert(name=table, table=table, when=f"{column} > 90", topic=f"'alerts/{table}'")
        for table, column in (("silver", "temperature"), ("by_minute", "highest"))
    )

    run(pipeline(tmp_path, alerts=alerts), spark=spark, once=True)

    assert published == [(0, ["alerts/by_minute", "alerts/silver"])]


def test_a_writer_has_a_table_for_each_name(tmp_path: Path) -> None:
    made: list[str] = []

    def table(name: str) -> DeltaTable:
        made.append(name)
        return DeltaTable(tmp_path / name)

    BatchWriter(noisy(tmp_path), table)

    assert made == ["bronze", "quarantine", "silver", "by_minute", "sliding", "rare"]
    assert deltalake.DeltaTable.is_deltatable(str(tmp_path)) is False


class KeptTable:
    """A table in memory that knows only what it has seen."""

    def __init__(self, name: str) -> None:
        self.path = Path(name)
        self.last = Seen()
        self.added: list[Any] = []

    @property
    def place(self) -> str:
        """Its name."""
        return str(self.path)

    def found(self) -> Found | None:
        """Nothing: nobody has made it."""

    def columns_of(self, rows: object) -> dict[str, str]:
        """Nothing, since it is not found."""
        raise AssertionError(rows)

    def adopt(self, rows: object, added: Sequence[str]) -> None:
        """As above."""
        raise AssertionError(rows, added)

    def seen(self, batch: Batch) -> Seen:
        """The last batch."""
        assert batch.query == "q"
        return self.last

    def append(self, rows: Any, batch: Batch, *, mark_us: int | None = None) -> int | None:  # noqa: ANN401 -- of any kind
        """Takes each batch."""
        before = self.last.mark_us
        self.last = Seen(number=batch.number, mark_us=mark_us, mark_before_us=before)
        self.added.append(rows)
        return 1

    def rows(self, *_: object, **__: object) -> Any:  # noqa: ANN401 -- no rows of Spark
        """Whatever there is."""
        return "silver"

    def tidy(self) -> None:
        """Nothing to do."""


def test_a_gold_table_that_comes_later_has_no_alerts_for_the_past(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def closed(_: object, after_us: int | None, up_to_us: int) -> tuple[int | None, int]:
        return after_us, up_to_us

    monkeypatch.setattr("mqttcore.pipeline.batches.windows", lambda rows, *_: rows)
    monkeypatch.setattr("mqttcore.pipeline.batches.closed", closed)
    monkeypatch.setattr("mqttcore.pipeline.batches.alert_messages", lambda rows, _: rows)
    alert = Alert(name="hot", table="by_minute", when="highest > 90", topic="'alerts/hot'")
    tables: dict[str, KeptTable] = {}

    def table(name: str) -> KeptTable:
        return tables.setdefault(name, KeptTable(name))

    writer = BatchWriter(noisy(tmp_path, gold=GOLD[:1], alerts=(alert,)), table)
    rows: Any = None
    published: list[Any] = []
    for number, before_us, up_to_us in [(7, 700, 800), (8, 800, 900), (8, 800, 900)]:
        batch = Batch(name="p", query="q", number=number, starts=(number,), ends=(number + 1,))
        published += writer._close(GOLD[0], rows, batch, before_us, up_to_us)

    assert tables["by_minute"].added[:2] == [(None, 800), (800, 900)]
    assert published == [(700, 800), (800, 900), (800, 900)]
