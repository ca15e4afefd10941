//! The interface to plugins: questions, answers and events, without blocking.
//!
//! The engine never blocks on an answer. It sends a question with a [`Reply`], stops reading from that client, and
//! continues when the reply is used. A reply that is dropped unused is a refusal: authentication fails closed.

use std::fmt;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mqttcore_codec::{ProtocolVersion, QoS, ReasonCode};
use mqttcore_session::{Message, Secret, ServerLimits};
use mqttcore_tls::ClientCertificate;
use mqttcore_topics::TopicFilter;
use tokio::sync::oneshot;

use crate::config::address::Peer;
use crate::config::grants::Grant;
use crate::config::measures::HookCalls;
use crate::config::packet_hooks::{ConnectDecision, SubscribeBatch, SubscribeDecision};
use crate::config::plugin_event::{EventKind, PluginEvent};

/// Answers the engine's questions; implemented by the Python plugins, or by [`NoHooks`].
///
/// Every method returns at once. The methods are called on shard threads, which must never enter Python.
pub trait Hooks: Send + Sync + 'static {
    /// The questions and events that the plugins are interested in; read once, at start and after a reload.
    fn interests(&self) -> HookInterests;

    /// Asks whether the client may connect, and for its grant.
    fn authenticate(&self, login: Arc<Login>, reply: Reply<LoginDecision>);

    /// Asks for the present grant of a connected client whose rights were invalidated; its login has no password. Called
    /// only with [`HookInterests::grant`].
    fn grant(&self, _login: Arc<Login>, reply: Reply<LoginDecision>) {
        drop(reply);
    }

    /// Asks what changes for an authenticated client before it is connected; its login has no password. Called only
    /// with [`HookInterests::connect`].
    fn connect(&self, _login: Arc<Login>, reply: Reply<ConnectDecision>) {
        drop(reply);
    }

    /// Asks what becomes of the will of an authenticated client: a batch of one message. Called only with wills on
    /// topics that [`HookInterests::will`] matches.
    fn will(&self, _batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        drop(reply);
    }

    /// Asks what becomes of the filters of a SUBSCRIBE that its client may subscribe to. Called only with
    /// [`HookInterests::subscribe`].
    fn subscribe(&self, _batch: SubscribeBatch, reply: Reply<Vec<SubscribeDecision>>) {
        drop(reply);
    }

    /// Starts an enhanced authentication with one of [`HookInterests::methods`]. `reply` takes the first step. The
    /// client's answers to challenges go to the returned exchange, which is dropped when the client disconnects or the
    /// exchange ends. Never called if the plugins offer no methods.
    fn start_exchange(
        &self,
        _opening: ExchangeStart,
        reply: Reply<ExchangeReply>,
    ) -> Box<dyn AuthExchange> {
        drop(reply);
        Box::new(RejectingExchange)
    }

    /// Asks whether the client may do one action. Called only if [`HookInterests::authorize`] matches and the client's
    /// grant neither allows nor denies the action.
    fn authorize(&self, ask: AuthorizeRequest, reply: Reply<AuthorizeDecision>);

    /// The hooks that [`Hooks::authorize`] asks about a request, in their order.
    fn deciding_hooks(&self, _ask: &AuthorizeRequest) -> Vec<DecidingHook> {
        Vec::new()
    }

    /// Asks what these hooks would answer, up to the first one that must not be tried. There is no request: nothing may
    /// come of the answer.
    fn try_authorize(&self, _ask: AuthorizeRequest, reply: Reply<Trial>) {
        drop(reply);
    }

    /// Asks what becomes of messages that a client may publish, before they are retained and routed. Called only with
    /// messages on topics that [`HookInterests::publish`] matches.
    fn publish(&self, _batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        drop(reply);
    }

    /// Asks what becomes of messages before they are sent to `batch.login`, a subscriber: each is sent as it is or
    /// replaced; other decisions drop it. Called only with messages on topics that [`HookInterests::deliver`] matches.
    fn deliver(&self, _batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        drop(reply);
    }

    /// Asks a plugin for its answer to a request on one of [`HookInterests::control`], which its client may make.
    fn control(&self, _request: ControlRequest, reply: Reply<Vec<u8>>) {
        drop(reply);
    }

    /// The calls of each hook so far. Any thread may call this, and it never waits.
    fn calls(&self) -> Vec<HookCalls> {
        Vec::new()
    }

    /// Bytes of memory that password hashes hold; it stays below a part of the memory budget of `budget` bytes. Called
    /// ten times a second; any thread may call this, and it never waits.
    fn password_bytes(&self, _budget: usize) -> usize {
        0
    }

    /// Tells how long the store took for a message; called only with numbers of [`PublishDecision::Replace`].
    fn stored(&self, _message: StoredMessage) {}

    /// Reports an event; called only for the kinds in [`HookInterests::events`].
    fn event(&self, event: PluginEvent);

    /// Writes a line to the operator's log; the rate is limited already.
    fn log(&self, line: LogLine);
}

/// Severity of a log line; the numbers are those of Python's `logging`.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
#[repr(u8)]
pub enum LogLevel {
    /// Normal operation: started, stopped, reloaded.
    Info = 20,
    /// A client or a plugin misbehaved; the broker continues.
    Warning = 30,
    /// A fault that should not occur.
    Error = 40,
}

/// A log line. Its `Display` is the line for people.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LogLine {
    /// The severity.
    pub level: LogLevel,
    /// Lines of one class are limited together to one a second.
    pub class: &'static str,
    /// The event in one word; if empty, the class names it.
    pub event: &'static str,
    /// The event in one sentence. Control characters from clients are escaped.
    pub text: String,
    /// The client or connection that it is about.
    pub subject: LogSubject,
    /// Lines of this class that were suppressed since the last one.
    pub suppressed: u64,
}

impl LogLine {
    /// A line without a subject.
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

/// The client or connection that a log line is about, as far as it is known. Texts are as the client sent them.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct LogSubject {
    /// Its client identifier.
    pub client_id: Option<Arc<str>>,
    /// Its user name.
    pub username: Option<Arc<str>>,
    /// Address of the client.
    pub peer: Option<Peer>,
    /// Name of the listener that accepted it.
    pub listener: Option<Arc<str>>,
    /// Why it was disconnected or rejected.
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

/// The questions and events that the plugins are interested in.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "one flag for each hook without a filter"
)]
pub struct HookInterests {
    /// Some plugin authenticates; if none does, only anonymous access is possible.
    pub authenticate: bool,
    /// Some plugin knows the present grant of a connected client; if none does, the client has to log in again after
    /// its rights were invalidated.
    pub grant: bool,
    /// Methods of enhanced authentication that some plugin offers.
    pub methods: Vec<Box<str>>,
    /// Actions, and the topics or filters for which plugins are asked about them.
    pub authorize: Vec<(Action, TopicFilter)>,
    /// Some plugin decides about authenticated clients before they are connected.
    pub connect: bool,
    /// Some plugin decides about permitted subscriptions.
    pub subscribe: bool,
    /// Topics whose messages plugins decide about before they are routed.
    pub publish: Vec<TopicFilter>,
    /// Topics whose messages plugins decide about before they are sent to a subscriber.
    pub deliver: Vec<TopicFilter>,
    /// Topics whose wills plugins decide about.
    pub will: Vec<TopicFilter>,
    /// Topics `$CONTROL/FEATURE/VERSION` on which plugins answer requests.
    pub control: Vec<Box<str>>,
    /// Bits of [`EventKind`]: `1 << kind as u32`.
    pub events: u32,
}

impl HookInterests {
    /// Whether a plugin wants to be asked about `action` on the topic or filter that `is_about` tests.
    pub(crate) fn asks_about(
        &self,
        action: Action,
        is_about: impl Fn(&TopicFilter) -> bool,
    ) -> bool {
        let mut questions = self.authorize.iter();
        questions.any(|(about, filter)| *about == action && is_about(filter))
    }

    /// Whether plugins grant rights to clients at all.
    pub(crate) fn has_logins(&self) -> bool {
        self.authenticate || !self.methods.is_empty()
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

/// The CONNECT of one client, as plugins see it.
#[derive(Clone)]
pub struct Login {
    /// The client identifier; assigned by the broker if the client sent none.
    pub client_id: Arc<str>,
    /// Protocol version of the connection.
    pub version: ProtocolVersion,
    /// User name, if one was sent; an empty one is not the same as none.
    pub username: Option<Arc<str>>,
    /// The password, if one was sent; wiped after admission. Never printed.
    pub password: Option<Arc<Secret>>,
    /// The user name was taken from the certificate or the peer, as the listener requires.
    pub is_certified: bool,
    /// Address of the client.
    pub peer: Peer,
    /// Name of the listener that accepted it: one pointer, since each client has it.
    pub listener: Arc<String>,
    /// Clean Start, or Clean Session in 3.x.
    pub clean_start: bool,
    /// Requested Keep Alive in seconds.
    pub keep_alive_s: u16,
    /// Requested session expiry in seconds; `u32::MAX` never expires.
    pub session_expiry_interval_s: u32,
    /// Certificate, will topic and user properties, if there are any.
    pub extras: Option<Arc<LoginExtras>>,
}

/// Parts of a login that most clients do not have: one pointer in [`Login`] while there are none.
#[derive(Clone, Debug, Default)]
pub struct LoginExtras {
    /// The certificate that the client presented, verified.
    pub certificate: Option<Arc<ClientCertificate>>,
    /// Topic of the will, if there is one.
    pub will_topic: Option<Box<str>>,
    /// User properties of CONNECT in their order.
    pub user_properties: Vec<(String, String)>,
}

impl LoginExtras {
    /// `None` if there is no certificate, no will and no user property.
    pub fn shared(self) -> Option<Arc<Self>> {
        let has_none = self.certificate.is_none() && self.will_topic.is_none();
        let is_empty = has_none && self.user_properties.is_empty();
        (!is_empty).then(|| Arc::new(self))
    }
}

impl Login {
    /// The certificate that the client presented, verified.
    pub fn certificate(&self) -> Option<&Arc<ClientCertificate>> {
        self.extras.as_ref()?.certificate.as_ref()
    }

    /// Topic of the will, if there is one.
    pub fn will_topic(&self) -> Option<&str> {
        self.extras.as_ref()?.will_topic.as_deref()
    }

    /// User properties of CONNECT in their order.
    pub fn user_properties(&self) -> &[(String, String)] {
        (self.extras.as_ref()).map_or(&[], |extras| &extras.user_properties)
    }

    /// The login of a client that has not connected since the start, made from its kept session.
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
            is_certified: false,
            peer: Peer::Tcp {
                ip: Ipv4Addr::UNSPECIFIED.into(),
                port: 0,
            },
            listener: Arc::default(),
            clean_start: false,
            keep_alive_s: 0,
            session_expiry_interval_s,
            extras: None,
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

/// The plugins' answer to a CONNECT.
#[derive(Clone, Debug)]
pub enum LoginDecision {
    /// Admit the client with these permissions.
    Allow {
        /// Rights of the client, and limits of its session.
        grant: Box<Grant>,
        /// Replaces the user name in permissions, logs and events.
        username: Option<String>,
        /// User properties for CONNACK, or for the AUTH that ends a re-authentication.
        user_properties: Vec<(Box<str>, Box<str>)>,
    },
    /// No plugin decides: anonymous access if the listener grants it, else a refusal.
    Pass,
    /// Refuse with this code; `text` becomes the reason string if the client accepts one.
    Deny {
        /// 0x80 or above; other values are sent as "not authorized".
        reason: ReasonCode,
        /// For people; must not contain secrets.
        text: Option<String>,
    },
}

/// The start of an enhanced authentication.
#[derive(Clone, Debug)]
pub struct ExchangeStart {
    /// The client that authenticates.
    pub login: Arc<Login>,
    /// The method that the client named.
    pub method: Arc<str>,
    /// Its first authentication data.
    pub data: Option<Secret>,
    /// The client is connected: this is a re-authentication.
    pub again: bool,
}

/// An enhanced authentication that has begun.
pub trait AuthExchange: Send {
    /// Passes on the client's answer to the last [`ExchangeReply::Challenge`].
    fn proceed(&mut self, data: Option<Secret>, reply: Reply<ExchangeReply>);
}

/// An exchange that never answers, which refuses.
struct RejectingExchange;

impl AuthExchange for RejectingExchange {
    fn proceed(&mut self, _data: Option<Secret>, reply: Reply<ExchangeReply>) {
        drop(reply);
    }
}

/// A plugin's answer in an enhanced authentication. No answer is a refusal.
#[derive(Clone, Debug)]
pub enum ExchangeReply {
    /// Send this challenge to the client.
    Challenge {
        /// Authentication Data for the client.
        data: Option<Secret>,
        /// Reason string, if the client accepts one.
        text: Option<String>,
        /// The user name in the client's data: failed logins count for it, whatever user name CONNECT has.
        username: Option<String>,
    },
    /// The exchange is complete.
    End {
        /// The decision about the client.
        verdict: LoginDecision,
        /// The last Authentication Data, for CONNACK.
        data: Option<Secret>,
    },
}

/// The action of a client.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Action {
    /// Publish to a topic.
    Publish,
    /// Subscribe to a filter.
    Subscribe,
}

/// A question about one action.
#[derive(Clone, Debug)]
pub struct AuthorizeRequest {
    /// The client.
    pub login: Arc<Login>,
    /// The action.
    pub action: Action,
    /// A topic name, as a filter that matches only it; or a filter without its `$share` part.
    pub topic: TopicFilter,
    /// Requested QoS.
    pub qos: QoS,
    /// RETAIN flag of a publish.
    pub retain: bool,
    /// Group name of a shared subscription.
    pub share: Option<Arc<str>>,
}

/// The answer to an [`AuthorizeRequest`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum AuthorizeDecision {
    /// Allow the action once.
    Allow,
    /// Allow the action on everything that the filter covers, until `until`.
    AllowAll {
        /// The filter.
        covers: TopicFilter,
        /// When the permission ends, on the monotonic clock: changes of the system clock do not move it (ADR 0022).
        until: Instant,
    },
    /// Deny the action.
    Deny {
        /// A value below 0x80 is sent as "not authorized".
        reason: ReasonCode,
        /// For people; must not contain secrets. Sent if the client accepts reason strings.
        text: Option<String>,
    },
    /// Deny the action and disconnect the client.
    Disconnect {
        /// As for [`AuthorizeDecision::Deny`].
        reason: ReasonCode,
        /// As for [`AuthorizeDecision::Deny`].
        text: Option<String>,
    },
}

/// An `authorize` hook that decides about a request.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DecidingHook {
    /// Its name, as in metrics.
    pub title: Arc<str>,
    /// File and line of its function.
    pub place: Option<Arc<str>>,
    /// Its plugin says that a call has no effects, so it may be called without a request (ADR 0102).
    pub may_be_tried: bool,
}

/// The answers that `authorize` hooks would give, up to the first one that must not be tried.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Trial {
    /// Number of hooks that have no answer: the next one is asked.
    pub passed: usize,
    /// The answer of the hook behind them; `None`: all that may be tried have passed.
    pub decision: Option<AuthorizeDecision>,
}

/// Messages of one client, in their order, that plugins decide about.
#[derive(Clone, Debug)]
pub struct PublishBatch {
    /// The client.
    pub login: Arc<Login>,
    /// The messages; 64 at most.
    pub messages: Vec<Message>,
    /// Limits for a message that a plugin changes.
    pub limits: Arc<ServerLimits>,
}

/// The decision about a message. The answer to a [`PublishBatch`] has one for each message, in their order; messages
/// without one are refused as with [`PublishDecision::Fault`].
#[derive(Clone, Debug)]
pub enum PublishDecision {
    /// Publish it as it is.
    Publish,
    /// Publish this message instead, with the QoS of the original; a new topic is authorized again. With a number,
    /// [`Hooks::stored`] tells how long the store took, if the acknowledgement waits for it.
    Replace(Message, Option<u64>),
    /// Acknowledge it with this reason code, and do not route it.
    Drop {
        /// "Success" or "no matching subscribers".
        reason: ReasonCode,
    },
    /// Refuse it.
    Deny {
        /// As for [`AuthorizeDecision::Deny`].
        reason: ReasonCode,
        /// As for [`AuthorizeDecision::Deny`].
        text: Option<String>,
    },
    /// Refuse it and disconnect the client.
    Disconnect {
        /// As for [`AuthorizeDecision::Deny`].
        reason: ReasonCode,
        /// As for [`AuthorizeDecision::Deny`].
        text: Option<String>,
    },
    /// Refuse it because of a fault of the plugin.
    Fault,
}

/// How long the store took for a message of a client.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct StoredMessage {
    /// The number that the plugin has given.
    pub number: u64,
    /// When its records were made.
    pub begun: SystemTime,
    /// Time until the operating system had them.
    pub written: Duration,
    /// Time until the disk had them; `None` if the acknowledgement does not wait for that.
    pub synced: Option<Duration>,
}

/// A request on a control topic.
#[derive(Clone, Debug)]
pub struct ControlRequest {
    /// The client.
    pub login: Arc<Login>,
    /// Its topic is one of [`HookInterests::control`].
    pub message: Message,
}

impl AuthorizeDecision {
    /// A denial without a text.
    pub const fn deny(reason: ReasonCode) -> Self {
        Self::Deny { reason, text: None }
    }

    /// A disconnect without a text.
    pub const fn disconnect(reason: ReasonCode) -> Self {
        Self::Disconnect { reason, text: None }
    }
}

/// The reason code of a refusal: never a success code, whatever a plugin returns.
pub(crate) fn refusing(reason: ReasonCode) -> ReasonCode {
    if reason.is_error() {
        reason
    } else {
        ReasonCode::NOT_AUTHORIZED
    }
}

/// Sends one answer. If it is dropped unused, the question is refused as a temporary failure of the server.
pub struct Reply<T>(oneshot::Sender<T>);

impl<T> Reply<T> {
    /// A reply and the future that receives its answer.
    pub fn new() -> (Self, oneshot::Receiver<T>) {
        let (sender, receiver) = oneshot::channel();
        (Self(sender), receiver)
    }

    /// Sends the answer. Returns false if the client has disconnected.
    pub fn send(self, answer: T) -> bool {
        self.0.send(answer).is_ok()
    }

    /// Whether the client has disconnected: the answer is not needed any more, so a running hook may be cancelled.
    pub fn is_abandoned(&self) -> bool {
        self.0.is_closed()
    }
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
