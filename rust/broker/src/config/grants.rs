//! Grants as data: what a plugin decides at CONNECT. [`permissions`](crate::config::permissions) compiles the rules.

use std::time::{Duration, SystemTime};

use mqttcore_codec::QoS;
use mqttcore_store::Durability;

use crate::config::place::{Place, RulePlaces};
use crate::config::queue_policy::FullQueuePolicy;

/// Permissions as data, before compilation.
#[derive(Clone, Debug, Default)]
pub struct Grant {
    /// Topic filters that the client may publish to. In these lists `$#` means all topics that begin with `$`; `#` does
    /// not match them.
    pub publish: Vec<String>,
    /// Topic filters that the client may subscribe to, including every narrower filter.
    pub subscribe: Vec<String>,
    /// Topic filters that the client may neither publish to nor receive from, even if allowed otherwise.
    pub deny: Vec<String>,
    /// Access list: the first rule that names the topic and the action decides, and without one they are denied. It
    /// replaces `publish` and `subscribe`: the client may subscribe to every filter, and messages that it may not read
    /// are dropped at delivery. `deny` comes before it.
    pub access_list: Option<Vec<AccessRule>>,
    /// Ordered rules for each action. They replace `publish`, `subscribe` and `access_list`; `deny` comes before them.
    pub ordered: Option<OrderedRules>,
    /// Limits for this client, at most those of the broker.
    pub limits: GrantLimits,
    /// How its session may be kept, resumed and taken over.
    pub session: SessionPolicy,
    /// Durability of the client's messages and requests; `None`: the listener decides.
    pub durability: Option<Durability>,
    /// Queue policy for its publishes to kept sessions with a full queue; `None`: the listener decides.
    pub queue_policy: Option<FullQueuePolicy>,
    /// When the client is disconnected with 0xA0.
    pub expires_at: Option<SystemTime>,
    /// Scopes of its user in services for operators, such as the HTTP API; MQTT clients do not use them.
    pub operate: Vec<String>,
    /// The hook or the listener that grants it, for explanations.
    pub granted_by: Place,
    /// Where its rules are written, for explanations.
    pub places: Option<Box<RulePlaces>>,
}

/// Rules of each action in their order: the first one that matches decides, and without one the action is denied.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct OrderedRules {
    /// Publishing to a topic.
    pub publish: Vec<OrderedRule>,
    /// Receiving messages on a topic.
    pub receive: Vec<OrderedRule>,
    /// Subscribing to a filter.
    pub subscribe: Vec<OrderedRule>,
    /// Ending a subscription.
    pub unsubscribe: Vec<OrderedRule>,
}

/// A rule of [`OrderedRules`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct OrderedRule {
    /// It allows the action; otherwise it denies it.
    pub is_allowed: bool,
    /// Only the same text matches. Otherwise the topic filter decides: it matches topics, and covers filters; a wildcard
    /// at its front covers filters that begin with `$`, too, since messages on these topics need a rule of their own.
    pub is_exact: bool,
    /// Topic filter, or `$#`.
    pub filter: String,
}

/// A rule of an access list.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct AccessRule {
    /// The actions that it decides about, and how.
    pub access: Access,
    /// Topic filter of the topics.
    pub filter: String,
}

/// The actions that a rule of an access list decides about.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Messages may be received.
    Read,
    /// Messages may be published.
    Write,
    /// Both.
    ReadWrite,
    /// Neither.
    Deny,
}

impl Access {
    /// The answer of the rule to `action`, which is `Read` or `Write`; `None`: the rule does not name it.
    pub(crate) fn decides(self, action: Self) -> Option<bool> {
        match self {
            Self::Deny => Some(false),
            Self::ReadWrite => Some(true),
            _ => (self == action).then_some(true),
        }
    }
}

/// Limits of one client; `None` means the limit of the broker.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct GrantLimits {
    /// Maximum QoS that it may publish and subscribe with.
    pub max_qos: Option<QoS>,
    /// PUBLISH packets a second that are read from it.
    pub messages_per_second: Option<u32>,
    /// Maximum number of subscriptions.
    pub subscriptions: Option<usize>,
    /// Maximum number of queued messages.
    pub queue_messages: Option<usize>,
    /// Maximum bytes of queued messages.
    pub queue_bytes: Option<usize>,
}

/// Restrictions of a listener on every grant of its clients, of plugins and its own.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ListenerCaps {
    /// Topic filters that its clients may neither publish to nor receive from.
    pub deny: Vec<String>,
    /// Maximum Packet Size in CONNACK; `None`: that of the broker.
    pub maximum_packet_size: Option<u32>,
    /// Receive Maximum in CONNACK; `None`: that of the broker.
    pub receive_maximum: Option<u16>,
}

/// How a session may be kept, resumed and taken over (docs/decisions.md, 25).
#[derive(Clone, Copy, Debug)]
pub struct SessionPolicy {
    /// An existing session may be resumed; if not, it is discarded at CONNECT.
    pub resume: bool,
    /// Maximum time that the session is kept after its connection ended.
    pub expiry_max: Option<Duration>,
    /// Which connections may take over a connected session.
    pub takeover: Takeover,
}

/// Which connections may take over a connected session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Takeover {
    /// Only a connection with the same user name (abuse C24).
    #[default]
    SameUser,
    /// Any authenticated connection.
    Anyone,
    /// No connection: the new one is rejected.
    Never,
}

impl Default for SessionPolicy {
    fn default() -> Self {
        Self {
            resume: true,
            expiry_max: None,
            takeover: Takeover::SameUser,
        }
    }
}

impl Grant {
    /// The grant of the built-in profile: every topic, and read access to `$SYS` (docs/decisions.md, 26).
    pub fn everything() -> Self {
        Self {
            publish: vec!["#".into()],
            subscribe: vec!["#".into(), "$SYS/#".into()],
            ..Self::default()
        }
    }
}
