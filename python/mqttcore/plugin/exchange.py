"""`Exchange`: an enhanced authentication, for the hook that runs it."""

from collections.abc import Awaitable, Callable

from mqttcore._core import Login

AskClient = Callable[[bytes, str | None, str | None], Awaitable[bytes]]
"""Sends data and a text for people, says whom the exchange names, waits for the client's data."""


class Exchange:
    """One client that authenticates by a method: what it said, and the way to ask it more.

    To try a hook without a network, make one with an ``ask`` that answers as a client would.
    """

    __slots__ = ("_ask", "data", "is_again", "login", "method")

    def __init__(
        self,
        login: Login,
        /,
        *,
        method: str,
        ask: AskClient,
        data: bytes = b"",
        is_again: bool = False,
    ) -> None:
        self.login = login
        """Its CONNECT."""
        self.method = method
        """What it named; it never changes."""
        self.data = data
        """What it sent with that."""
        self.is_again = is_again
        """It is connected, and authenticates again: it has to stay the user that it is."""
        self._ask = ask

    async def challenge(
        self, data: bytes, *, text: str | None = None, username: str | None = None
    ) -> bytes:
        """Sends ``data`` and waits for the answer of the client; empty data is left out.

        Between the client's answers a hook has its timeout each time. A client that leaves, or
        takes longer than the listener gives it to connect, cancels the hook here.

        Args:
            data: Up to 65,535 bytes.
            text: A reason string for people.
            username: The user whom the client's data name. Failed logins count for this user name
                from now on, whatever CONNECT says; if too many have failed, the client is refused
                and this hook is cancelled. An exchange that ends with ``not_authorized`` before
                its first challenge counts for the address alone; ``bad_credentials`` counts for
                the user name in CONNECT as well.

        Raises:
            OverloadedError: too many clients have a challenge to answer; let it pass, and this
                one is told to come again.
            RuntimeError: the last challenge is not answered yet.
            ValueError: there is more data than a packet can carry.
        """
        return await self._ask(data, text, username)

    def __repr__(self) -> str:
        return f"<Exchange {self.method!r} {self.login!r}>"
