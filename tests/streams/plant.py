"""A broker with a stream ``plant`` whose endpoint listens on TCP, with a token."""

from __future__ import annotations

import pathlib

from mqttcore import Settings
from mqttcore.config import HttpListener, Listener
from mqttcore.streams.settings import Stream

TOKEN = "a-token-of-a-test-made-up"  # noqa: S105 -- of no use elsewhere


def plant_settings(folder: pathlib.Path, *, sys_interval_s: float = 0) -> Settings:
    """Two partitions, data and token in ``folder``; `TOKEN` is written there."""
    token = folder / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    return Settings(
        listeners=(Listener(address="127.0.0.1:0", anonymous=True),),
        data=str(folder / "data"),
        streams=(Stream(name="plant", filter=("plant/#",), partitions=2),),
        http=HttpListener(address="127.0.0.1:0", token_file=token),
        sys_interval_s=sys_interval_s,
    )
