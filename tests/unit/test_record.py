"""`Record`: immutable values without generated code."""

import copy
import dataclasses
import pickle
import subprocess
import sys
from typing import Any

import pytest
from mqttcore._record import Record, field


class Point(Record, kw_only=False):
    """Fields of each kind."""

    x: int
    y: int = 0
    names: tuple[str, ...] = field(default_factory=tuple, kw_only=True)
    place: str = field(default="here", compare=False, repr=False)


class Named(Point):
    """A subclass, with a rule."""

    name: str = "origin"

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("no name")


def test_fields_are_arguments_by_name_and_position() -> None:
    point = Point(1, y=2, names=("a",))

    assert (point.x, point.y, point.names, point.place) == (1, 2, ("a",), "here")
    assert Point(1, 2, "there").place == "there"
    assert Named(x=1).name == "origin"


@pytest.mark.parametrize(
    ("positional", "named", "what"),
    [
        ((), {}, "Point misses required arguments: x"),
        ((1,), {"z": 1}, "Point got an unexpected keyword argument 'z'"),
        ((1,), {"x": 1}, "Point got multiple values for x"),
        ((1, 2, "there", ()), {}, "Point takes 3 positional arguments: 4"),
    ],
)
def test_wrong_arguments_are_named(
    positional: tuple[Any, ...], named: dict[str, Any], what: str
) -> None:
    with pytest.raises(TypeError, match=what):
        Point(*positional, **named)


def test_records_are_equal_by_class_and_compared_fields() -> None:
    assert Point(1, place="a") == Point(1, place="b")
    assert hash(Point(1, place="a")) == hash(Point(1, place="b"))
    assert Point(1) != Point(2)
    assert Point(1) != Named(x=1)
    assert Point(1) != 1


def test_a_record_shows_its_fields_but_those_that_are_hidden() -> None:
    assert repr(Named(x=1)) == "Named(x=1, y=0, names=(), name='origin')"


def test_a_record_does_not_change() -> None:
    point: Any = Point(1)

    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'x'"):
        point.x = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'x'"):
        del point.x
    assert point.replaced(x=2) == Point(2)
    assert point == Point(1)


def test_a_default_that_is_made_is_each_record_s_own() -> None:
    class Table(Record):
        rows: list[int] = field(default_factory=list)

    assert Table().rows is not Table().rows


def test_a_subclass_may_refuse_values() -> None:
    with pytest.raises(ValueError, match="no name"):
        Named(x=1, name="")


def test_dataclasses_take_a_record_for_one_of_theirs() -> None:
    named = Named(x=1)

    assert dataclasses.is_dataclass(named)
    assert [each.name for each in dataclasses.fields(Point)] == ["x", "y", "names", "place"]
    assert [each.name for each in dataclasses.fields(Named)][-1] == "name"
    assert dataclasses.replace(named, y=2) == Named(x=1, y=2)
    assert dataclasses.asdict(Point(1)) == {"x": 1, "y": 0, "names": (), "place": "here"}


def test_a_record_is_copied_and_pickled() -> None:
    named = Named(x=1, name="a")

    assert copy.deepcopy(named) == named
    assert pickle.loads(pickle.dumps(named)) == named  # noqa: S301 -- our own


def test_records_do_not_load_dataclasses() -> None:
    program = (
        "import sys\n"
        "from mqttcore._record import Record\n"
        "class One(Record):\n"
        "    x: int = 1\n"
        "assert repr(One()) == 'One(x=1)' and One() == One(x=1)\n"
        "print('dataclasses' in sys.modules)\n"
    )

    done = subprocess.run(  # noqa: S603 -- our own program
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout.strip() == "False"
