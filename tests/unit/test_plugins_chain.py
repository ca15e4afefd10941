"""`mqttcore.plugin.chain`: which hook is asked next and what the log says, without a broker."""

import dataclasses
import logging
from dataclasses import dataclass, field
from typing import Any, cast

import pytest
from mqttcore._core import Client, Question
from mqttcore.errors import OverloadedError, PluginError
from mqttcore.plugin import Allow, Ask, Deny, Exchange, Grant, Login, Plugin, hook
from mqttcore.plugin.breaker import FAILURES, HELD_MAX, OPEN_S, CircuitBreaker
from mqttcore.plugin.chain import Chain, FailureLog, shown

from tests.clock import Clock

EVERYTHING = Grant(publish=("#",), subscribe=("#",))


@dataclass
class Asked:
    """A question that notes what becomes of it."""

    point: str = "authenticate"
    subject: object = field(default_factory=lambda: Login(client_id="c"))
    method: str | None = None
    rules: tuple[int, ...] = ()
    position: int = 0
    age: float = 0.0
    is_in_time: bool = True
    is_trial: bool = False
    fate: list[object] = field(default_factory=list)

    @property
    def client(self) -> Login:
        """Who asks."""
        return Login(client_id="c")

    def answer(self, answer: object, *, cache: float = 0.0) -> bool:
        """Takes an answer, unless it is none."""
        if isinstance(answer, str):
            raise TypeError("expected Allow or Deny")
        self.fate.append(answer)
        return self.is_in_time

    def refuse(self) -> bool:
        """Refuses."""
        self.fate.append("refused")
        return self.is_in_time


class Remembering(Plugin):
    """A hook whose answers may be remembered."""

    @hook.authenticate(cache=60.0)
    def remembered(self, login: Login) -> Allow | None:
        """Is asked once a minute."""


class Plain(Plugin):
    """Hooks without a cache."""

    @hook.authenticate()
    def login(self, login: Login) -> Allow | None:
        """Is asked each time."""

    @hook.authorize(action="publish", filter="secret/#")
    def ask(self, ask: Ask) -> bool | None:
        """Is asked each time."""


def question(**changes: Any) -> tuple[Question, Asked]:  # noqa: ANN401 -- fields of `Asked`
    asked = Asked(**changes)
    return cast("Question", asked), asked


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_one_line_a_second_says_how_many_were_left_out(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    clock.now = 0.0
    log = FailureLog(clock)

    for now in (0.0, 0.5, 0.999, 1.0, 1.5, 2.0, 3.0):
        clock.now = now
        log.warn("p.login", "'c'", "what")
    log.warn("p.other", "'c'", "what")

    told = "plugin p.login: client 'c': what"
    assert lines(caplog) == [
        told,
        f"{told} (2 similar since the last line)",
        f"{told} (1 similar since the last line)",
        told,
        "plugin p.other: client 'c': what",
    ]


def test_only_hooks_that_say_so_are_remembered() -> None:
    chain = Chain([Remembering(), Plain()])
    remembering, plain = chain.logins
    for one in (remembering, plain):
        asked, _ = question()
        assert not chain.recall(asked, one)
        assert chain.settle(asked, one, Allow(EVERYTHING))

    later, noted = question()
    assert not chain.recall(later, plain)
    assert chain.recall(later, remembering)

    assert [type(answer) for answer in noted.fate] == [Allow]
    ask, _ = question(point="authorize", subject=None)
    assert not chain.recall(ask, remembering)


def test_an_answer_that_is_none_refuses_and_the_log_names_its_type(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain([Plain()])
    asked, noted = question()

    assert chain.settle(asked, chain.logins[0], "yes")

    assert noted.fate == ["refused"]
    title = chain.logins[0].title
    assert lines(caplog) == [
        f"plugin {title}: client 'c': answered with str: expected Allow or Deny"
    ]
    assert chain.logins[0].stats().failed == 1


@pytest.mark.parametrize(
    ("titled", "is_fault", "told"),
    [
        (True, True, "no answer within 0.5 s, refused"),
        (True, False, "no answer within 0.5 s, refused: its event loop was blocked"),
        (False, True, "no answer within 0.5 s, refused"),
    ],
)
def test_a_question_that_expired_is_logged_with_the_hook_or_the_queue(
    caplog: pytest.LogCaptureFixture, *, titled: bool, is_fault: bool, told: str
) -> None:
    chain = Chain([Plain()])
    title = chain.logins[0].title if titled else ""
    asked, _ = question()

    chain.expire(asked, title, 0.5, is_fault=is_fault)

    assert lines(caplog) == [f"plugin {title or 'queue'}: client 'c': {told}"]
    assert chain.logins[0].stats().timed_out == int(titled)


def test_the_late_hook_is_that_of_the_title_or_the_next_one() -> None:
    chain = Chain([Remembering(), Plain()])
    first, second = chain.logins
    asked, _ = question()

    assert chain.late_hook(asked, second.title) is second
    assert chain.late_hook(asked, "") is first
    ended, _ = question(position=2)
    assert chain.late_hook(ended, "") is None


def test_a_hook_holds_as_many_threads_as_it_may_and_no_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain([Plain()])
    held = chain.logins[0]

    may = [chain.hold(held) for _ in range(HELD_MAX + 2)]

    assert may == [True] * HELD_MAX + [False] * 2
    one = f"plugin {held.title}: a hook blocks its thread; another thread takes over"
    all_of_them = (
        f"plugin {held.title}: its hooks block {HELD_MAX} threads, which is the limit: it is not"
        f" called until one of them returns"
    )
    assert lines(caplog) == [one] * HELD_MAX + [all_of_them]
    assert caplog.records[-1].levelno == logging.ERROR
    for _ in range(HELD_MAX):
        held.breaker.let_go()
    assert chain.hold(held)


def test_a_hook_that_keeps_failing_is_left_alone_and_the_log_says_for_how_long(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain([Plain()])
    failing = chain.logins[0]

    for _ in range(FAILURES):
        asked, _ = question()
        chain.expire(asked, failing.title, 0.5, is_fault=True)

    assert lines(caplog)[-1] == (
        f"plugin {failing.title}: 20 failures within 10 s: it is not called for 5 s, and its"
        f" questions are refused"
    )
    asked, noted = question()
    assert chain.shut_out(asked, failing)
    assert noted.fate == ["refused"]
    assert failing.stats().shut_out == 1


def test_a_hook_that_was_left_alone_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    clock = Clock()
    chain = Chain([Plain()])
    bound = dataclasses.replace(chain.logins[0], breaker=CircuitBreaker(clock))
    for _ in range(FAILURES):
        bound.breaker.fail()
    clock.now += OPEN_S
    asked, _ = question()
    assert not chain.shut_out(asked, bound)

    assert chain.settle(asked, bound, Deny())

    assert lines(caplog) == [f"plugin {bound.title}: answers again"]
    assert bound.stats().breaker == "closed"


@pytest.mark.parametrize(
    ("point", "fate"), [("authenticate", Deny("server_busy")), ("authorize", "refused")]
)
@pytest.mark.parametrize("is_in_time", [True, False])
def test_overload_is_told_to_logins_and_is_no_failure_of_the_hook(
    point: str, fate: object, *, is_in_time: bool
) -> None:
    chain = Chain([Plain()])
    busy = (chain.logins if point == "authenticate" else chain.of("authorize"))[0]
    asked, noted = question(point=point, is_in_time=is_in_time)

    chain.fail(asked, busy, "too many", OverloadedError("too many"))

    assert noted.fate == [fate]
    stats = busy.stats()
    assert (stats.denied, stats.failed) == (int(is_in_time), 0)


def test_events_that_were_dropped_are_counted_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    chain = Chain([Plain()])

    chain.warn_dropped(chain.logins[0], 7)

    owner = chain.logins[0].title.rpartition(".")[0]
    assert lines(caplog) == [f"plugin {owner}: 7 events were dropped: its hooks are too slow"]


def test_a_long_client_identifier_is_cut_in_the_log() -> None:
    for length in (120, 121):
        client = cast("Client", Login(client_id="c" * length))
        assert shown(client) == f"'{'c' * 120}'"


class Talking(Plugin):
    """Offers a method."""

    @hook.enhanced_auth("M")
    async def talk(self, _exchange: Exchange) -> Allow | Deny:
        """Is never asked."""
        return Deny()


def test_two_hooks_for_one_method_are_named() -> None:
    with pytest.raises(PluginError) as caught:
        Chain([Talking(), Talking()])

    name = Talking().name
    both = f"{name}.talk and {name}#2.talk"
    assert str(caught.value) == f"{both} offer the same method 'M'"
