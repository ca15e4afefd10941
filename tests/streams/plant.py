"""A broker with a stream ``plant`` whose endpoint listens on TCP, with a token."""

from __future__ import annotations

import dataclasses
import hashlib
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


def with_key(settings: Settings, folder: pathlib.Path, secret: str, scopes: str) -> Settings:
    """The same endpoint with a key of the stream ``plant``; ``scopes`` as in ``rows, publish``."""
    assert settings.http is not None
    file = folder / "keys.toml"
    names = ", ".join(f'"{scope}"' for scope in scopes.split(", "))
    file.touch(0o600)
    file.write_text(
        f"""[[keys]]
name = "analysts"
sha256 = "{hashlib.sha256(secret.encode()).hexdigest()}"
scopes = [{names}]
streams = ["plant"]
"""
    )
    http = dataclasses.replace(settings.http, keys_file=file)
    return dataclasses.replace(settings, http=http)
