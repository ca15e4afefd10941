"""Section 3.15 of MQTT 5.0: AUTH."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.wire import Wire

Open = Callable[..., Wire]


@pytest.mark.spec("5.0", "MQTT-3.15.1-1")
@pytest.mark.parametrize("flags", range(1, 16))
def test_flags_of_auth_other_than_0_end_the_connection(client: Open, flags: int) -> None:
    one = client()

    one.send(bytes([0xF0 | flags]), b"\x02\x19\x00")

    one.expect_refusal(0x81)


@pytest.mark.beyond("3.1", "3.1.1")
def test_3_x_has_no_auth(client: Open) -> None:
    one = client()

    one.send(b"\xf0\x02\x19\x00")

    one.expect_close()
