"""From TOML, environment and flags to checked `Settings`.

Later ones win: defaults, file, environment (``MQTTCORE__LISTENERS__0__ADDRESS``), flags. Everything
that is wrong is reported at once, each fault with its place, its key, what is allowed and, for a
misspelt word, what was probably meant. The keys of the file are the fields of these classes.
"""

import ipaddress
import pathlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Literal, cast, get_args

from mqttcore import _core
from mqttcore._schema import (
    Entry,
    Faults,
    Made,
    Parsed,
    Place,
    Range,
    Table,
    check_record,
    entry_of,
    read_fields,
)
from mqttcore.errors import ConfigError
from mqttcore.sessions.policy import Count, FullQueuePolicy, Promise, SessionPolicy
from mqttcore.streams.kafka import Kafka, check_kafka
from mqttcore.streams.settings import Stream, check_streams, read_token

__all__ = [
    "Access",
    "HttpListener",
    "Listener",
    "PluginUse",
    "ServerLimits",
    "Settings",
    "TopicRule",
    "load",
]

ENVIRONMENT_PREFIX = "MQTTCORE__"
BUILT_IN_ADDRESS = "127.0.0.1:1883"
WEBSOCKET_SCHEME = "ws://"
WEBSOCKET_PATH = "/mqtt"

ProtocolVersion = Literal["3.1", "3.1.1", "5.0"]
Seconds = Annotated[float, Range(0, 2**32 - 1)]


def split_address(text: str) -> tuple[str, int]:
    """Host and port of ``127.0.0.1:1883``, ``[::1]:1883`` or ``localhost:1883``.

    Raises:
        ValueError: the text is no such address.
    """
    if "://" in text:
        raise ValueError(f"{text!r} is a URL")
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError(f"{text!r} has no port")
    if host == "localhost":
        return "127.0.0.1", int(port)
    bracketed = host.startswith("[") and host.endswith("]")
    address = ipaddress.ip_address(host[1:-1] if bracketed else host)
    if bracketed != (address.version == 6):
        raise ValueError(f"{text!r}: an IPv6 address, and only that, stands in brackets")
    return str(address), int(port)


def is_loopback(address: str) -> bool:
    """Whether only this machine reaches ``address``."""
    host, _ = split_address(address)
    return ipaddress.ip_address(host).is_loopback


Address = Annotated[
    str, Parsed(split_address, "IP address or localhost, and port, as 127.0.0.1:1883 or [::1]:1883")
]
Filter = Annotated[str, Parsed(_core.TopicFilter, "a topic filter")]
MountPoint = Annotated[
    str, Parsed(_core.check_mount_point, "a topic name that does not begin with $, as plant/1")
]
GrantRule = Annotated[
    str, Parsed(_core.check_grant_rule, "a topic filter, or $# for all topics that begin with $")
]


def check_path(text: str) -> None:
    """Refuses what no HTTP request can ask for."""
    if not re.fullmatch(r"/[!-~]*", text) or re.search(r"[?#]", text):
        raise ValueError(f"{text!r} is no path")


def check_origin(text: str) -> None:
    """Refuses what no browser sends as an origin."""
    if text != "*" and not re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s]+", text):
        raise ValueError(f"{text!r} is no origin")


UrlPath = Annotated[str, Parsed(check_path, "a path as /mqtt, without query")]
Origin = Annotated[str, Parsed(check_origin, 'an origin as https://example.org, or "*"')]


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What clients may do that name no user, or one that no plugin knows."""

    publish: tuple[GrantRule, ...] = ()
    """Topic filters that they may publish to; ``$#``: all topics that begin with ``$``."""
    subscribe: tuple[GrantRule, ...] = ()
    """Topic filters that they may subscribe to."""
    deny: tuple[GrantRule, ...] = ()
    """Topic filters that they may neither publish to nor receive from."""


EVERYTHING = Access(publish=("#",), subscribe=("#", "$SYS/#"))
"""The grant behind ``anonymous = true``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listener:
    """One address that clients connect to."""

    address: Address = BUILT_IN_ADDRESS
    """Port 0 takes a free one."""
    name: str = ""
    """How logs and plugins call it; empty: the address."""
    anonymous: bool | Access = False
    """What clients may do whom no plugin knows: nothing, everything, or what a table says.

    Those that send no user name, and those about whom every plugin passes: they count as without.
    """
    insecure: bool = False
    """Lets ``anonymous`` stand on an address that other machines can reach."""
    transport: Literal["tcp", "websocket"] = "tcp"
    """What carries the packets: the TCP stream itself, or WebSocket frames on it."""
    path: UrlPath = WEBSOCKET_PATH
    """The path that WebSocket clients ask for."""
    origins: tuple[Origin, ...] = ()
    """Origins of the Web pages that may connect, beside those from the listener's own host and
    port; ``*``: every page. Clients that are no browsers have none."""
    protocol_versions: tuple[ProtocolVersion, ...] = get_args(ProtocolVersion)
    """Versions of MQTT that its clients may speak; others are refused with CONNACK."""
    mount_point: MountPoint | None = None
    """Levels in front of every topic and filter of its clients, who do not see them; topics that
    begin with ``$`` are outside. Grants, plugins and logs have the names with it (ADR 0028)."""
    session: SessionPolicy = SessionPolicy()
    """How sessions are kept for which no plugin says otherwise."""
    promise: Promise | None = None
    """How safe what its clients do is before it is acknowledged, where their grants do not say;
    None: as ``promise`` of the broker."""
    queue_policy: FullQueuePolicy | None = None
    """What becomes of what its clients publish for a kept session whose queue is full, where their
    grants do not say; None: as ``limits.queue_policy``."""

    @property
    def title(self) -> str:
        """The name, or the address where there is none."""
        return self.name or self.address

    @property
    def host_port(self) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
        """The address in two parts."""
        host, port = split_address(self.address)
        return ipaddress.ip_address(host), port

    @property
    def access(self) -> Access | None:
        """What clients without user name may do; None refuses them."""
        if isinstance(self.anonymous, Access):
            return self.anonymous
        return EVERYTHING if self.anonymous else None


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpListener:
    """Where the streams are served over TCP, beside the Unix socket in the folder of the data."""

    address: Address
    """Port 0 takes a free one."""
    token_file: pathlib.Path
    """A file with the token that requests bring."""
    insecure: bool = False
    """Lets it stand on an address that other machines can reach: nothing of it is encrypted."""

    @property
    def host_port(self) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
        """The address in two parts."""
        host, port = split_address(self.address)
        return ipaddress.ip_address(host), port

    @property
    def token(self) -> str:
        """What the file holds now.

        Raises:
            ConfigError: no token can be read.
        """
        try:
            return read_token(self.token_file)
        except ValueError as error:
            raise ConfigError([f"http.token_file: {error}"]) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """What clients may use; the defaults are those of SECURITY.md."""

    receive_maximum: Annotated[int, Range(1, 65_535)] = 64
    """QoS 1 and 2 publishes that a v5 client may have under way to the broker."""
    maximum_packet_size: Annotated[int, Range(20, 268_435_460)] = 1 << 20
    """Largest packet after CONNECT, in bytes."""
    connect_packet_bytes: Annotated[int, Range(64, 268_435_460)] = 8 << 10
    """Largest CONNECT, in bytes."""
    topic_alias_maximum: Annotated[int, Range(0, 65_535)] = 10
    """Topic aliases that a v5 client may set."""
    outgoing_topic_alias_maximum: Annotated[int, Range(0, 65_535)] = 10
    """Topic aliases that the broker sets."""
    maximum_qos: Annotated[int, Range(0, 2)] = 2
    """Highest QoS that is accepted and granted."""
    retain_available: bool = True
    """Retained messages are accepted."""
    wildcard_subscription_available: bool = True
    """Filters with wildcards are accepted."""
    subscription_identifiers_available: bool = True
    """Subscription Identifiers are accepted."""
    shared_subscription_available: bool = True
    """Shared subscriptions are accepted."""
    keep_alive_max_s: Annotated[int, Range(0, 65_535)] = 3_600
    """Longest Keep Alive of a v5 client; 0: no cap."""
    session_expiry_max_s: Annotated[int, Range(0, 2**32 - 1)] = 7 * 24 * 3_600
    """Longest time that a session outlives its connection."""
    client_id_bytes: Annotated[int, Range(23, 65_535)] = 256
    """Most bytes of a client identifier."""
    client_id_strict: bool = True
    """Refuses client identifiers with ``+ #`` or control characters."""
    inflight_max: Annotated[int, Range(1, 65_535)] = 32
    """QoS 1 and 2 publishes under way to a client."""
    max_inflight_bytes: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Bytes of QoS 1 and 2 messages that a client has not acknowledged; a larger one goes alone;
    0: no limit."""
    queue_messages: Count = 1_000
    """Messages that wait in memory for one client; what is in ``data`` waits there beyond that."""
    queue_bytes: Count = 8 << 20
    """Bytes of messages that wait in memory for one client."""
    queue_disk_bytes: Annotated[int, Range(0, 2**63 - 1)] = 1 << 30
    """Bytes of messages that wait for one kept session, in memory or in ``data``."""
    queues_disk_bytes: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Bytes of messages kept for all sessions together, retained ones too; beyond them each queue
    counts as full. 0: half of the disk that is free at the start, beside what is kept."""
    queue_policy: Literal["drop_newest", "drop_oldest", "disconnect", "refuse"] = "drop_newest"
    """What happens when that queue is full: a message is dropped, its client is disconnected, or
    the publisher is refused. ``queue_policy`` of topics, grants and listeners beats this one."""
    queue_deadline_s: Annotated[float, Range(0, 86_400)] = 10.0
    """A publisher of MQTT 3.x that is to be refused waits for room for so long; then it is
    disconnected, and its message is not acknowledged."""
    queue_qos0: bool = False
    """Keeps QoS 0 messages, too, for a client that is away."""
    upgrade_outgoing_qos: bool = False
    """Delivers at the QoS of the subscription, even what was published below it."""
    queue_memory_s: Annotated[float, Range(0, 2**32 - 1)] = 600.0
    """A client that is away for longer has its queue on the disk alone, if there is ``data``."""
    qos0_backlog_bytes: Count = 1 << 20
    """Bytes of QoS 0 messages that wait for one slow client."""
    subscriptions: Count = 1_000
    """Subscriptions a client."""
    filters_per_packet: Annotated[int, Range(1, 65_535)] = 100
    """Filters in one SUBSCRIBE."""
    topic_bytes: Annotated[int, Range(1, 65_535)] = 4_096
    """Most bytes of a topic name or filter."""
    topic_levels: Annotated[int, Range(1, 65_535)] = 128
    """Most levels of a topic name or filter."""
    user_properties: Annotated[int, Range(0, 65_535)] = 64
    """User properties in one packet."""
    user_property_bytes: Count = 16 << 10
    """Bytes of user properties in one packet."""
    payload_format_checked: bool = False
    """Refuses payloads that claim to be UTF-8 and are not."""
    connect_deadline_s: Annotated[float, Range(0.1, 3_600)] = 10.0
    """From the accepted socket until the client is let in; as long to authenticate again."""
    pending_connections: Annotated[int, Range(1, 2**32 - 1)] = 4_096
    """Connections whose client is not let in yet."""
    connections: Annotated[int, Range(1, 2**32 - 1)] = 100_000
    """Clients connected."""
    sessions: Annotated[int, Range(1, 2**32 - 1)] = 1_000_000
    """Sessions held, connected or not."""
    stall_deadline_s: Annotated[float, Range(0.1, 86_400)] = 30.0
    """A client that takes no byte for so long is disconnected."""
    retained_messages: Count = 1_000_000
    """Retained messages kept."""
    retained_bytes: Annotated[int, Range(0, 2**63 - 1)] = 1 << 30
    """Bytes of retained messages kept."""
    check_retain_source: bool = True
    """Withholds a retained message from new subscriptions while its publisher may not publish it
    any more, as far as the grant of its latest CONNECT says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRule:
    """What holds for messages on some topics, whoever publishes them."""

    filter: Filter
    """The topics."""
    promise: Promise | None = None
    """How safe a message is before it is acknowledged; None: this rule does not say."""
    queue_policy: FullQueuePolicy | None = None
    """What becomes of a message for a kept session whose queue is full; None: this rule does not
    say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginUse:
    """One plugin in the order in which they are asked."""

    use: str
    """Where it is: ``package.module``, ``package.module:Class`` or the name of an entry point."""
    config: Table | Mapping[str, object] = field(default_factory=dict)
    """Its own keys; its ``Config`` class says which."""
    on_error: Literal["stop", "skip"] = "stop"
    """When it does not start, the broker does not either, or goes on without it. The latter is only
    for plugins that are told events, and neither authenticate nor authorize."""
    place: Place = field(
        default=Place("plugins"), repr=False, compare=False, metadata={"internal": True}
    )
    """Where ``use`` was written."""

    @property
    def table(self) -> Table:
        """Its own keys, with their places."""
        if isinstance(self.config, Table):
            return self.config
        return Table(entry_of(self.config, self.place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that a broker is told before it starts.

    Raises:
        ConfigError: a value is not allowed.
    """

    listeners: tuple[Listener, ...] = (Listener(),)
    """Where clients connect."""
    shards: Annotated[int, Range(0, 64)] = 0
    """Event loops, a thread each; 0: one a core."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """The quietest lines that are written."""
    shared_strategy: Literal["round_robin", "random", "client_hash", "topic_hash", "sticky"] = (
        "round_robin"
    )
    """How messages are dealt to a shared subscription."""
    sys_interval_s: Annotated[float, Range(0, 86_400)] = 10.0
    """How often ``$SYS/broker/...`` is published; 0: never."""
    limits: ServerLimits = ServerLimits()
    """What clients may use."""
    plugins: tuple[PluginUse, ...] = ()
    """Asked in this order."""
    data: str = ""
    """Folder that sessions and messages are kept in; empty: everything lives in memory."""
    scrub_interval_s: Annotated[float, Range(0, 2**32 - 1)] = 604_800.0
    """Within so long, all that was kept long ago is read again, to find rot; 0: never."""
    promise: Promise = "fsync"
    """How safe something is before it is acknowledged: ``memory``, ``os`` or ``fsync``
    (docs/promise.md), where neither a topic's rule, a client's grant nor its listener says
    otherwise. Without ``data`` it is ``memory`` whatever this says."""
    topics: tuple[TopicRule, ...] = ()
    """The first one that matches and says something holds for a message, for each key."""
    streams: tuple[Stream, ...] = ()
    """What becomes rows."""
    http: HttpListener | None = None
    """Where the rows can be read over TCP; None: over the Unix socket alone."""
    kafka: Kafka | None = None
    """Where streams go whose log is Kafka."""

    def __post_init__(self) -> None:
        faults = Faults()
        check_record(self, key="", faults=faults)
        if not faults:
            check_together(vars_of(self), lambda _: Place("Settings"), faults)
        raise_faults(faults)


def vars_of(settings: Settings) -> dict[str, Made]:
    """The fields by name."""
    return {field.name: getattr(settings, field.name) for field in fields(settings)}


def check_together(
    values: Mapping[str, Made], place: Callable[[str], Place], faults: Faults
) -> None:
    """What one value alone cannot know; ``values`` are those that were given, by their keys."""
    check_listeners(values.get("listeners", (Listener(),)), place, faults)
    check_topics(values.get("topics", ()), place, faults)
    if not values.get("data"):
        check_promises(values, place, faults)
    streams = values.get("streams", ())
    check_streams(streams, values.get("data", ""), place, faults)
    check_kafka([stream.log for stream in streams], values.get("kafka"), place, faults)
    if http := values.get("http"):
        check_http(http, place, faults)
        if not any(stream.log == "mqttcore" for stream in streams):
            faults.add(place("http"), "http", "does nothing without streams")


def check_http(http: HttpListener, place: Callable[[str], Place], faults: Faults) -> None:
    """What an address demands, and whether the token is one."""
    if not http.insecure and not is_loopback(http.address):
        faults.add(
            place("http.address"),
            "http.address",
            f"{http.address} can be reached by other machines, and its tokens be overheard",
            "allowed: a loopback address, or http.insecure = true",
        )
    try:
        read_token(http.token_file)
    except ValueError as error:
        allowed = "allowed: a file for its owner with 16 to 4_096 printable characters"
        faults.add(place("http.token_file"), "http.token_file", str(error), allowed)


def check_listeners(
    listeners: Sequence[Listener], place: Callable[[str], Place], faults: Faults
) -> None:
    """What one listener alone cannot know, and what an address demands."""
    if not listeners:
        faults.add(place("listeners"), "listeners", "there is none", "allowed: one or more")
    taken: dict[str, int] = {}
    for index, listener in enumerate(listeners):
        key = f"listeners[{index}]"
        if taken.setdefault(listener.title, index) != index and not is_free_port(listener):
            other = f"listeners[{taken[listener.title]}]"
            faults.add(place(key), key, f"{listener.title!r} is {other} already")
        if listener.access and not listener.insecure and not is_loopback(listener.address):
            faults.add(
                place(f"{key}.anonymous"),
                f"{key}.anonymous",
                f"{listener.address} can be reached by other machines",
                f"allowed: a loopback address, or {key}.insecure = true",
            )
        if not listener.protocol_versions:
            where = f"{key}.protocol_versions"
            faults.add(place(where), where, "there is none", "allowed: one or more")
        check_transport(listener, key, place, faults)


def check_promises(
    values: Mapping[str, Made], place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses what cannot be promised where everything lives in memory."""
    limits = values.get("limits")
    if limits is not None and limits.queue_policy == "refuse":
        refuse_policy("limits.queue_policy", place, faults)
    for name in ("listeners", "topics"):
        for index, entry in enumerate(values.get(name, ())):
            if entry.promise in ("os", "fsync"):
                key = f"{name}[{index}].promise"
                what = f"{entry.promise!r} is not kept without a folder for data"
                faults.add(place(key), key, what, "allowed: memory")
            if entry.queue_policy == "refuse":
                refuse_policy(f"{name}[{index}].queue_policy", place, faults)


def check_topics(
    topics: Sequence[TopicRule], place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses rules that say nothing."""
    for index, rule in enumerate(topics):
        if rule.promise is None and rule.queue_policy is None:
            key = f"topics[{index}]"
            faults.add(place(key), key, "does nothing without promise or queue_policy")


def refuse_policy(key: str, place: Callable[[str], Place], faults: Faults) -> None:
    """Only messages that the store keeps are refused instead of dropped."""
    what = "'refuse' does nothing without a folder for data: no session is kept"
    faults.add(place(key), key, what)


def check_transport(
    listener: Listener, key: str, place: Callable[[str], Place], faults: Faults
) -> None:
    """Refuses keys that would do nothing."""
    if listener.transport == "websocket":
        return
    for name, is_given in (
        ("path", listener.path != WEBSOCKET_PATH),
        ("origins", bool(listener.origins)),
    ):
        if is_given:
            where = f"{key}.{name}"
            faults.add(place(where), where, f"does nothing beside {listener.transport!r}")


def is_free_port(listener: Listener) -> bool:
    """Whether the address means another port each time."""
    return not listener.name and listener.address.endswith(":0")


def raise_faults(faults: Faults) -> None:
    """Raises `ConfigError` when there is any."""
    if faults:
        raise ConfigError(faults.lines())


def load(
    path: pathlib.Path | str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    listen: Sequence[str] = (),
    log_level: str | None = None,
    data: str | None = None,
) -> Settings:
    """Reads settings: defaults, then the file, then ``environment``, then the flags.

    Without a file they are those of the built-in profile: `BUILT_IN_ADDRESS`, anonymous clients.

    Args:
        path: The TOML file; None: the built-in profile.
        environment: Where ``MQTTCORE__...`` is looked for, as `os.environ`; None: nowhere.
        listen: Addresses, or URLs as ``ws://127.0.0.1:8083/mqtt``, that take the place of the
            file's listeners; the first one's other keys stay.
        log_level: Takes the place of the file's.
        data: Takes the place of the file's.

    Raises:
        ConfigError: with everything that is wrong.
    """
    faults = Faults()
    root = read_file(pathlib.Path(path), faults) if path else built_in_profile()
    apply_environment(root, environment or {}, faults)
    apply_flags(root, listen, {"log_level": log_level, "data": data})
    settings = read_settings(root, faults)
    raise_faults(faults)
    return cast(Settings, settings)


def read_settings(root: Entry, faults: Faults) -> Settings | None:
    """Checks a whole tree; each fault has its place."""
    values = read_fields(Settings, root, key="", faults=faults)
    if values is None:
        return None
    check_together(values, partial(place_of, root), faults)
    values["plugins"] = tuple(
        replace(use, place=place_of(root, f"plugins[{index}].use"))
        for index, use in enumerate(values.get("plugins", ()))
    )
    return None if faults else Settings(**values)


def place_of(root: Entry, key: str) -> Place:
    """Where ``key`` was written, or the nearest thing around it."""
    entry = root
    for step in re.findall(r"[^.\[\]]+", key):
        if isinstance(entry.value, dict) and step in entry.value:
            entry = entry.value[step]
        elif isinstance(entry.value, list) and step.isdigit() and int(step) < len(entry.value):
            entry = entry.value[int(step)]
    return entry.place


def built_in_profile() -> Entry:
    """What stands in for a file: loopback, anonymous, in memory (decision 26)."""
    place = Place("built-in profile")
    listener = {"address": BUILT_IN_ADDRESS, "anonymous": True}
    return entry_of({"listeners": [listener]}, place)


def read_file(path: pathlib.Path, faults: Faults) -> Entry:
    """The file as entries; what cannot be read is in ``faults`` and left out."""
    place = Place(str(path))
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        faults.add(place, "", f"cannot be read: {error.strerror}")
        return entry_of({}, place)
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        faults.add(Place(str(path), line, 1), "", "is not UTF-8")
        return entry_of({}, place)
    root, errors = _core.parse_toml(text)
    for line, column, what in errors:
        faults.add_syntax(Place(str(path), line, column), what)
    return from_toml(root, str(path))


def from_toml(value: _core.TomlValue, source: str) -> Entry:
    """Values of the TOML reader as entries."""
    inner: object = value.value
    if isinstance(inner, dict):
        inner = {key: from_toml(item, source) for key, item in inner.items()}
    elif isinstance(inner, list):
        inner = [from_toml(item, source) for item in inner]
    return Entry(inner, value.kind, Place(source, *value.place), Place(source, *value.key_place))


def apply_environment(root: Entry, environment: Mapping[str, str], faults: Faults) -> None:
    """Puts scalars of the environment into the tree."""
    for name in sorted(environment):
        if name.startswith(ENVIRONMENT_PREFIX):
            steps = name.removeprefix(ENVIRONMENT_PREFIX).lower().split("__")
            place = Place(name)
            if not put(root, steps, Entry(environment[name], "text", place, place)):
                faults.add(place, "", "names no place", "allowed: keys and indexes joined by __")


def put(entry: Entry, steps: Sequence[str], new: Entry) -> bool:
    """Sets what the steps lead to, with tables and arrays on the way; False: they lead nowhere."""
    step, rest = steps[0], steps[1:]
    index = int(step) if step.isdigit() else -1
    if isinstance(entry.value, list) and 0 <= index <= len(entry.value):
        if index == len(entry.value):
            entry.value.append(branch(rest, new.place))
        if rest:
            return put(entry.value[index], rest, new)
        entry.value[index] = new
        return True
    if isinstance(entry.value, dict) and step:
        if not rest:
            entry.value[step] = new
            return True
        return put(entry.value.setdefault(step, branch(rest, new.place)), rest, new)
    return False


def branch(rest: Sequence[str], place: Place) -> Entry:
    """An empty table, or an empty array where an index comes next."""
    return entry_of([] if rest and rest[0].isdigit() else {}, place)


def apply_flags(root: Entry, listen: Sequence[str], texts: Mapping[str, str | None]) -> None:
    """Puts the flags of the command line into the tree."""
    table = cast(dict[str, Entry], root.value)
    for key, text in texts.items():
        if text is not None:
            place = Place("--" + key.replace("_", "-"))
            table[key] = Entry(text, "text", place, place)
    if listen:
        place = Place("--listen")
        keep = first_listener(table)
        listeners = [
            Entry(listen_keys(text, place, keep), "table", place, place) for text in listen
        ]
        table["listeners"] = Entry(listeners, "array", place, place)


def listen_keys(text: str, place: Place, keep: Mapping[str, Entry]) -> dict[str, Entry]:
    """The keys that one ``--listen`` stands for, and those of ``keep`` that go with them."""
    if text.startswith(WEBSOCKET_SCHEME):
        address, slash, path = text.removeprefix(WEBSOCKET_SCHEME).partition("/")
        path = slash + path or WEBSOCKET_PATH
        said = {"address": address, "transport": "websocket", "path": path}
        kept = dict(keep)
    else:
        said = {"address": text, "transport": "tcp"}
        kept = {key: entry for key, entry in keep.items() if key not in {"path", "origins"}}
    return kept | {key: Entry(value, "text", place, place) for key, value in said.items()}


def first_listener(table: Mapping[str, Entry]) -> dict[str, Entry]:
    """The keys of the first listener but its name."""
    listeners = table.get("listeners")
    if listeners and isinstance(listeners.value, list) and listeners.value:
        first = listeners.value[0].value
        if isinstance(first, dict):
            return {key: entry for key, entry in first.items() if key != "name"}
    return {}
