"""The endpoint of the streams over TLS."""

from __future__ import annotations

import dataclasses
import pathlib

import pytest
from mqttcore import Broker
from mqttcore.errors import EndpointUnreachableError
from mqttcore.streams.client import Client

from tests.streams.plant import TOKEN, plant_settings
from tests.tls import Files


def test_rows_are_read_over_tls_and_only_over_tls(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, other = Files.make(tmp_path / "tls"), Files.make(tmp_path / "other")
    settings = plant_settings(tmp_path)
    assert settings.http is not None
    http = dataclasses.replace(settings.http, tls=files.tls())
    with Broker(dataclasses.replace(settings, http=http)) as broker:
        assert broker.http_address is not None
        place = f"localhost:{broker.http_address[1]}"

        monkeypatch.setenv("SSL_CERT_FILE", str(files.path("ca.pem")))
        with Client(f"https://{place}", token=TOKEN) as client:
            assert [stream.name for stream in client.streams()] == ["plant"]
        monkeypatch.setenv("SSL_CERT_FILE", str(other.path("ca.pem")))
        with (
            Client(f"https://{place}", token=TOKEN) as client,
            pytest.raises(EndpointUnreachableError, match="certificate"),
        ):
            client.streams()
        with (
            Client(f"http://{place}", token=TOKEN) as client,
            pytest.raises(EndpointUnreachableError),
        ):
            client.streams()
