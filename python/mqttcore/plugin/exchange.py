"""`Exchange`: an enhanced authentication, for the hook that runs it."""

from collections.abc import Awaitable, Callable

from mqttcore._core import Login

AskClient = Callable[[bytes, str | None, str | None], Awaitable[bytes]]
"""Sends data, a reason string and the user name of the exchange; returns the client's data."""


class Exchange:
    """The exchange of AUTH packets with one client.

    To test a hook without a network, make one with an ``ask`` that plays the client.
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
        """The CONNECT of the client."""
        self.method = method
        """The authentication method; it never changes."""
        self.data = data
        """The authentication data of CONNECT or of the first AUTH."""
        self.is_again = is_again
        """Whether it is a re-authentication of a connected client; the user must not change."""
        self._ask = ask

    async def challenge(
        self, data: bytes, *, text: str | None = None, username: str | None = None
    ) -> bytes:
        """Sends ``data`` and waits for the answer of the client; empty data is left out.

        The timeout of the hook begins again with each answer of the client. If the client leaves,
        or exceeds the connect deadline of the listener, the hook is cancelled here.

        Args:
            data: Up to 65,535 bytes.
            text: A reason string for people.
            username: The user name in the client's data. Failed logins count for it from now on,
                instead of the user name in CONNECT; if too many have failed, the client is refused
                and this hook is cancelled. If the exchange ends before the first challenge,
                ``not_authorized`` counts only for the address, ``bad_credentials`` also for the
                user name in CONNECT.

        Raises:
            OverloadedError: too many clients have a challenge to answer. Do not catch it: the
                broker then tells this client to try again later.
            RuntimeError: the last challenge is not answered yet.
            ValueError: there is more data than a packet can carry.
        """
        return await self._ask(data, text, username)

    def __repr__(self) -> str:
        return f"<Exchange {self.method!r} {self.login!r}>"
