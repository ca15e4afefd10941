"""Waiting for a broker that is away."""

from __future__ import annotations

from typing import Any

import pytest
from mqttcore.errors import EndpointError, EndpointUnreachableError
from mqttcore.spark.retry import with_retries

from tests.spark.conftest import SimulatedTime

AWAY = EndpointUnreachableError("nobody there")


class Answers:
    """What a broker says, one after the other."""

    def __init__(self, *answers: Any) -> None:  # noqa: ANN401 -- an answer or an error
        self.left = list(answers)

    def __call__(self) -> object:
        """The next one, raised if it is an error."""
        answer = self.left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def waits(patience: SimulatedTime) -> list[float]:
    """How long it slept, which takes no time here."""
    return patience.waits


def test_a_broker_that_is_away_is_asked_again_ever_more_slowly(
    waits: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    stopping = EndpointError("it stops", status=503, code="stopped")
    answers = Answers(AWAY, stopping, *[AWAY] * 6, "here")

    assert with_retries(answers, what="stream plant") == "here"

    assert waits == [0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0]
    assert caplog.messages == ["waiting for stream plant, 300 s at most: nobody there"]


def test_a_broker_that_refuses_is_not_asked_again(waits: list[float]) -> None:
    with pytest.raises(EndpointError, match="no such rows"):
        with_retries(Answers(EndpointError("no such rows", code="bad_rows"), "here"), what="it")

    assert waits == []


def test_no_broker_is_waited_for_without_end(waits: list[float]) -> None:
    with pytest.raises(EndpointUnreachableError, match="nobody there"):
        with_retries(Answers(*[AWAY] * 200), what="it")
    assert 300 <= sum(waits) < 302

    waits.clear()
    with pytest.raises(EndpointUnreachableError, match="nobody there"):
        with_retries(Answers(AWAY), what="it", retry_s=0.0)
    assert waits == []


def test_another_way_ends_the_waiting(waits: list[float]) -> None:
    def look(error: EndpointError) -> None:
        raise LookupError(f"a file has them: {error}")

    with pytest.raises(LookupError, match="a file has them: nobody there"):
        with_retries(Answers(AWAY, "here"), what="it", meanwhile=look)

    assert waits == []
