"""`mqttcore acl explain`: what `authorize` hooks would decide, if they may be tried (ADR 0102)."""

from __future__ import annotations

import json
import pathlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from mqttcore import Broker, Settings, _core
from mqttcore.config import HttpListener, Listener
from mqttcore.plugin import Allow, Ask, Deny, DisconnectClient, Grant, Login, Plugin, hook
from mqttcore.plugin.breaker import FAILURES

from tests.cli.conftest import Run
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

Explain = Callable[..., list[dict[str, Any]]]
NOT_ALLOWED = 0x87


class Gate(Plugin):
    """Lets everybody in, and answers about requests with what the test handed in, or calls it."""

    def __init__(self) -> None:
        super().__init__()
        self.answer: Any = None
        self.seen: list[str] = []
        self.over = threading.Event()

    @hook.authenticate
    def login(self, login: Login) -> Allow:
        """Lets in."""
        return Allow(Grant(publish=["free/#"]))

    @hook.authorize(action="publish", filter="gate/#", timeout=0.3, explain=True)
    def may_pass(self, ask: Ask) -> Any:  # noqa: ANN401 - good and bad answers
        """May be tried."""
        return self._answered(ask)

    @hook.authorize(action="subscribe", filter="gate/#", timeout=0.3, explain=True)
    async def may_listen(self, ask: Ask) -> Any:  # noqa: ANN401 - as above
        """May be tried."""
        return self._answered(ask)

    @hook.authorize(action="publish", filter="+/counted")
    def may_count(self, ask: Ask) -> bool:
        """Has effects."""
        self.seen.append("counted")
        return True

    def _answered(self, ask: Ask) -> object:
        self.seen.append(f"{ask.action} {ask.topic} {ask.client.username}")
        return self.answer(self) if callable(self.answer) else self.answer


@pytest.fixture
def gate() -> Gate:
    return Gate()


@pytest.fixture
def broker(tmp_path: pathlib.Path, gate: Gate) -> Iterator[Broker]:
    (tmp_path / "token").write_text("0123456789abcdef")
    (tmp_path / "token").chmod(0o600)
    settings = Settings(
        listeners=(Listener(address="127.0.0.1:0", name="main"),),
        http=HttpListener(address="127.0.0.1:0", token_file=tmp_path / "token"),
        data=str(tmp_path / "data"),
    )
    with Broker(settings, plugins=[gate]) as started:
        yield started
        gate.over.set()


@pytest.fixture
def ann(broker: Broker) -> Iterator[Wire]:
    with Wire(broker.port) as wire:
        wire.connect("c", username="ann", password=b"pw")
        yield wire


@pytest.fixture
def explain(run: Run, tmp_path: pathlib.Path, ann: Wire) -> Explain:
    """The verdict of all steps, in front, and the steps of plugins."""

    def explained(action: str, topic: str) -> list[dict[str, Any]]:
        asked = ("--client", "c", action, topic)
        done = run("acl", "explain", *asked, "--data", tmp_path / "data", "--json")
        (found,) = json.loads(done.out)
        assert done.status == (0 if found["verdict"] == "ok" else 1), done.error
        steps = [step for step in found["steps"] if step["step"] == "plugins"]
        return [{"verdict": found["verdict"]}, *steps]

    ann.ping()
    return explained


def place(name: str) -> str:
    """File and line of a hook of `Gate`."""
    return f"{__file__}:{getattr(Gate, name).__code__.co_firstlineno}"


def hang(gate: Gate) -> None:
    gate.over.wait(20)


FAILED = "the hook failed, took too long or is not called now: requests are denied"


@pytest.mark.parametrize(
    ("answer", "verdict", "detail"),
    [
        (True, "ok", "allows gate/a"),
        (Allow(covers="gate/#", ttl=60), "ok", "allows gate/#"),
        (False, "denied:publish", "Not authorized"),
        (Deny("quota_exceeded", "enough"), "denied:publish", "Quota exceeded: enough"),
        (
            DisconnectClient("not_authorized", "go"),
            "denied:publish",
            "disconnects the client, Not authorized: go",
        ),
        ("text", "denied:publish", FAILED),
        (lambda gate: 1 / 0, "denied:publish", FAILED),
        (hang, "denied:publish", FAILED),
    ],
    ids=["yes", "covers", "no", "deny", "disconnect", "wrong type", "raises", "hangs"],
)
def test_the_answer_of_a_hook_is_printed_and_a_failure_is_a_denial(
    explain: Explain, gate: Gate, answer: object, verdict: str, detail: str
) -> None:
    gate.answer = answer

    whole, step = explain("publish", "gate/a")

    assert (whole["verdict"], step["verdict"]) == (verdict, verdict)
    assert step["by"] == "tests.cli.test_acl_hooks.Gate.may_pass"
    assert step["place"] == place("may_pass")
    assert step["detail"] == detail
    assert gate.seen == ["publish gate/a ann"]


def test_a_subscription_is_tried_on_the_event_loop(explain: Explain, gate: Gate) -> None:
    gate.answer = True

    whole, step = explain("subscribe", "$share/g/gate/+")

    assert (whole["verdict"], step["place"]) == ("ok", place("may_listen"))
    assert gate.seen == ["subscribe gate/+ ann"]


def test_a_hook_that_may_have_effects_is_named_and_not_called(explain: Explain, gate: Gate) -> None:
    whole, step = explain("publish", "other/counted")
    assert whole["verdict"] == step["verdict"] == "depends:plugin"
    assert step["by"] == "tests.cli.test_acl_hooks.Gate.may_count"
    assert step["place"] == place("may_count")
    assert gate.seen == []

    whole, first, second = explain("publish", "gate/counted")
    assert (first["verdict"], second["verdict"]) == ("ok", "depends:plugin")
    assert whole["verdict"] == "depends:plugin"
    assert first["detail"] == "no answer: the next hook is asked"
    assert gate.seen == ["publish gate/counted ann"]


def test_without_an_answer_of_any_hook_it_is_denied(explain: Explain) -> None:
    whole, passed, last = explain("publish", "gate/a")

    assert whole["verdict"] == "denied:publish"
    assert (passed["verdict"], last["verdict"]) == ("ok", "denied:publish")
    assert last["by"] == "deny by default"


def test_nothing_comes_of_an_answer(explain: Explain, gate: Gate, ann: Wire) -> None:
    gate.answer = Allow(covers="gate/#", ttl=60)
    assert explain("publish", "gate/a")[0]["verdict"] == "ok"

    gate.answer = False
    assert ann.publish("gate/a", b"", qos=1).reason == NOT_ALLOWED
    assert len(gate.seen) == 2


def test_failures_of_explanations_do_not_shut_the_hook(
    broker: Broker, explain: Explain, gate: Gate, ann: Wire
) -> None:
    gate.answer = "no answer"
    for _ in range(FAILURES + 1):
        explain("publish", "gate/a")
    (stats,) = [one for one in broker.hook_stats() if one.hook.endswith("may_pass")]
    assert (stats.failed, stats.shut_out) == (FAILURES + 1, 0)

    gate.answer = True
    assert ann.publish("gate/a", b"", qos=1).reason in {0x00, 0x10}
