"""One Kafka node for all tests of this folder; without Java or Maven they are skipped by name."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest

from tests.kafka.jars import MissingToolError
from tests.kafka.node import Node


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node that runs."""
    made = Node(tmp_path_factory.mktemp("kafka") / "node")
    try:
        made.start()
    except MissingToolError as missing:
        pytest.skip(str(missing))
    yield made
    made.remove()


@pytest.fixture
def config(tmp_path: pathlib.Path, node: Node) -> pathlib.Path:
    """A broker whose messages are rows of its own, and records of a topic of this test."""
    text = f"""\
        [[listeners]]
        address = "127.0.0.1:0"
        anonymous = true

        [[streams]]
        name = "own"
        filter = ["plant/#"]

        [[streams]]
        name = "plant"
        filter = ["plant/#"]
        log = "kafka"
        topic = "{tmp_path.name}"
        partitions = 2

        [kafka]
        servers = ["{node.servers}"]
    """
    path = tmp_path / "mqttcore.toml"
    path.write_text(text, encoding="utf-8")
    return path
