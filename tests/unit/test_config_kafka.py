"""Configuration of streams whose log is Kafka."""

import pathlib
import textwrap
from collections.abc import Callable

import pytest
from mqttcore import ConfigError, Settings, _core
from mqttcore.config import load
from mqttcore.streams import kafka as module
from mqttcore.streams.kafka import Kafka
from mqttcore.streams.settings import Stream

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file that messages call `k.toml`."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> str:
        pathlib.Path("k.toml").write_text(textwrap.dedent(text), encoding="utf-8")
        return "k.toml"

    return written


@pytest.fixture
def _with_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if this build had Kafka with TLS."""
    monkeypatch.setattr(module, "has_kafka", True)
    monkeypatch.setattr(module, "has_kafka_tls", True)


def faults(path: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return list(caught.value.faults)


@pytest.mark.usefixtures("_with_kafka")
def test_a_stream_in_kafka_needs_no_folder(write: Write) -> None:
    path = write("""\
        [[streams]]
        name = "plant"
        filter = ["plant/#"]
        partitions = 4
        log = "kafka"

        [[streams]]
        name = "edge"
        filter = ["spBv1.0/#"]
        key = "sparkplug"
        log = "kafka"
        topic = "Factory.Edge"

        [kafka]
        servers = ["kafka-1.example.org:9092", "[::1]:9093"]
        delivery_timeout_s = 30
        linger_ms = 5
        compression = "none"
        queue_bytes = 2_000_000
        start_deadline_s = 1.5
    """)

    settings = load(path)

    assert settings.kafka == Kafka(
        servers=("kafka-1.example.org:9092", "[::1]:9093"),
        delivery_timeout_s=30.0,
        linger_ms=5,
        compression="none",
        queue_bytes=2_000_000,
        start_deadline_s=1.5,
    )
    assert settings.kafka.addresses == "kafka-1.example.org:9092,[::1]:9093"
    assert [stream.kafka_topic for stream in settings.streams] == ["plant", "Factory.Edge"]


@pytest.mark.usefixtures("_with_kafka")
def test_every_fault_is_named_with_its_place(write: Write) -> None:
    path = write("""\
        [[streams]]
        name = "plant"
        filter = ["plant/#"]
        log = "kafka"
        topic = "plant/1"

        [kafka]
        servers = ["kafka-1", "kafka://kafka-1:9092"]
        delivery_timeout_s = 0
        linger_ms = 1.5
        compression = "zstd"
        queue_bytes = 1
        acks = "1"
    """)

    assert faults(path) == [
        "k.toml:5:9: streams[0].topic: 'plant/1' is not a topic of Kafka; allowed: letters, digits,"
        " ., _ and -, up to 249",
        "k.toml:8:12: kafka.servers[0]: 'kafka-1' is not a host and port; allowed: host and"
        " port, as"
        " kafka-1.example.org:9092",
        "k.toml:8:23: kafka.servers[1]: 'kafka://kafka-1:9092' is not a host and port; allowed:"
        " host"
        " and port, as kafka-1.example.org:9092",
        "k.toml:9:22: kafka.delivery_timeout_s: 0 is out of range; allowed: 1 to 86_400",
        "k.toml:10:13: kafka.linger_ms: expected a whole number, found 1.5; allowed: 0 to 1_000",
        "k.toml:11:15: kafka.compression: found 'zstd'; allowed: none, lz4, snappy",
        "k.toml:12:15: kafka.queue_bytes: 1 is out of range; allowed: 1_048_576 to"
        " 1_099_511_627_776",
        "k.toml:13:1: kafka.acks: unknown key; allowed: compression, delivery_timeout_s,"
        " linger_ms, queue_bytes, sasl, servers, start_deadline_s, tls",
    ]


@pytest.mark.usefixtures("_with_kafka")
def test_keys_that_do_nothing_are_refused(write: Write) -> None:
    path = write("""\
        [[streams]]
        name = "plant"
        filter = ["plant/#"]
        log = "kafka"
        retention = { age = "7d" }
        decode = "json"
        schema = [{ name = "t", type = "long" }]

        [[streams]]
        name = "own"
        filter = ["own/#"]
        topic = "own"
    """)

    assert faults(path) == [
        "k.toml:1:1: streams: streams need a data folder; set `data` to a folder",
        "k.toml:4:7: streams[0].log: needs the address of Kafka; allowed: with [kafka]",
        "k.toml:5:13: streams[0].retention: has no effect with Kafka, which keeps the rows",
        "k.toml:6:10: streams[0].decode: has no effect with Kafka, which keeps the rows",
        "k.toml:7:10: streams[0].schema: has no effect with Kafka, which keeps the rows",
        "k.toml:12:9: streams[1].topic: has no effect without log = kafka",
    ]
    assert faults(write("[kafka]\nservers = []\n")) == [
        "k.toml:1:1: kafka: has no effect without a stream whose log is kafka",
        "k.toml:2:11: kafka.servers: is empty; allowed: 1 or more",
    ]


def test_a_build_without_kafka_says_how_to_get_one(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "has_kafka", False)
    path = write("""\
        [[streams]]
        name = "plant"
        filter = ["plant/#"]
        log = "kafka"

        [kafka]
        servers = ["127.0.0.1:9092"]
    """)

    assert faults(path) == [
        "k.toml:4:7: streams[0].log: this build of mqttcore has no Kafka; install one that has:"
        ' MATURIN_PEP517_ARGS="--features kafka" pip install --no-binary mqttcore mqttcore,'
        " or in a checkout make build FEATURES=kafka"
    ]


def test_the_build_says_whether_it_has_kafka() -> None:
    assert vars(module)["has_kafka"] is _core.has_kafka


def test_settings_of_python_code_are_checked_as_well() -> None:
    stream = Stream(name="plant", filter=("plant/#",), log="kafka")

    with pytest.raises(ConfigError, match="is not a host and port"):
        Settings(streams=(stream,), kafka=Kafka(servers=("kafka",)))


SECURED = """\
    [[streams]]
    name = "plant"
    filter = ["plant/#"]
    log = "kafka"

    [kafka]
    servers = ["{server}:9092"]
    [kafka.tls]
    ca = "ca.pem"
    [kafka.sasl]
    mechanism = "{mechanism}"
    username = "mqttcore"
    password_file = "secret"
"""


def secret(text: str = "correct-horse\n", mode: int = 0o600) -> None:
    """The files that `SECURED` names."""
    pathlib.Path("ca.pem").touch()
    pathlib.Path("secret").write_text(text, encoding="utf-8")
    pathlib.Path("secret").chmod(mode)


@pytest.mark.usefixtures("_with_kafka")
def test_a_user_of_kafka_has_a_password_in_a_file(write: Write) -> None:
    path = write(SECURED.format(server="kafka-1", mechanism="SCRAM-SHA-512"))
    secret()

    kafka = load(path).kafka

    assert kafka is not None
    assert kafka.sasl is not None
    assert kafka.tls is not None
    assert (kafka.sasl.username, kafka.sasl.password) == ("mqttcore", "correct-horse")
    assert (kafka.tls.ca, kafka.tls.certificate) == (pathlib.Path("ca.pem"), None)
    assert "correct-horse" not in repr(kafka)


@pytest.mark.usefixtures("_with_kafka")
@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("", 0o600, "secret has no password"),
        ("\n", 0o600, "secret has no password"),
        ("pass", 0o604, "secret can be read by all users of this machine"),
        (None, 0, "secret cannot be read: No such file or directory"),
    ],
)
def test_a_file_without_a_secret_is_refused(
    write: Write, text: str | None, mode: int, said: str
) -> None:
    path = write(SECURED.format(server="kafka-1", mechanism="PLAIN"))
    pathlib.Path("ca.pem").touch()
    if text is not None:
        secret(text, mode)

    [line] = faults(path)

    allowed = "allowed: a file that only its owner can read"
    assert line == f"k.toml:13:17: kafka.sasl.password_file: {said}; {allowed}"


@pytest.mark.usefixtures("_with_kafka")
@pytest.mark.parametrize(
    ("server", "mechanism", "is_refused"),
    [
        ("kafka-1", "PLAIN", True),
        ("127.0.0.1", "PLAIN", False),
        ("kafka-1", "SCRAM-SHA-256", False),
    ],
)
def test_a_password_is_not_sent_without_tls(
    write: Write, server: str, mechanism: str, is_refused: bool
) -> None:
    text = SECURED.format(server=server, mechanism=mechanism)
    path = write(text.replace('    [kafka.tls]\n    ca = "ca.pem"\n', ""))
    secret()
    if not is_refused:
        assert load(path).kafka is not None
        return

    [line] = faults(path)

    assert "kafka.sasl.mechanism: PLAIN sends the password as it is" in line


TOKEN = SECURED.replace('username = "mqttcore"\n    password_file', "token_file")


@pytest.mark.usefixtures("_with_kafka")
def test_a_token_of_kafka_is_in_a_file(write: Write) -> None:
    path = write(TOKEN.format(server="kafka-1", mechanism="OAUTHBEARER"))
    secret("e30.e30.\n")

    kafka = load(path).kafka

    assert kafka is not None
    assert kafka.sasl is not None
    assert (kafka.sasl.token_file, kafka.sasl.password) == (pathlib.Path("secret"), None)
    assert "e30" not in repr(kafka)


@pytest.mark.usefixtures("_with_kafka")
def test_a_mechanism_has_the_keys_that_it_needs_and_no_others(write: Write) -> None:
    secret()

    assert faults(write(SECURED.format(server="kafka-1", mechanism="OAUTHBEARER"))) == [
        "k.toml:10:1: kafka.sasl.token_file: is missing; OAUTHBEARER needs it",
        "k.toml:12:12: kafka.sasl.username: has no effect with OAUTHBEARER",
        "k.toml:13:17: kafka.sasl.password_file: has no effect with OAUTHBEARER",
    ]
    assert faults(write(TOKEN.format(server="kafka-1", mechanism="PLAIN"))) == [
        "k.toml:10:1: kafka.sasl.username: is missing; PLAIN needs it",
        "k.toml:10:1: kafka.sasl.password_file: is missing; PLAIN needs it",
        "k.toml:12:14: kafka.sasl.token_file: has no effect with PLAIN",
    ]


@pytest.mark.usefixtures("_with_kafka")
def test_a_token_is_not_sent_without_tls(write: Write) -> None:
    text = TOKEN.format(server="kafka-1", mechanism="OAUTHBEARER")
    path = write(text.replace('    [kafka.tls]\n    ca = "ca.pem"\n', ""))
    secret()
    pathlib.Path("secret").chmod(0o604)

    assert faults(path) == [
        "k.toml:9:13: kafka.sasl.mechanism: OAUTHBEARER sends the token as it is, and the"
        " connection to Kafka is not encrypted; allowed: with [kafka.tls], or a SCRAM mechanism",
        "k.toml:10:14: kafka.sasl.token_file: secret can be read by all users of this machine;"
        " allowed: a file that only its owner can read",
    ]


@pytest.mark.usefixtures("_with_kafka")
def test_certificates_of_kafka_are_files_and_have_a_key(write: Write) -> None:
    text = SECURED.format(server="kafka-1", mechanism="PLAIN")
    path = write(text.replace("ca = ", "certificate = "))
    secret()
    pathlib.Path("ca.pem").unlink()

    assert faults(path) == [
        "k.toml:8:1: kafka.tls: certificate and key must be set together",
        "k.toml:9:15: kafka.tls.certificate: ca.pem is not a file",
    ]


def test_a_build_without_tls_says_so(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "has_kafka", True)
    monkeypatch.setattr(module, "has_kafka_tls", False)
    path = write(SECURED.format(server="kafka-1", mechanism="PLAIN"))
    secret()

    tls, sasl = faults(path)

    assert "kafka.tls: this build of mqttcore has Kafka without TLS and SASL; make build" in tls
    assert "kafka.sasl: this build of mqttcore has Kafka without TLS and SASL; make build" in sasl
