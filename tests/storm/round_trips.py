"""Round trips of a client beside an attack, one after the other at a fixed rate."""

from __future__ import annotations

import itertools
import time
from typing import Final

from tests import wire as mqtt
from tests.wire import ClosedByPeerError, Wire, unique

PERIOD_S: Final = 0.01
"""A round trip is due each hundredth of a second."""


class RoundTrips:
    """A client that publishes to itself at QoS 0 and 1, and pings."""

    def __init__(self, wire: Wire) -> None:
        self.topic = unique("bystander")
        self.wire = wire
        self.wire.connect(self.topic)
        self.wire.subscribe((self.topic, 1))

    def measure(self, seconds: float, *, patience_s: float = 0.0) -> list[float]:
        """Times in ms, from when a round trip was due: an answer that is late delays all behind it.

        A round trip that has no answer `patience_s` after the end is the last one of this client,
        and counts with the time that it was due by then.
        """
        kinds = itertools.cycle((self._publish_at_qos_0, self._publish_at_qos_1, self._ping))
        began = time.monotonic()
        dues = [began + PERIOD_S * number for number in range(max(round(seconds / PERIOD_S), 3))]
        end = dues[-1] + PERIOD_S
        answered = []
        for due, round_trip in zip(dues, kinds, strict=False):
            time.sleep(max(due - time.monotonic(), 0.0))
            try:
                round_trip(end + patience_s)
            except (TimeoutError, ClosedByPeerError):
                break
            answered.append(time.monotonic())
        ends = [*answered, *[end] * (len(dues) - len(answered))]
        return [(until - due) * 1_000 for due, until in zip(dues, ends, strict=True)]

    def _publish_at_qos_0(self, end: float) -> None:
        self.wire.send(mqtt.publish(self.topic, b"0", version=4))
        self.wire.expect(mqtt.PUBLISH, within_s=left_s(end))

    def _publish_at_qos_1(self, end: float) -> None:
        self.wire.send(mqtt.publish(self.topic, b"1", qos=1, packet_id=1, version=4))
        found = [self.wire.receive(within_s=left_s(end)) for _ in range(2)]
        assert {each.kind for each in found} == {mqtt.PUBLISH, mqtt.PUBACK}, found
        for each in found:
            if each.kind == mqtt.PUBLISH:
                self.wire.acknowledge(each)

    def _ping(self, end: float) -> None:
        self.wire.send(mqtt.pingreq())
        self.wire.expect(mqtt.PINGRESP, within_s=left_s(end))


def left_s(end: float) -> float:
    """Seconds until the end, and long enough to take what is there."""
    return max(end - time.monotonic(), PERIOD_S)


def percentile(values: list[float], share: float) -> float:
    """The value that so great a share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(int(len(ordered) * share), len(ordered) - 1)]
