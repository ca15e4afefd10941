"""Bans, as `Broker.ban` makes them and `Broker.bans` lists them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Ban:
    """A ban in force."""

    kind: str
    """What is banned: ``client_id``, ``user`` or ``address``."""
    value: str
    """The client identifier, the user name, or the address or network."""
    reason: str
    """For operators; clients are not told."""
    remaining_s: float | None
    """Seconds until it ends; None: it has to be lifted."""


def target_of(client_id: str | None, user: str | None, address: str | None) -> tuple[str, str]:
    """Kind and value of the one target that is given.

    Raises:
        ValueError: none is given, or more than one.
    """
    named = {"client_id": client_id, "user": user, "address": address}
    given = [(kind, value) for kind, value in named.items() if value is not None]
    if len(given) != 1:
        raise ValueError("name one of client_id, user and address")
    return given[0]
