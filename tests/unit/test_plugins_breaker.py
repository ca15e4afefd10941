"""When a hook is left alone, by a clock that the test turns."""

import pytest
from mqttcore.plugin.breaker import FAILURES, HELD_MAX, OPEN_S, WINDOW_S, CircuitBreaker

from tests.clock import Clock

TIMEOUT_S = 1.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock)


def opened(breaker: CircuitBreaker) -> CircuitBreaker:
    for _ in range(FAILURES):
        assert breaker.admit(timeout=TIMEOUT_S)
        breaker.fail()
    return breaker


def on_trial(breaker: CircuitBreaker, clock: Clock) -> CircuitBreaker:
    opened(breaker)
    clock.now += OPEN_S
    assert breaker.admit(timeout=TIMEOUT_S)
    return breaker


def test_the_twentieth_failure_opens(breaker: CircuitBreaker) -> None:
    assert [breaker.fail() for _ in range(20)] == [False] * 19 + [True]

    assert breaker.state == "open"
    assert not breaker.admit(timeout=TIMEOUT_S)


def test_failures_that_are_further_apart_do_not_open(breaker: CircuitBreaker, clock: Clock) -> None:
    for _ in range(3 * FAILURES):
        assert not breaker.fail()
        clock.now += WINDOW_S / (FAILURES - 1) + 0.001

    assert breaker.state == "closed"


def test_failures_that_just_fit_the_window_open(breaker: CircuitBreaker, clock: Clock) -> None:
    assert not any(breaker.fail() for _ in range(FAILURES - 1))
    clock.now += WINDOW_S

    assert breaker.fail()


def test_a_failure_of_long_ago_does_not_keep_it_closed(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    breaker.fail()
    clock.now += 2 * WINDOW_S

    assert [breaker.fail() for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]


def test_it_is_open_while_as_many_threads_are_held_as_may_be(breaker: CircuitBreaker) -> None:
    held = [breaker.hold() for _ in range(HELD_MAX)]
    assert held == list(range(1, HELD_MAX + 1))
    before = breaker.state
    assert not breaker.admit(timeout=TIMEOUT_S)

    breaker.let_go()

    assert (before, breaker.state) == ("open", "closed")
    assert breaker.admit(timeout=TIMEOUT_S)
    assert breaker.hold() == HELD_MAX


def test_failures_of_calls_from_before_do_not_keep_it_open(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    opened(breaker)
    clock.now += OPEN_S - 0.001
    assert not breaker.fail()
    assert not breaker.succeed()
    before = breaker.state

    clock.now += 0.001

    assert (before, breaker.state) == ("open", "half_open")


def test_one_call_tries_and_closes(breaker: CircuitBreaker, clock: Clock) -> None:
    on_trial(breaker, clock)
    before = breaker.state
    assert not breaker.admit(timeout=TIMEOUT_S)

    assert breaker.succeed()

    assert (before, breaker.state) == ("half_open", "closed")
    assert breaker.admit(timeout=TIMEOUT_S)
    assert [breaker.fail() for _ in range(FAILURES)].index(True) == FAILURES - 1


def test_a_trial_that_fails_opens_again_without_news(breaker: CircuitBreaker, clock: Clock) -> None:
    on_trial(breaker, clock)

    assert not breaker.fail()

    assert breaker.state == "open"
    clock.now += OPEN_S
    assert breaker.admit(timeout=TIMEOUT_S)
    assert breaker.succeed()


def test_a_trial_that_tells_nothing_makes_room_for_the_next(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    on_trial(breaker, clock)

    breaker.release()

    assert breaker.admit(timeout=TIMEOUT_S)
    assert not breaker.admit(timeout=TIMEOUT_S)


def test_a_trial_that_never_ends_is_not_waited_for(breaker: CircuitBreaker, clock: Clock) -> None:
    on_trial(breaker, clock)
    clock.now += TIMEOUT_S + OPEN_S - 0.001
    assert not breaker.admit(timeout=TIMEOUT_S)

    clock.now += 0.001

    assert breaker.admit(timeout=TIMEOUT_S)


def test_each_change_is_reported(breaker: CircuitBreaker, clock: Clock) -> None:
    told: list[bool] = []
    breaker.tell = told.append

    on_trial(breaker, clock)
    assert told == [True]
    breaker.succeed()
    assert told[1:] == [False]
    for _ in range(HELD_MAX):
        breaker.hold()
    assert told[2:] == [False] * (HELD_MAX - 1) + [True]
    breaker.let_go()
    assert told[-1] is False
