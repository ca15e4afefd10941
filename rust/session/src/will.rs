//! The message that a client leaves for the case that it vanishes.

use std::time::{Duration, Instant};

use crate::message::Message;

/// A checked will, as CONNECT brought it.
#[derive(Clone, Debug)]
pub struct WillMessage {
    /// What will be published; its expiry only begins then.
    pub message: Message,
    /// The Will Delay Interval in seconds.
    pub delay_s: u32,
}

/// When what outlives the connection falls due.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadlines {
    pub(crate) will: Option<Instant>,
    pub(crate) expiry: Option<Instant>,
}

impl Deadlines {
    pub(crate) fn next(self) -> Option<Instant> {
        match (self.will, self.expiry) {
            (Some(will), Some(expiry)) => Some(will.min(expiry)),
            (will, expiry) => will.or(expiry),
        }
    }
}

/// How long a session outlives its connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Expiry {
    /// It ended with its connection; the caller forgets it.
    Now,
    /// It ends at this time, unless the client comes back.
    At(Instant),
    /// It waits for the client for ever.
    Never,
}

/// Session Expiry Interval that stands for ever.
pub(crate) const FOR_EVER_S: u32 = u32::MAX;

impl Expiry {
    /// `interval_s` seconds after `now`; a date that no clock reaches is never.
    pub(crate) fn after(now: Instant, interval_s: u32) -> Self {
        match interval_s {
            0 => Self::Now,
            FOR_EVER_S => Self::Never,
            seconds => now
                .checked_add(Duration::from_secs(u64::from(seconds)))
                .map_or(Self::Never, Self::At),
        }
    }

    pub(crate) fn instant(self) -> Option<Instant> {
        match self {
            Self::At(instant) => Some(instant),
            Self::Now | Self::Never => None,
        }
    }
}

/// Why a connection ended.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum Cause {
    /// The client said goodbye; its will is forgotten [MQTT-3.14.4-3].
    ClientDisconnect,
    /// The client said goodbye and wants its will published, or named an error.
    ClientDisconnectWithWill,
    /// The socket failed or was closed.
    ConnectionLost,
    /// The client was silent for too long [MQTT-3.1.2-22].
    KeepAliveTimeout,
    /// The client broke the protocol or a limit.
    Violation,
    /// The client came back on another connection [MQTT-3.1.4-3].
    TakenOver,
    /// Somebody or some rule of the server's ended it.
    Administrative,
    /// The server stops.
    ServerStop,
}

/// What is left to do after a connection ended.
#[derive(Debug)]
pub struct Departure {
    /// The will, if it is due at once. A delayed one stays with the session and comes as
    /// [`Event::WillDue`](crate::Event::WillDue).
    pub will: Option<Message>,
    /// How long the session is kept.
    pub expiry: Expiry,
}
