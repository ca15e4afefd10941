"""Messages that deliver hooks decide about, while the broker is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.process import ServerProcess
from tests.wire import Wire, payloads

CONFIG = """
[[listeners]]
address = "127.0.0.1:0"
[[plugins]]
use = "tests.crash.plugins:Veil"
"""
KEPT = {"session_expiry_interval": 3_600, "receive_maximum": 2}


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_is_decided_about_before_and_after_a_crash(tmp_path: Path, qos: int) -> None:
    """Some are in flight when the broker dies, some are queued: none gets past the hook."""
    config = tmp_path / "broker.toml"
    config.write_text(CONFIG)
    server = ServerProcess(data=tmp_path / "data", config=config)
    server.start()
    try:
        with Wire(server.port) as reader, Wire(server.port) as writer:
            reader.connect("reader", username="u", password=b"", clean=False, props=KEPT)
            reader.subscribe(("veiled/#", qos))
            writer.connect("writer", username="u", password=b"")
            for number in range(4):
                body = b"refused" if number == 1 else b"%d" % number
                writer.publish("veiled/a", body, qos=qos)
            assert payloads([reader.receive() for _ in range(2)]) == [b"0 veiled", b"2 veiled"]

        server.crash()

        with Wire(server.port) as reader:
            reader.connect("reader", username="u", password=b"", clean=False, props=KEPT)
            found = [reader.receive_publish() for _ in range(3)]
            assert payloads(found) == [b"0 veiled", b"2 veiled", b"3 veiled"]
            reader.drain()
    finally:
        server.kill()
