"""A clock that a test turns."""


class Clock:
    """Stands still until it is turned."""

    now = 1_000.0

    def __call__(self) -> float:
        """The time."""
        return self.now
