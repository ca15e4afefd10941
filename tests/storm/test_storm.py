"""The storm in small: every kind of attack runs to its end, and the broker answers beside it.

How fast it answers is measured by `make storm`, not here.
"""

from __future__ import annotations

import pytest

from tests.storm import crowd
from tests.storm.attacks import CHUNK_BYTES, FULL, SMALL, Attack, binary, group
from tests.storm.run import Outcome, run


@pytest.mark.parametrize("attack", [*SMALL, *crowd.SMALL], ids=lambda attack: attack.name)
def test_a_bystander_is_answered_beside(attack: Attack | crowd.Crowd) -> None:
    outcome = run(attack, calm_s=0.1, storm_s=0.3, has_memory=False)

    assert outcome.count > 0
    assert outcome.refused == 0
    assert len(outcome.storm_ms) == 30
    assert outcome.status == 0
    assert outcome.cpu_us > 0


@pytest.mark.parametrize("attack", [group(3, 1), crowd.half_open(20)], ids=lambda each: each.name)
def test_memory_is_looked_at_when_the_attackers_are_gone(attack: Attack | crowd.Crowd) -> None:
    outcome = run(attack, calm_s=0.1, storm_s=0.3)

    assert min(outcome.before_bytes, outcome.most_bytes, outcome.after_bytes) > 1 << 20
    assert outcome.status == 0


def test_a_write_is_64_kib_of_whole_packets() -> None:
    for attack in FULL:
        chunks = attack.chunks()
        assert all(len(each) % attack.packet_bytes == 0 for each in chunks)
        assert CHUNK_BYTES - attack.packet_bytes < len(chunks[0]) <= CHUNK_BYTES


def test_at_qos_1_a_round_uses_every_packet_id_once() -> None:
    attack = group(3, 1)

    assert sum(len(each) for each in attack.chunks()) == 65_535 * attack.packet_bytes


def test_binary_filters_are_all_there_once() -> None:
    attack = binary(10)

    found = [each for number in range(attack.subscribers) for each in attack.filters(number)]

    assert len(set(found)) == len(found) == 1_024


def test_a_bystander_that_waits_is_not_held() -> None:
    quick, slow = [1.0] * 100, [1.0] * 98 + [21.0] * 2

    assert Outcome(attack="", calm_ms=quick, storm_ms=quick, stop_s=1.0).is_held
    assert not Outcome(attack="", calm_ms=quick, storm_ms=slow, stop_s=1.0).is_held
    assert not Outcome(attack="", calm_ms=quick, storm_ms=quick, stop_s=2.5).is_held


def test_memory_that_does_not_come_back_is_not_held() -> None:
    quick = [1.0] * 100

    for after, is_held in ((90, True), (104, True), (106, False)):
        found = Outcome(attack="", calm_ms=quick, storm_ms=quick, stop_s=1.0)
        found.before_bytes, found.after_bytes = 100, after
        assert found.is_held is is_held


def test_memory_that_grows_with_each_attack_is_not_held() -> None:
    quick = [1.0] * 100

    for after, is_held in (
        ((118, 126, 126), True),
        ((118, 126, 118), True),
        ((100, 106, 112), False),
    ):
        found = Outcome(attack="", calm_ms=quick, storm_ms=quick, stop_s=1.0)
        for each in after:
            found.add_memory(each)
        assert found.is_held is is_held
