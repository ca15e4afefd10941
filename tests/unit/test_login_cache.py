"""Logins that are remembered: what they are known by, and for how long."""

import random
from typing import Any

import pytest
from mqttcore.plugin import Allow, Grant, Login
from mqttcore.plugin.login_cache import ENTRIES_MAX, LoginCache

from tests.clock import Clock

ANSWER = Allow(Grant(publish=["a"]))
HOME: dict[str, Any] = {
    "client_id": "c",
    "username": "joe",
    "password": b"pw",
    "peer": ("10.0.0.1", 1),
    "listener": "l",
    "version": 5,
}


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def cache(clock: Clock) -> LoginCache:
    made = LoginCache(clock)
    made.remember("hook", Login(**HOME), ANSWER, 60)
    return made


def test_the_same_login_is_remembered(cache: LoginCache) -> None:
    assert cache.recall("hook", Login(**HOME)) is ANSWER


def test_no_two_caches_know_a_login_by_the_same_name(cache: LoginCache, clock: Clock) -> None:
    other = LoginCache(clock)
    other.remember("hook", Login(**HOME), ANSWER, 60)

    assert not set(cache._answers) & set(other._answers)


def test_the_port_that_a_client_comes_from_does_not_count(cache: LoginCache) -> None:
    assert cache.recall("hook", Login(**{**HOME, "peer": ("10.0.0.1", 2)})) is ANSWER


@pytest.mark.parametrize(
    "other",
    [
        {"client_id": "d"},
        {"username": "jim"},
        {"username": None},
        {"password": b"other"},
        {"password": None},
        {"peer": ("10.0.0.2", 1)},
        {"listener": "m"},
        {"version": 4},
    ],
    ids=str,
)
def test_a_login_that_differs_is_another_one(cache: LoginCache, other: dict[str, Any]) -> None:
    assert cache.recall("hook", Login(**{**HOME, **other})) is None


def test_what_one_hook_said_is_not_what_another_one_says(cache: LoginCache) -> None:
    assert cache.recall("other hook", Login(**HOME)) is None


@pytest.mark.parametrize(("drawn", "lasting"), [(0.9, 54.0), (1.1, 66.0)])
def test_an_answer_counts_for_its_time_give_or_take_a_tenth(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, drawn: float, lasting: float
) -> None:
    bounds: list[tuple[float, float]] = []

    def uniform(low: float, high: float) -> float:
        bounds.append((low, high))
        return drawn

    monkeypatch.setattr(random, "uniform", uniform)
    cache = LoginCache(clock)
    cache.remember("hook", Login(**HOME), ANSWER, 60)

    clock.now += lasting - 0.001
    assert cache.recall("hook", Login(**HOME)) is ANSWER
    clock.now += 0.001
    assert cache.recall("hook", Login(**HOME)) is None
    assert bounds == [(0.9, 1.1)]


def test_the_oldest_answer_makes_room(cache: LoginCache) -> None:
    for number in range(ENTRIES_MAX - 1):
        cache.remember("hook", Login(**{**HOME, "client_id": f"c{number}"}), ANSWER, 60)
    assert cache.recall("hook", Login(**HOME)) is ANSWER

    cache.remember("hook", Login(**{**HOME, "client_id": "last"}), ANSWER, 60)

    assert cache.recall("hook", Login(**HOME)) is None
    assert cache.recall("hook", Login(**{**HOME, "client_id": "c0"})) is ANSWER
    assert cache.recall("hook", Login(**{**HOME, "client_id": "last"})) is ANSWER


def test_an_answer_that_is_remembered_again_is_the_newest(cache: LoginCache) -> None:
    cache.remember("hook", Login(**{**HOME, "client_id": "second"}), ANSWER, 60)
    cache.remember("hook", Login(**HOME), ANSWER, 60)
    for number in range(ENTRIES_MAX - 1):
        cache.remember("hook", Login(**{**HOME, "client_id": f"c{number}"}), ANSWER, 60)

    assert cache.recall("hook", Login(**HOME)) is ANSWER
    assert cache.recall("hook", Login(**{**HOME, "client_id": "second"})) is None


def test_no_password_is_kept(cache: LoginCache) -> None:
    assert b"pw" not in repr(vars(cache)).encode()


def test_nothing_is_recalled_of_what_was_asked_before_it_was_forgotten() -> None:
    clock = Clock()
    cache = LoginCache(clock)
    cache.remember("hook", Login(**HOME), ANSWER, 60)
    clock.now += 5

    cache.forget()

    assert cache.recall("hook", Login(**HOME)) is None
    clock.now += 1
    cache.remember("hook", Login(**HOME), ANSWER, 60, age=2)
    assert cache.recall("hook", Login(**HOME)) is None
    cache.remember("hook", Login(**HOME), ANSWER, 60, age=0.5)
    assert cache.recall("hook", Login(**HOME)) is ANSWER


def test_an_answer_that_looks_younger_than_it_is_is_not_kept() -> None:
    """A thread reads the age of its question, and `forget` comes before it goes on."""
    clock = Clock()
    cache = LoginCache(clock)
    assert cache.recall("hook", Login(**HOME)) is None

    cache.forget()
    clock.now += 5
    cache.remember("hook", Login(**HOME), ANSWER, 60, age=0.001)

    assert cache.recall("hook", Login(**HOME)) is None
    cache.remember("hook", Login(**HOME), ANSWER, 60, age=0.001)
    assert cache.recall("hook", Login(**HOME)) is ANSWER
