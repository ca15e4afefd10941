"""SCRAM-SHA-256 in AUTH packets: users prove their password without sending it.

For clients of MQTT 5.0 that name the Authentication Method ``SCRAM-SHA-256``. The steps are those
of RFC 5802 and RFC 7677; the client's first message comes with CONNECT, the server's last one with
CONNACK. ``python -m mqttcore.passwd --scram`` writes the file, ``user:verifier`` a line; what is
in it lets nobody in. Without TLS, what is sent can be used to try passwords at leisure.

    [[plugins]]
    use = "mqttcore.auth.scram"
    [plugins.config]
    path = "scram-users"
    publish = ["device/%u/#"]
    subscribe = ["device/%u/#", "news/#"]

The user is the one of the exchange; a user name in CONNECT must be the same. ``%u`` and ``%c`` are
filled in as for `mqttcore.auth.password_file`.
"""

import base64
import hashlib
import hmac
import os
import pathlib
import stringprep
import unicodedata
from dataclasses import dataclass

from mqttcore.auth.password_file import read_password_file
from mqttcore.auth.rules import RulesPlugin, UserRules
from mqttcore.errors import PasswordHashError
from mqttcore.plugin.answers import Allow, Deny
from mqttcore.plugin.exchange import Exchange
from mqttcore.plugin.hooks import hook

METHOD = "SCRAM-SHA-256"
ITERATIONS = 100_000
ITERATIONS_MIN = 4_096
NONCE_BYTES = 18
MESSAGE_BYTES_MAX = 4_096
ESCAPED = {"2C": ",", "3D": "="}


class ScramError(ValueError):
    """A message that is not valid SCRAM, or not the expected one."""


class Scram(RulesPlugin):
    """Admits the users of a file, all with the same rules."""

    class Config(UserRules):
        """Keys of ``[plugins.config]``, including those of rules."""

        path: pathlib.Path
        """The file; relative to the configuration file."""

    config: Config

    async def reload(self) -> None:
        """Reads the files; if one cannot be used, neither changes.

        Raises:
            PasswordFileError: it cannot be used; the text names the line.
            AclFileError: as above.
        """
        texts = read_password_file(self.config.path, check=Verifier.parse)
        await super().reload()
        self._verifiers = {user: Verifier.parse(text) for user, text in texts.items()}
        lines = "\n".join(sorted(texts.values()))
        # Derived from the file: salts of unknown users survive a restart, as those of users do.
        self._secret = hashlib.sha256(lines.encode()).digest()

    @hook.enhanced_auth(METHOD)
    async def scram(self, talk: Exchange) -> Allow | Deny:
        """Runs one exchange: the client's first message, a challenge, the proof."""
        try:
            first = ClientFirst.parse(talk.data)
            known = self._verifiers.get(first.user)
            server = Conversation(first, known or self._stand_in(first.user))
            proof = await talk.challenge(server.challenge(), username=first.user)
            signature = server.check(proof)
        except ScramError as error:
            return Deny("not_authorized", str(error))
        is_same = talk.login.username in (None, first.user)
        if signature is None or known is None or not is_same:
            return Deny("bad_credentials")
        grant = self.grant_for(user=first.user, client_id=talk.login.client_id)
        return Allow(grant, username=first.user, data=signature)

    def _stand_in(self, user: str) -> "Verifier":
        """The verifier for an unknown user: constant, like a real one, without a password."""
        made = hmac.digest(self._secret, user.encode(), "sha256")
        known = list(self._verifiers.values())
        like = known[int.from_bytes(made) % len(known)]
        salt = hashlib.shake_256(made).digest(len(like.salt))
        key = hmac.digest(made, b"key", "sha256")
        return Verifier(iterations=like.iterations, salt=salt, stored_key=key, server_key=key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """The data that the server stores for a password."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, salt: bytes, iterations: int = ITERATIONS) -> "Verifier":
        """Makes one.

        Raises:
            ValueError: the password has characters that clients would not agree about.
        """
        key = hashlib.pbkdf2_hmac("sha256", prepared(password).encode(), salt, iterations)
        client_key = hmac.digest(key, b"Client Key", "sha256")
        return cls(
            iterations=iterations,
            salt=salt,
            stored_key=hashlib.sha256(client_key).digest(),
            server_key=hmac.digest(key, b"Server Key", "sha256"),
        )

    @classmethod
    def parse(cls, text: str) -> "Verifier":
        """Reads the format of `str`, which PostgreSQL also uses.

        Raises:
            PasswordHashError: it is something else.
        """
        try:
            method, parameters, keys = text.split("$")
            iterations, salt = parameters.split(":")
            stored_key, server_key = (
                base64.b64decode(key, validate=True) for key in keys.split(":")
            )
            made = cls(
                iterations=int(iterations),
                salt=base64.b64decode(salt, validate=True),
                stored_key=stored_key,
                server_key=server_key,
            )
        except ValueError as error:
            raise PasswordHashError("not a SCRAM-SHA-256 verifier") from error
        has_keys = len(made.stored_key) == len(made.server_key) == hashlib.sha256().digest_size
        if method != METHOD or not has_keys or made.iterations < ITERATIONS_MIN or not made.salt:
            raise PasswordHashError("not a SCRAM-SHA-256 verifier with at least 4096 iterations")
        return made

    def __str__(self) -> str:
        keys = f"{encoded(self.stored_key)}:{encoded(self.server_key)}"
        return f"{METHOD}${self.iterations}:{encoded(self.salt)}${keys}"

    def __repr__(self) -> str:
        return "<Verifier ***>"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFirst:
    """The first message of the client: ``n,,n=user,r=nonce``."""

    header: str
    """The channel binding of the client, with two commas."""
    bare: str
    """The other part of the message, which the proof covers."""
    user: str
    nonce: str

    @classmethod
    def parse(cls, data: bytes) -> "ClientFirst":
        """Reads it.

        Raises:
            ScramError: it is something else, or wants what is not offered.
        """
        flag, comma, rest = decoded(data).partition(",")
        identity, second, bare = rest.partition(",")
        if not comma or not second or flag not in ("n", "y"):
            raise ScramError(
                "channel binding is not supported" if flag[:2] == "p=" else "not a SCRAM message"
            )
        if identity:
            raise ScramError("authorization identities are not supported")
        name, nonce, *_ = [*bare.split(","), ""]
        if not name.startswith("n=") or not nonce.startswith("r=") or len(nonce) == len("r="):
            raise ScramError("the user name or the nonce is missing")
        return cls(header=f"{flag},,", bare=bare, user=unescaped(name[2:]), nonce=nonce[2:])


class Conversation:
    """The server's side, for one client."""

    def __init__(self, first: ClientFirst, verifier: Verifier, *, nonce: str | None = None) -> None:
        self._first = first
        self._verifier = verifier
        own = encoded(os.urandom(NONCE_BYTES)) if nonce is None else nonce
        self._nonce = first.nonce + own

    def challenge(self) -> bytes:
        """The server's first message."""
        return self._challenge().encode()

    def check(self, data: bytes) -> bytes | None:
        """The server's last message for a client with a valid proof; None: the proof is wrong.

        Raises:
            ScramError: it is no proof, or one for another exchange.
        """
        without_proof, comma, proof = decoded(data).rpartition(",p=")
        binding, _, rest = without_proof.partition(",r=")
        nonce = rest.partition(",")[0]
        if not comma or binding != f"c={encoded(self._first.header.encode())}":
            raise ScramError("the proof is missing, or the channel binding is wrong")
        if not hmac.compare_digest(nonce.encode(), self._nonce.encode()):
            raise ScramError("the nonce is wrong")
        covered = f"{self._first.bare},{self._challenge()},{without_proof}".encode()
        signature = hmac.digest(self._verifier.stored_key, covered, "sha256")
        key = bytes(a ^ b for a, b in zip(signature, unpacked(proof), strict=True))
        if not hmac.compare_digest(hashlib.sha256(key).digest(), self._verifier.stored_key):
            return None
        return b"v=" + base64.b64encode(hmac.digest(self._verifier.server_key, covered, "sha256"))

    def _challenge(self) -> str:
        salt = encoded(self._verifier.salt)
        return f"r={self._nonce},s={salt},i={self._verifier.iterations}"


def decoded(data: bytes) -> str:
    """A message as text."""
    if len(data) > MESSAGE_BYTES_MAX:
        raise ScramError("the message is too long")
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ScramError("the message is not UTF-8") from error


def unpacked(proof: str) -> bytes:
    """The 32 bytes of a proof."""
    try:
        found = base64.b64decode(proof, validate=True)
    except ValueError as error:
        raise ScramError("the proof is not base64") from error
    if len(found) != hashlib.sha256().digest_size:
        raise ScramError("the proof has the wrong length")
    return found


def encoded(data: bytes) -> str:
    """Bytes as base64."""
    return base64.b64encode(data).decode()


def unescaped(name: str) -> str:
    """A user name out of a message, where ``=2C`` is a comma and ``=3D`` an equals sign."""
    first, *rest = name.split("=")
    if not name or any(part[:2] not in ESCAPED for part in rest):
        raise ScramError("the user name is not escaped")
    return first + "".join(ESCAPED[part[:2]] + part[2:] for part in rest)


PROHIBITED = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def prepared(password: str) -> str:
    """A password as both sides hash it: SASLprep of RFC 4013.

    Raises:
        ValueError: it has characters that are not allowed, or mixes directions of writing.
    """
    if password.isascii() and password.isprintable():
        return password
    mapped = "".join(
        " " if stringprep.in_table_c12(char) else char
        for char in password
        if not stringprep.in_table_b1(char)
    )
    done = unicodedata.ucd_3_2_0.normalize("NFKC", mapped)
    if any(is_in(char) for char in done for is_in in PROHIBITED):
        raise ValueError("the password has characters that SCRAM does not allow")
    if any(stringprep.in_table_a1(char) for char in done):
        raise ValueError("the password has characters that Unicode 3.2 does not assign")
    if any(map(stringprep.in_table_d1, done)):
        is_pure = not any(map(stringprep.in_table_d2, done))
        if not (is_pure and stringprep.in_table_d1(done[0]) and stringprep.in_table_d1(done[-1])):
            raise ValueError("the password mixes right-to-left with other characters")
    return done
