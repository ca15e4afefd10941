"""The endpoint of the streams over TLS."""

from __future__ import annotations

import dataclasses
import datetime
import pathlib
import pickle
import socket
import ssl

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from mqttcore import Broker
from mqttcore.errors import EndpointUnreachableError
from mqttcore.streams.client import StreamClient, read_ca

from tests.eventually import eventually
from tests.streams.plant import TOKEN, plant_settings
from tests.tls import Files
from tests.wire import PATIENCE_S


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


class Revocation:
    """A CA in ``folder``, a client's certificate of it, and a list that revokes nothing."""

    def __init__(self, folder: pathlib.Path, *, expires_in_s: float) -> None:
        now = datetime.datetime.now(datetime.UTC)
        until = now + datetime.timedelta(days=1)
        ca_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
        issuer = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "CA of clients")])
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "reader")])
        plain = x509.CertificateBuilder().issuer_name(issuer).not_valid_before(now)
        plain = plain.not_valid_after(until)
        named = plain.subject_name(issuer).serial_number(1).public_key(ca_key.public_key())
        ca = named.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        own = plain.subject_name(subject).serial_number(7).public_key(key.public_key())
        crl = x509.CertificateRevocationListBuilder().issuer_name(issuer).last_update(now)
        crl = crl.next_update(now + datetime.timedelta(seconds=expires_in_s))
        crl = crl.add_extension(x509.CRLNumber(1), critical=False)
        self.ca, self.crl = folder / "client-ca.pem", folder / "crl.pem"
        self.certificate, self.key = folder / "reader.pem", folder / "reader.key"
        pem = serialization.Encoding.PEM
        for path, made in (
            (self.ca, ca.sign(ca_key, hashes.SHA256())),
            (self.certificate, own.sign(ca_key, hashes.SHA256())),
            (self.crl, crl.sign(ca_key, hashes.SHA256())),
        ):
            path.write_bytes(made.public_bytes(pem))
        private = serialization.PrivateFormat.PKCS8
        self.key.write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_session_is_not_resumed_once_the_revocation_list_has_expired(
    tmp_path: pathlib.Path, version: ssl.TLSVersion
) -> None:
    files = Files.make(tmp_path / "tls")
    ca = Revocation(files.folder, expires_in_s=3)
    tls = files.tls(client_certificates="required", client_ca=ca.ca, crl=ca.crl)
    context = files.context()
    context.load_cert_chain(ca.certificate, ca.key)
    context.minimum_version = context.maximum_version = version
    settings = plant_settings(tmp_path)
    assert settings.http is not None
    settings = dataclasses.replace(settings, http=dataclasses.replace(settings.http, tls=tls))
    with Broker(settings) as broker:
        assert broker.http_address is not None
        port = broker.http_address[1]
        session: ssl.SSLSession | None = None

        def ask() -> bool:
            """Whether a new connection is answered; all but the first resume its session."""
            nonlocal session
            plain = socket.create_connection(("127.0.0.1", port), PATIENCE_S)
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as opened:
                assert opened.session_reused == (session is not None)
                try:
                    opened.sendall(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")
                    answer = opened.recv(4096)
                except OSError:
                    return False
                session = session or opened.session
                return answer.startswith(b"HTTP/1.1 200 ")

        assert ask()
        assert ask()
        eventually(lambda: not ask())
