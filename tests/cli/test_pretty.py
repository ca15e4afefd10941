"""`mqttcore sub --pretty`: payloads of JSON, CBOR and Sparkplug B."""

from __future__ import annotations

import json
import struct

import pytest
from mqttcore.cli.message_format import MessageFormat
from mqttcore.cli.pretty import Cbor
from mqttcore.packets import Publish

NODE = "spBv1.0/plant/{}/edge"


def shown(*messages: Publish) -> bytes:
    """The output for the last message."""
    made = MessageFormat("%p", is_pretty=True)
    return [made.render(message, 0) for message in messages][-1]


def field(number: int, content: int | bytes) -> bytes:
    """A field of Protocol Buffers: a number, or bytes."""
    if isinstance(content, int):
        return varint(number * 8) + varint(content)
    return varint(number * 8 + 2) + varint(len(content)) + content


def varint(value: int) -> bytes:
    found = b""
    while value > 0x7F:
        found += bytes([value % 128 | 128])
        value //= 128
    return found + bytes([value])


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        # examples of RFC 8949, appendix A
        ("83010203", [1, 2, 3]),
        ("8301820203820405", [1, [2, 3], [4, 5]]),
        ("bf61610161629f0203ffff", {"a": 1, "b": [2, 3]}),
        ("a201020304", {"1": 2, "3": 4}),
        ("1bffffffffffffffff", 18446744073709551615),
        ("3bffffffffffffffff", -18446744073709551616),
        ("3903e7", -1000),
        ("f93e00", 1.5),
        ("fb3ff199999999999a", 1.1),
        ("fa47c35000", 100000.0),
        ("f97c00", "inf"),
        ("82f5f6", [True, None]),
        ("c11a514b67b0", {"tag 1": 1363896240}),
        ("4401020304", "h'01020304'"),
        ("5f42010243030405ff", "h'0102030405'"),
        ("7f657374726561646d696e67ff", "streaming"),
        ("62c3bc", "ü"),
    ],
)
def test_cbor_is_read_as_its_standard_says(raw: str, value: object) -> None:
    assert Cbor(bytes.fromhex(raw)).whole() == value


@pytest.mark.parametrize(
    "raw",
    [
        *("", "83", "8201", "9f", "1c", "f8ff", "ff", "0101", "62ff", "9bffffffffffffffff01"),
        *("81" * 99, "bf01ff", "a2616101616102", "61ff", "7f61"),
    ],
)
def test_bytes_that_are_no_cbor_are_shown_as_they_came(raw: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Cbor(bytes.fromhex(raw)).whole()
    payload = bytes.fromhex(raw)

    assert shown(Publish(topic="t", payload=payload)) == payload


def test_json_and_cbor_are_on_several_lines() -> None:
    both = [b'{"a":[1]}', bytes.fromhex("a161618101")]

    lines = [shown(Publish(topic="t", payload=payload)) for payload in both]

    assert lines == [b'{\n  "a": [\n    1\n  ]\n}'] * 2


@pytest.mark.parametrize(
    "payload", [b"", b"on", b"21.5", b'{"a":1,"a":2}', b"[NaN]", b"[" * 100_000, b"\x01"]
)
def test_other_payloads_stay(payload: bytes) -> None:
    assert shown(Publish(topic="t", payload=payload)) == payload


def test_metrics_of_sparkplug_have_the_names_of_their_birth() -> None:
    degrees = field(1, b"degrees") + field(2, 7) + field(4, 9)
    level = field(1, b"level") + field(2, 8) + field(4, 1) + field(10, 1)
    birth = field(1, 1_000) + field(2, degrees) + field(2, level) + field(3, 0)
    hot = field(2, 7) + varint(12 * 8 + 5) + struct.pack("<f", 21.6)
    low = field(2, 8) + field(10, (1 << 64) - 3)
    data = field(1, 2_000) + field(2, hot) + field(2, low) + field(2, field(7, 1)) + field(3, 1)

    known = json.loads(
        shown(
            Publish(topic=NODE.format("NBIRTH"), payload=birth),
            Publish(topic=NODE.format("NDATA"), payload=data),
        )
    )
    unknown = json.loads(shown(Publish(topic=NODE.format("NDATA"), payload=data)))

    assert known == {
        "timestamp": 2_000,
        "metrics": [
            {"name": "degrees", "type": "Float", "alias": 7, "value": 21.6},
            {"name": "level", "type": "Int8", "alias": 8, "value": -3},
            {"value": None},
        ],
        "seq": 1,
    }
    assert unknown["metrics"][0] == {"alias": 7, "value": 21.6}


def test_data_sets_and_templates_of_sparkplug_are_shown() -> None:
    row = field(1, field(1, 255)) + field(1, field(6, b"x"))
    table = field(2, b"n") + field(2, b"text") + field(3, 1) + field(3, 12) + field(4, row)
    motor = field(2, field(1, b"rpm") + field(11, 900))
    metrics = [field(1, b"t") + field(17, table), field(1, b"m") + field(18, motor)]
    payload = b"".join(field(2, metric) for metric in metrics)

    found = json.loads(shown(Publish(topic=NODE.format("DDATA") + "/d", payload=payload)))

    assert found["metrics"] == [
        {"name": "t", "value": {"columns": ["n", "text"], "rows": [[-1, "x"]]}},
        {"name": "m", "value": [{"name": "rpm", "value": 900}]},
    ]


@pytest.mark.parametrize("payload", [b"\x0a", b"\xff" * 12, b"\x12\x05ab", b"\x13", b"\x08"])
def test_a_payload_of_a_sparkplug_topic_that_is_none_stays(payload: bytes) -> None:
    assert shown(Publish(topic=NODE.format("NDATA"), payload=payload)) == payload
