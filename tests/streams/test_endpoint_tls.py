"""The endpoint of the streams over TLS."""

from __future__ import annotations

import dataclasses
import pathlib
import pickle

import pytest
from mqttcore import Broker
from mqttcore.errors import EndpointUnreachableError
from mqttcore.streams.client import StreamClient, read_ca

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
        with StreamClient(f"https://{place}", token=TOKEN) as client:
            assert [stream.name for stream in client.streams()] == ["plant"]
        ca = read_ca(str(files.path("ca.pem")))
        monkeypatch.setenv("SSL_CERT_FILE", str(other.path("ca.pem")))
        pickled = pickle.dumps(StreamClient(f"https://{place}", token=TOKEN, ca=ca))
        with pickle.loads(pickled) as client:  # noqa: S301 -- ours
            assert [stream.name for stream in client.streams()] == ["plant"]
        with (
            StreamClient(f"https://{place}", token=TOKEN) as client,
            pytest.raises(EndpointUnreachableError, match="certificate"),
        ):
            client.streams()
        with (
            StreamClient(f"http://{place}", token=TOKEN) as client,
            pytest.raises(EndpointUnreachableError),
        ):
            client.streams()


def test_a_file_without_certificates_is_named(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "ca.pem"
    with pytest.raises(ValueError, match="cannot be read"):
        read_ca(str(file))
    for text in ("nothing", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"):
        file.write_text(text)
        with pytest.raises(ValueError, match="no certificate"):
            read_ca(str(file))
