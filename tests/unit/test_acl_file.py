"""`mqttcore.auth.acl_file`: files of Mosquitto's `acl_file`, read and evaluated as there."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
from mqttcore import Broker, ConfigError, Settings
from mqttcore.auth import acl_file
from mqttcore.auth.acl_file import AclFile, read_acl_file
from mqttcore.auth.anonymous import Anonymous
from mqttcore.config import Listener, PluginUse
from mqttcore.errors import AclFileError, PluginError
from mqttcore.plugin import Allow, Grant, Login
from mqttcore.plugin.limited_log import LimitedLog
from mqttcore.testing import allows, harness

from tests.wire import Wire

Write = Callable[[str], Path]
LISTENER = Listener(address="127.0.0.1:0", name="listed")
FILE = """\
# the public part
topic read public/#
topic deny public/secret

user joe
topic joe/#
topic read shared/data
topic write shared/command
topic  deny  joe/with spaces/#
topic readwrite my topic
user ann
topic read #
user joe
topic deny joe/late

pattern write device/%c/state
pattern read user/%u/inbox
pattern deny device/%c/locked
pattern device/%c/#
"""


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes an ACL file."""

    def written(text: str) -> Path:
        path = tmp_path / "acl"
        path.write_text(text, encoding="utf-8")
        return path

    return written


@pytest.fixture
def acl(write: Write) -> AclFile:
    """The file above."""
    return read_acl_file(write(FILE))


def grant(acl: AclFile, user: str | None, client_id: str = "c1") -> Grant:
    """The grant of one client."""
    return Grant(access_list=acl.rules_of(user=user, client_id=client_id))


def test_a_file_is_read_with_its_denials_first(acl: AclFile) -> None:
    assert acl.users[None] == (("deny", "public/secret"), ("read", "public/#"))
    assert acl.users["ann"] == (("read", "#"),)
    assert acl.users["joe"] == (
        ("deny", "joe/with spaces/#"),
        ("deny", "joe/late"),
        ("readwrite", "joe/#"),
        ("read", "shared/data"),
        ("write", "shared/command"),
        ("readwrite", "my topic"),
    )
    assert [access for access, _ in acl.patterns] == ["deny", "write", "read", "readwrite"]


@pytest.mark.parametrize(
    ("user", "topic", "may_write", "may_read"),
    [
        (None, "public/a", False, True),
        (None, "public/secret", False, False),
        (None, "joe/a", False, False),
        ("joe", "public/a", False, False),
        ("joe", "joe/a", True, True),
        ("joe", "joe", True, True),
        ("joe", "joe/late", False, False),
        ("joe", "joe/with spaces/x", False, False),
        ("joe", "my topic", True, True),
        ("joe", "shared/data", False, True),
        ("joe", "shared/command", True, False),
        ("joe", "device/c1/state", True, True),
        ("joe", "device/c2/state", False, False),
        ("joe", "device/c1/locked", False, False),
        ("joe", "user/joe/inbox", False, True),
        ("joe", "user/ann/inbox", False, False),
        ("ann", "anything", False, True),
        ("ann", "device/c1/locked", False, True),
        ("ann", "$SYS/broker", False, False),
        ("nobody", "device/c1/state", True, True),
        ("nobody", "joe/a", False, False),
        (None, "user//inbox", False, False),
        (None, "user/%u/inbox", False, False),
    ],
)
def test_the_first_rule_of_the_user_and_then_of_the_patterns_decides(
    acl: AclFile, user: str | None, topic: str, may_write: bool, may_read: bool
) -> None:
    rules = grant(acl, user)

    assert allows(rules, "publish", topic) is may_write
    assert allows(rules, "receive", topic) is may_read


def test_every_filter_may_be_subscribed(acl: AclFile) -> None:
    for topic in ("#", "$SYS/#", "joe/late", "elsewhere/+"):
        assert allows(grant(acl, "nobody"), "subscribe", topic)


@pytest.mark.parametrize(
    ("user", "client_id", "topic", "is_allowed"),
    [
        ("joe", "#", "device/#/state".replace("#", "x"), False),
        ("+", "c1", "device/c1/state", False),
        ("joe", "+", "joe/a", True),
        ("a#", "c1", "device/c1/state", False),
        ("joe", "a/b", "device/a/b/state", True),
        ("joe", "a/b", "device/a/x/state", False),
        ("%c", "c1", "device/c1/state", True),
        ("joe", "%u", "device/%u/state", True),
        ("joe", "%u", "device/joe/state", False),
        ("", "c1", "device/c1/state", True),
    ],
)
def test_names_in_patterns(
    acl: AclFile, user: str, client_id: str, topic: str, is_allowed: bool
) -> None:
    """Abuse G01: `/` is allowed as in Mosquitto, `+` and `#` take all patterns away."""
    assert allows(grant(acl, user, client_id), "publish", topic) is is_allowed


def test_a_name_that_makes_a_pattern_too_long_takes_all_patterns_away(write: Write) -> None:
    acl = read_acl_file(write("topic read a\npattern read c/%c\npattern deny x\n"))

    assert acl.rules_of(user=None, client_id="c" * 65_535) == (("read", "a"),)


def test_names_that_fit_no_pattern_cause_a_line_a_second(
    write: Write, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    now = 0.0
    limited = LimitedLog(logging.getLogger("rules"), clock=lambda: now)
    monkeypatch.setattr(acl_file, "log", limited)
    acl = read_acl_file(write("pattern read %c/#"))
    for _ in range(3):
        acl.rules_of(user="joe", client_id="+" * 1_000)
    now = 2.0
    acl.rules_of(user="joe", client_id="#")

    first, second = caplog.messages
    assert len(first) < 250
    assert second.endswith("(2 similar since the last line)")


def test_a_name_makes_no_dollar_topic(write: Write) -> None:
    acl = read_acl_file(write("pattern %u/#\npattern $mine/%c\n"))

    assert acl.rules_of(user="$SYS", client_id="c") == (("readwrite", "$mine/c"),)
    assert acl.rules_of(user=None, client_id="c") == (("readwrite", "$mine/c"),)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("topics a", "unknown word 'topics'; allowed: topic, user, pattern"),
        ("Topic a", "unknown word 'Topic'"),
        ("topic", "the topic is missing"),
        ("pattern ", "the topic is missing"),
        ("topic allow a", "unknown access 'allow'; allowed: read, write, readwrite, deny"),
        ("topic my topic", "unknown access 'my'"),
        ("topic read a/#/b", "MQTT-4.7.1-1"),
        ("topic a#", "MQTT-4.7.1-1"),
        ("topic $#", "MQTT-4.7.1-1"),
        ("pattern read %c+/x", "MQTT-4.7.1-2"),
        ("user", "the user name is missing"),
        ("user   ", "the user name is missing"),
        ("\ufefftopic a", "unknown word"),
    ],
)
def test_a_malformed_file_is_refused_as_a_whole(write: Write, line: str, fault: str) -> None:
    path = write(f"topic a\n{line}\ntopic b\n")

    with pytest.raises(AclFileError) as caught:
        read_acl_file(path)

    assert str(caught.value).startswith(f"{path}:2: ")
    assert fault in str(caught.value)


def test_each_wrong_line_is_named(write: Write) -> None:
    path = write("topic allow a\n# x\nuser\n")

    with pytest.raises(AclFileError) as caught:
        read_acl_file(path)

    assert [line.split(": ")[0] for line in str(caught.value).splitlines()] == [
        f"{path}:1",
        f"{path}:3",
    ]


@pytest.mark.parametrize("text", ["", "# nothing\n", "\n\n", "user joe\n"])
def test_a_file_without_rules_allows_nothing(
    write: Write, caplog: pytest.LogCaptureFixture, text: str
) -> None:
    path = write(text)
    settings = Settings(listeners=(LISTENER,), plugins=(using(path),))

    with Broker(settings) as broker, Wire(broker.port) as wire:
        wire.connect("c")
        assert wire.publish("a", qos=1).reason == 0x87
        broker.reload(settings)  # as empty as before

    assert f"{path} has no rules: it allows nothing" in caplog.messages


@pytest.mark.parametrize(
    "reload",
    [
        lambda broker: broker.reload(broker.settings),
        lambda broker: broker._plugin_host.reload_plugin(broker.settings.plugins[0].use),
    ],
    ids=["configuration", "plugin"],
)
def test_a_reload_does_not_replace_rules_with_none(
    write: Write, reload: Callable[[Broker], object]
) -> None:
    path = write("topic write a\n")
    settings = Settings(listeners=(LISTENER,), plugins=(using(path),))

    with Broker(settings) as broker:
        write("# all rules are gone\n")
        with pytest.raises(PluginError, match=f"is as before: {path}: it has no rules"):
            reload(broker)
        with Wire(broker.port) as wire:
            wire.connect("c")
            assert wire.publish("a", qos=1).reason == 0x10


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "acl").write_bytes(b"topic \xff\n")

    for name in ("acl", "none"):
        with pytest.raises(AclFileError, match=f"{name}: cannot be read"):
            read_acl_file(tmp_path / name)


def test_lines_may_end_as_on_windows(write: Write) -> None:
    acl = read_acl_file(write("user joe\r\ntopic read a\r\n"))

    assert acl.users == {"joe": (("read", "a"),)}


# --- as a part of plugins


def using(path: Path, **config: object) -> PluginUse:
    """The plugin for clients without user name."""
    return PluginUse(use="mqttcore.auth.anonymous", config={"acl_file": str(path), **config})


def test_anonymous_clients_have_the_rules_before_the_first_user(write: Write) -> None:
    with harness(Anonymous, {"acl_file": str(write(FILE)), "deny": ["public/x"]}) as anonymous:
        answer = anonymous.authenticate(Login(client_id="c1"))
        named = anonymous.authenticate(Login(client_id="c1", username="joe", password=b""))
        password = anonymous.authenticate(Login(client_id="c1", password=b""))

    assert isinstance(answer, Allow)
    assert allows(answer.grant, "receive", "public/a")
    assert not allows(answer.grant, "receive", "public/x")
    assert (named, password) == (None, None)


@pytest.mark.parametrize("key", ["publish", "subscribe"])
def test_a_file_and_rules_exclude_each_other(write: Write, key: str) -> None:
    use = using(write("topic a\n"), **{key: ["a"]})

    with pytest.raises(ConfigError, match="acl_file replaces publish and subscribe"):
        Broker(Settings(listeners=(LISTENER,), plugins=(use,))).start()


def test_a_broker_does_not_start_with_a_malformed_file(write: Write) -> None:
    path = write("topic a\ntopic allow b\n")

    with pytest.raises(PluginError, match=rf"Anonymous.*{path}:2: unknown access 'allow'"):
        Broker(Settings(listeners=(LISTENER,), plugins=(using(path),))).start()


def test_a_message_that_may_not_be_read_is_dropped_at_delivery(write: Write) -> None:
    """Live, retained and queued; SUBSCRIBE itself is granted."""
    path = write("topic a/#\ntopic deny a/secret\ntopic write b\n")
    with (
        Broker(Settings(listeners=(LISTENER,), plugins=(using(path),))) as broker,
        Wire(broker.port) as reader,
        Wire(broker.port) as writer,
    ):
        writer.connect("writer")
        assert writer.publish("a/secret", qos=1, packet_id=1).reason == 0x87
        for number, topic in enumerate(("b", "a/1", "elsewhere"), start=2):
            reason = writer.publish(topic, b"kept", qos=1, packet_id=number, retain=True).reason
            assert reason == (0x87 if topic == "elsewhere" else 0x10)
        reader.connect("reader")
        assert reader.subscribe(("#", 1), ("a/secret", 1), ("$SYS/#", 0)).reasons == (1, 1, 0)
        assert reader.receive_publish().topic == "a/1"
        writer.publish("b", b"live", qos=1, packet_id=5)
        writer.publish("a/2", b"live", qos=1, packet_id=6)
        assert reader.receive_publish().topic == "a/2"


def test_a_reload_with_a_malformed_file_changes_nothing(write: Write) -> None:
    path = write("topic read a\n")
    use = using(path)
    with Broker(Settings(listeners=(LISTENER,), plugins=(use,))) as broker:
        path.write_text("topic readwrite a\ntopic nonsense b\n")
        with pytest.raises(PluginError, match=f"{path}:2"):
            broker.reload(broker.settings)
        with Wire(broker.port) as before:
            before.connect("c")
            assert before.publish("a", qos=1).reason == 0x87

        path.write_text("topic readwrite a\n")
        broker.reload(broker.settings)
        with Wire(broker.port) as after:
            after.connect("c")
            assert after.publish("a", qos=1).reason == 0x10


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"access_list": [("reads", "a")]}, "access is 'reads'"),
        ({"access_list": [("read", "a#")]}, "MQTT-4.7.1-1"),
        ({"access_list": [("read", "a")], "publish": ["a"]}, "replaces publish and subscribe"),
    ],
)
def test_a_wrong_access_list_is_refused(change: dict[str, object], fault: str) -> None:
    with pytest.raises(Exception, match=fault):
        Grant(**change)  # type: ignore[arg-type] # wrong on purpose
