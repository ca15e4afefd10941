"""`python -m mqttcore.store` over a log that is written here by hand, from its description."""

import json
import pathlib
import struct
import subprocess
import sys
import uuid

import pyarrow.parquet
import pytest
from mqttcore import _core, store
from mqttcore.errors import StoreError

STORE = bytes(range(16))
SEGMENT = "00000000000000000001.log"


def crc32c(data: bytes, crc: int = 0) -> int:
    """The Castagnoli checksum, bit by bit."""
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def header(number: int, first_lsn: int) -> bytes:
    bare = b"mqttlog\0" + struct.pack("<II16sQQ12x", 1, 0, STORE, number, first_lsn)
    return bare + struct.pack("<I", crc32c(bare))


def frame(lsn: int, kind: int, flags: int, body: bytes) -> bytes:
    seed = crc32c(STORE + struct.pack("<Q", 1))
    length = struct.pack("<I", 10 + len(body))
    rest = struct.pack("<QBB", lsn, kind, flags) + body
    return length + struct.pack("<I", crc32c(length + rest, seed)) + rest


def group(first_lsn: int, records: list[tuple[int, int, bytes]], durable_lsn: int) -> bytes:
    frames = [frame(lsn, *record) for lsn, record in enumerate(records, first_lsn)]
    chain = crc32c(b"".join(sealed[4:8] for sealed in frames))
    marker = struct.pack("<IIQ", len(frames), chain, durable_lsn)
    return b"".join(frames) + frame(first_lsn + len(frames) - 1, 255, 0, marker)


def text(value: str) -> bytes:
    return struct.pack("<H", len(value)) + value.encode()


OPENED = (9, 0, b"\x07" + struct.pack("<QBI", 1, 5, 60) + text("meter"))
SUBSCRIBED = (12, 0, b"\x07\x01\x00" + text("a/#"))
# number 8, topic, no properties, one recipient: session 7 at QoS 1
MESSAGE = (1, 1, b"\x08" + text("a/b") + b"\x00" + b"\x01\x07\x01" + b"hot")


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A store with one session, and a message that waits for it."""
    log = header(1, 1) + group(1, [OPENED, SUBSCRIBED], 0) + group(3, [MESSAGE], 2)
    directory = tmp_path / "data"
    directory.mkdir()
    (directory / SEGMENT).write_bytes(log.ljust(4096, b"\0"))
    return directory


# stream 1 of epoch 1; then messages 1 and 2 of it, rows 0 and 1 of partition 0
STREAM = (20, 0, struct.pack("<IQ", 1, 1) + text("plant"))


def row(offset: int) -> tuple[int, int, bytes]:
    """A message of QoS 1 from `meter`, without recipients, that is a row and nothing else."""
    place = struct.pack("<BHQ", 1, 1, 1_700_000_000_000_000 + offset) + struct.pack(
        "<IHQ", 1, 0, offset
    )
    body = bytes([offset + 1]) + text("meter") + text("plant/1") + b"\x00\x00" + b"hot"
    return (1, 0b1100_0001, place + body)


@pytest.fixture
def streamed(tmp_path: pathlib.Path) -> pathlib.Path:
    """A store with two rows of a stream, in the log alone."""
    log = header(1, 1) + group(1, [STREAM, row(0), row(1)], 0)
    identity = {
        "format": 1,
        "name": "plant",
        "id": 1,
        "filters": ["plant/#"],
        "partitions": 1,
        "key": "topic",
        "seed": "7",
        "store": str(uuid.UUID(bytes=STORE)),
        "epoch": 1,
        "schema": None,
        "created_us": 1,
    }
    directory = tmp_path / "data"
    stream = directory / "streams" / "plant"
    stream.mkdir(parents=True)
    (directory / SEGMENT).write_bytes(log.ljust(4096, b"\0"))
    (stream / "stream.json").write_text(json.dumps(identity))
    return directory


needs_streams = pytest.mark.skipif(not _core.has_streams, reason="this build has no streams")


def damage(folder: pathlib.Path) -> None:
    log = bytearray((folder / SEGMENT).read_bytes())
    log[100] ^= 1
    (folder / SEGMENT).write_bytes(log)


def test_a_log_written_by_hand_is_understood(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.main(["verify", str(folder)]) == 0

    told = json.loads(capsys.readouterr().out)
    assert told["store"] == STORE.hex()
    assert (told["sessions"], told["subscriptions"], told["queued"]) == (1, 1, 1)
    assert (told["last_lsn"], told["messages"], told["torn"]) == (3, 1, None)


@needs_streams
def test_rows_of_a_log_written_by_hand_go_into_a_file_that_others_read(
    streamed: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.main(["verify", str(streamed)]) == 0
    (told,) = json.loads(capsys.readouterr().out)["streams"]
    assert (told["name"], told["rows"], told["unsealed_rows"]) == ("plant", 2, 2)

    assert store.main(["seal", str(streamed)]) == 0

    (told,) = json.loads(capsys.readouterr().out)["streams"]
    assert (told["rows"], told["unsealed_rows"], told["files"]) == (2, 0, 1)
    rows = pyarrow.parquet.read_table(streamed / "streams/plant/data").to_pylist()
    assert [line["offset"] for line in rows] == [0, 1]
    assert {(line["topic"], line["client_id"], line["payload"]) for line in rows} == {
        ("plant/1", "meter", b"hot")
    }
    assert rows[0]["timestamp"].timestamp() == 1_700_000_000
    assert (rows[0]["qos"], rows[0]["dup"], rows[0]["retain"]) == (1, True, False)
    assert store.main(["verify", str(streamed)]) == 0


@needs_streams
def test_a_stream_of_another_store_is_refused(
    streamed: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    identity = streamed / "streams/plant/stream.json"
    other = str(uuid.uuid4())
    identity.write_text(identity.read_text().replace(str(uuid.UUID(bytes=STORE)), other))

    assert store.main(["seal", str(streamed)]) == 1

    told = capsys.readouterr().err
    assert "plant" in told
    assert other in told


def test_info_reads_no_messages(folder: pathlib.Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert store.main(["info", str(folder)]) == 0

    assert "messages" not in json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_copy_that_takes_long_says_how_far_it_is(
    folder: pathlib.Path,
    tmp_path: pathlib.Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    is_terminal: bool,
) -> None:
    progress = _core.CopyProgress()
    copied = _core.store_backup(folder, tmp_path / "copy", progress)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)

    with store.ProgressLine() as line:
        line.tell(1, 2, 3)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(store, "UNTOLD_S", 0.0)
        with store.ProgressLine() as late:
            late.tell_of(_core.CopyProgress())
            late.tell(5 << 20, 4_000 << 20, 12)
            late.tell_of(progress)

    assert (progress.done, progress.total, progress.eta_s) == (copied, copied, 0)
    lines = ["copied 5 of 4,000 MiB, 12 s left", "copied 0 of 0 MiB, 0 s left", ""]
    shown = "".join(f"\r{text}\x1b[K" for text in lines)
    assert capsys.readouterr().err == (shown if is_terminal else "")


def test_a_dump_has_a_line_for_each_record_and_no_payload(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.main(["dump", str(folder)]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3"]
    assert '"a/b"' in lines[2]
    assert "payload of 3 bytes" in lines[2]


def test_a_dump_of_json_has_an_object_for_each_record(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.main(["dump", "--json", str(folder)]) == 0

    opened, subscribed, message = map(json.loads, capsys.readouterr().out.splitlines())
    assert (opened["record"], opened["client_id"], opened["expiry_s"]) == ("opened", "meter", 60)
    assert (subscribed["lsn"], subscribed["record"]) == (2, "subscribed")
    assert (subscribed["session"], subscribed["filter"]) == (7, "a/#")
    assert {key: message[key] for key in ("record", "topic", "recipients", "payload_bytes")} == {
        "record": "message",
        "topic": "a/b",
        "recipients": [7],
        "payload_bytes": 3,
    }


def test_a_copy_is_the_same_store(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert store.main(["backup", str(folder), str(tmp_path / "copy")]) == 0
    capsys.readouterr()

    assert store.main(["verify", str(tmp_path / "copy")]) == 0

    assert json.loads(capsys.readouterr().out)["queued"] == 1


def test_a_copy_goes_into_an_empty_folder_only(
    folder: pathlib.Path, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "mine").touch()

    assert store.main(["backup", str(folder), str(tmp_path / "copy")]) == 1

    assert "not empty" in capsys.readouterr().err


def test_damage_is_named_with_its_place_and_repaired_on_request_only(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damage(folder)

    assert store.main(["verify", str(folder)]) == store.DAMAGED
    assert f"{SEGMENT} is damaged at 64" in capsys.readouterr().err
    assert store.main(["repair", str(folder)]) == store.DAMAGED
    assert (folder / SEGMENT).exists()
    capsys.readouterr()
    assert store.main(["repair", "--accept-loss", str(folder)]) == store.DAMAGED
    done = json.loads(capsys.readouterr().out)
    assert done["lost"] == [[1, 1]], "the record of the group that can be read is kept"
    assert done["set_aside"] == [f"{SEGMENT}.damaged"]
    assert store.main(["verify", str(folder)]) == 0


def test_a_folder_that_is_in_use_is_refused(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = (
        "import fcntl, sys\n"
        "lock = open(sys.argv[1], 'w')\n"
        "fcntl.flock(lock, fcntl.LOCK_EX)\n"
        "print('locked', flush=True)\n"
        "sys.stdin.read()\n"
    )
    holder = subprocess.Popen(  # noqa: S603 -- our own interpreter and script
        [sys.executable, "-c", script, str(folder / "lock")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"

        assert store.main(["info", str(folder)]) == 1

        assert "another running broker" in capsys.readouterr().err
        holder.communicate("")


def test_a_newer_format_is_refused(
    folder: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = bytearray((folder / SEGMENT).read_bytes())
    log[8] = 9
    log[60:64] = struct.pack("<I", crc32c(bytes(log[:60])))
    (folder / SEGMENT).write_bytes(log)

    assert store.main(["verify", str(folder)]) == 1

    assert "has format 9; this version reads formats up to 1" in capsys.readouterr().err


@pytest.mark.parametrize("make", [True, False])
def test_a_folder_without_a_store_is_none(tmp_path: pathlib.Path, *, make: bool) -> None:
    directory = tmp_path / "nothing"
    if make:
        directory.mkdir()

    with pytest.raises(StoreError, match="there is no store"):
        _core.store_info(directory)
