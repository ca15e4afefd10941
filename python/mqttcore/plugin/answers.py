"""Answers of hooks: small frozen classes, validated when they are created."""

from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Annotated, Literal, get_args

from mqttcore._core import TopicFilter, TopicName, check_grant_rule
from mqttcore._record import Record, field
from mqttcore._schema import Faults, Range, check_record
from mqttcore.sessions.policy import Durability, FullQueuePolicy, SessionPolicy

DenyReason = Literal[
    "unspecified_error",
    "client_identifier_not_valid",
    "bad_credentials",
    "not_authorized",
    "server_unavailable",
    "server_busy",
    "banned",
    "topic_name_invalid",
    "quota_exceeded",
    "payload_format_invalid",
]
"""Reason of a refusal; the engine maps it to the reason code of each MQTT version."""

AccessWord = Literal["read", "write", "readwrite", "deny"]
"""Words for the rules of an access list."""

OrderedWord = Literal["allow", "deny", "allow_exactly", "deny_exactly"]
"""Words for ordered rules; ``..._exactly`` rules match only the filter with the same text."""
OrderedRule = tuple[OrderedWord, str]
"""A rule and its topic filter."""

OperatorScope = Literal["view", "payload", "operate", "admin"]
"""Scopes in the HTTP API and on the page for a user who logs in there."""

DropReason = Literal["success", "no_matching_subscribers"]
"""What a publisher is told of a message that a hook drops."""

DENY_REASONS: frozenset[str] = frozenset(get_args(DenyReason))
DROP_REASONS: Sequence[str] = get_args(DropReason)
DURABILITIES: Sequence[str] = get_args(Durability)
FULL_QUEUE_POLICIES: Sequence[str] = get_args(FullQueuePolicy)
OPERATOR_SCOPES: Sequence[str] = get_args(OperatorScope)


def refuse_faults(record: Record) -> None:
    """Raises `ValueError` when a field does not fit its type."""
    faults = Faults()
    check_record(record, key="", faults=faults)
    if faults:
        raise ValueError("; ".join(faults.lines()))


class Limits(Record):
    """Limits of one client's traffic; None: the limit of the broker applies."""

    max_qos: Annotated[int, Range(0, 2)] | None = None
    """Highest QoS that it may publish and subscribe with."""
    messages_per_second: Annotated[int, Range(1, 2**32 - 1)] | None = None
    """PUBLISH packets that are read from it each second."""

    def __post_init__(self) -> None:
        refuse_faults(self)


NO_LIMITS = Limits()


class OrderedRules(Record):
    """Rules of each action in their order: the first that matches decides; without one: denied.

    A rule is a pair of ``allow`` or ``deny`` and a topic filter, or ``$#``. With ``allow_exactly``
    and ``deny_exactly`` it is about this very filter, and not about those that it covers. In
    ``subscribe`` and ``unsubscribe``, a wildcard at the front covers filters that begin with ``$``,
    too: messages on these topics need a rule of ``receive``.

    Raises:
        TopicFilterError: a rule is not a topic filter.
        ValueError: a rule has another word.
    """

    publish: Sequence[OrderedRule] = ()
    """Publishing to a topic."""
    receive: Sequence[OrderedRule] = ()
    """Receiving messages on a topic, for all subscriptions that match it."""
    subscribe: Sequence[OrderedRule] = ()
    """Subscribing to a filter; for a shared subscription, the part after ``$share/GROUP/``."""
    unsubscribe: Sequence[OrderedRule] = ()
    """Ending a subscription."""

    def __post_init__(self) -> None:
        for name in ("publish", "receive", "subscribe", "unsubscribe"):
            rules = getattr(self, name)
            for word, rule in rules:
                if word not in get_args(OrderedWord):
                    words = ", ".join(get_args(OrderedWord))
                    raise ValueError(f"a rule of {name} is {word!r}: one of {words}")
                check_grant_rule(rule)
            object.__setattr__(self, name, tuple(rules))


class Grant(Record):
    """The rights of a client, and the policy of its session. Everything else is denied.

    As everywhere in MQTT, ``#`` does not match topics that begin with ``$``: name ``$SYS``, or use
    the rule ``$#`` for all such topics, in each of the lists. Publishing to ``$share``, ``$queue``,
    ``$exclusive`` and ``$delayed`` is always denied, and to ``$CONTROL`` except where a plugin
    answers requests.

    Raises:
        TopicFilterError: a rule is not a topic filter.
        ValueError: ``expires_at`` has no time zone, or ``durability``, ``queue_policy`` or
            ``operate`` has a word that is none of its words.
    """

    publish: Sequence[str] = ()
    """Topic filters that it may publish to."""
    subscribe: Sequence[str] = ()
    """Topic filters that it may subscribe to, including all filters that they cover."""
    deny: Sequence[str] = ()
    """Topic filters that it may neither publish to nor receive from; they override the others."""
    access_list: Sequence[tuple[AccessWord, str]] | None = None
    """Pairs of ``read``, ``write``, ``readwrite`` or ``deny`` and a topic filter: the first pair
    that matches topic and action decides; if none matches, it is denied. Instead of ``publish`` and
    ``subscribe``: such a client may subscribe to every filter, but gets only the messages that it
    may read. ``deny`` is checked before the list."""
    ordered: OrderedRules | None = None
    """Ordered rules for each action, instead of ``publish``, ``subscribe`` and ``access_list``;
    ``deny`` is checked before them."""
    limits: Limits = NO_LIMITS
    """Limits of this client."""
    session: SessionPolicy | None = None
    """Policy of its session; None: that of its listener."""
    durability: Durability | None = None
    """Durability of its session and of its publishes; None: that of its listener. A rule of the
    configuration for a topic overrides it."""
    queue_policy: FullQueuePolicy | None = None
    """Treatment of its publishes for a kept session with a full queue; None: that of its listener.
    A rule of the configuration for a topic overrides it."""
    expires_at: datetime | None = None
    """Time at which it is disconnected; with a time zone."""
    operate: Collection[OperatorScope] = ()
    """The scopes of its user after a login at the HTTP API or its page; empty: no such login."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "operate", checked_scopes(self.operate))
        for name in ("publish", "subscribe", "deny"):
            rules = getattr(self, name)
            if isinstance(rules, str):
                raise ValueError(f"{name} is a string, but must be a list: write [{rules!r}]")
            for rule in rules:
                check_grant_rule(rule)
            object.__setattr__(self, name, tuple(rules))
        if self.access_list is not None:
            object.__setattr__(self, "access_list", checked_list(self))
        check_alone(self)
        if self.expires_at is not None and self.expires_at.tzinfo is None:
            raise ValueError("expires_at has no time zone")
        check_word(self, "durability", DURABILITIES)
        check_word(self, "queue_policy", FULL_QUEUE_POLICIES)


def check_word(grant: Grant, name: str, words: Sequence[str]) -> None:
    """Refuses a word that is none of those of its field."""
    word = getattr(grant, name)
    if word is not None and word not in words:
        raise ValueError(f"{name} is {word!r}: one of {', '.join(words)}")


def check_alone(grant: Grant) -> None:
    """Refuses other rules beside ordered ones."""
    others = grant.publish or grant.subscribe or grant.access_list is not None
    if grant.ordered is not None and others:
        raise ValueError("ordered replaces publish, subscribe and access_list: leave them out")


def checked_scopes(scopes: Collection[OperatorScope]) -> tuple[OperatorScope, ...]:
    """The scopes of a grant, each checked."""
    if isinstance(scopes, str):
        raise ValueError(f"operate is a string, but must be a set: write {{{scopes!r}}}")
    for scope in scopes:
        if scope not in OPERATOR_SCOPES:
            raise ValueError(f"operate has {scope!r}: one of {', '.join(OPERATOR_SCOPES)}")
    return tuple(scopes)


def checked_list(grant: Grant) -> tuple[tuple[AccessWord, str], ...]:
    """The access list of a grant, each rule checked."""
    if grant.publish or grant.subscribe:
        raise ValueError("access_list replaces publish and subscribe: leave them empty")
    rules = tuple(grant.access_list or ())
    for access, rule in rules:
        if access not in get_args(AccessWord):
            raise ValueError(f"access is {access!r}: one of {', '.join(get_args(AccessWord))}")
        check_grant_rule(rule)
    return rules


class Allow(Record, kw_only=False):
    """Yes.

    To a login it brings a `Grant`, may put another user name in the place of the one sent, and may
    tell the client ``user_properties``. Without ``username`` the user name of CONNECT counts as
    verified: a plugin that checks the password or the token alone has to set it, or clients choose
    whose sessions and shares they use. At the end of an `enhanced_auth` it may bring last ``data``
    as well; without ``username`` the client has none then, unless a certificate or the kernel gave
    it. To a question of `authorize` it may widen the answer: to all that the filter
    ``covers``, for ``ttl`` seconds, so that these are not asked again.
    """

    grant: Grant = field(default_factory=Grant)
    username: str | None = field(default=None, kw_only=True)
    user_properties: Sequence[tuple[str, str]] = field(default=(), kw_only=True)
    data: bytes | None = field(default=None, kw_only=True, repr=False)
    covers: str | None = field(default=None, kw_only=True)
    ttl: float = field(default=60.0, kw_only=True)

    def __post_init__(self) -> None:
        if self.covers is not None:
            TopicFilter(self.covers)


class Deny(Record, kw_only=False):
    """No.

    ``text`` is for people and never holds a secret: it is logged, and sent as the reason string to
    a client of MQTT 5.0 that takes those and has room.
    """

    reason: DenyReason = "not_authorized"
    text: str | None = None

    def __post_init__(self) -> None:
        check_refusal(self)


def check_refusal(record: "Deny | DisconnectClient") -> None:
    """`refuse_faults`, and nearly nothing if there are none: each refusal makes a record."""
    if not is_refusal(record.reason, record.text):
        refuse_faults(record)


def is_refusal(reason: object, text: object) -> bool:
    """Whether a refusal may have these."""
    is_text = text is None or isinstance(text, str)
    return is_text and isinstance(reason, str) and reason in DENY_REASONS


class DisconnectClient(Record, kw_only=False):
    """No, and the client is disconnected; for ``text`` see `Deny`."""

    reason: DenyReason = "not_authorized"
    text: str | None = None

    def __post_init__(self) -> None:
        check_refusal(self)


class Replace(Record):
    """Publish the message with these changes; None leaves a part as it is.

    A new topic is authorized again. The QoS of a message cannot be changed: it decides how the
    message is acknowledged.
    """

    topic: str | None = None
    payload: bytes | bytearray | str | None = field(default=None, repr=False)
    """Text is sent as UTF-8."""
    retain: bool | None = None
    message_expiry_interval: int | None = None
    """Seconds from now on, 0 to 4,294,967,295."""
    content_type: str | None = None
    user_properties: Sequence[tuple[str, str]] | None = None
    """All user properties of the new message; those of the old one are in
    `Message.user_properties`."""
    _stored_as: int | None = field(default=None, repr=False)
    """A number with which `Plugin._note_stored` is called; for plugins of this package."""

    def __post_init__(self) -> None:
        if self.topic is not None:
            TopicName(self.topic)
        if isinstance(self.payload, str | bytearray):
            text = self.payload
            payload = text.encode() if isinstance(text, str) else bytes(text)
            object.__setattr__(self, "payload", payload)
        seconds = self.message_expiry_interval
        if seconds is not None and not 0 <= seconds < 2**32:
            raise ValueError(f"message_expiry_interval is {seconds}: 0 to 4,294,967,295")


class ReplaceConnect(Record):
    """Connect the client with these changes; a part that is None stays as it is."""

    keep_alive: int | None = None
    """Server Keep Alive in seconds; clients of MQTT 3.x keep their own."""
    session_expiry_interval: int | None = None
    """Maximum seconds for which the session is kept."""
    limits: Limits = NO_LIMITS
    """Limits in addition to those of its grant; the lower ones apply."""
    user_properties: Sequence[tuple[str, str]] = ()
    """Additional user properties of CONNACK, after those of `Allow`."""

    def __post_init__(self) -> None:
        for name, most in (("keep_alive", 65_535), ("session_expiry_interval", 2**32 - 1)):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= most:
                raise ValueError(f"{name} is {value}: 0 to {most:,}")


class Redirect(Record, kw_only=False):
    """Refuse the client and name another server; for a client of MQTT 3.x it is only a refusal."""

    server: str
    """Server Reference: ``host`` or ``host:port``; several with spaces between them."""
    permanent: bool = False
    """Whether the client should use that server from now on."""

    def __post_init__(self) -> None:
        refuse_faults(self)
        if not self.server or len(self.server.encode()) > 65_535 or "\0" in self.server:
            raise ValueError("server must have 1 to 65,535 bytes")


class ReplaceOptions(Record):
    """Subscribe with these options; an option that is None stays as it is."""

    qos: Literal[0, 1, 2] | None = None
    """Highest QoS of deliveries, for SUBACK; not above the requested one."""
    retain_handling: Literal[0, 1, 2] | None = None
    """Whether retained messages are sent: 0 yes, 1 for a new subscription, 2 no."""

    def __post_init__(self) -> None:
        for name in ("qos", "retain_handling"):
            if getattr(self, name) not in {None, 0, 1, 2}:
                raise ValueError(f"{name} is {getattr(self, name)!r}: 0, 1 or 2")


class Drop(Record, kw_only=False):
    """Do not route the message; a publisher that awaits an acknowledgement gets ``reason``."""

    reason: DropReason = "success"

    def __post_init__(self) -> None:
        if self.reason not in DROP_REASONS:
            refuse_faults(self)


class Degraded(Record, kw_only=False):
    """The plugin cannot do all of its work; ``text`` says why, and must not contain secrets."""

    text: str

    def __post_init__(self) -> None:
        refuse_faults(self)
