"""The packet vectors of `tests/vectors`, through the face that Python has of the codec."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest
from mqttcore import PacketError
from mqttcore.packets import decode_packet, encode_packet

LEVELS = {"3.1": 3, "3.1.1": 4, "5.0": 5}
BINARY_PROPERTIES = {"correlation_data", "authentication_data"}
FOLDER = Path(__file__).parent.parent / "vectors"

Vector = dict[str, Any]


def vectors() -> list[Any]:
    """Every vector in each of its versions."""
    return [
        pytest.param(LEVELS[version], vector, id=f"{path.stem}-{vector['name']}-{version}")
        for path in sorted(FOLDER.glob("*.toml"))
        for vector in tomllib.loads(path.read_text())["vector"]
        for version in vector["versions"]
    ]


def with_verdict(key: str) -> list[Any]:
    """The vectors that have this verdict."""
    return [each for each in vectors() if key in each.values[1]]


def decode(data: bytes, version: int, vector: Vector) -> Any:  # noqa: ANN401 -- any packet
    """Decodes under the limits of a vector."""
    return decode_packet(
        data, version=version, first=vector.get("first", False), **vector.get("limits", {})
    )


def expected_properties(pairs: list[list[Any]]) -> tuple[tuple[str, Any], ...]:
    """Property lists of a vector as `mqttcore.packets` has them."""
    found = []
    for name, *values in pairs:
        key = name.lower().replace(" ", "_")
        value: Any = values[0] if len(values) == 1 else tuple(values)
        found.append((key, bytes.fromhex(value) if key in BINARY_PROPERTIES else value))
    return tuple(found)


def actual(value: object) -> Any:  # noqa: ANN401 -- as the field is
    """A field of a packet in the words of a vector."""
    if dataclasses.is_dataclass(value):
        names = [field.name for field in dataclasses.fields(value)]
        return {name: actual(getattr(value, name)) for name in names}
    return [actual(each) for each in value] if isinstance(value, tuple) else value


def agrees(wanted: Any, found: Any) -> bool:  # noqa: ANN401 -- any value of TOML
    """Whether all that a vector names is as it says; what it leaves out is not compared."""
    if isinstance(wanted, dict):
        return all(agrees_in(name, value, found) for name, value in wanted.items())
    if isinstance(wanted, list) and wanted and isinstance(wanted[0], dict):
        pairs = zip(wanted, found, strict=True)
        return all(agrees(one, other) for one, other in pairs)
    if isinstance(found, bytes):
        return bool(found == bytes.fromhex(wanted))
    if isinstance(wanted, list):
        return bool(list(found) == wanted)
    return bool(wanted == found)


def agrees_in(name: str, wanted: Any, found: Any) -> bool:  # noqa: ANN401 -- any value of TOML
    """The same for one field of a packet, a will or a subscription."""
    value = getattr(found, name)
    if name == "properties":
        return bool(expected_properties(wanted) == value)
    return agrees(wanted, value)


def test_there_are_vectors_of_every_verdict() -> None:
    counts = [len(with_verdict(key)) for key in ("packet", "reason_code", "incomplete")]

    assert min(counts) > 10
    assert sum(counts) == len(vectors())


@pytest.mark.parametrize(("version", "vector"), with_verdict("packet"))
def test_a_packet_is_read_as_its_vector_says(version: int, vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])

    packet, length = decode(data, version, vector)

    assert type(packet).__name__.upper() == vector["packet"]
    assert length == vector.get("length", len(data))
    assert agrees(vector.get("fields", {}), packet), actual(packet)


@pytest.mark.parametrize(("version", "vector"), with_verdict("packet"))
def test_a_canonical_packet_is_written_as_it_came(version: int, vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    packet, length = decode(data, version, vector)

    written = encode_packet(packet, version=version)

    assert (written == data[:length]) == vector.get("canonical", True)


@pytest.mark.parametrize(("version", "vector"), with_verdict("packet"))
def test_a_part_of_a_packet_waits_for_the_rest(version: int, vector: Vector) -> None:
    data = bytes.fromhex(vector["hex"])
    length = vector.get("length", len(data))

    for end in sorted({0, 1, length // 2, length - 1}):
        assert decode(data[:end], version, vector) is None


@pytest.mark.parametrize(("version", "vector"), with_verdict("reason_code"))
def test_a_fault_has_the_reason_of_its_vector(version: int, vector: Vector) -> None:
    with pytest.raises(PacketError) as caught:
        decode(bytes.fromhex(vector["hex"]), version, vector)

    assert caught.value.reason_code == vector["reason_code"]
    assert vector.get("statement", caught.value.statement) == caught.value.statement


@pytest.mark.parametrize(("version", "vector"), with_verdict("incomplete"))
def test_an_incomplete_packet_is_neither(version: int, vector: Vector) -> None:
    assert decode(bytes.fromhex(vector["hex"]), version, vector) is None
