"""`mqttcore.auth.scram`: the exchange of RFC 7677, from both sides."""

import asyncio
import base64
import hashlib
import hmac
import pathlib
from collections.abc import Iterator

import pytest
from mqttcore import Broker, ConfigError, PluginError, Settings, passwd
from mqttcore.auth.scram import (
    ClientFirst,
    Conversation,
    Scram,
    ScramError,
    Verifier,
    prepared,
)
from mqttcore.config import Listener, PluginUse
from mqttcore.errors import PasswordHashError
from mqttcore.plugin import Allow, Deny, Exchange, Login
from mqttcore.plugin.breaker import FAILURES
from mqttcore.plugin.loading import find_class

from tests.wire import AUTH, CONNACK, Wire, auth, connect

CLOSED = Listener(address="127.0.0.1:0", name="closed")
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
# RFC 7677, section 3: user "user", password "pencil".
FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
CHALLENGE = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
PROOF = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
LAST = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = Verifier.of("pencil", salt=SALT, iterations=4_096)


def conversation(first: bytes = FIRST, verifier: Verifier = PENCIL) -> Conversation:
    return Conversation(ClientFirst.parse(first), verifier, nonce=SERVER_NONCE)


class Client:
    """The client's side, written on its own."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self.bare = f"n={user},r=abc"
        self.first = b"n,," + self.bare.encode()
        self._password = password.encode()
        self.expected = b""

    async def ask(self, data: bytes, _text: str | None, username: str | None) -> bytes:
        """Answers the challenge."""
        assert username == self.user, "failed logins count for the user of the exchange"
        return self.answer(data)

    def answer(self, challenge: bytes, extension: str = "") -> bytes:
        """The proof, with an extension in front of it."""
        fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
        salt = base64.b64decode(fields["s"])
        key = hashlib.pbkdf2_hmac("sha256", self._password, salt, int(fields["i"]))
        client_key = hmac.digest(key, b"Client Key", "sha256")
        plain = f"c=biws,r={fields['r']}{extension}"
        covered = f"{self.bare},{challenge.decode()},{plain}".encode()
        signature = hmac.digest(hashlib.sha256(client_key).digest(), covered, "sha256")
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        server_key = hmac.digest(key, b"Server Key", "sha256")
        self.expected = b"v=" + base64.b64encode(hmac.digest(server_key, covered, "sha256"))
        return f"{plain},p={base64.b64encode(proof).decode()}".encode()


@pytest.fixture
def users(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "users"
    path.write_text(f"# ours\nuser:{PENCIL}\n")
    return path


@pytest.fixture
def broker(users: pathlib.Path) -> Iterator[Broker]:
    config = {"path": str(users), "publish": ["device/%u/#"], "subscribe": ["device/%u/#"]}
    use = PluginUse(use="mqttcore.auth.scram", config=config)
    with Broker(Settings(listeners=(CLOSED,), plugins=(use,))) as running:
        yield running


def led(users: pathlib.Path, client: Client, login: Login | None = None) -> Allow | Deny:
    """What the plugin answers, without a network."""
    plugin = Scram(Scram.Config(path=users))

    async def lead() -> Allow | Deny:
        await plugin.start()
        talk = Exchange(
            login or Login(client_id="c"),
            method="SCRAM-SHA-256",
            data=client.first,
            ask=client.ask,
        )
        return await plugin.scram(talk)

    return asyncio.run(lead())


# --- the standard's own example


def test_the_example_of_rfc_7677() -> None:
    server = conversation()

    assert server.challenge() == CHALLENGE
    assert server.check(PROOF) == LAST


def test_a_wrong_password_proves_nothing() -> None:
    other = Verifier.of("pencils", salt=SALT, iterations=4_096)

    assert conversation(verifier=other).check(PROOF) is None


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "the proof is missing, or the channel binding is wrong"),
        (
            PROOF.replace(b"c=biws", b"c=eSws"),
            "the proof is missing, or the channel binding is wrong",
        ),
        (PROOF.replace(b"k0,", b"k1,"), "the nonce is wrong"),
        (PROOF[:-4], "the proof has the wrong length"),
        (PROOF[:-1], "the proof is not base64"),
        (PROOF[:-44] + "\u00e4".encode(), "the proof is not base64"),
        (PROOF[:-44] + b"!" + PROOF[-44:], "the proof is not base64"),
        (b"\xff", "the message is not UTF-8"),
        (b"x" * 4_096, "the proof is missing, or the channel binding is wrong"),
        (b"x" * 4_097, "the message is too long"),
    ],
)
def test_what_is_no_proof_is_an_error(message: bytes, why: str) -> None:
    with pytest.raises(ScramError) as caught:
        conversation().check(message)
    assert str(caught.value) == why


def test_extensions_that_nobody_knows_are_covered_and_ignored() -> None:
    client = Client("user", "pencil")
    server = Conversation(ClientFirst.parse(client.first), PENCIL, nonce="x")

    challenge = server.challenge()
    with pytest.raises(ScramError):
        server.check(client.answer(challenge).replace(b",p=", b",z=1,q="))
    changed = client.answer(challenge).replace(b",p=", b",z=1,p=")

    assert server.check(changed) is None  # the proof does not cover it


@pytest.mark.parametrize("extension", [",z=1", ",p=z", ",r=z"])
def test_an_extension_that_the_proof_covers_is_accepted(extension: str) -> None:
    client = Client("user", "pencil")
    server = Conversation(ClientFirst.parse(client.first), PENCIL, nonce="x")

    proof = client.answer(server.challenge(), extension)

    assert server.check(proof) == client.expected


NO_NAME, NOT_ESCAPED = "the user name or the nonce is missing", "the user name is not escaped"


@pytest.mark.parametrize(
    ("message", "why"),
    [
        (b"", "not a SCRAM message"),
        (b"n,", "not a SCRAM message"),
        (b"n,,", NO_NAME),
        (b"n,,n=user", NO_NAME),
        (b"n,,n=user,r=", NO_NAME),
        (b"n,,n=,r=abc", NOT_ESCAPED),
        (b"n,,m=1,n=user,r=abc", NO_NAME),
        (b"n,,n=a=b,r=abc", NOT_ESCAPED),
        (b"n,,n=a=2cb,r=abc", NOT_ESCAPED),
        (b"n,,n=a=3=2CD,r=abc", NOT_ESCAPED),
        (b"n,a=other,n=user,r=abc", "authorization identities are not supported"),
        (b"p=tls-unique,,n=user,r=abc", "channel binding is not supported"),
        (b"x,,n=user,r=abc", "not a SCRAM message"),
    ],
)
def test_what_is_no_beginning_is_an_error(message: bytes, why: str) -> None:
    with pytest.raises(ScramError) as caught:
        ClientFirst.parse(message)
    assert str(caught.value) == why


def test_names_are_unescaped() -> None:
    assert ClientFirst.parse(b"y,,n=a=2Cb=3D2C,r=x").user == "a,b=2C"


# --- the plugin


def test_a_user_with_the_right_password_comes_in(users: pathlib.Path) -> None:
    client = Client("user", "pencil")

    answer = led(users, client)

    assert isinstance(answer, Allow)
    assert (answer.username, answer.data) == ("user", client.expected)


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_nobody_else_does(users: pathlib.Path, user: str) -> None:
    assert led(users, Client(user, "pen")) == Deny("bad_credentials")


def test_a_user_name_in_connect_is_the_same_one(users: pathlib.Path) -> None:
    same = Login(client_id="c", username="user")
    other = Login(client_id="c", username="root")

    assert isinstance(led(users, Client("user", "pencil"), same), Allow)
    assert led(users, Client("user", "pencil"), other) == Deny("bad_credentials")


def test_an_unknown_user_meets_the_same_salt_each_time(users: pathlib.Path) -> None:
    plugin = Scram(Scram.Config(path=users))
    asyncio.run(plugin.start())

    once, again = plugin._stand_in("nobody"), plugin._stand_in("nobody")
    other = plugin._stand_in("anybody")

    assert once == again
    assert once.salt != other.salt
    assert (once.iterations, len(once.salt)) == (PENCIL.iterations, len(PENCIL.salt))


def test_an_unknown_user_meets_the_same_salt_after_a_reload(users: pathlib.Path) -> None:
    """Else those whose salt changes are the ones that do not exist."""
    before, after = (Scram(Scram.Config(path=users)) for _ in range(2))
    for plugin in (before, after):
        asyncio.run(plugin.start())

    assert before._stand_in("nobody") == after._stand_in("nobody")


def test_unknown_users_differ_in_iterations_and_salts_as_known_ones_do(
    users: pathlib.Path,
) -> None:
    """Else only users that exist have those of the later lines."""
    other = Verifier.of("x", salt=b"12345678", iterations=5_000)
    users.write_text(f"user:{PENCIL}\nother:{other}\n")
    plugin = Scram(Scram.Config(path=users))
    asyncio.run(plugin.start())

    met = {(one.iterations, len(one.salt)) for one in map(plugin._stand_in, map(str, range(99)))}

    assert met == {(4_096, 16), (5_000, 8)}


def test_bad_proofs_do_not_shut_out_those_who_have_good_ones(broker: Broker) -> None:
    """What a stranger sends is no failure of the hook, however odd it is."""
    props = {"authentication_method": "SCRAM-SHA-256"}
    for number in range(FAILURES + 1):
        # Each with a name of its own: guesses with one name are held up by that name.
        client = Client(f"stranger{number}", "pencil")
        with Wire(broker.port) as wire:
            wire.send(connect("c", props={**props, "authentication_data": client.first}))
            challenge = wire.expect(AUTH).property("authentication_data")
            assert isinstance(challenge, bytes)
            proof = client.answer(challenge).rpartition(b"=")[0] + "=\u00e4".encode()
            wire.send(auth(0x18, {**props, "authentication_data": proof}))
            assert wire.expect(CONNACK).reason == 0x87

    client = Client("user", "pencil")
    with Wire(broker.port) as wire:
        wire.send(connect("c", props={**props, "authentication_data": client.first}))
        wire.expect(AUTH)


def test_a_message_that_is_no_scram_says_why(users: pathlib.Path) -> None:
    client = Client("user", "pencil")
    client.first = b"p=tls-unique,,n=user,r=abc"

    assert led(users, client) == Deny("not_authorized", "channel binding is not supported")


def test_a_client_comes_in_over_the_wire_and_may_do_what_the_rules_say(broker: Broker) -> None:
    client = Client("user", "pencil")
    props = {"authentication_method": "SCRAM-SHA-256"}
    with Wire(broker.port) as wire:
        wire.send(connect("c", props={**props, "authentication_data": client.first}))
        challenge = wire.expect(AUTH).property("authentication_data")
        assert isinstance(challenge, bytes)
        wire.send(auth(0x18, {**props, "authentication_data": client.answer(challenge)}))
        welcome = wire.expect(CONNACK)

        assert welcome.property("authentication_data") == client.expected
        assert wire.subscribe(("device/user/#", 0)).reasons == (0,)
        assert wire.subscribe(("device/other/#", 0), packet_id=2).reasons == (0x87,)
    assert broker.stats()["connects_refused"] == 0


# --- the file


def test_a_verifier_is_what_postgresql_writes() -> None:
    text = (
        "SCRAM-SHA-256$4096:W22ZaJ0SNY7soEsUEjb6gQ==$"
        "WG5d8oPm3OtcPnkdi4Uo7BkeZkBFzpcXkuLmtbsT4qY=:wfPLwcE6nTWhTAmQ7tl2KeoiWGPlZqQxSrmfPwDl2dU="
    )

    made = Verifier.of("pencil", salt=SALT, iterations=4_096)

    assert str(made) == text
    assert Verifier.parse(text) == made
    assert repr(made) == "<Verifier ***>"


OTHER_FORMAT = "not a SCRAM-SHA-256 verifier"
NOT_OURS = "not a SCRAM-SHA-256 verifier with at least 4096 iterations"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", OTHER_FORMAT),
        ("$argon2id$v=19$m=1,t=1,p=1$x$y", OTHER_FORMAT),
        (str(PENCIL).replace("SHA-256", "SHA-1"), NOT_OURS),
        (str(PENCIL).replace("4096", "4095"), NOT_OURS),
        (str(PENCIL).replace("WG5d", ""), NOT_OURS),
        (str(PENCIL).replace("W22ZaJ0SNY7soEsUEjb6gQ==", ""), NOT_OURS),
        (str(PENCIL).replace("=:", ":"), OTHER_FORMAT),
        (str(PENCIL).replace("WG5d", "!WG5d"), OTHER_FORMAT),
        (str(PENCIL).replace("W22Z", "!W22Z"), OTHER_FORMAT),
    ],
)
def test_anything_else_is_no_verifier(text: str, why: str) -> None:
    with pytest.raises(PasswordHashError) as caught:
        Verifier.parse(text)
    assert str(caught.value) == why


def test_a_broken_file_keeps_the_broker_from_starting(users: pathlib.Path) -> None:
    users.write_text(f"user:{PENCIL}\nann:secret\n")
    use = PluginUse(use="mqttcore.auth.scram", config={"path": str(users)})

    with pytest.raises(PluginError, match=r"users:2: not a SCRAM-SHA-256 verifier") as caught:
        Broker(Settings(listeners=(CLOSED,), plugins=(use,))).start()
    assert "secret" not in str(caught.value)


def test_passwd_writes_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    monkeypatch.setattr(passwd, "ask", lambda: b"pencil")

    assert passwd.main(["--scram", str(path), "joe"]) == 0
    assert passwd.main([str(path), "ann"]) == 1

    assert isinstance(led(path, Client("joe", "pencil")), Allow)
    assert "users:1" in capsys.readouterr().err
    assert "pencil" not in path.read_text()


def test_the_tool_writes_as_many_iterations_as_it_is_told(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "users"
    monkeypatch.setattr(passwd, "ask", lambda: b"pencil")

    assert passwd.main(["--scram", str(path), "joe"]) == 0
    assert passwd.main(["--scram", "--iterations", "4096", str(path), "ann"]) == 0
    assert passwd.main(["--scram", "--iterations", "4095", str(path), "jim"]) == 1

    lines = path.read_text().splitlines()
    assert [line.split("$")[1].split(":")[0] for line in lines] == ["100000", "4096"]
    assert "--iterations must be 4096 to 10000000" in capsys.readouterr().err


def test_the_plugin_is_found_by_its_module() -> None:
    assert find_class("mqttcore.auth.scram") is Scram


def test_an_unknown_key_is_refused() -> None:
    use = PluginUse(use="mqttcore.auth.scram", config={"path": "x", "publishes": ["a"]})

    with pytest.raises(ConfigError, match=r"publishes.*did you mean .publish"):
        Broker(Settings(listeners=(CLOSED,), plugins=(use,))).start()


# --- passwords


@pytest.mark.parametrize(
    ("password", "done"),
    [
        ("pencil", "pencil"),
        ("I\u00adX", "IX"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("a\u00a0b", "a b"),
        ("a\u1680b", "a b"),
        ("\u0627\u0031\u0628", "\u0627\u0031\u0628"),
    ],
)
def test_passwords_are_prepared_as_rfc_4013_says(password: str, done: str) -> None:
    assert prepared(password) == done


@pytest.mark.parametrize(
    ("password", "why"),
    [
        ("\u0007", "has characters that SCRAM does not allow"),
        ("\u0627\u0031", "mixes right-to-left with other characters"),
        ("a\u0627", "mixes right-to-left with other characters"),
        ("\u0221", "has characters that Unicode 3.2 does not assign"),
    ],
)
def test_passwords_that_clients_would_not_agree_about_are_refused(password: str, why: str) -> None:
    with pytest.raises(ValueError, match="the password") as caught:
        prepared(password)
    assert str(caught.value) == f"the password {why}"
