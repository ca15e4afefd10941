"""Base classes for the configuration of a plugin: `PluginConfig`, `Secret`."""

from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar, dataclass_transform

T = TypeVar("T", bound=str)


class Secret(Generic[T]):
    """Text that does not appear in `repr`, logs, errors or dumps.

    Only `reveal` returns it. Use `matches` to compare it with data of a client.
    """

    __slots__ = ("_text",)
    made_from_text: ClassVar[bool] = True

    def __init__(self, text: T, /) -> None:
        self._text = text

    def reveal(self) -> T:
        """Returns the text."""
        return self._text

    def matches(self, given: str | bytes | None, /) -> bool:
        """Whether a client gave this very text, in a time that does not depend on how much of it.

        None, which is a CONNECT without a password, never matches; nor does anything match an empty
        secret.
        """
        if given is None or not self._text:
            return False
        import hmac  # loads OpenSSL, which a start does not need

        found = given.encode() if isinstance(given, str) else given
        return hmac.compare_digest(found, self._text.encode())

    def __repr__(self) -> str:
        return "Secret('***')"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __reduce__(self) -> Any:  # noqa: ANN401 - the type that the pickle protocol names
        raise TypeError("a Secret cannot be pickled")


@dataclass_transform(frozen_default=True, kw_only_default=True)
class PluginConfig:
    """Base of a plugin's ``Config``: its annotated fields are the keys of ``[plugins.config]``.

    Subclasses become frozen dataclasses. Unknown keys and wrong types are refused before the broker
    starts, with their place. Kinds: `str`, `int`, `float`, `bool`, `pathlib.Path` (relative to the
    file), `Secret[str]`, `Literal`, ``tuple[T, ...]``, another `PluginConfig`, ``T | None``.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(frozen=True, kw_only=True)(cls)
