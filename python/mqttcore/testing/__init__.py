"""Tests of plugins in milliseconds: their hooks without a broker and without a network.

    from mqttcore.plugin import Allow, Login
    from mqttcore.testing import harness

    def test_a_door_comes_in() -> None:
        with harness(Doors, {"token": "a long random text"}) as doors:
            login = Login(client_id="7", username="door", password=b"a long random text")
            answer = doors.authenticate(login)

        assert isinstance(answer, Allow)
        assert answer.grant.publish == ("door/7/state",)

Hooks are called as the broker calls them: in their order until one answers, `async def` hooks on
one event loop and within their timeout. An exception, a timeout or an answer of a wrong type, for
which a broker refuses the client, reaches the test.
"""

from mqttcore.testing.plugin_harness import (
    AsyncHarness,
    Conversation,
    Harness,
    Respond,
    allows,
    async_harness,
    harness,
)

__all__ = [
    "AsyncHarness",
    "Conversation",
    "Harness",
    "Respond",
    "allows",
    "async_harness",
    "harness",
]
