"""The harness asks hooks about packets as a broker does."""

import pytest
from mqttcore.plugin import (
    Deny,
    Drop,
    Login,
    Message,
    Plugin,
    ReplaceConnect,
    ReplaceOptions,
    Subscribe,
    SubscribeEntry,
    hook,
)
from mqttcore.testing import harness

JOE = Login(client_id="c", username="joe")
PACKET = Subscribe(JOE, entries=[SubscribeEntry("a/#", qos=2), SubscribeEntry("b")])


class Careful(Plugin):
    """One hook for each packet."""

    @hook.connect
    def limit(self, login: Login) -> ReplaceConnect | None:
        """Changes the connections of joe."""
        return ReplaceConnect(keep_alive=30) if login.username == "joe" else None

    @hook.subscribe
    async def lower(self, packet: Subscribe) -> list[ReplaceOptions | Deny | None] | Deny | None:
        """Lowers subscriptions with wildcards."""
        return [ReplaceOptions(qos=0) if "#" in one.topic else None for one in packet.entries]

    @hook.will("state/#")
    def drop(self, _: Message) -> Drop:
        """Drops."""
        return Drop()


class Short(Plugin):
    """Answers for one filter only."""

    @hook.subscribe
    def one(self, _: Subscribe) -> list[None]:
        """Forgets filters."""
        return [None]


class Wrong(Plugin):
    """Answers with something else."""

    @hook.subscribe  # type: ignore[type-var] # wrong on purpose
    def true(self, packet: Subscribe) -> list[bool]:
        """A bool is no answer."""
        return [True for _ in packet.entries]


def test_each_hook_of_a_packet_is_asked() -> None:
    with harness(Careful) as plugin:
        assert plugin.connect(JOE) == [ReplaceConnect(keep_alive=30)]
        assert plugin.connect(Login(client_id="c")) == [None]
        assert plugin.subscribe(PACKET) == [[ReplaceOptions(qos=0), None]]
        assert plugin.will(Message(JOE, topic="state/a")) == [Drop()]
        assert plugin.will(Message(JOE, topic="other")) == []


@pytest.mark.parametrize(("kind", "text"), [(Short, "1 of 2 entries"), (Wrong, "with bool")])
def test_an_answer_that_a_broker_refuses_reaches_the_test(kind: type[Plugin], text: str) -> None:
    with harness(kind) as plugin, pytest.raises(TypeError, match=text):
        plugin.subscribe(PACKET)
