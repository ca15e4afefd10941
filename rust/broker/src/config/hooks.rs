//! The interface to plugins: questions, answers and events, without blocking.
//!
//! The engine never waits on a thread for an answer. It hands over a question with a [`Reply`],
//! stops reading from that one client, and continues when the reply is used. A reply that is
//! dropped unused is a refusal: authentication fails closed.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mqttcore_codec::{ProtocolVersion, QoS, ReasonCode};
use mqttcore_session::Secret;
use mqttcore_tls::ClientCertificate;
use mqttcore_topics::TopicFilter;
use tokio::sync::oneshot;

use crate::config::address::Peer;
use crate::config::grants::Grant;

/// Answers the engine's questions; implemented by the Python plugins, or by [`NoHooks`].
///
/// Every method returns at once. They are called on shard threads, which must never enter Python.
pub trait Hooks: Send + Sync + 'static {
    /// Which questions this set of plugins wants at all; asked once, at start and after a reload.
    fn interests(&self) -> HookInterests;

    /// Who is this client, and what may it do?
    fn authenticate(&self, login: Arc<Login>, reply: Reply<LoginDecision>);

    /// A client wants to authenticate by one of [`HookInterests::methods`]. `reply` takes the first
    /// turn; the client's answers to challenges go to the conversation that is returned, which is
    /// dropped when the client leaves or all is said. Without methods it is never called.
    fn converse(
        &self,
        _opening: ExchangeStart,
        reply: Reply<ExchangeReply>,
    ) -> Box<dyn AuthExchange> {
        drop(reply);
        Box::new(RejectingExchange)
    }

    /// May this client do this one thing? Asked only where [`HookInterests::authorize`] matches and
    /// the client's grant neither allows nor denies.
    fn authorize(&self, ask: AuthorizeRequest, reply: Reply<AuthorizeDecision>);

    /// Something happened; told only for kinds in [`HookInterests::events`].
    fn event(&self, event: PluginEvent);

    /// A line for the operator's log, already limited in rate.
    fn log(&self, line: LogLine);
}

/// How loud a log line is; the numbers are those of Python's `logging`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum LogLevel {
    /// Ordinary life: started, stopped, reloaded.
    Info = 20,
    /// A client or a plugin misbehaved; the broker continues.
    Warning = 30,
    /// Something that should not happen happened.
    Error = 40,
}

/// A line of the log. Its `Display` is the line for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// How loud it is.
    pub level: LogLevel,
    /// Lines of one class are limited together to one a second.
    pub class: &'static str,
    /// What happened, in a word; empty: the class says it.
    pub event: &'static str,
    /// What happened, in a sentence. Control characters of clients are escaped.
    pub text: String,
    /// The client or connection that it is about.
    pub subject: LogSubject,
    /// Lines of this class that were left out since the last one.
    pub suppressed: u64,
}

impl LogLine {
    /// A line about no client.
    pub fn new(level: LogLevel, class: &'static str, text: String) -> Self {
        Self {
            level,
            class,
            event: "",
            text,
            subject: LogSubject::default(),
            suppressed: 0,
        }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)?;
        match self.suppressed {
            0 => Ok(()),
            more => write!(f, " ({more} similar since the last line)"),
        }
    }
}

/// The client or connection that a line of the log is about, as far as it is known. Texts are as the client sent them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogSubject {
    /// Its client identifier.
    pub client_id: Option<Arc<str>>,
    /// Its user name.
    pub username: Option<Arc<str>>,
    /// Where it comes from.
    pub peer: Option<Peer>,
    /// Name of the listener that it came to.
    pub listener: Option<Arc<str>>,
    /// Why it was disconnected or refused.
    pub reason: Option<ReasonCode>,
}

impl LogSubject {
    /// A connection whose client is not known.
    pub(crate) fn of_peer(peer: Peer, listener: &str) -> Self {
        Self {
            peer: Some(peer),
            listener: Some(listener.into()),
            ..Self::default()
        }
    }

    /// A client that has connected.
    pub(crate) fn of_login(login: &Login) -> Self {
        Self {
            client_id: Some(Arc::clone(&login.client_id)),
            username: login.username.clone(),
            ..Self::of_peer(login.peer, &login.listener)
        }
    }
}

/// What the plugins want to be asked or told.
#[derive(Clone, Debug, Default)]
pub struct HookInterests {
    /// Some plugin authenticates; without one, only anonymous access is left.
    pub authenticate: bool,
    /// Methods of enhanced authentication that some plugin offers.
    pub methods: Vec<Box<str>>,
    /// Actions and the topics or filters that they are asked about.
    pub authorize: Vec<(Action, TopicFilter)>,
    /// Bits of [`EventKind`]: `1 << kind as u32`.
    pub events: u32,
}

impl HookInterests {
    /// Whether a plugin wants to be asked about `action` on what `is_about` accepts.
    pub(crate) fn asks_about(
        &self,
        action: Action,
        is_about: impl Fn(&TopicFilter) -> bool,
    ) -> bool {
        let mut questions = self.authorize.iter();
        questions.any(|(about, filter)| *about == action && is_about(filter))
    }

    /// Whether a plugin offers this method of enhanced authentication.
    pub fn offers(&self, method: &str) -> bool {
        self.methods.iter().any(|offered| **offered == *method)
    }

    /// Whether events of `kind` are wanted.
    pub fn wants(&self, kind: EventKind) -> bool {
        self.events & (1 << kind as u32) != 0
    }
}

/// One client's CONNECT, as plugins see it.
#[derive(Clone)]
pub struct Login {
    /// The client identifier, already assigned by the broker when the client sent none.
    pub client_id: Arc<str>,
    /// Protocol version of the connection.
    pub version: ProtocolVersion,
    /// User name, when one was sent; an empty one is not the same as none.
    pub username: Option<Arc<str>>,
    /// The password, if one was sent; wiped after admission. Never printed.
    pub password: Option<Arc<Secret>>,
    /// The certificate that the client presented, verified.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// The user name is the identity that the listener takes from the certificate or the peer.
    pub is_certified: bool,
    /// Where the client comes from.
    pub peer: Peer,
    /// Name of the listener that it came to.
    pub listener: Arc<str>,
    /// Clean Start, or Clean Session in 3.x.
    pub clean_start: bool,
    /// Keep-alive that was asked for, in seconds.
    pub keep_alive_s: u16,
    /// Session expiry that was asked for, in seconds; `u32::MAX` never expires.
    pub session_expiry_interval_s: u32,
    /// Topic of the will, when there is one.
    pub will_topic: Option<Arc<str>>,
    /// User properties of CONNECT in their order.
    pub user_properties: Arc<[(String, String)]>,
}

impl Login {
    /// The login of a client that has not connected since the start, from what the store has of it.
    pub(crate) fn restored(
        client_id: Arc<str>,
        version: ProtocolVersion,
        username: Option<Arc<str>>,
        session_expiry_interval_s: u32,
    ) -> Self {
        Self {
            client_id,
            version,
            username,
            password: None,
            certificate: None,
            is_certified: false,
            peer: Peer::Tcp((Ipv4Addr::UNSPECIFIED, 0).into()),
            listener: Arc::default(),
            clean_start: false,
            keep_alive_s: 0,
            session_expiry_interval_s,
            will_topic: None,
            user_properties: Arc::default(),
        }
    }
}

impl fmt::Debug for Login {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Login")
            .field("client_id", &self.client_id)
            .field("username", &self.username)
            .field("password", &self.password.as_ref().map(|_| "***"))
            .field("peer", &self.peer)
            .field("listener", &self.listener)
            .finish_non_exhaustive()
    }
}

/// What the plugins say about a CONNECT.
#[derive(Clone, Debug)]
pub enum LoginDecision {
    /// Let it in with these permissions.
    Allow {
        /// What the client may do, and how its session is kept.
        grant: Box<Grant>,
        /// Takes the place of the user name in permissions, logs and events.
        username: Option<String>,
        /// User properties for CONNACK, or for the AUTH that ends a re-authentication.
        user_properties: Vec<(Box<str>, Box<str>)>,
    },
    /// No plugin has an answer: anonymous access where the listener gives it, else a refusal.
    Pass,
    /// Refuse with this code; `text` becomes the reason string where the client may see one.
    Deny {
        /// 0x80 or above; other values are sent as "not authorized".
        reason: ReasonCode,
        /// For people; never secrets.
        text: Option<String>,
    },
}

/// How an enhanced authentication begins.
#[derive(Clone, Debug)]
pub struct ExchangeStart {
    /// Who wants in, or who is in already.
    pub login: Arc<Login>,
    /// The method that the client named.
    pub method: Arc<str>,
    /// What it sent along.
    pub data: Option<Secret>,
    /// The client is connected, and authenticates again.
    pub again: bool,
}

/// An enhanced authentication that has begun.
pub trait AuthExchange: Send {
    /// The client answers the last [`ExchangeReply::Challenge`].
    fn proceed(&mut self, data: Option<Secret>, reply: Reply<ExchangeReply>);
}

/// Says nothing, which refuses.
struct RejectingExchange;

impl AuthExchange for RejectingExchange {
    fn proceed(&mut self, _data: Option<Secret>, reply: Reply<ExchangeReply>) {
        drop(reply);
    }
}

/// What the plugin says in an enhanced authentication. No answer is a refusal.
#[derive(Clone, Debug)]
pub enum ExchangeReply {
    /// The client is to answer this.
    Challenge {
        /// For the client.
        data: Option<Secret>,
        /// For people, where the client takes reason strings.
        text: Option<String>,
        /// The user whom the client's data name: its failed logins count for this user name, whatever CONNECT says.
        username: Option<String>,
    },
    /// All is said.
    End {
        /// Whether the client is who it says it is.
        verdict: LoginDecision,
        /// The last Authentication Data, for CONNACK.
        data: Option<Secret>,
    },
}

/// What a client wants to do.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Publish to a topic.
    Publish,
    /// Subscribe to a filter.
    Subscribe,
}

/// One question about one thing.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest {
    /// Who asks.
    pub login: Arc<Login>,
    /// What it wants.
    pub action: Action,
    /// The topic name, as the filter that matches it alone, or the filter without its `$share` part.
    pub topic: TopicFilter,
    /// Quality of service asked for.
    pub qos: QoS,
    /// Retain flag of a publish.
    pub retain: bool,
    /// Group name of a shared subscription.
    pub share: Option<Arc<str>>,
}

/// The answer to an [`AuthorizeRequest`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AuthorizeDecision {
    /// Yes, this once.
    Allow,
    /// Yes, and for everything that the filter covers until `until`.
    AllowAll {
        /// The same action is allowed for all that this filter covers.
        covers: TopicFilter,
        /// When the answer ends, on the monotonic clock: a step of the system's clock does not move it (ADR 0022).
        until: Instant,
    },
    /// No.
    Deny {
        /// A value below 0x80 is sent as "not authorized".
        reason: ReasonCode,
        /// For people; never secrets. Told where the client takes reason strings.
        text: Option<String>,
    },
    /// No, and the client goes.
    Disconnect {
        /// As above.
        reason: ReasonCode,
        /// As above.
        text: Option<String>,
    },
}

impl AuthorizeDecision {
    /// No, without words.
    pub const fn deny(reason: ReasonCode) -> Self {
        Self::Deny { reason, text: None }
    }

    /// No, and the client goes, without words.
    pub const fn disconnect(reason: ReasonCode) -> Self {
        Self::Disconnect { reason, text: None }
    }
}

/// The code of a refusal: whatever a plugin says, it never reads as success.
pub(crate) fn refusing(reason: ReasonCode) -> ReasonCode {
    if reason.is_error() {
        reason
    } else {
        ReasonCode::NOT_AUTHORIZED
    }
}

/// A place for one answer; dropping it unused refuses, as a fault of ours that may pass.
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// A reply and the future that waits for it.
    pub fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Answers. False when the asking client is gone.
    pub fn send(self, answer: T) -> bool {
        self.0.send(answer).is_ok()
    }

    /// The asking client left: the answer no longer matters, so a running hook may be cancelled.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
}

/// Kinds of [`PluginEvent`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[repr(u32)]
pub enum EventKind {
    /// A client is connected.
    Connected = 0,
    /// A connection ended.
    Disconnected = 1,
    /// A CONNECT was refused.
    AuthFailed = 2,
    /// A publish or subscribe was refused.
    Denied = 3,
    /// A filter was subscribed.
    Subscribed = 4,
    /// A filter was unsubscribed.
    Unsubscribed = 5,
    /// A message was dropped on purpose.
    Dropped = 6,
    /// A session was created.
    SessionCreated = 7,
    /// A session was resumed.
    SessionResumed = 8,
    /// A session was taken over by a new connection.
    SessionTakenOver = 9,
    /// A session ended.
    SessionExpired = 10,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub struct PluginEvent {
    /// What.
    pub kind: EventKind,
    /// Who.
    pub client_id: Arc<str>,
    /// As whom.
    pub username: Option<Arc<str>>,
    /// From where, when a connection is involved.
    pub peer: Option<Peer>,
    /// Topic or filter, when one is involved.
    pub topic: Option<Arc<str>>,
    /// Reason code, when one is involved.
    pub reason: Option<ReasonCode>,
    /// When.
    pub at: SystemTime,
}

/// No plugins: no authentication hook, no questions, no events.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoHooks;

impl Hooks for NoHooks {
    fn interests(&self) -> HookInterests {
        HookInterests::default()
    }

    fn authenticate(&self, _login: Arc<Login>, reply: Reply<LoginDecision>) {
        drop(reply);
    }

    fn authorize(&self, _ask: AuthorizeRequest, reply: Reply<AuthorizeDecision>) {
        drop(reply);
    }

    fn event(&self, _event: PluginEvent) {}

    fn log(&self, line: LogLine) {
        if line.level >= LogLevel::Warning {
            eprintln!("mqttcore: {line}");
        }
    }
}
