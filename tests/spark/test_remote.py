"""Sealed rows for machines that do not see the broker's folder: fetched from its endpoint."""

from __future__ import annotations

import dataclasses
import io
import itertools
import pathlib
import random
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa
import pytest
from mqttcore import Broker
from mqttcore._core import StreamReader
from mqttcore.errors import FileChangedError, StreamFolderError
from mqttcore.spark import read
from mqttcore.spark.fetching import WHOLE_BYTES
from mqttcore.spark.folder import FileMovedError, SealedFile
from mqttcore.spark.folder import StreamFolder as Folder
from mqttcore.spark.log import StreamLog
from mqttcore.spark.remote import RemoteFolder
from mqttcore.streams.client import StreamClient

from tests.eventually import eventually
from tests.stream_folder import START_US, StreamFolder, rows
from tests.streams.plant import TOKEN, plant_settings, with_key
from tests.tls import Files

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # Spark itself may need a minute to begin

ROWS = 200


class Part(io.BytesIO):
    """Bytes of a file, as the endpoint answers."""

    tag: str
    total_bytes: int


@dataclasses.dataclass
class Disk:
    """What `RemoteFolder` asks an endpoint for, from the disk; remembers which bytes."""

    path: pathlib.Path
    tag: str = "first"
    asked: list[tuple[int, int]] = dataclasses.field(default_factory=list)

    def file(self, _stream: str, _file: str, *, start: int, end: int, tag: str | None) -> Part:
        """Some bytes."""
        if tag not in (None, self.tag):
            raise FileChangedError("changed", status=412, code="changed")
        self.asked.append((start, end))
        whole = self.path.read_bytes()
        part = Part(whole[start:end])
        part.tag, part.total_bytes = self.tag, len(whole)
        return part


@dataclasses.dataclass
class Large:
    """A file of several row groups."""

    disk: Disk
    file: SealedFile

    @classmethod
    def make(cls, stream: StreamFolder) -> Self:
        """Two row groups, of payloads that cannot be packed."""
        count, base = 200_000, 7
        table = rows([{}]).take(pa.array([0] * count))
        payloads = io.BytesIO(random.Random(7).randbytes(16 * count))  # noqa: S311 -- any bytes
        for name, values in {
            "offset": range(base, base + count),
            "timestamp": range(START_US, START_US + count),
            "payload": [payloads.read(16) for _ in range(count)],
        }.items():
            place = table.schema.get_field_index(name)
            field = table.schema.field(place)
            table = table.set_column(place, field, pa.array(values, field.type))
        path = stream.seal(table)
        size = path.stat().st_size
        assert size > WHOLE_BYTES
        file = SealedFile(
            path=path.name, base=base, last=base + count - 1, min_us=0, max_us=0, size_bytes=size
        )
        return cls(Disk(path), file)

    def read(self, start: int, end: int) -> list[int]:
        """The offsets of these rows, out of a copy."""
        remote = RemoteFolder(self.disk, "plant")  # type: ignore[arg-type]  # what it needs of one
        with remote.at_hand(self.file, start, end) as path:
            reader = StreamReader(
                [(path, self.file.base, self.file.last)], partition=0, start=start, end=end
            )
            first = list(itertools.islice(reader, 1))
        assert not pathlib.Path(path).exists()
        batches = map(pa.record_batch, itertools.chain(first, reader))
        return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@pytest.fixture
def large(make_stream: Callable[..., StreamFolder]) -> Large:
    return Large.make(make_stream())


def test_only_what_a_range_needs_is_fetched(large: Large) -> None:
    last = large.file.last
    for start, end, share in [
        (7, 8, 0.75),
        (131_000, 131_070, 0.75),
        (131_000, 131_200, 1.1),
        (last, last + 1, 0.45),
        (7, last + 1, 1.1),
    ]:
        large.disk.asked.clear()

        assert large.read(start, end) == list(range(start, end))

        fetched = sum(end - start for start, end in large.disk.asked)
        assert fetched < share * large.file.size_bytes


def test_a_file_that_is_replaced_while_it_is_fetched_is_not_mixed(
    large: Large, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = large.disk.file

    def replaced(*args: str, start: int, end: int, tag: str | None) -> Part:
        found = part(*args, start=start, end=end, tag=tag)
        large.disk.tag = "second"
        return found

    monkeypatch.setattr(large.disk, "file", replaced)

    with pytest.raises(FileMovedError):
        large.read(7, 8)


def test_a_file_that_is_another_one_from_the_start_is_not_read(large: Large) -> None:
    large.file = dataclasses.replace(large.file, size_bytes=large.file.size_bytes + 1)

    with pytest.raises(FileMovedError):
        large.read(7, 8)


def test_a_worker_that_sees_neither_folder_nor_endpoint_says_what_to_do(
    tmp_path: pathlib.Path,
) -> None:
    nowhere = tmp_path / "nowhere"
    log = StreamLog(
        name="plant", folder=Folder(nowhere), client=StreamClient(f"unix:{nowhere}/socket")
    )

    with pytest.raises(StreamFolderError, match=r"option endpoint = http://host:port"):
        log.on_this_machine()


@pytest.fixture
def broker(tmp_path: pathlib.Path) -> Iterator[Broker]:
    """One with two partitions: `ROWS` rows in files, and as many in memory."""
    with Broker(plant_settings(tmp_path)) as running, StreamClient(running.settings.data) as client:
        for tier in range(2):
            for number in range(ROWS):
                payload = b'{"number": %d}' % (tier * ROWS + number)
                running.publish(f"plant/{number % 7}", payload, qos=1)
            if tier == 0:
                client.seal("plant")
        # a row can be read once it is safe
        eventually(lambda: sum(each.end for each in client.stream("plant").partitions) == 2 * ROWS)
        yield running


def address(broker: Broker) -> str:
    """The URL of its endpoint."""
    assert broker.http_address is not None
    host, port = broker.http_address
    return f"http://{host}:{port}"


@pytest.fixture
def load(spark: SparkSession, broker: Broker) -> Callable[..., DataFrame]:
    """Reads the stream by its TCP address."""

    def read(**options: Any) -> DataFrame:  # noqa: ANN401 -- as Spark takes them
        reader = spark.read.format("mqttcore").options(
            endpoint=address(broker), token=TOKEN, stream="plant", files="endpoint"
        )
        return reader.options(**options).load()

    return read


def test_a_cluster_without_the_folder_reads_every_row_once(
    load: Callable[..., DataFrame], broker: Broker
) -> None:
    found = load(decode="json", payloadSchema="number BIGINT").select("number").collect()

    assert sorted(row.number for row in found) == list(range(2 * ROWS))


def test_filters_and_offsets_hold_for_files_that_are_fetched(
    load: Callable[..., DataFrame],
) -> None:
    found = load(topic="plant/3", columns="partition,offset,topic", minPartitions=4).collect()

    assert len(found) == 2 * len(range(3, ROWS, 7))
    assert {row.topic for row in found} == {"plant/3"}


def test_a_query_goes_on_from_files_to_the_tail_and_holds_what_it_needs(
    spark: SparkSession, broker: Broker, tmp_path: pathlib.Path
) -> None:
    stream = (
        spark.readStream.format("mqttcore")
        .options(endpoint=address(broker), token=TOKEN, stream="plant", files="endpoint")
        .options(startingOffsets="earliest", consumer="far", maxRowsPerTrigger=150)
        .load()
    )
    out = str(tmp_path / "out")
    query = (
        stream.writeStream.format("parquet")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(out)
    )
    query.awaitTermination()

    assert spark.read.parquet(out).select("partition", "offset").distinct().count() == 2 * ROWS
    assert spark.read.parquet(out).count() == 2 * ROWS
    with StreamClient(broker.settings.data) as client:
        assert client.release("plant", "far")


def test_read_needs_no_folder_either(spark: SparkSession, broker: Broker) -> None:
    rows = read(spark, "plant", endpoint=address(broker), token=TOKEN, files="endpoint")

    assert rows.count() == 2 * ROWS


@pytest.mark.parametrize(
    ("scopes", "lacking"), [("rows", '"publish"'), ("publish", '"rows"')], ids=["reads", "writes"]
)
def test_a_key_reads_or_publishes_as_its_scopes_say(
    spark: SparkSession, tmp_path: pathlib.Path, scopes: str, lacking: str
) -> None:
    settings = with_key(plant_settings(tmp_path), tmp_path, "mq_made_up", scopes)
    with Broker(settings) as broker:
        place = {"endpoint": address(broker), "token": "mq_made_up"}
        broker.publish("plant/1", b"x", qos=1)
        with StreamClient(broker.settings.data) as owner:
            eventually(lambda: sum(each.end for each in owner.stream("plant").partitions) == 1)
            owner.seal("plant")

        def read() -> None:
            reader = spark.read.format("mqttcore").options(**place, stream="plant")
            assert reader.options(files="endpoint").load().count() == 1

        def write() -> None:
            rows = spark.createDataFrame([("out/1", "x")], "topic string, payload string")
            rows.write.format("mqttcore").mode("append").options(**place).save()

        allowed, refused = (read, write) if scopes == "rows" else (write, read)
        allowed()
        with pytest.raises(Exception, match=f'key "analysts" lacks the scope {lacking}'):
            refused()


def test_option_ca_says_whom_https_trusts(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """Readers, and writers, trust no CA of the system but that one."""
    files = Files.make(tmp_path / "tls")
    settings = plant_settings(tmp_path)
    assert settings.http is not None
    http = dataclasses.replace(settings.http, tls=files.tls())
    with Broker(dataclasses.replace(settings, http=http)) as broker:
        broker.publish("plant/1", b"x", qos=1)
        place = address(broker).replace("http:", "https:").replace("127.0.0.1", "localhost")
        options = {"endpoint": place, "token": TOKEN, "ca": str(files.path("ca.pem"))}
        out = spark.createDataFrame([("plant/2", "y")], "topic string, payload string")

        out.write.format("mqttcore").mode("append").options(**options).save()

        stream = spark.read.format("mqttcore").options(**options, stream="plant", files="endpoint")
        eventually(lambda: stream.load().count() == 2)
        assert read(spark, "plant", **options, files="endpoint").count() == 2
        del options["ca"]
        with pytest.raises(Exception, match="certificate"):
            spark.read.format("mqttcore").options(**options, stream="plant").load().count()
