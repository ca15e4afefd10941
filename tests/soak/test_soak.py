"""The soak in small, and proof that its books notice a loss, a repeat and an inversion."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.conftest import RunningBroker
from tests.soak.ledger import Ledger, Message
from tests.soak.run import Outcome, Plan, Soak, resident_bytes


def soak(plan: Plan, port: int, ledger: Ledger | None = None) -> Outcome:
    """One run; the memory is that of this process, where the shared broker lives."""

    async def run() -> Outcome:
        async with asyncio.timeout(plan.seconds + 30):
            return await Soak(plan, port, lambda: resident_bytes(os.getpid()), ledger).run()

    return asyncio.run(run())


def books(*sequences: int, qos: int) -> Ledger:
    """Three messages sent and acknowledged, and these arrived."""
    ledger = Ledger()
    for _ in range(3):
        ledger.acknowledge(ledger.send(7, qos))
    for sequence in sequences:
        ledger.arrive(Message(7, qos, sequence))
    return ledger


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_correct_counts_have_no_fault(qos: int) -> None:
    assert books(0, 1, 2, qos=qos).faults() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_an_acknowledged_message_that_did_not_arrive_is_lost(qos: int) -> None:
    ledger = books(0, 2, qos=qos)

    assert ledger.lost() == [Message(7, qos, 1)]
    assert len(ledger.faults()) == 1


def test_a_message_of_qos_0_may_be_lost() -> None:
    assert books(0, 2, qos=0).faults() == []


def test_a_repeat_is_a_fault_at_qos_2_and_0_but_not_at_1() -> None:
    repeated = [books(0, 1, 1, 2, qos=qos) for qos in range(3)]

    assert [len(each.faults()) for each in repeated] == [1, 0, 1]
    assert repeated[2].repeats[2] == 1


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_first_arrival_before_an_earlier_message_is_an_inversion(qos: int) -> None:
    ledger = books(0, 2, 1, qos=qos)

    assert ledger.inversions == [Message(7, qos, 1)]


def test_a_repeat_out_of_order_is_no_inversion_at_qos_1() -> None:
    assert books(0, 1, 2, 0, 1, 2, qos=1).faults() == []


@pytest.mark.parametrize(("dup", "is_resent"), [(False, False), (True, False), (False, True)])
def test_a_repeat_without_dup_is_a_fault_unless_its_publisher_sent_it_again(
    *, dup: bool, is_resent: bool
) -> None:
    ledger = books(0, 1, 2, qos=1)
    if is_resent:
        ledger.resend(Message(7, 1, 0))

    ledger.arrive(Message(7, 1, 0), dup=dup)

    assert bool(ledger.faults()) == (not dup and not is_resent)


def test_flows_of_different_qualities_are_kept_apart() -> None:
    ledger = books(0, 1, 2, qos=1)
    ledger.acknowledge(ledger.send(7, 2))

    assert ledger.lost() == [Message(7, 2, 0)]


def test_a_message_that_nobody_sent_is_a_fault() -> None:
    assert books(0, 1, 2, 3, qos=1).faults() == ["1 x a message that nobody sent"]


def test_a_message_that_was_never_acknowledged_is_a_fault() -> None:
    ledger = Ledger()
    ledger.send(1, 1)

    assert ledger.faults() == ["1 messages never acknowledged"]


def test_a_name_survives_its_payload() -> None:
    message = Message(70_000, 2, 123_456)

    assert Message.of(message.stamp() + b"padding") == message


class Losing(Ledger):
    """Forgets one message of each flow."""

    def arrive(self, message: Message, *, dup: bool | None = None) -> None:
        """Drops the third of a QoS that guarantees more."""
        if not message.qos or message.sequence != 2:
            super().arrive(message, dup=dup)


class Repeating(Ledger):
    """Hears each message of QoS 2 twice."""

    def arrive(self, message: Message, *, dup: bool | None = None) -> None:
        """Takes it, and takes it again."""
        super().arrive(message, dup=dup)
        if message.qos == 2:
            super().arrive(message, dup=dup)


class Swapping(Ledger):
    """Hears one message of each flow after the next one."""

    def arrive(self, message: Message, *, dup: bool | None = None) -> None:
        """Lets the fourth pass the third."""
        if message.sequence != 2:
            super().arrive(message, dup=dup)
        if message.sequence == 3:
            super().arrive(Message(message.publisher, message.qos, 2), dup=dup)


@pytest.mark.parametrize(
    ("ledger", "word"),
    [(Losing, "lost"), (Repeating, "delivered again"), (Swapping, "out of order")],
)
def test_a_run_notices(broker: RunningBroker, ledger: type[Ledger], word: str) -> None:
    plan = Plan(
        seconds=1, clients=4, messages_per_s=100, leaves_per_s=0, strangers_per_s=0, drain_s=0.5
    )

    outcome = soak(plan, broker.port, ledger())

    assert any(word in fault for fault in outcome.faults), outcome.lines()


def test_a_small_soak_is_without_fault(broker: RunningBroker) -> None:
    plan = Plan(seconds=8, clients=60, messages_per_s=400, leaves_per_s=30, strangers_per_s=20)

    outcome = soak(plan, broker.port)

    assert outcome.faults == [], outcome.lines()
    assert outcome.connects > 300
