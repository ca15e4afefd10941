"""Section 3.1 of MQTT 3.1.1 and 5.0: CONNECT."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests import wire as mqtt
from tests.wire import Wire, unique

Open = Callable[..., Wire]


@pytest.mark.spec("3.1.1", "MQTT-3.1.0-2")
@pytest.mark.spec("5.0", "MQTT-3.1.0-2")
def test_a_second_connect_ends_the_connection(client: Open, version: int) -> None:
    one = client()

    one.send(mqtt.connect(unique("c"), version=version))

    one.expect_refusal(0x82)
