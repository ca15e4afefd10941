"""`Record`, the base of immutable values that are made without generated code.

`dataclass` writes and compiles six methods for each class while its module is imported: half a
millisecond for 3 fields, 1.5 ms for 25, and its own import takes 5 ms. This was half of the start
of a broker. Records share the methods below. `fields`, `replace`, `asdict` and `is_dataclass` of
`dataclasses` take them for dataclasses.
"""

from collections.abc import Callable
from typing import Any, ClassVar, Self, dataclass_transform

REQUIRED = object()
"""Stands for the default of a required field."""


class Field:
    """A field of a record; `field` makes fields that need more than a default."""

    __slots__ = ("compare", "default", "factory", "is_internal", "kw_only", "name", "repr")

    name: str

    def __init__(
        self,
        default: object,
        *,
        factory: Callable[[], object] | None = None,
        compare: bool = True,
        repr: bool = True,  # noqa: A002 - the word of dataclasses
        kw_only: bool = False,
        is_internal: bool = False,
    ) -> None:
        self.default = default
        self.factory = factory
        self.compare = compare
        self.repr = repr
        self.kw_only = kw_only
        self.is_internal = is_internal


def field(
    *,
    default: object = REQUIRED,
    default_factory: Callable[[], object] | None = None,
    **options: bool,
) -> Any:  # noqa: ANN401 - stands for a value of any type
    """Describes a field, as `dataclasses.field` does.

    Args:
        default: Its value where it is not given.
        default_factory: Makes that value.
        options: ``compare=False``: it does not count in comparisons; ``repr=False``: it is not
            shown; ``kw_only=True``: it has no position; ``is_internal=True``: configuration files
            cannot set it.
    """
    return Field(default, factory=default_factory, **options)


class DataclassFields:
    """The fields of a record in the form of `dataclasses`, made on demand."""

    def __get__(self, instance: object, owner: "type[Record]") -> object:
        import dataclasses  # takes a tenth of the start

        specs = [
            (name, Any, dataclasses.field(repr=own.repr, compare=own.compare))
            for name, own in owner.fields_by_name.items()
        ]
        twin = dataclasses.make_dataclass(owner.__name__, specs, kw_only=True)
        owner.__dataclass_fields__ = twin.__dict__["__dataclass_fields__"]
        return owner.__dataclass_fields__


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Record:
    """Base of immutable values: the annotated names of a subclass are its fields and arguments.

    Two records are equal if they have the same class and equal fields. With ``kw_only=False``
    fields may be given by position, too.

        class Point(Record, kw_only=False):
            x: int
            y: int = 0

    ``__post_init__`` may check the fields, and set them with `object.__setattr__`.
    """

    fields_by_name: ClassVar[dict[str, Field]] = {}
    __dataclass_fields__: ClassVar[Any]  # Any: `DataclassFields`, then what it makes
    _required: ClassVar[frozenset[str]] = frozenset()
    _positional: ClassVar[tuple[str, ...]] = ()
    _defaults: ClassVar[dict[str, object]] = {}
    _made: ClassVar[dict[str, Callable[[], object]]] = {}
    _compared: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, *, kw_only: bool = True) -> None:
        super().__init_subclass__()
        found = dict(cls.fields_by_name)
        for name in cls.__annotations__:
            given = cls.__dict__.get(name, REQUIRED)
            own = given if isinstance(given, Field) else Field(given)
            own.name = name
            own.kw_only = own.kw_only or kw_only
            found[name] = own
            if given is own:
                delattr(cls, name)
        each = found.values()
        cls.fields_by_name = found
        cls.__dataclass_fields__ = DataclassFields()
        cls._positional = tuple(own.name for own in each if not own.kw_only)
        cls._defaults = {own.name: own.default for own in each if own.default is not REQUIRED}
        cls._made = {own.name: own.factory for own in each if own.factory is not None}
        cls._required = frozenset(found.keys() - cls._defaults.keys() - cls._made.keys())
        cls._compared = tuple(own.name for own in each if own.compare)

    def __init__(self, *positional: object, **named: object) -> None:
        if positional:
            named = self._by_name(positional, named)
        if not self._required <= named.keys() <= self.fields_by_name.keys():
            raise TypeError(self._misfit(named))
        own = self.__dict__
        own.update(self._defaults)
        own.update(named)
        for name, make in self._made.items():
            if name not in named:
                own[name] = make()
        self.__post_init__()

    def __post_init__(self) -> None:
        """Checks the fields; a subclass may add rules."""

    def replaced(self, **changes: object) -> Self:
        """Makes another record, in which these fields differ."""
        return type(self)(**{**self.__dict__, **changes})

    @classmethod
    def _by_name(
        cls, positional: tuple[object, ...], named: dict[str, object]
    ) -> dict[str, object]:
        if len(positional) > len(cls._positional):
            most = len(cls._positional)
            raise TypeError(f"{cls.__name__} takes {most} positional arguments: {len(positional)}")
        given = dict(zip(cls._positional, positional, strict=False))
        if not named:
            return given
        if twice := given.keys() & named.keys():
            raise TypeError(f"{cls.__name__} got multiple values for {', '.join(sorted(twice))}")
        return given | named

    @classmethod
    def _misfit(cls, named: dict[str, object]) -> str:
        if unknown := named.keys() - cls.fields_by_name.keys():
            return f"{cls.__name__} got an unexpected keyword argument {min(unknown)!r}"
        missing = ", ".join(sorted(cls._required - named.keys()))
        return f"{cls.__name__} misses required arguments: {missing}"

    def _key(self) -> tuple[object, ...]:
        own = self.__dict__
        return tuple([own[name] for name in self._compared])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Record) or type(other) is not type(self):
            return NotImplemented
        return self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        shown = [name for name, own in self.fields_by_name.items() if own.repr]
        inside = ", ".join(f"{name}={getattr(self, name)!r}" for name in shown)
        return f"{type(self).__qualname__}({inside})"

    def __setattr__(self, name: str, value: object) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        from dataclasses import FrozenInstanceError

        raise FrozenInstanceError(f"cannot delete field {name!r}")
