"""Configuration: every fault at once, each with its place; flags over environment over file."""

import dataclasses
import grp
import os
import pathlib
import sys
import textwrap
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from mqttcore import ConfigError, Settings
from mqttcore._record import REQUIRED, Record
from mqttcore._schema import Entry, Faults, Place, check_made, field_types
from mqttcore.config import Access, Listener, PluginUse, ServerLimits, load
from mqttcore.plugin.loading import load_plugins

Write = Callable[[str], str]


@pytest.fixture
def write(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a file that messages call `mqttcore.toml`."""
    monkeypatch.chdir(tmp_path)

    def written(text: str) -> str:
        pathlib.Path("mqttcore.toml").write_text(textwrap.dedent(text), encoding="utf-8")
        return "mqttcore.toml"

    return written


def faults(path: str | None = None, **more: Any) -> list[str]:  # noqa: ANN401 - passed on
    with pytest.raises(ConfigError) as caught:
        load(path, **more)
    return list(caught.value.faults)


def test_every_fault_is_named_with_its_place_and_a_remedy(write: Write) -> None:
    path = write("""\
        log_levle = "info"
        shards = "two"

        [[listeners]]
        adress = "127.0.0.1:1883"

        [[listeners]]
        address = "127.0.0.1"
        anonymous = "yes"

        [limits]
        maximum_packet_size = 12
        queue_policy = "drop_oldst"
        keep_alive_max_s = 1.5

        [sessions]
    """)

    assert faults(path) == [
        "mqttcore.toml:1:1: log_levle: unknown key; allowed: data, durability, http, kafka, limits,"
        " listeners, log, log_level, metrics, plugins, scrub_interval_s, shards,"
        " shared_strategy, streams, sys_interval_s, topics;"
        ' did you mean "log_level"?',
        "mqttcore.toml:2:10: shards: expected a whole number, found 'two'; allowed: 0 to 64",
        "mqttcore.toml:5:1: listeners[0].adress: unknown key; allowed: address, anonymous,"
        " deny, durability, group, identity, insecure, max_connections, maximum_packet_size, mode,"
        " mount_point, name, origins, path, protocol_versions, proxy_from, queue_policy,"
        " receive_maximum, session, tls, transport;"
        ' did you mean "address"?',
        "mqttcore.toml:8:11: listeners[1].address: '127.0.0.1' has no port; allowed: IP address or"
        " localhost, and port, as 127.0.0.1:1883 or [::1]:1883; or unix: and a path, as"
        " unix:/run/mqttcore/mqtt.sock",
        "mqttcore.toml:9:13: listeners[1].anonymous: expected true or false or a table, found"
        " 'yes'",
        "mqttcore.toml:12:23: limits.maximum_packet_size: 12 is out of range; allowed: 20 to"
        " 268_435_460",
        "mqttcore.toml:13:16: limits.queue_policy: found 'drop_oldst'; allowed: drop_newest,"
        ' drop_oldest, disconnect, refuse; did you mean "drop_oldest"?',
        "mqttcore.toml:14:20: limits.keep_alive_max_s: expected a whole number, found 1.5; allowed:"
        " 0 to 65_535",
        "mqttcore.toml:16:2: sessions: unknown key; allowed: data, durability, http, kafka, limits,"
        " listeners, log, log_level, metrics, plugins, scrub_interval_s, shards,"
        " shared_strategy, streams, sys_interval_s, topics",
    ]


def test_faults_of_syntax_have_places_too(write: Write) -> None:
    path = write("""\
        shards = 1
        log_level = "info
        sys_interval_s =
    """)

    found = faults(path)

    assert [fault.split(": ")[0] for fault in found] == [
        "mqttcore.toml:2:18",
        "mqttcore.toml:3:17",
    ]


def test_a_key_that_comes_twice_is_a_fault(write: Write) -> None:
    path = write("shards = 1\nshards = 2\n")

    assert faults(path) == ["mqttcore.toml:2:1: duplicate key"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: pathlib.Path) -> None:
    assert faults("nowhere.toml") == ["nowhere.toml: cannot be read: No such file or directory"]

    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"shards = 1\n# \xff\n")

    assert faults(str(binary)) == [f"{binary}:2:1: is not UTF-8"]


@pytest.mark.parametrize("address", ["0.0.0.0:1883", "[::]:1883", "192.0.2.1:1883"])
def test_anonymous_access_from_other_machines_must_be_asked_for(write: Write, address: str) -> None:
    open_to_all = f'[[listeners]]\naddress = "{address}"\nanonymous = true\n'

    assert faults(write(open_to_all)) == [
        f"mqttcore.toml:3:13: listeners[0].anonymous: {address} can be reached by other machines;"
        " allowed: a loopback address, or listeners[0].insecure = true"
    ]

    assert load(write(open_to_all + "insecure = true\n")).listeners[0].access is not None


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.9.9.9:1", "[::1]:1883", "localhost:9"])
def test_anonymous_access_from_this_machine_needs_nothing(write: Write, address: str) -> None:
    settings = load(write(f'[[listeners]]\naddress = "{address}"\nanonymous = true\n'))

    assert settings.listeners[0].access == Access(publish=("#",), subscribe=("#", "$SYS/#"))


@pytest.mark.parametrize(
    "address",
    ["", "1883", ":1883", "::1:1883", "[127.0.0.1]:1883", "127.0.0.1:65536", "host:1", "127.1:x"],
)
def test_an_address_that_is_none_is_refused(address: str) -> None:
    with pytest.raises(ConfigError, match=r"listeners\[0\].address: "):
        Settings(listeners=(Listener(address=address),))


def test_two_listeners_cannot_share_an_address(write: Write) -> None:
    path = write("""\
        [[listeners]]
        address = "127.0.0.1:1883"
        [[listeners]]
        address = "127.0.0.1:1883"
    """)

    assert faults(path) == [
        "mqttcore.toml:3:1: listeners[1]: '127.0.0.1:1883' is already the address or name of"
        " listeners[0]"
    ]


def test_a_table_of_anonymous_rules_is_checked_filter_by_filter(write: Write) -> None:
    path = write("""\
        [[listeners]]
        anonymous = { publish = ["a/#", "b#"], subscribe = [] }
    """)

    (fault,) = faults(path)

    assert fault.startswith("mqttcore.toml:2:33: listeners[0].anonymous.publish[1]: [MQTT-4.7.1-1]")


def test_flags_win_over_environment_over_file_over_defaults(write: Write) -> None:
    path = write("""\
        shards = 2
        log_level = "error"
        [limits]
        queue_messages = 7
        [[listeners]]
        address = "127.0.0.1:1111"
        name = "mine"
        anonymous = true
    """)
    environment = {
        "MQTTCORE__SHARDS": "3",
        "MQTTCORE__LOG_LEVEL": "warning",
        "MQTTCORE__LISTENERS__0__ADDRESS": "127.0.0.1:2222",
        "MQTTCORE__LISTENERS__1__ADDRESS": "127.0.0.1:3333",
        "MQTTCORE__LIMITS__QUEUE_QOS0": "true",
        "UNRELATED": "x",
    }

    plain = load(path)
    with_environment = load(path, environment=environment)
    with_flags = load(path, environment=environment, listen=["127.0.0.1:4444"], log_level="debug")

    assert (plain.shards, plain.log_level, plain.sys_interval_s) == (2, "error", 10.0)
    assert (with_environment.shards, with_environment.log_level) == (3, "warning")
    assert [entry.address for entry in with_environment.listeners] == [
        "127.0.0.1:2222",
        "127.0.0.1:3333",
    ]
    assert with_environment.limits == ServerLimits(queue_messages=7, queue_qos0=True)
    assert (with_flags.shards, with_flags.log_level) == (3, "debug")
    assert with_flags.listeners == (Listener(address="127.0.0.1:4444", anonymous=True),)


def test_a_url_is_a_listener_for_websocket(write: Write) -> None:
    path = write("""\
        [[listeners]]
        address = "127.0.0.1:1111"
        anonymous = true
        transport = "websocket"
        path = "/old"
        origins = ["https://example.org"]
    """)
    listen = ["ws://localhost:8083/deep/down", "ws://[::1]:9", "127.0.0.1:1883"]

    framed, bare, plain = load(path, listen=listen).listeners

    origins = ("https://example.org",)
    assert framed == Listener(
        address="localhost:8083",
        anonymous=True,
        transport="websocket",
        path="/deep/down",
        origins=origins,
    )
    assert (bare.address, bare.path, bare.origins) == ("[::1]:9", "/mqtt", origins)
    assert plain == Listener(address="127.0.0.1:1883", anonymous=True)


def test_a_path_is_a_listener_at_a_unix_socket(write: Write) -> None:
    group = grp.getgrgid(os.getgid()).gr_name
    path = write(f"""\
        [[listeners]]
        address = "unix:/run/mqttcore/mqtt.sock"
        mode = "0600"
        group = "{group}"
        identity = "uid"
        anonymous = true
    """)

    (own,) = load(path).listeners
    (other,) = load(path, listen=["unix:/tmp/other.sock"]).listeners
    (tcp,) = load(path, listen=["127.0.0.1:1883"]).listeners

    assert own.unix_socket == (pathlib.Path("/run/mqttcore/mqtt.sock"), 0o600, os.getgid())
    assert own.host_port is None
    assert other == dataclasses.replace(own, address="unix:/tmp/other.sock")
    assert tcp == Listener(address="127.0.0.1:1883", anonymous=True)
    assert tcp.unix_socket is None


def test_the_keys_of_a_unix_socket_are_checked(write: Write) -> None:
    long = "/" + "x" * 107
    path = write(f"""\
        [[listeners]]
        address = "unix:mqtt.sock"
        mode = "rw-rw----"
        [[listeners]]
        address = "unix:{long}"
        group = "no-such-group"
        [[listeners]]
        mode = "0600"
        identity = "uid"
    """)
    allowed = (
        "; allowed: IP address or localhost, and port, as 127.0.0.1:1883 or [::1]:1883; or unix:"
        " and a path, as unix:/run/mqttcore/mqtt.sock"
    )

    assert faults(path) == [
        "mqttcore.toml:2:11: listeners[0].address: 'mqtt.sock' is not an absolute path of a file"
        + allowed,
        "mqttcore.toml:3:8: listeners[0].mode: 'rw-rw----' is not a mode; allowed: three octal"
        " digits, as 0660",
        "mqttcore.toml:5:11: listeners[1].address: the path is longer than 107 bytes" + allowed,
        "mqttcore.toml:6:9: listeners[1].group: there is no group 'no-such-group' on this machine;"
        " allowed: a group of this machine",
    ]
    path = write("""\
        [[listeners]]
        mode = "0600"
        identity = "uid"
    """)
    assert faults(path) == [
        "mqttcore.toml:2:8: listeners[0].mode: has no effect without a Unix socket",
        "mqttcore.toml:3:12: listeners[0].identity: has no effect without a Unix socket",
    ]


def test_the_keys_about_proxies_are_checked(write: Write) -> None:
    path = write("""\
        [[listeners]]
        proxy_from = ["10.0.0.0/33"]
    """)
    assert faults(path) == [
        "mqttcore.toml:2:15: listeners[0].proxy_from[0]: '10.0.0.0/33' does not appear to be an"
        " IPv4 or IPv6 network; allowed: an IP address, a network as 10.0.0.0/8 or 2001:db8::/32,"
        " or uid: and the number of a user"
    ]
    path = write("""\
        [[listeners]]
        address = "unix:/run/mqtt.sock"
        proxy_from = ["10.0.0.0/8"]
        [[listeners]]
        address = "127.0.0.1:1883"
        identity = "proxy_cn"
        [[listeners]]
        address = "127.0.0.1:1884"
        proxy_from = ["uid:33"]
        [[listeners]]
        address = "unix:/run/other.sock"
        proxy_from = ["uid:33"]
        identity = "uid"
    """)
    assert faults(path) == [
        "mqttcore.toml:3:15: listeners[0].proxy_from[0]: a network has no effect on a Unix socket:"
        " name a user, as uid:33",
        "mqttcore.toml:6:12: listeners[1].identity: 'proxy_cn' has no effect without proxy_from",
        "mqttcore.toml:9:15: listeners[2].proxy_from[0]: has no effect without a Unix socket",
        "mqttcore.toml:13:12: listeners[3].identity: clients behind a proxy have no user: 'uid'"
        " needs no proxy_from",
    ]


def test_the_keys_of_websocket_are_checked(write: Write) -> None:
    path = write("""\
        [[listeners]]
        transport = "websockets"
        [[listeners]]
        address = "127.0.0.1:2"
        transport = "websocket"
        path = "mqtt"
        origins = ["https://example.org", "example.org"]
    """)

    assert faults(path) == [
        "mqttcore.toml:2:13: listeners[0].transport: found 'websockets'; allowed: tcp, websocket;"
        ' did you mean "websocket"?',
        "mqttcore.toml:6:8: listeners[1].path: 'mqtt' is not a path; allowed: a path as /mqtt,"
        " without"
        " query",
        "mqttcore.toml:7:35: listeners[1].origins[1]: 'example.org' is not an origin; allowed: an"
        ' origin as https://example.org, or "*"',
    ]


def test_keys_of_websocket_that_would_do_nothing_are_refused(write: Write) -> None:
    path = write("""\
        [[listeners]]
        path = "/other"
        origins = ["*"]
    """)

    assert faults(path) == [
        "mqttcore.toml:2:8: listeners[0].path: has no effect with transport 'tcp'",
        "mqttcore.toml:3:11: listeners[0].origins: has no effect with transport 'tcp'",
    ]


@pytest.mark.parametrize("url", ["wss://127.0.0.1:1", "http://127.0.0.1:1", "ws://127.0.0.1"])
def test_a_url_that_is_no_listener_is_refused(url: str) -> None:
    (found,) = faults(listen=[url])

    assert found.startswith("--listen: listeners[0].address: ")


def test_faults_of_the_environment_and_of_flags_name_their_source() -> None:
    environment = {
        "MQTTCORE__SHARDS": "many",
        "MQTTCORE__LISTENERS__7__NAME": "x",
        "MQTTCORE__LIMITS__INFLIGHT": "1",
    }

    found = faults(environment=environment, listen=["127.0.0.1"], log_level="loud")
    assert {fault.split(": ")[0] for fault in found} == {
        "MQTTCORE__SHARDS",
        "MQTTCORE__LISTENERS__7__NAME",
        "MQTTCORE__LIMITS__INFLIGHT",
        "--listen",
        "--log-level",
    }


def test_without_a_file_the_built_in_profile_is_loopback_and_anonymous() -> None:
    settings = load()

    assert settings.listeners == (Listener(address="127.0.0.1:1883", anonymous=True),)
    assert faults(listen=["0.0.0.0:1883"]) == [
        "built-in profile: listeners[0].anonymous: 0.0.0.0:1883 can be reached by other machines;"
        " allowed: a loopback address, or listeners[0].insecure = true"
    ]


def test_with_a_file_nobody_is_anonymous_unless_it_says_so(write: Write) -> None:
    assert load(write("")).listeners == (Listener(address="127.0.0.1:1883", anonymous=False),)


def test_settings_made_in_python_obey_the_same_rules() -> None:
    with pytest.raises(ConfigError) as caught:
        Settings(
            listeners=(Listener(address="0.0.0.0:1883", anonymous=True),),
            shards=-1,
            limits=ServerLimits(receive_maximum=0),
        )

    assert caught.value.faults == (
        "Settings: shards: -1 is out of range; allowed: 0 to 64",
        "ServerLimits: limits.receive_maximum: 0 is out of range; allowed: 1 to 65_535",
    )
    with pytest.raises(ConfigError, match="can be reached by other machines"):
        Settings(listeners=(Listener(address="0.0.0.0:1883", anonymous=True),))


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        (ServerLimits(), 1_114_112),
        (ServerLimits(maximum_packet_size=1_000), 1_048_576),
        (ServerLimits(maximum_packet_size=16 << 20), 16 << 20),
        (ServerLimits(maximum_packet_size=16 << 20, qos0_backlog_bytes=7), 7),
    ],
)
def test_the_backlog_holds_the_largest_packet_unless_it_is_set(
    limits: ServerLimits, most: int
) -> None:
    assert limits.backlog_bytes == most


def test_settings_are_frozen_and_compare_by_value() -> None:
    assert Settings() == Settings()
    with pytest.raises(AttributeError):
        Settings().shards = 2  # type: ignore[misc]


def test_faults_in_the_keys_of_plugins_have_places(write: Write) -> None:
    path = write("""\
        [[plugins]]
        use = "mqttcore.auth.password_fil"

        [[plugins]]
        use = "mqttcore.auth.password_file"
        [plugins.config]
        pth = "passwords"
        publish = "a/#"
    """)

    with pytest.raises(ConfigError) as caught:
        load_plugins(load(path))

    assert caught.value.faults == (
        "mqttcore.toml:2:7: plugins[0].use: 'mqttcore.auth.password_fil': ModuleNotFoundError: No"
        " module named 'mqttcore.auth.password_fil'; did you mean \"mqttcore.auth.password_file\"?",
        "mqttcore.toml:6:10: plugins[1].config.path: missing",
        "mqttcore.toml:7:1: plugins[1].config.pth: unknown key; allowed: acl_file, deny, operate,"
        ' operators, path, publish, subscribe; did you mean "path"?',
        "mqttcore.toml:8:11: plugins[1].config.publish: expected an array, found 'a/#'",
    )


def test_only_observers_may_be_skipped(write: Write) -> None:
    path = write("""\
        [[plugins]]
        use = "mqttcore.auth.password_file"
        on_error = "skip"
        [plugins.config]
        path = "passwords"
    """)

    with pytest.raises(ConfigError) as caught:
        load_plugins(load(path))

    assert caught.value.faults == (
        "mqttcore.toml:2:7: plugins[0].on_error: 'mqttcore.auth.password_file' decides what clients"
        ' may do: the broker does not start without it; allowed: "stop"',
    )


def test_a_secret_is_shown_nowhere(write: Write, tmp_path: pathlib.Path) -> None:
    """Abuse K03."""
    (tmp_path / "secretive.py").write_text(
        "from mqttcore.plugin import Plugin, PluginConfig, Secret\n"
        "class Secretive(Plugin):\n"
        "    class Config(PluginConfig):\n"
        "        token: Secret[str]\n"
        "        count: int = 0\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        use = '[[plugins]]\nuse = "secretive"\nconfig = {{ token = {} }}\n'.format
        (plugin,) = load_plugins(load(write(use('"canary"'))))
        with pytest.raises(ConfigError) as caught:
            load_plugins(load(write(use("771771"))))
    finally:
        sys.path.remove(str(tmp_path))

    config: Any = plugin.config
    assert config.token.reveal() == "canary"
    assert "canary" not in repr(config)
    assert "canary" not in f"{config.token}"
    assert caught.value.faults == (
        "mqttcore.toml:3:20: plugins[0].config.token: expected text, found integer",
    )


def test_a_path_in_the_file_is_relative_to_the_file(write: Write, tmp_path: pathlib.Path) -> None:
    path = write("""\
        [[plugins]]
        use = "mqttcore.auth.password_file"
        [plugins.config]
        path = "passwords"
    """)

    (plugin,) = load_plugins(load(tmp_path / path))

    config: Any = plugin.config
    assert config.path == tmp_path / "passwords"


def test_a_durability_that_needs_a_folder_is_refused_without_one(write: Write) -> None:
    text = """\
        [[listeners]]
        durability = "os"

        [[topics]]
        filter = "lost/#"
        durability = "memory"

        [[topics]]
        filter = "kept/#"
        durability = "fsync"
    """
    path = write(text)

    assert faults(path) == [
        "mqttcore.toml:2:14: listeners[0].durability: 'os' needs a data folder; allowed: memory",
        "mqttcore.toml:10:14: topics[1].durability: 'fsync' needs a data folder; allowed: memory",
    ]
    kept = load(path, data="folder")
    assert kept.listeners[0].durability == "os"
    assert [rule.durability for rule in kept.topics] == ["memory", "fsync"]
    with pytest.raises(ConfigError, match="needs a data folder"):
        Settings(listeners=(Listener(durability="fsync"),))


def test_a_policy_that_no_folder_gives_a_meaning_is_refused(write: Write) -> None:
    path = write("""\
        [[listeners]]
        queue_policy = "refuse"

        [[topics]]
        filter = "alarm/#"
        queue_policy = "refuse"

        [[topics]]
        filter = "noise/#"
        queue_policy = "drop"

        [limits]
        queue_policy = "refuse"
    """)

    why = "'refuse' has no effect without a data folder: no session is kept"
    assert faults(path) == [
        f"mqttcore.toml:2:16: listeners[0].queue_policy: {why}",
        f"mqttcore.toml:6:16: topics[0].queue_policy: {why}",
        f"mqttcore.toml:13:16: limits.queue_policy: {why}",
    ]
    kept = load(path, data="folder")
    assert [rule.queue_policy for rule in kept.topics] == ["refuse", "drop"]


def test_all_queues_together_have_a_limit_in_bytes(write: Write) -> None:
    path = write("""\
        [limits]
        queues_disk_bytes = 5_000_000_000
    """)

    assert load(path).limits.queues_disk_bytes == 5_000_000_000
    assert Settings().limits.queues_disk_bytes == 0
    refused = write("""\
        [limits]
        queues_disk_bytes = -1
    """)
    assert faults(refused) == [
        "mqttcore.toml:2:21: limits.queues_disk_bytes: -1 is out of range; allowed: 0 to"
        " 9_223_372_036_854_775_807"
    ]


def test_a_rule_of_topics_that_says_nothing_is_refused(write: Write) -> None:
    path = write("""\
        [[topics]]
        filter = "a"
    """)

    assert faults(path) == [
        "mqttcore.toml:1:1: topics[0]: has no effect without durability or queue_policy"
    ]


def test_metrics_of_topics_have_names_and_a_limit(write: Write) -> None:
    entry = '[[metrics.topics]]\nfilter = "a/#"\nname = "{}"\n'
    served = 'http = {address = "127.0.0.1:0"}\n'
    names = ["a", "b", "a", "c d", ""]
    path = write(served + "".join(map(entry.format, names)))

    allowed = "allowed: 1 to 64 letters, digits, dots, hyphens and underscores"
    assert faults(path) == [
        f"mqttcore.toml:13:8: metrics.topics[3].name: 'c d' is not the name of a metric; {allowed}",
        f"mqttcore.toml:16:8: metrics.topics[4].name: '' is not the name of a metric; {allowed}",
    ]
    assert faults(write(served + "".join(map(entry.format, names[:3])))) == [
        "mqttcore.toml:10:8: metrics.topics[2].name: 'a' is already the name of metrics.topics[0];"
        " allowed: another name"
    ]
    many = served + "".join(entry.format(number) for number in range(101))
    assert faults(write(many)) == [
        "mqttcore.toml:2:1: metrics.topics: has 101 entries; allowed: up to 100"
    ]
    assert faults(write(entry.format("a"))) == [
        "mqttcore.toml:1:1: metrics.topics: has no effect without [http], which serves the metrics"
    ]
    assert faults(write(served + '[[metrics.topics]]\nfilter = "a/#/b"\nname = "a"\n'))[
        0
    ].startswith("mqttcore.toml:3:10: metrics.topics[0].filter:")
    chosen = load(write(served + entry.format("a"))).metrics.topics
    assert [(metric.filter, metric.name) for metric in chosen] == [("a/#", "a")]


def test_a_durability_is_one_of_three_values_on_a_filter(write: Write) -> None:
    path = write("""\
        durability = "sync"

        [[topics]]
        filter = "a/#/b"
        durability = "memory"
    """)

    first, second = faults(path)
    assert first.startswith(
        "mqttcore.toml:1:14: durability: found 'sync'; allowed: memory, os, fsync"
    )
    assert second.startswith("mqttcore.toml:4:10: topics[0].filter:")


def test_the_old_name_of_durability_is_accepted_with_one_warning(
    write: Write, caplog: pytest.LogCaptureFixture
) -> None:
    path = write("""\
        data = "folder"

        [[listeners]]
        promise = "fsync"

        [[topics]]
        filter = "a"
        promise = "memory"
    """)
    caplog.set_level("WARNING")

    settings = load(path, environment={"MQTTCORE__PROMISE": "os"})

    assert settings.durability == "os"
    assert [listener.durability for listener in settings.listeners] == ["fsync"]
    assert [rule.durability for rule in settings.topics] == ["memory"]
    [warning] = caplog.messages
    places = ["MQTTCORE__PROMISE", f"{path}:4:1", f"{path}:8:1"]
    assert warning == (
        f"{', '.join(places)}: promise is the old name of the key durability: rename it"
    )


def test_the_old_and_the_new_name_of_durability_do_not_go_together(write: Write) -> None:
    path = write("""\
        durability = "os"
        promise = "os"
    """)

    assert faults(path) == [
        "mqttcore.toml:2:1: promise: is the old name of durability, which is set, too;"
        " remove promise"
    ]


def test_python_code_names_plugins_without_a_file() -> None:
    use = PluginUse(use="mqttcore.auth.password_file", config={"path": "x", "publish": ["a/#"]})

    (plugin,) = load_plugins(Settings(plugins=(use,)))

    config: Any = plugin.config
    assert config.path == pathlib.Path("x")
    assert config.publish == ("a/#",)


def test_a_data_folder_is_relative_to_the_file_that_names_it(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "etc"
    folder.mkdir()
    (folder / "b.toml").write_text('data = "var"\n')
    monkeypatch.chdir(tmp_path)

    assert load("etc/b.toml").data == "etc/var"
    assert load(folder / "b.toml").data == str(folder / "var")
    assert load("etc/b.toml", data="mine").data == "mine"
    assert load("etc/b.toml", environment={"MQTTCORE__DATA": "mine"}).data == "mine"
    assert load(None).data == ""


def test_a_store_where_the_data_folder_was_before_is_not_left_behind(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "var").mkdir()
    (tmp_path / "var" / "checkpoint.redb").touch()
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "b.toml").write_text('data = "var"\n')
    monkeypatch.chdir(tmp_path)

    expected = [
        f"etc/b.toml:1:8: data: there is no store in 'etc/var', but there is one in"
        f" '{tmp_path}/var'; data is relative to this file: write the whole path, or move the"
        " folder"
    ]
    assert faults("etc/b.toml") == expected
    (tmp_path / "etc" / "var").mkdir()
    assert faults("etc/b.toml") == expected, "an empty mount is no store"
    (tmp_path / "etc" / "var" / "checkpoint.redb").touch()
    assert load("etc/b.toml").data == "etc/var"


def records() -> list[type[Record]]:
    """All tables of the configuration."""
    return [Settings, *(kind for kind in Record.__subclasses__() if is_table(kind))]


def is_table(kind: type[Record]) -> bool:
    """Whether a record is a table of the file."""
    return kind.__module__.startswith(("mqttcore.config.parts", "mqttcore.streams", "mqttcore.se"))


@pytest.mark.parametrize("kind", records(), ids=lambda kind: kind.__name__)
def test_each_default_is_allowed(kind: type[Record]) -> None:
    """`check_record` does not ask again."""
    found = Faults()
    place = Place(kind.__name__)
    own_kind: Any = kind
    kinds: Mapping[str, Any] = field_types(own_kind)

    for name, own in kind.fields_by_name.items():
        if name in kinds and own.default is not REQUIRED:
            check_made(kinds[name], Entry(own.default, "", place, place), key=name, faults=found)

    assert found.lines() == []
