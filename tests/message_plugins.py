"""Plugins for tests of hooks that decide about messages."""

from __future__ import annotations

from typing import Any

from mqttcore.plugin import Message, Plugin


class Decider(Plugin):
    """Its hook returns `answered`: the answer that the test handed in, or the call of it."""

    answer: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Message] = []

    def answered(self, message: Message) -> Any:  # noqa: ANN401 - good and bad answers
        """Notes a message."""
        self.seen.append(message)
        return self.answer(message) if callable(self.answer) else self.answer
