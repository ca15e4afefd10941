"""Types of the native half; `make check` compares them with the binary (mypy.stubtest)."""

from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Literal, final, overload

from _typeshed import ReadableBuffer, StrPath

from mqttcore.auditing import Entry
from mqttcore.config import Settings
from mqttcore.packets import Packet
from mqttcore.plugin.answers import Grant
from mqttcore.sessions.policy import SessionPolicy

__all__ = [
    "Ask",
    "Client",
    "ClientCertificate",
    "CopyProgress",
    "Directory",
    "Engine",
    "Event",
    "HookCounters",
    "HookQueues",
    "Login",
    "Match",
    "Matches",
    "Message",
    "MessageProperties",
    "MqttError",
    "Notifications",
    "PasswordHashError",
    "Publisher",
    "Question",
    "Session",
    "StartError",
    "StoppedError",
    "StoreError",
    "StoreWriter",
    "StreamBatch",
    "StreamDecoder",
    "StreamOptions",
    "StreamReader",
    "StreamSchema",
    "Subscribe",
    "SubscribeEntry",
    "TomlValue",
    "TopicFilter",
    "TopicFilterError",
    "TopicName",
    "TopicNameError",
    "__version__",
    "check_grant_rule",
    "check_mount_point",
    "check_password_hash",
    "decode_packet",
    "disable_core_files",
    "encode_packet",
    "grant_allows",
    "has_kafka",
    "has_kafka_tls",
    "has_object_stores",
    "has_streams",
    "hash_password",
    "is_stream_name",
    "keep_freed_memory",
    "make_certificates",
    "memory_budget",
    "parse_toml",
    "read_stream_file_meta",
    "reason_text",
    "store_backup",
    "store_create",
    "store_dump",
    "store_info",
    "store_repair",
    "store_seal",
    "store_verify",
    "verify_password",
    "write_stream_file",
]

__version__: Final[str]
has_kafka: Final[bool]
has_kafka_tls: Final[bool]
"""Whether streams can have Kafka as their log: the build has the feature ``kafka``."""
has_object_stores: Final[bool]
"""Whether sealed files can move to object stores: the build has the feature ``tier``."""
has_streams: Final[bool]
"""Whether the broker has streams and their HTTP endpoint: the build has the feature ``streams``.
Without it ``Stream*``, ``Publisher`` and the functions of stream files are missing."""

class MqttError(Exception):
    """Base of every error that mqttcore raises."""

class PasswordHashError(MqttError):
    """A string is not a password hash of a known format."""

class StartError(MqttError):
    """The broker did not start: an address or a thread could not be had."""

class StoppedError(MqttError):
    """The broker is not running, or another process started it."""

class StoreError(MqttError):
    """A durable store cannot be opened or read, or is damaged."""

class TopicFilterError(MqttError):
    """A string is not a topic filter."""

class TopicNameError(MqttError):
    """A string is not a topic name."""

# --- topics

@final
class TopicFilter:
    """A checked topic filter. Immutable, hashable, safe to share between threads."""

    def __new__(cls, text: str, /) -> TopicFilter:
        """Parse ``text``; raise `TopicFilterError` if a wildcard is misplaced."""

    def matches(self, topic: str, /) -> bool:
        """Whether a message published to ``topic`` goes to this filter."""

    def covers(self, other: TopicFilter, /) -> bool:
        """Whether every topic that ``other`` matches is matched by this filter, too."""

    def overlaps(self, other: TopicFilter, /) -> bool:
        """Whether some topic is matched by both."""

    @property
    def has_wildcard(self) -> bool:
        """Whether it holds `+` or `#`."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class TopicName:
    """A checked topic name: no wildcards. Immutable, hashable, safe to share between threads."""

    def __new__(cls, text: str, /) -> TopicName:
        """Parse ``text``; raise `TopicNameError` if it holds a wildcard."""

    @property
    def levels(self) -> list[str]:
        """The parts between the slashes; an empty part is a level, too."""

    def __eq__(self, other: object, /) -> bool: ...
    def __ne__(self, other: object, /) -> bool: ...
    def __hash__(self, /) -> int: ...

@final
class Directory:
    """Subscribers by filter: the broker's own directory, without a broker.

    A client is a number of yours, from 0 to 2**64 - 1. Threads may share a directory: readers take
    no lock, a match sees a batch of subscriptions whole or not at all, and the GIL is released.
    """

    def __new__(
        cls,
        *,
        strategy: Literal[
            "round_robin", "random", "client_hash", "topic_hash", "sticky"
        ] = "round_robin",
        seed: int | None = None,
    ) -> Directory:
        """Make an empty one; ``seed`` keys its hashes, and is random by default."""

    def subscribe(
        self,
        client: int,
        filter: str,  # noqa: A002 - positional only
        /,
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        subscription_id: int | None = None,
    ) -> bool:
        """Subscribe, or change the options of the same filter; True when it is new."""

    def subscribe_many(
        self,
        clients: int | Sequence[int] | ReadableBuffer,
        filters: Sequence[str],
        /,
        *,
        qos: int | Sequence[int] | ReadableBuffer | None = None,
    ) -> int:
        """Subscribe one client, or one a row, to ``filters``; return how many are new.

        Buffers hold 64-bit (``clients``) and 8-bit (``qos``) unsigned integers. Rows that follow
        each other with the same client are one batch: a match sees all of them or none. A filter
        that is none raises `TopicFilterError` before anything is subscribed.
        """

    def unsubscribe(self, client: int, filter: str, /) -> bool:  # noqa: A002 - positional only
        """Unsubscribe from exactly this filter; True when the client was subscribed."""

    def leave(self, client: int, /) -> bool:
        """Remove a client with all its subscriptions; True when it was there."""

    def match(self, topic: str, /, *, publisher: int | None = None) -> list[Match]:
        """Who gets a message on ``topic``, in no particular order.

        No Local subscriptions leave out ``publisher``.
        """

    def match_many(self, topics: Sequence[str], /, *, publisher: int | None = None) -> Matches:
        """Subscribers of a message on each of ``topics``; faster than one at a time."""

    def stats(self) -> dict[str, int]:
        """Exact counts of the content at one moment."""

    def __len__(self) -> int:
        """How many subscriptions it holds."""

@final
class Match:
    """One delivery of a message: all matching subscriptions of a client merged."""

    @property
    def client(self) -> int:
        """The client that gets the message."""

    @property
    def qos(self) -> int:
        """The highest QoS of the matching subscriptions."""

    @property
    def retain_as_published(self) -> bool:
        """Whether a subscription keeps the RETAIN flag."""

    @property
    def subscription_ids(self) -> list[int]:
        """Their Subscription Identifiers."""

    @property
    def shared(self) -> bool:
        """Whether the client was selected as a member of a shared group."""

@final
class Matches:
    """The matches of several topics: a list of `Match` a topic, and the same as columns.

    The deliveries of topic ``i`` are the rows ``offsets[i]`` to ``offsets[i + 1]`` of the columns,
    which numpy and pyarrow read as they are.
    """

    @property
    def offsets(self) -> array[int]:
        """Where the deliveries of each topic begin, and the end of the last; 64-bit."""

    @property
    def clients(self) -> array[int]:
        """Subscriber of each delivery; 64-bit."""

    @property
    def qos(self) -> array[int]:
        """The QoS that each delivery has at most; 8-bit."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> list[Match]: ...

# --- packets

def encode_packet(packet: Packet, version: int, /) -> bytes:
    """The bytes of a packet; see `mqttcore.packets.encode_packet`."""

def decode_packet(
    data: bytes, version: int, first: bool, limits: tuple[int, int, int], /
) -> tuple[Packet, int] | None:
    """The packet at the front of ``data``; see `mqttcore.packets.decode_packet`."""

def reason_text(value: int, /) -> str:
    """The value and the name of a reason code; see `mqttcore.packets.reason_text`."""

# --- the broker

@final
class Engine:
    """Sockets, shards and sessions of one broker; `mqttcore.Broker` wraps it."""

    def __new__(
        cls,
        settings: Settings,
        queues: HookQueues,
        /,
        *,
        accepts_clock: bool = False,
        operate: Callable[[str, str], str] | None = None,
    ) -> Engine:
        """Bind every listener and start; clients can connect when it returns.

        The HTTP endpoint calls ``operate`` with an action and its argument; it returns JSON.
        """

    @staticmethod
    def check(settings: Settings, /) -> list[str]:
        """Check whether a broker could start; raise the error. An address in use is accepted.

        Returns the warnings that a start would log.
        """

    def addresses(self) -> list[tuple[str, int]]:
        """Addresses of the TCP listeners as (host, port), in the order of the settings."""

    def guarantees(self) -> str:
        """The levels of acknowledgements that are in force, in one line."""

    def publish(
        self,
        topic: str,
        payload: bytes | bytearray,
        /,
        *,
        qos: int,
        retain: bool,
        properties: MessageProperties,
    ) -> int:
        """Publish as the broker; return the number of matching subscriptions."""

    def clients(self) -> list[Session]:
        """Every session, connected or not."""

    def streams(self) -> list[str]:
        """Descriptions of the streams for readers, as JSON."""

    def http_address(self) -> tuple[str, int] | None:
        """TCP address of the HTTP endpoint, as (host, port)."""

    def stats(self) -> dict[str, int]:
        """Counters and gauges by name."""

    def disconnect(self, client_id: str, /) -> bool:
        """Disconnect a client by administrative action; return False if it has no connection."""

    def ban(self, kind: str, value: str, /, *, reason: str, by: str, seconds: float | None) -> int:
        """Ban a ``client_id``, ``user`` or ``address``; return the number of disconnected clients.

        Raises:
            ValueError: the value is no address or network, or there are too many bans.
        """

    def unban(self, kind: str, value: str, /) -> bool:
        """Lift a ban; return False if there is none."""

    def bans(self) -> list[tuple[str, str, str | None, str, str | None, float | None]]:
        """The bans in force, as (kind, value, user, reason, by, seconds that remain)."""

    def drain(self) -> None:
        """Have ``/readyz`` fail from now on; clients are served as before."""

    def audit(self, entry: Entry, /) -> None:
        """Append to the audit log, if there is a data folder; return when the entry is on disk."""

    def invalidate(self, kind: str, value: str, /) -> int:
        """Ask the plugins again about rights of clients; return the number of connected ones.

        Raises:
            ValueError: ``kind`` is none of client_id, username, plugin and everything.
        """

    def set_degraded_plugins(self, reasons: Sequence[str], /) -> None:
        """Replace the reports of degraded plugins."""

    def places(self, settings: Settings, /) -> list[int | None]:
        """Return which of the listeners of ``settings`` each bound one would be after a reload."""

    def reload(self, settings: Settings, queues: HookQueues, /) -> list[int | None]:
        """Take new limits, grants and plugins into force; sockets and shards stay.

        Answer which of the new listeners each bound one is now; None: it was taken out.
        """

    def backup(self, to: StrPath, progress: CopyProgress, /) -> int:
        """Copies the data folder into ``to``, a new or empty folder; returns the bytes of the copy.

        Another thread may read ``progress`` meanwhile.

        Raises:
            StoreError: nothing is kept, or the folder cannot be made.
        """

    def wait_for_failure(self, seconds: float, /) -> tuple[Literal["broker", "store"], str] | None:
        """Wait up to ``seconds`` for the broker to fail; return the failed part and the reason."""

    def stop(self, deadline: float, /) -> None:
        """Disconnect every client, wait up to ``deadline`` seconds for their last bytes, end."""

@final
class MessageProperties:
    """Properties of a published message."""

    def __new__(
        cls,
        *,
        user_properties: Sequence[tuple[str, str]] = ...,
        content_type: str | None = None,
        response_topic: str | None = None,
        correlation_data: bytes | bytearray | None = None,
        message_expiry_interval: int | None = None,
        payload_is_text: bool = False,
    ) -> MessageProperties: ...

@final
class Session:
    """A snapshot of one session."""

    @property
    def client_id(self) -> str:
        """The client identifier."""

    @property
    def username(self) -> str | None:
        """The user name in force."""

    @property
    def connected(self) -> bool:
        """Whether it has a connection."""

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port of its last connection."""

    @property
    def listener(self) -> str:
        """Name of the listener of its last connection."""

    @property
    def version(self) -> int:
        """Protocol level of its last connection: 3, 4 or 5."""

    @property
    def keep_alive(self) -> int:
        """The Keep Alive that it asked for, in seconds."""

    @property
    def connected_for(self) -> float:
        """Seconds that its connection has lasted; 0 without one."""

    @property
    def subscriptions(self) -> list[str]:
        """The filters of its subscriptions, as the client sent them."""

    @property
    def queued(self) -> int:
        """Number of queued messages."""

    @property
    def in_flight(self) -> int:
        """Number of messages in flight to the client."""

# --- plugins

@final
class ClientCertificate:
    """A verified client certificate; its names have no control characters."""

    def __new__(
        cls,
        *,
        common_name: str | None = None,
        subject: str = "",
        alternative_names: Sequence[tuple[str, str]] = ...,
    ) -> ClientCertificate:
        """Make one by hand, to try a plugin without a network."""

    @property
    def common_name(self) -> str | None:
        """The common name of the subject."""

    @property
    def subject(self) -> str:
        """The whole subject, as RFC 4514 writes it: ``CN=truck-1,O=Fleet``."""

    @property
    def alternative_names(self) -> list[tuple[str, str]]:
        """Pairs of ``dns``, ``email``, ``uri`` or ``ip`` and the name, in their order."""

@final
class Login:
    """One CONNECT: the client, its address and its credentials."""

    def __new__(
        cls,
        *,
        client_id: str,
        username: str | None = None,
        password: bytes | None = None,
        peer: tuple[str, int] = ...,
        listener: str = "default",
        version: int = 5,
        clean_start: bool = True,
        keep_alive: int = 60,
        session_expiry_interval: int = 0,
        will_topic: str | None = None,
        user_properties: Sequence[tuple[str, str]] = ...,
        certificate: ClientCertificate | None = None,
        is_certified: bool = False,
    ) -> Login:
        """Make one by hand, to try a plugin without a network."""

    @property
    def client_id(self) -> str:
        """The client identifier; the broker's own choice when the client sent none."""

    @property
    def username(self) -> str | None:
        """The user name; an empty one is not the same as none."""

    @property
    def password(self) -> bytes | None:
        """The password, when one was sent: a copy, which stays in memory until it is overwritten.

        `password_matches` makes none. The broker wipes its own copy once the client is let in.
        """

    @property
    def certificate(self) -> ClientCertificate | None:
        """The certificate that the client presented, verified; none where none is asked for."""

    @property
    def is_certified(self) -> bool:
        """Whether the user name is the certificate's or the peer's, as ``identity`` says."""

    @property
    def uid(self) -> int | None:
        """The number of the user at the other end of a Unix socket; None: another client."""

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port of the client; ``uid:1000`` and 0 for one of a Unix socket."""

    @property
    def listener(self) -> str:
        """Name of the listener that it came to."""

    @property
    def version(self) -> int:
        """Protocol level: 3, 4 or 5."""

    @property
    def clean_start(self) -> bool:
        """Clean Start, or Clean Session before version 5."""

    @property
    def keep_alive(self) -> int:
        """The Keep Alive that was asked for, in seconds."""

    @property
    def session_expiry_interval(self) -> int:
        """The session expiry that was asked for, in seconds."""

    @property
    def will_topic(self) -> str | None:
        """Topic of the will, when there is one."""

    @property
    def user_properties(self) -> list[tuple[str, str]]:
        """User properties in their order."""

    def password_matches(self, hash: str | None, /) -> Awaitable[bool]:  # noqa: A002
        """Whether the password belongs to ``hash``, hashed on a separate pool.

        Pass None for an unknown user, so that the answer takes as long as for a known one.
        """

@final
class Client:
    """An admitted client, without its password."""

    @property
    def client_id(self) -> str:
        """The client identifier."""

    @property
    def username(self) -> str | None:
        """The user name in force: that of the client, or the one that a plugin set instead."""

    @property
    def peer(self) -> tuple[str, int]:
        """Address and port."""

    @property
    def listener(self) -> str:
        """Name of the listener that it came to."""

    @property
    def version(self) -> int:
        """Protocol level: 3, 4 or 5."""

@final
class Ask:
    """A request of a client to publish or subscribe, for an `authorize` hook to decide."""

    def __new__(
        cls,
        login: Login,
        /,
        *,
        action: Literal["publish", "subscribe"],
        topic: str,
        qos: int = 0,
        retain: bool = False,
        share: str | None = None,
    ) -> Ask:
        """Make one by hand, to try a plugin without a network."""

    @property
    def client(self) -> Client:
        """The client that sends the request."""

    @property
    def action(self) -> Literal["publish", "subscribe"]:
        """The requested action: `publish` or `subscribe`."""

    @property
    def topic(self) -> str:
        """The topic name, or the filter without its `$share` part."""

    @property
    def qos(self) -> int:
        """The requested QoS: 0, 1 or 2."""

    @property
    def retain(self) -> bool:
        """The RETAIN flag of a publish."""

    @property
    def share(self) -> str | None:
        """The group of a shared subscription."""

@final
class SubscribeEntry:
    """One filter of a SUBSCRIBE."""

    def __new__(
        cls,
        text: str,
        /,
        *,
        qos: int = 0,
        no_local: bool = False,
        retain_as_published: bool = False,
        retain_handling: int = 0,
    ) -> SubscribeEntry:
        """Make one by hand, to try a plugin without a network; ``$share/group/`` may be in front.

        Raises:
            ValueError: the filter or a number is not valid.
        """

    @property
    def topic(self) -> str:
        """The filter without its `$share` part."""

    @property
    def share(self) -> str | None:
        """The group of a shared subscription."""

    @property
    def qos(self) -> int:
        """The requested QoS: 0, 1 or 2."""

    @property
    def no_local(self) -> bool:
        """Whether the client does not want its own messages."""

    @property
    def retain_as_published(self) -> bool:
        """Whether the RETAIN flag is kept."""

    @property
    def retain_handling(self) -> int:
        """When retained messages are sent: 0 always, 1 for a new subscription, 2 never."""

@final
class Subscribe:
    """The filters of a SUBSCRIBE that its client may subscribe to, for a `subscribe` hook."""

    def __new__(cls, login: Login, /, *, entries: Sequence[SubscribeEntry]) -> Subscribe:
        """Make one by hand, to try a plugin without a network."""

    @property
    def client(self) -> Client:
        """The client that subscribes."""

    @property
    def entries(self) -> list[SubscribeEntry]:
        """The filters in the order of the packet."""

@final
class Message:
    """A message that a client publishes, for a `publish` hook to decide about."""

    def __new__(
        cls,
        login: Login,
        /,
        *,
        topic: str,
        payload: bytes = ...,
        qos: int = 0,
        retain: bool = False,
        message_expiry_interval: int | None = None,
        content_type: str | None = None,
        user_properties: Sequence[tuple[str, str]] = ...,
    ) -> Message:
        """Make one by hand, to try a plugin without a network."""

    @property
    def client(self) -> Client:
        """The client that publishes it."""

    @property
    def topic(self) -> str:
        """The topic name."""

    @property
    def payload(self) -> bytes:
        """The payload; copied when it is read."""

    @property
    def qos(self) -> int:
        """The QoS that it is published with: 0, 1 or 2."""

    @property
    def retain(self) -> bool:
        """The RETAIN flag."""

    @property
    def message_expiry_interval(self) -> int | None:
        """Seconds until it expires; None: it does not."""

    @property
    def content_type(self) -> str | None:
        """The Content Type."""

    @property
    def response_topic(self) -> str | None:
        """The Response Topic."""

    @property
    def correlation_data(self) -> bytes | None:
        """The Correlation Data."""

    @property
    def user_properties(self) -> list[tuple[str, str]]:
        """The User Properties, in their order."""

@final
class Event:
    """An event of the broker."""

    def __new__(
        cls,
        kind: str,
        /,
        *,
        client_id: str,
        username: str | None = None,
        peer: tuple[str, int] | None = None,
        topic: str | None = None,
        reason: int | None = None,
        at: float = 0.0,
    ) -> Event:
        """Make one by hand, to try a plugin without a network."""

    @property
    def kind(self) -> str:
        """Kind of the event: `connected`, `disconnected`, `denied` and so on."""

    @property
    def client_id(self) -> str:
        """The client identifier."""

    @property
    def username(self) -> str | None:
        """The user name."""

    @property
    def peer(self) -> tuple[str, int] | None:
        """Address and port, if a connection is involved."""

    @property
    def topic(self) -> str | None:
        """Topic or filter, if one is involved."""

    @property
    def reason(self) -> int | None:
        """Value of the reason code, if there is one."""

    @property
    def at(self) -> float:
        """Time of the event, in seconds since 1970."""

@final
class HookCounters:
    """The counters of one hook, which metrics read without Python. Thread-safe."""

    @property
    def calls(self) -> int:
        """Calls that began."""

    @property
    def in_flight(self) -> int:
        """Calls, or turns of them, that have not returned."""

    @property
    def cache_hits(self) -> int:
        """Questions that the cache answered."""

    @property
    def results(self) -> list[tuple[str, int]]:
        """Each result and its number."""

    @property
    def run_times(self) -> list[tuple[float, int]]:
        """Upper limits in seconds, the last one infinite, and the calls up to each."""

    @property
    def run_s(self) -> float:
        """Seconds of all calls that came back, without waits for clients."""

    @property
    def wait_s(self) -> float:
        """Seconds between questions and their calls."""

    def __new__(cls, plugin: str, hook: str, /, *, worker: int | None = None) -> HookCounters:
        """Make counters; ``worker`` is the number of the queue of the hook, if it has one."""

    def begin(self) -> None:
        """Record that a call begins."""

    def enter(self, waited: float | None, /) -> None:
        """Record that calls of a question are running; it waited so many seconds for them."""

    def leave(self, spent: float, calls: int, /) -> None:
        """Record that ``calls`` of a question ended, which took so many seconds together."""

    def set_paused(self, is_paused: bool, /) -> None:
        """Record whether the hook is paused by its breaker."""

    def rest(self, seconds: float, /) -> None:
        """Record that a running call waited so many seconds for its client."""

    def recall(self) -> None:
        """Record an answer from the cache."""

    def count(self, result: str, /) -> None:
        """Record the result of a call, or of a question without one."""

@final
class HookQueues:
    """The queues of one set of plugins, as its Python threads see them."""

    def __new__(
        cls,
        *,
        workers: Sequence[bool],
        logins: int | None,
        grants: int | None,
        methods: Sequence[tuple[str, int]],
        rules: Sequence[tuple[str, str, int, str, str | None, bool]],
        connects: int | None,
        subscribes: int | None,
        publishes: Sequence[tuple[str, int]],
        delivers: Sequence[tuple[str, int]],
        wills: Sequence[tuple[str, int]],
        controls: Sequence[tuple[str, int]],
        events: Sequence[Sequence[str]],
        counters: Sequence[HookCounters],
        sessions: Mapping[str, SessionPolicy],
    ) -> HookQueues:
        """Make the queues.

        Args:
            workers: Of each worker, whether its hooks are `async def`.
            logins: The worker of the first `authenticate` hook; None: there is none.
            grants: The worker of the first `grant` hook; None: there is none.
            methods: What the `enhanced_auth` hooks offer, and their workers.
            rules: Action, filter, worker, name, file and line of each `authorize` hook, and whether
                it may be tried, in order.
            connects: The worker of the first `connect` hook; None: there is none.
            subscribes: The worker of the first `subscribe` hook; None: there is none.
            publishes: Filter and worker of each `publish` hook, in order.
            delivers: Filter and worker of each `deliver` hook, in order.
            wills: Filter and worker of each `will` hook, in order.
            controls: Topic and worker of each `control` hook, in order.
            events: Of each observer the kinds that it wants.
            counters: Those of all hooks, for metrics.
            sessions: Each listener's policy for sessions of which no plugin speaks.
        """

    def take(self, worker: int, limit: int, /) -> list[Question] | None:
        """Wait for questions of a worker of `def` hooks; None: the workers are closed."""

    def give_back(self, worker: int, questions: Sequence[Question], /) -> None:
        """Return questions that a thread took and could not ask; they keep their order."""

    def take_async(self, worker: int, limit: int, /) -> list[Question]:
        """Questions of a worker of `async def` hooks, without waiting."""

    def wake_fd(self, worker: int, /) -> int:
        """Becomes readable when questions of a worker of `async def` hooks wait."""

    def events(self, observer: int, limit: int, wait: float, /) -> list[Event] | None:
        """Wait for an observer's events, up to ``wait`` seconds longer for a batch of ``limit``.

        None: the workers are closed.
        """

    def notifications(self) -> Notifications | None:
        """Wait for what `Notifications` has; None: the workers are closed."""

    def take_dropped_events(self, observer: int, /) -> int:
        """How many events of an observer were dropped since the last call."""

    def close(self) -> None:
        """Refuse all queued questions and wake all waiting threads."""

@final
class Notifications:
    """What `HookQueues.notifications` returns: log lines, expired questions, times of the store."""

    @property
    def lines(self) -> list[tuple[int, str, list[tuple[str, str]]]]:
        """Log lines: level, text, and the keys of machine-readable logs with their values."""

    @property
    def expired(self) -> list[tuple[Question, str, float]]:
        """Question, hook (empty if none had started) and timeout of each expired question."""

    @property
    def stored(self) -> list[tuple[int, int, int, int | None]]:
        """Messages whose records are safe, as `mqttcore.plugin.base.Stored`."""

@final
class Question:
    """A question on its way through the hooks."""

    @property
    def point(
        self,
    ) -> Literal[
        "authenticate",
        "grant",
        "enhanced_auth",
        "connect",
        "authorize",
        "subscribe",
        "publish",
        "deliver",
        "will",
        "control",
    ]:
        """Which hooks are asked."""

    @property
    def subject(self) -> Login | Ask | Subscribe | Message:
        """The argument of the hook; for an exchange or messages, its `Login`."""

    @property
    def key(self) -> int:
        """Identifies the question among all open ones."""

    @property
    def method(self) -> str | None:
        """The method of an exchange."""

    @property
    def again(self) -> bool:
        """Whether a connected client authenticates again."""

    @property
    def data(self) -> bytes:
        """The last authentication data of the client in an exchange; empty if there is none."""

    @property
    def rounds(self) -> int:
        """Number of challenges that the client has answered."""

    def challenge(
        self, data: bytes, /, *, text: str | None = None, username: str | None = None
    ) -> bool:
        """Send the client a challenge; the question comes back to the worker with the answer.

        False: nobody is there any more, or it is the client's turn.

        Raises:
            ValueError: more than 65,535 bytes.
        """

    @property
    def client(self) -> Client:
        """The client of the question."""

    @property
    def rules(self) -> list[int]:
        """Which `authorize` or `control` hooks are asked, by their position."""

    @property
    def is_trial(self) -> bool:
        """Whether nothing comes of the answer: it is for an explanation."""

    @property
    def position(self) -> int:
        """Number of hooks that have passed."""

    def advance(self) -> bool:
        """Pass the question on to the next hook; return False if the question is over."""

    @property
    def age(self) -> float:
        """Seconds since the engine asked."""

    @property
    def waited(self) -> float:
        """Seconds since the question arrived or the previous hook passed."""

    def start(self, hook: str, timeout: float, /) -> bool:
        """Start a hook with a timeout in seconds; return False if the question is over."""

    def pause(self) -> None:
        """Stop the time of the hook until `start`: it waits in a queue of the broker."""

    def hand_over(self, worker: int, /) -> None:
        """Give the question to another worker."""

    def answer(self, answer: object, /, *, cache: float = 0.0) -> bool:
        """Answer; False: it was too late. A yes to an ask counts for ``cache`` seconds.

        Raises:
            TypeError: an answer that the hook must not give; the question stays open.
            ValueError: a value in it is not allowed.
        """

    def messages(self, hook: int, /) -> list[tuple[int, Message]]:
        """The messages that a publish hook has to decide about still, with their positions."""

    def has_messages(self, hook: int, /) -> bool:
        """Whether a publish hook has to decide about messages still."""

    def call_each(
        self,
        function: Callable[[Message], object],
        counters: HookCounters,
        fail: Callable[[int, str, BaseException | None], None],
        /,
        *,
        turn: float,
    ) -> tuple[int, bool, bool]:
        """Call a `def` hook with each message that it has to decide about, for ``turn`` seconds.

        ``fail`` is told the position of a message about which the hook raised, or answered wrongly.

        Returns:
            The number of calls, whether an answer was in time, and whether messages were refused
            because the time of the question was up.
        """

    def refuse_messages(self, hook: int, /) -> int:
        """Refuse all messages that a publish hook has to decide about; return their number."""

    def restart(self) -> bool:
        """Give the hook its full time for the next message; False: it is over, or late."""

    def answer_message(self, index: int, answer: object, /) -> None:
        """Take a publish hook's answer about one message.

        Raises:
            TypeError: an answer that the hook must not give; the message stays as it was.
            ValueError: a value in it is not allowed.
        """

    def refuse_message(self, index: int, /) -> None:
        """Refuse one message as a fault of the plugin."""

    def complete(self) -> bool:
        """Answer with the result of the hooks for the packet or messages; False: too late."""

    def apply(self, answer: object, /) -> bool:
        """Apply a hook's answer to a CONNECT or SUBSCRIBE; True: it is refused, all is answered.

        Raises:
            TypeError, ValueError: the hook must not give this answer; nothing is changed.
        """

    def leave_undecided(self) -> bool:
        """Leave a login to the engine after all hooks have passed; False: it is too late."""

    def refuse(self) -> bool:
        """Refuse as a fault of the plugin.

        0x88 for a login, 0x83 for an exchange and for messages, "not authorized" for an ask.
        """

    @property
    def is_over(self) -> bool:
        """Whether the question is over: it was answered, or the client left."""

    @property
    def is_answered(self) -> bool:
        """An answer was given, or it was refused for lateness."""

    def is_same(self, other: Question, /) -> bool:
        """Whether both are the same question."""

# --- configuration and passwords

@final
class TomlValue:
    """One value of a TOML document, and its place."""

    @property
    def value(self) -> object:
        """`dict[str, TomlValue]`, `list[TomlValue]`, a scalar, or None for a date."""

    @property
    def kind(self) -> str:
        """`table`, `array`, `string`, `integer`, `float`, `boolean` or `datetime`."""

    @property
    def place(self) -> tuple[int, int]:
        """Line and column of the value, from 1."""

    @property
    def key_place(self) -> tuple[int, int]:
        """Line and column of its key."""

def parse_toml(text: str, /) -> tuple[TomlValue, list[tuple[int, int, str]]]:
    """Read a document as far as it can be read; the list names every fault of syntax."""

def memory_budget(memory_bytes: int, /) -> int:
    """Bytes of the budget for ``limits.memory_bytes``, where 0 is a share of the memory limit."""

def disable_core_files() -> None:
    """Keeps this process from writing core files; only the soft limit is changed."""

def keep_freed_memory() -> None:
    """Keeps freed memory of messages for the next ones, up to 2 MiB a thread, in this process."""

def check_grant_rule(rule: str, /) -> None:
    """Raise `TopicFilterError` unless ``rule`` may stand in a grant: a topic filter, or ``$#``."""

def grant_allows(
    grant: Grant,
    /,
    *,
    action: Literal["publish", "subscribe", "unsubscribe", "receive"],
    topic: str,
) -> bool:
    """Whether the rules of ``grant`` allow this; actions without a rule are denied."""

def check_mount_point(text: str, /) -> None:
    """Raise `TopicNameError` unless ``text`` may be a mount point.

    It is a topic name that does not begin with ``$``.
    """

def check_password_hash(hash: str, /) -> None:  # noqa: A002 - positional only
    """Raise `PasswordHashError` unless ``hash`` is of a format that `verify_password` knows."""

def verify_password(hash: str, password: bytes | Login, /) -> bool:  # noqa: A002 - positional only
    """Whether ``password`` belongs to ``hash``; blocks for as long as the hash costs, detached."""

def make_certificates(folder: StrPath, /, *, hosts: Sequence[str], client: str) -> None:
    """Write a CA, a certificate of a server and one of a client into ``folder``."""

def hash_password(password: bytes, /, *, salt: bytes) -> str:
    """A new Argon2id hash; ``salt`` must be 16 fresh random bytes."""

# --- the durable store

def store_verify(directory: StrPath, /) -> dict[str, Any]:
    """Reads the whole store in ``directory``; returns a summary."""

def store_info(directory: StrPath, /) -> dict[str, Any]:
    """Returns a summary of the store in ``directory``."""

@final
class CopyProgress:
    """How far a backup is. Another thread reads it while one copies."""

    def __new__(cls) -> CopyProgress: ...
    @property
    def done(self) -> int:
        """Bytes copied or linked so far."""

    @property
    def total(self) -> int | None:
        """Bytes of the whole copy; None until all of its files are known."""

    @property
    def eta_s(self) -> int | None:
        """Seconds until all is copied; None while that is unknown."""

def store_backup(directory: StrPath, to: StrPath, progress: CopyProgress, /) -> int:
    """Copies the store in ``directory`` into ``to``, an empty folder; returns the bytes copied."""

def store_repair(directory: StrPath, /) -> dict[str, Any]:
    """Repairs the store in ``directory`` by discarding unreadable data; returns a report."""

def is_stream_name(name: str, /) -> bool:
    """Whether ``name`` can be the name of a stream."""

def store_seal(directory: StrPath, /) -> list[dict[str, Any]]:
    """Writes all rows of the store in ``directory`` into files; returns the state of streams."""

@overload
def store_dump(
    directory: StrPath, visit: Callable[[str], object], /, *, as_fields: Literal[False] = False
) -> int:
    """Calls ``visit`` with a text for each record of the log, in order; returns how many."""

@overload
def store_dump(
    directory: StrPath, visit: Callable[[dict[str, object]], object], /, *, as_fields: Literal[True]
) -> int:
    """Calls ``visit`` with the fields of each record of the log."""

def store_create(directory: StrPath, fill: Callable[[StoreWriter], object], /) -> None:
    """Creates a store in a new or empty folder: completely, or not at all."""

@final
class StoreWriter:
    """Writes sessions and messages into a new store."""

    def session(
        self,
        client_id: str,
        /,
        *,
        username: str | None,
        version: int,
        expiry_s: int,
        away_since_ms: int,
    ) -> int:
        """Writes a session without a connection; returns its number."""

    def subscribe(
        self,
        session: int,
        filter: str,  # noqa: A002 - positional only
        /,
        *,
        options: int,
        subscription_id: int,
    ) -> None:
        """Writes a subscription."""

    def message(
        self,
        packet: bytes,
        /,
        *,
        kept: bool,
        expires_at_ms: int | None,
        source: tuple[str, str | None] | None,
        receiver: tuple[int, int, bool, list[int]] | None,
    ) -> int:
        """Writes the message of a PUBLISH; returns its number, also that of the delivery.

        ``receiver``: session, QoS, RETAIN and Subscription Identifiers.
        """

    def deliver(self, message: int, receiver: tuple[int, int, bool, list[int]], /) -> int:
        """Queues a message for one more session; returns the number of the delivery."""

    def sending(self, session: int, delivery: int, packet_id: int, /) -> None:
        """Writes that a delivery was sent and is not acknowledged."""

    def received(self, session: int, packet_id: int, /) -> None:
        """Writes that only the release of a QoS 2 message is open."""

# --- streams

@final
class StreamOptions:
    """Options of a `StreamReader`: rows, columns, decoding and batch size."""

    def __new__(
        cls,
        *,
        filter: str | None = None,  # noqa: A002 - what MQTT calls it
        start_us: int | None = None,
        end_us: int | None = None,
        columns: Sequence[str] | None = None,
        batch_rows: int | None = None,
        decode: Literal["json", "cbor", "msgpack", "text", "protobuf", "avro", "sparkplug", "auto"]
        | None = None,
        payload_schema: str | None = None,
        on_error: Literal["null", "drop", "fail"] = "null",
        typed: str | None = None,
        typed_decode: Literal[
            "json", "cbor", "msgpack", "text", "protobuf", "avro", "sparkplug", "auto"
        ]
        | None = None,
        aliases: str | None = None,
        descriptor: bytes | None = None,
        message: str | None = None,
    ) -> StreamOptions:
        """Check the options; raise `StreamOptionError` with the name of the wrong one.

        ``filter`` is a topic filter by the rules of MQTT, so ``#`` leaves out what begins with $.
        Rows are wanted from ``start_us`` on and before ``end_us``, in Unix microseconds.
        ``decode`` adds the columns of ``payload_schema``, which is Spark's DDL (``temperature
        DOUBLE, position STRUCT<x: INT>``). A payload that does not fit is null in what does not,
        and stands in ``_corrupt``; or its row is dropped; or `StreamDecodeError` names it.
        ``aliases`` are those of Sparkplug B that `StreamReader.aliases` told in the end; what rows
        say that are read, or files of rows before them, counts more.
        ``protobuf`` needs a ``descriptor``, which is a FileDescriptorSet, and the full name of a
        ``message`` in it; ``avro`` needs as ``descriptor`` a JSON object of schemas by number.
        ``typed`` are the columns that the stream itself has decoded, in DDL too; ``typed_decode``
        says how payloads are read for those that a file is too old to have.
        ``columns`` come in the order in which they are named; None is all of them. A batch has
        ``batch_rows`` rows at most (16 k), and about 16 MB.
        """

    @property
    def schema(self) -> StreamSchema:
        """The columns of every batch."""

@final
class StreamSchema:
    """Columns and their types; ``pyarrow.schema(it)`` makes an Arrow schema of it."""

    def __arrow_c_schema__(self, /) -> object: ...

@final
class StreamBatch:
    """Rows of one schema; ``pyarrow.record_batch(it)`` takes them over without a copy."""

    def __arrow_c_array__(self, /, requested_schema: object = None) -> tuple[object, object]:
        """The rows as two capsules; ``requested_schema`` is not looked at."""

    def __len__(self) -> int:
        """How many rows there are."""

@final
class StreamDecoder:
    """Decodes payloads of rows from other sources than a broker.

    Batches must be in order, for the aliases of Sparkplug B. Rows have a column ``payload`` of
    blobs; ``sparkplug`` and ``auto`` need ``topic``, too, and ``on_error="fail"``, which names the
    row, ``partition`` and ``offset``.
    """

    def __new__(
        cls,
        decode: Literal["json", "cbor", "msgpack", "text", "protobuf", "avro", "sparkplug", "auto"],
        payload_schema: str,
        /,
        *,
        on_error: Literal["null", "drop", "fail"] = "null",
        aliases: str | None = None,
        descriptor: bytes | None = None,
        message: str | None = None,
    ) -> StreamDecoder: ...
    @property
    def schema(self) -> StreamSchema:
        """The columns to add to rows."""

    def decode(self, ipc: bytes) -> list[StreamBatch]:
        """The rows of an Arrow IPC stream, decoded."""

@final
class Publisher:
    """One connection of a client that publishes rows: bytes in, bytes out.

    It opens no socket and knows no time. A message is over when the server has acknowledged it; one
    of QoS 0 is published at QoS 1. After an `UndeliveredError` of `handle_bytes` or
    `poll_transmit` the connection is of no use any more.
    """

    ID: Final = "mqttcore-id"
    """User property of each message over MQTT 5.0: ``name``, a slash and the row's number."""

    def __new__(
        cls,
        name: str,
        /,
        *,
        protocol: Literal["5", "3.1.1"],
        client_id: str,
        username: str | None = None,
        password: str | None = None,
        window: int | None = None,
        first_row: int = 0,
    ) -> Publisher:
        """Begin with CONNECT; raise `UndeliveredError` if a text cannot be sent.

        At most ``window`` messages, 65,535 and what the server allows are unacknowledged at a time.
        None is 1000, and 20 over MQTT 3.1.1, where a server cannot say how many it takes.
        """

    def publish(self, ipc: bytes, /) -> None:
        """Take the rows of an Arrow IPC stream; they are sent as the send quota allows.

        Raise `UndeliveredError` for the first row that cannot be sent, or that this server does
        not take; none of its batch goes out then.
        """

    def poll_transmit(self) -> bytes:
        """The next bytes to send, at most about 256 KiB; none before the server answers."""

    def handle_bytes(self, data: bytes, /) -> None:
        """Handle bytes of the server, in pieces of any size."""

    def ping(self) -> None:
        """Have a PINGREQ sent."""

    def disconnect(self) -> None:
        """Have a DISCONNECT sent; nothing may follow it."""

    @property
    def is_connected(self) -> bool:
        """Whether the server has let the client in."""

    @property
    def has_rows(self) -> bool:
        """Whether there are rows that have not been sent."""

    @property
    def in_flight(self) -> int:
        """Messages that were sent and are not over."""

    @property
    def next_row(self) -> int:
        """The number of the next row to send."""

    @property
    def keep_alive_s(self) -> int:
        """The longest silence that the server takes, in seconds; 0 is no limit."""

@final
class StreamReader:
    """Exactly the rows of a range of one partition, batch after batch.

    Raises `StreamRangeError` for rows that are in no file and `StreamFileError` for a file that
    cannot be read or is another than was said; behind an error nothing follows. Files are opened
    while it is iterated. Threads may share it: each batch goes to one of them.
    """

    def __new__(
        cls,
        files: Sequence[tuple[StrPath, int, int]],
        /,
        *,
        partition: int,
        start: int,
        end: int,
        options: StreamOptions | None = None,
    ) -> StreamReader:
        """Plan to read the offsets from ``start`` to before ``end``.

        ``files`` are path, first and last offset of each file of the partition that may be of use.
        """

    @staticmethod
    def tail(
        ipc: bytes,
        /,
        *,
        partition: int,
        start: int,
        end: int,
        options: StreamOptions | None = None,
    ) -> StreamReader:
        """Read the same out of the tail: an Arrow IPC stream that holds exactly these rows."""

    @property
    def schema(self) -> StreamSchema:
        """The columns of every batch."""

    @property
    def aliases(self) -> str | None:
        """The aliases of Sparkplug B that are known by now; None if none can be."""

    def __iter__(self) -> StreamReader: ...
    def __next__(self) -> StreamBatch: ...

def write_stream_file(
    path: StrPath,
    ipc: bytes,
    /,
    *,
    stream: str,
    epoch: str = "",
    schema: int = 0,
    aliases: str | None = None,
) -> dict[str, int | str | None]:
    """Write a file as the broker seals them, out of an Arrow IPC stream of rows.

    The rows have the columns of ``StreamOptions().schema`` and are those of one partition, dense
    and in order. ``aliases`` are those of Sparkplug B that are known before them. Returns what
    `read_stream_file_meta` does.
    """

def read_stream_file_meta(path: StrPath, /) -> dict[str, int | str | None]:
    """Return the data in the footer of a file.

    That is stream, epoch, schema, partition, base, last, min_us, max_us, typed and aliases.
    """
