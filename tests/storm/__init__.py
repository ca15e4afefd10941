"""Attacks on a broker with default limits, and a client beside them: `python -m tests.storm`."""
