"""`mqttcore certs dev`: what README shows."""

from __future__ import annotations

import pathlib
import stat

import pytest
from mqttcore import Broker, certs, config

from tests.tls import Files, open_tls
from tests.wire import unique


def test_two_commands_make_a_broker_with_tls(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "certs"

    assert certs.main(["dev", str(folder)]) == 0

    assert f"-c {folder}/mqttcore.toml" in capsys.readouterr().out
    settings = config.load(folder / "mqttcore.toml", listen=["127.0.0.1:0"])
    with Broker(settings) as broker:
        for with_client in (False, True):
            context = Files(folder).context(with_client=with_client)
            with open_tls(broker.port, context) as one:
                one.connect(unique("c"))


def test_keys_are_for_their_owner_and_files_are_not_overwritten(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certs.main(["dev", str(tmp_path)]) == 0
    before = (tmp_path / "server.key").read_bytes()

    assert certs.main(["dev", str(tmp_path)]) == 1

    assert "ca.pem" in capsys.readouterr().err
    assert (tmp_path / "server.key").read_bytes() == before
    for name in ("server.key", "client.key"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600


def test_a_host_that_is_none_is_reported(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certs.main(["dev", str(tmp_path / "new"), "--host", "bädly named"]) == 1
    assert capsys.readouterr().err
    assert not (tmp_path / "new").exists()


def test_keys_that_contradict_each_other_are_reported_with_their_places(
    tmp_path: pathlib.Path,
) -> None:
    from mqttcore.errors import ConfigError

    path = tmp_path / "mqttcore.toml"
    path.write_text(
        '[[listeners]]\n[listeners.tls]\ncertificate = "a"\nkey = "b"\nidentity = "cn"\n'
        '[[listeners]]\naddress = "127.0.0.1:1"\n[listeners.tls]\ncertificate = "a"\nkey = "b"\n'
        'client_certificates = "required"\n'
    )

    with pytest.raises(ConfigError) as caught:
        config.load(path)

    first, second = caught.value.faults
    assert ":5:" in first
    assert "listeners[0].tls.identity" in first
    assert ":11:" in second
    assert "client_ca" in second
