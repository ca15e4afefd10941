"""Marks that tests of several folders carry."""

from __future__ import annotations

import os
from typing import Final

import pytest

NIGHTLY: Final = pytest.mark.skipif(
    "MQTTCORE_NIGHTLY" not in os.environ, reason="minutes: `make nightly` runs it"
)
"""What takes minutes, and is a repeat of what other tests of its file prove."""
