"""Bans, as `Broker.ban` makes them and `Broker.bans` lists them."""

from collections.abc import Callable

from mqttcore._record import Record


class Ban(Record):
    """A ban in force."""

    kind: str
    """Kind of the ban: ``client_id``, ``client_id_regex``, ``user``, ``address``, or
    ``client_id_of_user``: a ban for flapping, of a client identifier for one user alone."""
    value: str
    """The client identifier, the regular expression, the user name, or the address or network."""
    user: str | None
    """The user name of a ban for flapping; None: clients without user name, or another kind."""
    reason: str
    """Reason, for operators; clients do not get it."""
    by: str | None
    """Who made it, as in the audit log, or ``the broker``; None: an earlier version did not keep
    it."""
    remaining_s: float | None
    """Seconds until it ends; None: it has to be lifted."""


def target_of(
    client_id: str | None, client_id_regex: str | None, user: str | None, address: str | None
) -> tuple[str, str]:
    """Kind and value of the one target that is given.

    Raises:
        ValueError: none is given, or more than one.
    """
    named = {
        "client_id": client_id,
        "client_id_regex": client_id_regex,
        "user": user,
        "address": address,
    }
    given = [(kind, value) for kind, value in named.items() if value is not None]
    if len(given) != 1:
        raise ValueError("name one of client_id, client_id_regex, user and address")
    return given[0]


def ban_actions(
    ban: Callable[..., int], unban: Callable[..., bool], bans: Callable[[], list[Ban]]
) -> dict[str, Callable[[str, object], object]]:
    """Actions of the control socket for bans; each takes a JSON object of keywords."""
    return {
        "ban": lambda asked, _: called(ban, asked),
        "unban": lambda asked, _: called(unban, asked),
        "bans": lambda *_: [vars(one) for one in bans()],
    }


def called(action: Callable[..., int], asked: str) -> int:
    """Calls `action` with these keywords.

    Raises:
        ValueError: the action does not have these keywords.
    """
    import json  # a start does not need it

    keywords = json.loads(asked)
    try:
        return action(**keywords)
    except TypeError as error:
        raise ValueError(f"a request about bans has wrong keywords: {error}") from error
