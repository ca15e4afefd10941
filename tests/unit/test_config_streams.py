"""Configuration of streams: every fault with its place, and what the engine gets."""

import grp
import ipaddress
import json
import os
import pathlib
import textwrap
from collections.abc import Callable

import pytest
from mqttcore import ConfigError, Settings
from mqttcore.config import HttpListener, checks, load
from mqttcore.streams import settings as stream_settings
from mqttcore.streams.settings import Column, Retention, Stream

Write = Callable[..., str]


@pytest.fixture
def write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file that messages call `s.toml`, and the token `token` beside it."""
    monkeypatch.chdir(tmp_path)

    def written(text: str, *, token: str = "0123456789abcdef", mode: int = 0o600) -> str:  # noqa: S107
        pathlib.Path("s.toml").write_text(textwrap.dedent(text), encoding="utf-8")
        pathlib.Path("token").write_text(token + "\n", encoding="utf-8")
        pathlib.Path("token").chmod(mode)
        return "s.toml"

    return written


def faults(path: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return list(caught.value.faults)


def test_a_stream_says_which_messages_become_rows_and_how_long_they_stay(write: Write) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    path = write(f"""\
        data = "kept"

        [[streams]]
        name = "plant"
        filter = ["plant/#", "spBv1.0/#"]
        partitions = 4
        retention = {{ age = "7d", bytes = 10_000_000_000, hold_max = "12h" }}
        key = "sparkplug"
        decode = "json"
        schema = [{{ name = "temperature", type = "double" }}, {{ name = "ok", type = "boolean" }}]
        group = "{group}"

        [http]
        address = "127.0.0.1:0"
        token_file = "token"
    """)

    settings = load(path)

    assert settings.streams == (
        Stream(
            name="plant",
            filter=("plant/#", "spBv1.0/#"),
            partitions=4,
            retention=Retention(age="7d", bytes=10_000_000_000, hold_max="12h"),
            key="sparkplug",
            decode="json",
            schema=(
                Column(name="temperature", type="double"),
                Column(name="ok", type="boolean"),
            ),
            group=group,
        ),
    )
    stream = settings.streams[0]
    assert (stream.retention.age_s, stream.group_id) == (7 * 24 * 3_600, os.getgid())
    assert (stream.retention.hold_max_s, Retention().hold_max_s) == (12 * 3_600, 7 * 24 * 3_600)
    assert settings.http == HttpListener(
        address="127.0.0.1:0", token_file=pathlib.Path("token"), insecure=False
    )
    assert settings.http.token == "0123456789abcdef"  # noqa: S105 - made up
    assert "0123456789abcdef" not in repr(settings)


def test_every_fault_of_a_stream_is_named_with_its_place(write: Write) -> None:
    path = write("""\
        [[streams]]
        name = "Plant"
        filter = ["a/#b", "$share/g/a"]
        partitions = 0
        retention = { age = "7 days", bytes = 1, hold_max = "0d" }
        key = "payload"
        group = "no such group"
        schema = [{ name = "topic", type = "double" }, { name = "t", type = "float" }]

        [[streams]]
        filter = []
    """)

    assert faults(path) == [
        "s.toml:2:8: streams[0].name: 'Plant' is not a name of a stream; allowed: a-z, 0-9, _"
        " and -,"
        " up to 64, the first a-z or 0-9",
        "s.toml:3:11: streams[0].filter[0]: [MQTT-4.7.1-1] `#` is not alone in the last level;"
        " allowed: topic filters, none of them shared",
        "s.toml:3:19: streams[0].filter[1]: '$share/g/a': a stream cannot have a shared"
        " subscription; allowed: topic filters, none of them shared",
        "s.toml:4:14: streams[0].partitions: 0 is out of range; allowed: 1 to 256",
        "s.toml:5:21: streams[0].retention.age: '7 days' is not an age; allowed: a number and s,"
        " m, h"
        " or d, as 7d",
        "s.toml:5:39: streams[0].retention.bytes: 1 is out of range; allowed: 1_048_576 to"
        " 9_223_372_036_854_775_807",
        "s.toml:5:53: streams[0].retention.hold_max: '0d' is not an age; allowed: a number and"
        " s, m, h"
        " or d, as 7d",
        "s.toml:6:7: streams[0].key: found 'payload'; allowed: topic, client_id, sparkplug",
        "s.toml:7:9: streams[0].group: there is no group 'no such group' on this machine; allowed:"
        " a group of this machine",
        "s.toml:8:20: streams[0].schema[0].name: 'topic' is a column of every stream; allowed: up"
        " to 255 bytes that can be printed",
        "s.toml:8:69: streams[0].schema[1].type: found 'float'; allowed: boolean, int, long,"
        " double, string, binary, timestamp",
        "s.toml:10:1: streams[1].name: missing",
    ]


def test_keys_of_streams_are_held_against_each_other(write: Write) -> None:
    path = write("""\
        [[streams]]
        name = "plant"
        filter = []
        decode = "json"

        [[streams]]
        name = "plant"
        filter = ["#"]
        schema = [{ name = "t", type = "long" }]

        [[streams]]
        name = "third"
        filter = ["#"]
        decode = "cbor"
        schema = [{ name = "t", type = "long" }, { name = "T", type = "long" }]
    """)

    assert faults(path) == [
        "s.toml:1:1: streams: streams need a data folder; set `data` to a folder",
        "s.toml:3:10: streams[0].filter: is empty; allowed: one or more",
        "s.toml:4:10: streams[0].decode: has no effect without schema",
        "s.toml:7:8: streams[1].name: streams[0] has the same name",
        "s.toml:9:10: streams[1].schema: has no effect without decode; allowed: json, cbor,"
        " msgpack, text, protobuf, avro, sparkplug, auto",
        "s.toml:15:51: streams[2].schema[1].name: 'T' exists already (case is ignored)",
    ]


STREAM = 'data = "kept"\n[[streams]]\nname = "plant"\nfilter = ["#"]\n'


@pytest.mark.parametrize("address", ["0.0.0.0:8884", "192.0.2.1:8884", "[::]:0"])
def test_the_endpoint_stands_on_loopback_unless_it_was_asked_for(
    write: Write, address: str
) -> None:
    text = f'{STREAM}[http]\naddress = "{address}"\ntoken_file = "token"\n'

    assert faults(write(text)) == [
        f"s.toml:6:11: http.address: {address} can be reached by other machines, and tokens are"
        " not encrypted; allowed: a loopback address, http.tls, or http.insecure = true"
    ]
    assert load(write(text + "insecure = true\n")).http is not None


@pytest.mark.parametrize(
    ("token", "mode", "fault"),
    [
        ("0123456789abcdef", 0o644, "token can be read by all users of this machine"),
        ("short", 0o600, "token has no valid token"),
        ("", 0o600, "token has no valid token"),
        ("two words of a token", 0o600, "token has no valid token"),
    ],
)
def test_a_token_is_long_and_only_its_owners(
    write: Write, token: str, mode: int, fault: str
) -> None:
    text = f'{STREAM}[http]\naddress = "127.0.0.1:0"\ntoken_file = "token"\n'

    assert faults(write(text, token=token, mode=mode)) == [
        f"s.toml:7:14: http.token_file: {fault}; allowed: a file that only its owner can read,"
        f" with 16 to 4_096 printable characters"
    ]


def test_a_file_of_keys_need_not_be_there(write: Write) -> None:
    settings = load(write('[http]\naddress = "127.0.0.1:0"\nkeys_file = "keys.toml"\n'))

    assert settings.http is not None
    assert settings.http.keys_file == pathlib.Path("keys.toml")


def test_a_token_file_that_is_missing_is_a_fault(write: Write) -> None:
    path = write(f'{STREAM}[http]\naddress = "127.0.0.1:0"\ntoken_file = "nowhere"\n')

    assert [fault.split(";")[0] for fault in faults(path)] == [
        "s.toml:7:14: http.token_file: nowhere cannot be read: No such file or directory"
    ]


def test_an_endpoint_needs_no_streams_and_no_token(write: Write) -> None:
    http = load(write('[http]\naddress = "127.0.0.1:8090"\n')).http

    assert http is not None
    assert http.host_port == (ipaddress.IPv4Address("127.0.0.1"), 8090)
    assert http.token is None


@pytest.mark.parametrize(
    ("keys", "access"),
    [
        ('address = "127.0.0.1:0"', "open"),
        ('address = "127.0.0.1:0"\ntoken_file = "token"', "token"),
        ('address = "127.0.0.1:0"\ntoken_file = "token"\nmetrics = "open"', "open"),
        ('address = "127.0.0.1:0"\nkeys_file = "keys.toml"', "token"),
        ('address = "127.0.0.1:0"\nkeys_file = "keys.toml"\nmetrics = "token"', "token"),
        ('address = "127.0.0.1:0"\nmetrics = "off"', "off"),
        ('address = "192.0.2.1:8090"\ninsecure = true', "off"),
        ('address = "192.0.2.1:8090"\ninsecure = true\nmetrics = "open"', "open"),
        ("", "off"),
    ],
)
def test_metrics_are_open_without_token_and_keys_on_this_machine_alone(
    write: Write, keys: str, access: str
) -> None:
    http = load(write(f'data = "data"\n[http]\n{keys}\n')).http

    assert http is not None
    assert http.metrics_access == access


def test_metrics_for_a_token_need_a_token_or_keys(write: Write) -> None:
    path = write('[http]\naddress = "127.0.0.1:0"\nmetrics = "token"\n')

    assert faults(path) == [
        "s.toml:3:11: http.metrics: 'token' needs http.token_file or http.keys_file; allowed: open,"
        " off"
    ]


def test_an_endpoint_needs_a_place(write: Write) -> None:
    assert faults(write("[http]\n")) == [
        "s.toml:1:1: http: needs an address, or a data folder for its Unix socket"
    ]
    assert load(write('data = "data"\n[http]\n')).http is not None


def test_an_endpoint_without_an_address_has_no_use_for_certificates(write: Write) -> None:
    text = 'data = "data"\n[http.tls]\ncertificate = "a.pem"\nkey = "a.key"\n'

    assert faults(write(text)) == ["s.toml:2:1: http.tls: has no effect without http.address"]


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800)]
)
def test_ages_are_numbers_with_units(text: str, seconds: int) -> None:
    assert Retention(age=text).age_s == seconds


def test_settings_made_in_python_are_checked_alike() -> None:
    with pytest.raises(ConfigError, match="streams need a data folder"):
        Settings(streams=(Stream(name="plant", filter=("#",)),))


MACHINE = pathlib.Path(__file__).parents[2] / "rust/columnar/tests/protobuf/machine.binpb"
PROTOBUF = """\
data = "kept"

[[streams]]
name = "plant"
filter = ["#"]
schema = [{{ name = "unit", type = "string" }}]
decode = "{decode}"
{more}
"""


def test_a_descriptor_says_what_messages_of_protocol_buffers_are(write: Write) -> None:
    more = f'descriptor = "{MACHINE}"\nmessage = "factory.Machine"'
    (stream,) = load(write(PROTOBUF.format(decode="protobuf", more=more))).streams

    assert (stream.descriptor_bytes, stream.message) == (MACHINE.read_bytes(), "factory.Machine")


@pytest.mark.parametrize(
    ("decode", "more", "words"),
    [
        (
            "protobuf",
            "",
            ["[0].descriptor: decode = protobuf needs a file", "streams[0].me"],
        ),
        ("protobuf", f'descriptor = "{MACHINE}"', ["streams[0].message: decode = protobuf needs"]),
        ("json", 'message = "a.B"', ["message: has no effect without decode = protobuf"]),
        (
            "protobuf",
            'descriptor = "gone.binpb"\nmessage = "a.B"',
            ["descriptor: gone.binpb cannot be read: No such file", "allowed: what `protoc"],
        ),
        (
            "protobuf",
            'descriptor = "token"\nmessage = "a.B"',
            ["s.toml:8:14: streams[0].descriptor: token: it is not a FileDescriptorSet"],
        ),
        (
            "protobuf",
            f'descriptor = "{MACHINE}"\nmessage = "Engine"',
            ['machine.binpb: it has no message "Engine", only', "factory.Machine"],
        ),
    ],
)
def test_a_descriptor_that_does_not_fit_is_named_with_its_place(
    write: Write, decode: str, more: str, words: list[str]
) -> None:
    told = "\n".join(faults(write(PROTOBUF.format(decode=decode, more=more))))

    assert all(word in told for word in words), told


AVRO = """\
data = "kept"

[[streams]]
name = "plant"
filter = ["#"]
schema = [{{ name = "unit", type = "string" }}]
decode = "{decode}"
{more}
"""
RECORD = '{{"type": "record", "name": "R", "fields": [{{"name": "unit", "type": "{}"}}]}}'


def test_a_folder_beside_the_file_has_the_schemas_of_avro(
    write: Write, tmp_path: pathlib.Path
) -> None:
    schemas = tmp_path / "schemas"
    schemas.mkdir()
    (schemas / "7.avsc").write_text(RECORD.format("string"))

    (stream,) = load(write(AVRO.format(decode="avro", more='schemas = "schemas"'))).streams

    assert stream.schemas_bytes is not None
    assert json.loads(stream.schemas_bytes) == {"7": json.loads(RECORD.format("string"))}


@pytest.mark.parametrize(
    ("decode", "more", "words"),
    [
        ("avro", "", "[0].schemas: decode = avro needs a folder; allowed: a folder with a file"),
        ("json", 'schemas = "schemas"', "[0].schemas: has no effect without decode = avro"),
        ("avro", 'schemas = "gone"', "[0].schemas: gone has no file <number>.avsc"),
        ("avro", 'schemas = "schemas"', 'schemas: schema 7: unit: the type "Unit" is not declared'),
    ],
)
def test_schemas_of_avro_that_do_not_fit_are_named(
    write: Write, tmp_path: pathlib.Path, decode: str, more: str, words: str
) -> None:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas/7.avsc").write_text(RECORD.format("Unit"))

    told = "\n".join(faults(write(AVRO.format(decode=decode, more=more))))

    assert words in told, told


def test_a_delta_table_needs_its_package_and_rows_of_the_broker(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_settings, "is_installed", lambda _: False)
    path = write(STREAM + 'delta = true\nlog = "kafka"\n')

    told = faults(path)

    assert "s.toml:5:9: streams[0].delta: has no effect with Kafka, which keeps the rows" in told
    missing = "streams[0].delta: needs the package deltalake; pip install 'mqttcore[pipeline]'"
    assert any(missing in line for line in told)


def test_a_build_without_streams_says_how_to_get_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (stream_settings, checks):
        monkeypatch.setattr(module, "has_streams", False)
    file = tmp_path / "mqttcore.toml"
    file.write_text('data = "data"\n[[streams]]\nname = "plant"\nfilter = ["plant/#"]\n')

    with pytest.raises(ConfigError) as refused:
        load(file)

    (fault,) = refused.value.faults
    assert "streams: this build of mqttcore serves MQTT only" in fault
    assert "make build" in fault


def test_sealed_files_may_move_to_object_storage(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.streams.tier.has_object_stores", True)
    path = write("""\
        data = "kept"

        [[streams]]
        name = "plant"
        filter = ["plant/#"]

        [streams.tier]
        url = "s3://lake"
        storage = ["AWS_REGION=eu", "NAME=a=b"]
        local_age = "2d"
    """)

    tier = load(path).streams[0].tier

    assert tier is not None
    assert tier.storage_options == [("AWS_REGION", "eu"), ("NAME", "a=b")]
    assert (tier.upload_after_s, tier.local_age_s, tier.grace_s) == (300, 172_800, 3_600)


def test_a_place_for_objects_is_a_folder_or_a_bucket(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mqttcore.streams.tier.has_object_stores", False)
    stream = """\
        data = "kept"
        [[streams]]
        name = "plant"
        filter = ["#"]
        {delta}
        [streams.tier]
        url = "{url}"
        {more}
    """

    def found(url: str, more: str = "", delta: str = "") -> list[str]:
        return faults(write(stream.format(url=url, more=more, delta=delta)))

    for url in ("/mnt/lake", "file://host/lake", "ftp://bucket", "s3://", "s3://bucket?x=1"):
        assert "allowed: file:///folder, s3://" in "".join(found(url))
    assert "FEATURES=tier" in "".join(found("s3://bucket/prefix"))
    assert "a folder has no options" in "".join(found("file:///lake", 'storage = ["A=b"]'))
    monkeypatch.setattr("mqttcore.streams.settings.is_installed", lambda _: True)
    told = found("file:///lake", "local_bytes = 0", "delta = true")
    assert "without tier.local_age and tier.local_bytes they stay" in "".join(told)
