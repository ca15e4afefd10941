"""The client's Maximum Packet Size, met exactly and missed by one byte."""

from __future__ import annotations

from collections.abc import Callable

from tests.wire import Packet, Wire

Open = Callable[..., Wire]
Provoke = Callable[[Wire], Packet]


def expect_left_out(client: Open, provoke: Provoke, *, what: str, **options: object) -> None:
    """`what` comes in what `provoke` answers while there is room for it, and else is left out.

    `what` is `reason_string` or `user_property`; the rest of the packet comes all the same.
    """
    whole = provoke(client(**options))
    room = len(whole.raw)
    exact = provoke(client(**options, props={"maximum_packet_size": room}))
    short = provoke(client(**options, props={"maximum_packet_size": room - 1}))

    assert whole.property(what), f"{whole} has no {what}"
    assert exact.raw == whole.raw
    assert short.property(what) is None
    assert len(short.raw) < room
    assert (short.kind, short.packet_id, short.reasons) == (
        whole.kind,
        whole.packet_id,
        whole.reasons,
    )
