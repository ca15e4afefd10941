//! Events that plugins are told about.

use std::sync::Arc;
use std::time::SystemTime;

use mqttcore_codec::ReasonCode;

use crate::config::address::Peer;

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
    /// A message was dropped by a limit or rule.
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

impl EventKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Connected,
        Self::Disconnected,
        Self::AuthFailed,
        Self::Denied,
        Self::Subscribed,
        Self::Unsubscribed,
        Self::Dropped,
        Self::SessionCreated,
        Self::SessionResumed,
        Self::SessionTakenOver,
        Self::SessionExpired,
    ];

    /// The kind as a word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::AuthFailed => "auth_failed",
            Self::Denied => "denied",
            Self::Subscribed => "subscribed",
            Self::Unsubscribed => "unsubscribed",
            Self::Dropped => "dropped",
            Self::SessionCreated => "session_created",
            Self::SessionResumed => "session_resumed",
            Self::SessionTakenOver => "session_taken_over",
            Self::SessionExpired => "session_expired",
        }
    }
}

/// An event for plugins.
#[derive(Clone, Debug)]
pub struct PluginEvent {
    /// The kind of event.
    pub kind: EventKind,
    /// The client identifier.
    pub client_id: Arc<str>,
    /// The user name.
    pub username: Option<Arc<str>>,
    /// The address of the client, if a connection is involved.
    pub peer: Option<Peer>,
    /// Topic or filter, if one is involved.
    pub topic: Option<Arc<str>>,
    /// Reason code, if there is one.
    pub reason: Option<ReasonCode>,
    /// Time of the event.
    pub at: SystemTime,
}
