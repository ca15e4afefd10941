"""Requests that are generated from the OpenAPI document, and their answers."""

from __future__ import annotations

import os
import pathlib
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from mqttcore import Broker, Settings, _core
from mqttcore.config import HttpListener, Listener
from mqttcore.streams.settings import Stream

from tests.operations.api import Api
from tests.operations.openapi import Operation, operations
from tests.wire import Wire

pytestmark = pytest.mark.skipif(not _core.has_streams, reason="this build has no HTTP endpoint")

LEFT_OUT = {
    # its answer does not end
    "/api/v1/events",
    "/api/v1/explain/delivery/live",
    "/api/v1/traces/{id}/live",
    # it would write where a generated path says
    "/api/v1/store/backup",
    # each one syncs the disk: tests/operations/test_configuration.py
    "/api/v1/store/checkpoint",
}
# `make http-test` sends more.
TRIES = int(os.environ.get("MQTTCORE_REQUESTS", "500"))


@pytest.fixture(scope="module")
def api() -> Iterator[Api]:
    with tempfile.TemporaryDirectory() as folder:
        home = pathlib.Path(folder)
        made = Settings(
            listeners=(Listener(address="127.0.0.1:0", name="main", anonymous=True),),
            http=HttpListener(keys_file=home / "keys.toml"),
            streams=(Stream(name="rows", filter=("rows/#",)),),
            data=str(home / "data"),
            shards=2,
        )
        with Broker(made) as broker, Wire(broker.port) as wire:
            wire.connect("a", props={"session_expiry_interval": 600})
            wire.subscribe(("a/#", 1))
            yield Api(home / "data")


@pytest.fixture(scope="module")
def known(api: Api) -> list[Operation]:
    status, document = api.ask("GET", "/openapi.json")
    assert status == 200
    found = [one for one in operations(document) if one.path not in LEFT_OUT]
    assert len(found) >= 35
    return found


@given(data=st.data())
@settings(
    max_examples=TRIES,
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
def test_every_answer_is_as_the_document_says(
    api: Api, known: list[Operation], data: st.DataObject
) -> None:
    operation = data.draw(st.sampled_from(known))
    request = data.draw(operation.requests())

    status, answer = api.ask(request.method, request.path.removeprefix("/api/v1"), request.body)

    assert status not in (401, 403, 405, 500), answer
    assert operation.faults(status, answer) == []
