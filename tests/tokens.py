"""JSON Web Tokens for tests, good and hostile, and an issuer that serves its keys."""

from __future__ import annotations

import base64
import hashlib
import hmac
import http.server
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from joserfc import jws
from joserfc.jwk import RSAKey

if TYPE_CHECKING:
    from joserfc.jwk import Key

SECRET = "a shared secret of 32 bytes or more, for tests only"  # noqa: S105 - of tests
HOUR_S = 3_600


def claims(**changes: object) -> dict[str, object]:
    """Claims that are valid for an hour; None leaves one out."""
    made = {"sub": "joe", "exp": int(time.time()) + HOUR_S, **changes}
    return {name: value for name, value in made.items() if value is not None}


def encoded(data: bytes | dict[str, Any]) -> str:
    """A part of a token."""
    raw = data if isinstance(data, bytes) else json.dumps(data).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()


def hmac_token(
    payload: dict[str, object] | bytes,
    *,
    secret: bytes = SECRET.encode(),
    header: dict[str, Any] | bytes | None = None,
) -> bytes:
    """A token with HMAC-SHA-256, made by hand, with any header."""
    head = {"alg": "HS256"} if header is None else header
    signed = f"{encoded(head)}.{encoded(payload)}".encode()
    return signed + b"." + encoded(hmac.digest(secret, signed, hashlib.sha256)).encode()


def token(payload: dict[str, object], key: Key, algorithm: str = "RS256", **header: Any) -> bytes:  # noqa: ANN401 - of JSON
    """A token that is signed with a private key."""
    head = {"alg": algorithm, **header}
    return jws.serialize_compact(head, json.dumps(payload), key, algorithms=[algorithm]).encode()


def rsa_key(kid: str) -> RSAKey:
    """A private key."""
    return RSAKey.generate_key(2048, parameters={"kid": kid})


class Issuer:
    """An HTTP server on the loopback with a JWK Set, which tests replace."""

    def __init__(self, *keys: Key) -> None:
        self.requests = 0
        self.status = 200
        self.body = b""
        self.rotate(*keys)
        issuer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                """Serves the keys."""
                issuer.requests += 1
                self.send_response(issuer.status)
                if issuer.status == http.HTTPStatus.FOUND:
                    self.send_header("Location", f"{issuer.url}/elsewhere")
                self.send_header("Content-Length", str(len(issuer.body)))
                self.end_headers()
                self.wfile.write(issuer.body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - of the base class
                """Says nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/keys"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def rotate(self, *keys: Key) -> None:
        """Serves these keys from now on."""
        self.body = json.dumps({"keys": [key.as_dict(private=False) for key in keys]}).encode()

    def close(self) -> None:
        """Ends it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
