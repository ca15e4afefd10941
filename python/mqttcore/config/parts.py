"""Parts of a configuration: the fields of these classes are the keys of the file."""

import ipaddress
import pathlib
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from mqttcore._record import Record, field
from mqttcore._schema import Place, Range, Table, entry_of
from mqttcore.config.values import (
    BUILT_IN_ADDRESS,
    SOCKET_MODE,
    WEBSOCKET_PATH,
    Filter,
    GrantRule,
    HostName,
    HttpAddress,
    ListenAddress,
    MetricName,
    MountPoint,
    Network,
    Origin,
    ProtocolVersion,
    ProxySource,
    SocketMode,
    UrlPath,
    is_loopback,
    socket_mode,
    split_address,
    unix_path,
)
from mqttcore.errors import ConfigError
from mqttcore.sessions.policy import Count, Durability, FullQueuePolicy, SessionPolicy
from mqttcore.streams.settings import Group, group_id, read_token

Rate = Annotated[int, Range(0, 1_000_000_000)]


class Access(Record):
    """Rights of clients without a user name, or with one that no plugin knows."""

    publish: tuple[GrantRule, ...] = ()
    """Topic filters that they may publish to; ``$#``: all topics that begin with ``$``."""
    subscribe: tuple[GrantRule, ...] = ()
    """Topic filters that they may subscribe to."""
    deny: tuple[GrantRule, ...] = ()
    """Topic filters that they may neither publish to nor receive from."""


EVERYTHING = Access(publish=("#",), subscribe=("#", "$SYS/#"))


class LogOutput(Record):
    """Log of `mqttcore serve`; an application that runs a broker configures `logging` itself."""

    format: Literal["pretty", "json", "logfmt"] = "pretty"
    """Lines for people, or for programs."""
    to: str = "stderr"
    """``stderr``, or the path of a file that lines are appended to."""
    rotate_mb: Annotated[int, Range(0, 1_000_000)] = 0
    """Size in MB from which on the file is renamed to ``FILE.1``; 0: never, for logrotate."""
    keep: Annotated[int, Range(1, 1_000)] = 5
    """Renamed files that stay; the oldest one is removed."""


class CertificateFiles(Record):
    """A certificate and its key, as PEM files."""

    certificate: pathlib.Path
    """The certificate of the server first, then those between it and its CA."""
    key: pathlib.Path
    """The key of the first certificate, not encrypted."""


class Tls(CertificateFiles):
    """Certificates of a listener, and its policy for client certificates. Files are reloaded."""

    sni: tuple[CertificateFiles, ...] = ()
    """More certificates, for clients that ask for a host name that the first one lacks."""
    client_certificates: Literal["none", "optional", "required"] = "none"
    """Whether clients present certificates; one that is not valid is refused in any case."""
    client_ca: pathlib.Path | None = None
    """The CAs that issue client certificates, as a PEM file."""
    crl: pathlib.Path | None = None
    """The revocation lists of those CAs; None: no certificate counts as revoked."""
    min_version: Literal["1.2", "1.3"] = "1.2"
    """The minimum TLS version."""
    identity: Literal["cn", "subject", "san"] | None = None
    """The part of a client certificate that is the user name, instead of CONNECT: the common name,
    the whole subject, or the only alternative name; None: CONNECT."""


class Listener(Record):
    """An address for clients."""

    address: ListenAddress = BUILT_IN_ADDRESS
    """IP address and port, where port 0 takes a free one; or ``unix:`` and the path of a socket,
    which is made at the start and removed at the end."""
    mode: SocketMode = SOCKET_MODE
    """Permissions of a Unix socket; clients need the right to write."""
    group: Group | None = None
    """Group of a Unix socket; None: that of the process."""
    proxy_from: tuple[ProxySource, ...] = ()
    """Trusted proxies: networks, or users of a Unix socket, as ``uid:33``. Each connection begins
    with a PROXY header, version 1 or 2, with the address of the client; all other peers are
    refused. Empty: no proxy."""
    identity: Literal["uid", "proxy_cn", "proxy_subject", "proxy_san"] | None = None
    """Source of the user name, instead of CONNECT: ``uid``: the number of the user at the other end
    of a Unix socket; ``proxy_cn``: the common name of the client certificate that the proxy has
    verified; ``proxy_subject``, ``proxy_san``: the whole subject, or the only alternative name, of
    a certificate that the proxy also sends (TLV 0x28); None: CONNECT, or ``tls.identity``."""
    name: str = ""
    """The name in logs and for plugins; empty: the address."""
    anonymous: bool | Access = False
    """Rights of clients that no plugin knows: none, all, or those of a table. These are clients
    without a user name, and those for which every plugin answers None."""
    insecure: bool = False
    """Allows ``anonymous`` on an address that other machines can reach."""
    transport: Literal["tcp", "websocket"] = "tcp"
    """The transport of packets: the stream itself, or WebSocket frames."""
    path: UrlPath = WEBSOCKET_PATH
    """The path that WebSocket clients ask for."""
    origins: tuple[Origin, ...] = ()
    """Origins of web pages that may connect, besides those with the listener's own host and port if
    that host is an IP address or ``localhost``; ``*``: every page. Clients that are not browsers
    have no origin."""
    tls: Tls | None = None
    """Certificates; None: nothing is encrypted."""
    protocol_versions: tuple[ProtocolVersion, ...] = get_args(ProtocolVersion)
    """Versions of MQTT that its clients may speak; others are refused with CONNACK."""
    max_connections: Count = 0
    """Maximum connections, besides ``limits.connections``; 0: no own limit."""
    maximum_packet_size: Annotated[int, Range(20, 268_435_460)] | None = None
    """Maximum bytes of a packet of its clients; None, or more: ``limits.maximum_packet_size``."""
    receive_maximum: Annotated[int, Range(1, 65_535)] | None = None
    """Maximum QoS 1 and 2 messages in flight from one of its clients; None, or more:
    ``limits.receive_maximum``."""
    deny: tuple[GrantRule, ...] = ()
    """Topic filters that its clients may neither publish to nor receive from, whatever plugins
    or ``anonymous`` grant."""
    mount_point: MountPoint | None = None
    """Prefix of all topics and filters of its clients, which do not see it; topics that begin with
    ``$`` are excluded. Grants, plugins and logs have the full names (ADR 0028)."""
    session: SessionPolicy = SessionPolicy()
    """Policy of sessions for which no plugin has another one."""
    durability: Durability | None = None
    """Durability for its clients, unless their grants have one; None: that of the broker."""
    queue_policy: FullQueuePolicy | None = None
    """Treatment of publishes of its clients for a kept session with a full queue, unless their
    grants have one; None: ``limits.queue_policy``."""

    @property
    def title(self) -> str:
        """The name, or the address by default."""
        return self.name or self.address

    @property
    def host_port(self) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int] | None:
        """The address in two parts; None: a Unix socket."""
        if self.unix_socket:
            return None
        host, port = split_address(self.address)
        return ipaddress.ip_address(host), port

    @property
    def unix_socket(self) -> tuple[pathlib.Path, int, int | None] | None:
        """Path, mode and group of a Unix socket; None: TCP."""
        path = unix_path(self.address)
        if path is None:
            return None
        group = group_id(self.group) if self.group else None
        return pathlib.Path(path), socket_mode(self.mode), group

    @property
    def access(self) -> Access | None:
        """Rights of clients without user name; None refuses them."""
        if isinstance(self.anonymous, Access):
            return self.anonymous
        return EVERYTHING if self.anonymous else None


class HttpListener(Record):
    """The HTTP endpoint on TCP, in addition to sockets in the data folder."""

    address: HttpAddress = ""
    """Port 0 takes a free one; empty: the Unix sockets alone."""
    token_file: pathlib.Path | None = None
    """A file with the token of the owner; None: over TCP only keys admit a request."""
    metrics: Literal["token", "open", "off"] | None = None
    """Access to metrics over TCP. None: callers with the token or a key with the scope ``view``;
    without ``token_file`` and ``keys_file`` everybody on a loopback address, nobody on others."""
    keys_file: pathlib.Path | None = None
    """A file with keys and their scopes, which need not be there yet; None: no keys."""
    page: bool = True
    """Serves the page for operators."""
    login: bool = True
    """Users log in to the API and the page by the plugins that authenticate MQTT clients, if those
    grant them ``operate``."""
    hosts: tuple[HostName, ...] = ()
    """Names of this endpoint that the ``Host`` of a request may have without a token: for open
    metrics, and over a forwarded Unix socket. IP addresses and ``localhost`` are always allowed."""
    drain_s: Annotated[float, Range(0, 3_600)] = 0.0
    """Seconds that a broker continues after SIGTERM, while ``/readyz`` fails and load balancers
    notice; a second signal ends it."""
    insecure: bool = False
    """Allows it without TLS on an address that other machines can reach."""
    tls: Tls | None = None
    """Certificates; None: nothing is encrypted."""

    @property
    def host_port(self) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int] | None:
        """The address in two parts; None: Unix sockets alone."""
        if not self.address:
            return None
        host, port = split_address(self.address)
        return ipaddress.ip_address(host), port

    @property
    def metrics_access(self) -> Literal["token", "open", "off"]:
        """Access to metrics over TCP."""
        if self.metrics is not None:
            return self.metrics
        if self.token_file is not None or self.keys_file is not None:
            return "token"
        return "open" if self.address and is_loopback(self.address) else "off"

    @property
    def token(self) -> str | None:
        """The token in the file; None: there is no file.

        Raises:
            ConfigError: no token can be read.
        """
        if self.token_file is None:
            return None
        try:
            return read_token(self.token_file)
        except ValueError as error:
            raise ConfigError([f"http.token_file: {error}"]) from error


class ServerLimits(Record):
    """Limits of clients; SECURITY.md has the defaults."""

    receive_maximum: Annotated[int, Range(1, 65_535)] = 64
    """Receive Maximum for v5 clients: QoS 1 and 2 messages in flight to the broker."""
    maximum_packet_size: Annotated[int, Range(20, 268_435_460)] = (1 << 20) + (64 << 10)
    """Largest packet after CONNECT, in bytes; the default lets a payload of 1 MiB pass."""
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
    """Maximum Keep Alive of a v5 client; 0: no maximum."""
    session_expiry_max_s: Annotated[int, Range(0, 2**32 - 1)] = 7 * 24 * 3_600
    """Longest time that a session outlives its connection."""
    client_id_bytes: Annotated[int, Range(23, 65_535)] = 256
    """Maximum bytes of a client identifier."""
    client_id_strict: bool = True
    """Refuses client identifiers with ``+ #`` or control characters."""
    inflight_max: Annotated[int, Range(1, 65_535)] = 32
    """Maximum number of QoS 1 and 2 messages in flight to a client."""
    max_inflight_bytes: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Bytes of QoS 1 and 2 messages that a client has not acknowledged; a larger message is sent
    alone; 0: no limit."""
    queue_messages: Count = 1_000
    """Queued messages of one client in memory; more are queued on disk if there is ``data``."""
    queue_bytes: Count = 8 << 20
    """Bytes of messages that wait in memory for one client."""
    queue_disk_bytes: Annotated[int, Range(0, 2**63 - 1)] = 1 << 30
    """Bytes of queued messages of one kept session, in memory and in ``data``."""
    queues_disk_bytes: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Bytes of stored messages of all sessions together, including retained ones; above it each
    queue counts as full. 0: half of the free disk at the start, plus the stored bytes."""
    queue_policy: Literal["drop_newest", "drop_oldest", "disconnect", "refuse"] = "drop_newest"
    """Policy of a full queue: drop a message, disconnect the client, or refuse the publish.
    ``queue_policy`` of topics, grants and listeners overrides it."""
    queue_deadline_s: Annotated[float, Range(0, 86_400)] = 10.0
    """Seconds that a publisher of MQTT 3.x waits for room instead of a refusal; then it is
    disconnected without an acknowledgement."""
    queue_qos0: bool = False
    """Queues QoS 0 messages for offline clients, too."""
    upgrade_outgoing_qos: bool = False
    """Delivers at the QoS of the subscription, even if the message was published at a lower one."""
    queue_memory_s: Annotated[float, Range(0, 2**32 - 1)] = 600.0
    """Seconds after which the queue of an offline client is on disk only, if there is ``data``."""
    qos0_backlog_bytes: Count = 0
    """Bytes of QoS 0 messages that wait for one slow client. 0: ``maximum_packet_size``, at least
    1 MiB."""
    subscriptions: Count = 1_000
    """Maximum subscriptions of a client."""
    wildcard_levels: Count = 8_000
    """Maximum levels of all filters of a client, each from its first ``+`` on: a search for a
    topic may visit all of them."""
    filters_per_packet: Annotated[int, Range(1, 65_535)] = 100
    """Filters in one SUBSCRIBE."""
    topic_bytes: Annotated[int, Range(1, 65_535)] = 4_096
    """Maximum bytes of a topic name or filter."""
    topic_levels: Annotated[int, Range(1, 65_535)] = 128
    """Maximum levels of a topic name or filter."""
    user_properties: Annotated[int, Range(0, 65_535)] = 64
    """User properties in one packet."""
    user_property_bytes: Count = 16 << 10
    """Bytes of user properties in one packet."""
    payload_format_checked: bool = False
    """Refuses payloads that claim to be UTF-8 and are not."""
    connect_deadline_s: Annotated[float, Range(0.1, 3_600)] = 10.0
    """Seconds from accept to CONNACK, and for a re-authentication."""
    pending_connections: Annotated[int, Range(1, 2**32 - 1)] = 4_096
    """Maximum number of connections without CONNACK."""
    connections: Annotated[int, Range(1, 2**32 - 1)] = 100_000
    """Maximum connected clients."""
    connects_per_second: Rate = 1_000
    """Connections a second of each listener, from addresses that are not exempt; those of five
    seconds are accepted at once; 0: no limit."""
    address_connections: Count = 10_000
    """Connections of one address, an IPv4 address or an IPv6 network of 64 bits. A quarter of
    ``connections`` is always left to others; 0: no limit."""
    address_pending_connections: Count = 256
    """Connections without CONNACK of one address. A quarter of ``pending_connections`` is always
    left to others; 0: no limit."""
    address_connects_per_second: Rate = 20
    """Connections a second of one address; those of five seconds are accepted at once; 0: no
    limit."""
    wills_per_second: Rate = 1_000
    """Wills that are published a second; if more clients are lost at once, the other wills are
    published later; 0: no limit."""
    failed_logins_per_minute: Annotated[int, Range(0, 1_000_000)] = 10
    """Failed logins a minute of one address, and with one user name; then further ones are refused,
    except with this user name from addresses of earlier logins; 0: no limit."""
    failed_login_pause_s: Annotated[float, Range(1, 86_400)] = 300.0
    """Seconds of this refusal; doubled each time, up to a day."""
    flapping_connects_per_minute: Annotated[int, Range(0, 1_000_000)] = 15
    """Connections a minute with one client identifier and one user name; then the identifier is
    banned for this user, or for clients without user name; 0: no limit."""
    flapping_ban_s: Annotated[float, Range(1, 86_400)] = 300.0
    """Seconds of this ban."""
    exempt_addresses: tuple[Network, ...] = ("127.0.0.0/8", "::1")
    """Addresses without limits by address, for example of a load balancer: shares and rates of
    connections, failed logins (which still count by user name), bans for flapping, the five rates
    below, and shares of clients without user name."""
    control_packets_per_second: Rate = 1_000
    """SUBSCRIBE, UNSUBSCRIBE, PINGREQ and WebSocket control frames of one client; an AUTH counts as
    a hundred. A faster client is read more slowly, and disconnected if it sends too many for five
    seconds; 0: no limit. A reload applies these five limits to new connections."""
    messages_per_second: Rate = 0
    """PUBLISH packets that are read from one client, unless its grant has a limit; 0: no limit."""
    anonymous_messages_per_second: Rate = 1_000
    """PUBLISH packets that are read from one client without user name; 0: no limit."""
    bytes_per_second: Rate = 0
    """Bytes that are read from one client; 0: no limit."""
    retained_bytes_per_second: Rate = 8 << 20
    """Bytes of retained messages that are sent to one connection for its subscriptions; those of
    four seconds are sent at once, for each new connection; 0: no limit."""
    sessions: Annotated[int, Range(1, 2**32 - 1)] = 1_000_000
    """Maximum sessions that do not end with their connection; the others are limited by
    ``connections``."""
    user_sessions: Count = 10_000
    """Sessions of one user that do not end with their connection; clients without user name count
    by address, unless it is exempt. A quarter of ``sessions`` is always left to others; 0: no
    limit."""
    stall_deadline_s: Annotated[float, Range(0.1, 86_400)] = 30.0
    """Seconds after which a client that accepts no byte is disconnected."""
    retained_messages: Count = 1_000_000
    """Maximum retained messages."""
    retained_bytes: Annotated[int, Range(0, 2**63 - 1)] = 1 << 30
    """Maximum bytes of retained messages."""
    user_retained_messages: Count = 10_000
    """Retained messages of one user; clients without user name count by address, unless it is
    exempt. A quarter of ``retained_messages`` is always left to others; 0: no limit."""
    user_retained_bytes: Annotated[int, Range(0, 2**63 - 1)] = 256 << 20
    """Bytes of retained messages of one user. A quarter of ``retained_bytes`` is always left to
    others; 0: no limit."""
    memory_bytes: Annotated[int, Range(0, 2**63 - 1)] = 0
    """Bytes of memory for messages, sessions, buffers and tables together. 0: 60 % of the limit of
    the control group, or of the machine's memory if that is less."""
    check_retain_source: bool = True
    """Withholds a retained message from new subscriptions if the latest grant of its publisher does
    not allow it any more."""

    @property
    def backlog_bytes(self) -> int:
        """``qos0_backlog_bytes`` in bytes, where 0 depends on the largest packet (ADR 0143)."""
        return self.qos0_backlog_bytes or max(1 << 20, self.maximum_packet_size)


class TopicRule(Record):
    """Rules for messages by topic; the first matching filter applies."""

    filter: Filter
    """The topics."""
    durability: Durability | None = None
    """Durability of a message; None: this rule does not set it."""
    queue_policy: FullQueuePolicy | None = None
    """Treatment of a message for a kept session with a full queue; None: this rule does not set
    it."""


class TopicMetric(Record):
    """Counters of the messages that clients publish to some topics."""

    filter: Filter
    """The topics, with the mount point of a listener."""
    name: MetricName
    """The label ``name`` of the counters."""


class Metrics(Record):
    """Metrics in addition to those that are always there."""

    topics: tuple[TopicMetric, ...] = ()
    """Counters of messages by topic, at most 100."""


class PluginUse(Record):
    """A plugin; plugins are asked in this order."""

    use: str
    """The class: ``package.module``, ``package.module:Class`` or the name of an entry point."""
    config: Table | Mapping[str, object] = field(default_factory=dict)
    """Keys of the plugin, which its ``Config`` class declares."""
    on_error: Literal["stop", "skip"] = "stop"
    """Policy if it does not start: the broker does not start, or starts without it. The latter is
    only for plugins with event hooks that neither authenticate nor authorize."""
    place: Place = field(default=Place("plugins"), repr=False, compare=False, is_internal=True)
    """The place of ``use``."""

    @property
    def table(self) -> Table:
        """Keys of the plugin, with their places."""
        if isinstance(self.config, Table):
            return self.config
        return Table(entry_of(self.config, self.place))
