"""Compares settings at a reload: what has changed, and which changes need a restart."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from mqttcore._record import Record
from mqttcore.config import Listener, Settings

if TYPE_CHECKING:
    import logging

RESTART = frozenset(
    (
        "shards",
        "log",
        "log_level",
        "shared_strategy",
        "scrub_interval_s",
        "data",
        "metrics",
        "streams",
        "http",
        "kafka",
    )
)
"""Settings that are read at the start only."""
BOUND = ("address", "transport", "mode", "group")
"""Keys of a listener that need a new socket."""
LISTENER = (
    "name",
    "anonymous",
    "path",
    "origins",
    "protocol_versions",
    "max_connections",
    "maximum_packet_size",
    "receive_maximum",
    "deny",
    "mount_point",
    "session",
    "durability",
    "queue_policy",
    "tls",
    "identity",
    "proxy_from",
)
"""Keys of a listener that change without a new socket."""


class Changes(Record):
    """Names of settings, as ``limits.connections`` or ``listener main: anonymous``."""

    applied: tuple[str, ...]
    """Changes that are applied now."""
    restart: tuple[str, ...]
    """Changes that need a restart."""

    def write_to(self, log: "logging.Logger") -> None:
        """Writes them into the log, with a warning if a restart is needed."""
        log.info("reloaded; changed: %s", ", ".join(self.applied) or "nothing")
        if self.restart:
            log.warning("reload: a restart is needed for %s", ", ".join(self.restart))


def changes(old: Settings, new: Settings, *, begun: Settings, bound: "Bound") -> Changes:
    """Compares settings.

    Args:
        old: The settings in force.
        new: The loaded settings.
        begun: The settings with which the broker was started.
        bound: The listeners, before and after.
    """
    own = [name for name in differing(old, new) if name not in RESTART | {"listeners", "limits"}]
    limits = [f"limits.{name}" for name in differing(old.limits, new.limits)]
    fixed = [name for name in differing(begun, new) if name in RESTART]
    return Changes(
        applied=(*own, *limits, *bound.applied()),
        restart=(*fixed, *bound.restart(begun.listeners, new.listeners)),
    )


class Bound(Record):
    """The listeners before and after, in the order of their sockets; None: removed."""

    before: Sequence[Listener | None]
    after: Sequence[Listener | None]

    def applied(self) -> Iterable[str]:
        """The changes that are applied now."""
        for old, new in zip(self.before, self.after, strict=True):
            if old is not None and new is not None:
                changed = [name for name in differing(old, new) if name in LISTENER]
                if "tls" in changed and (old.tls is None) != (new.tls is None):
                    changed.remove("tls")
                yield from (f"listener {new.title}: {name}" for name in changed)

    def restart(self, begun: Sequence[Listener], new: Sequence[Listener]) -> Iterable[str]:
        """Changes of listeners that need a new socket."""
        for old, now in zip(begun, self.after, strict=True):
            if now is None:
                yield f"listener {old.title}: removed"
                continue
            changed = [name for name in differing(old, now) if name in BOUND]
            if (old.tls is None) != (now.tls is None):
                changed.append("tls")
            yield from (f"listener {now.title}: {name}" for name in changed)
        kept = [id(listener) for listener in self.after]
        yield from (f"listener {one.title}: new" for one in new if id(one) not in kept)


def differing(old: Record, new: Record) -> list[str]:
    """The fields of two records of one class that differ."""
    return [name for name in old.fields_by_name if getattr(old, name) != getattr(new, name)]
