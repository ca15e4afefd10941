"""Foreign clients against the broker, as a table: `python -m tests.interop`. See README.md here."""
