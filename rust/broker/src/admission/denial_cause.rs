//! Causes of denied CONNECT packets: their counters and categories of log lines.

use crate::runtime::log::LogCategory;
use crate::runtime::metrics::{Counter, RefusalCounters};

/// Why CONNECT is denied: each cause has a counter and a category of log lines.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum DenialCause {
    /// A plugin denies it, or nobody admits the client.
    Login,
    /// Too many logins have failed.
    FailedLogins,
    Banned,
    /// The share of its user or address.
    SessionShare,
    /// The limit of all sessions.
    Sessions,
    Memory,
    Disk,
    /// Another client uses the client identifier.
    Takeover,
    Other,
}

impl DenialCause {
    pub(super) fn category(self) -> LogCategory {
        match self {
            Self::Login => LogCategory::Login,
            Self::FailedLogins => LogCategory::FailedLogins,
            Self::Banned => LogCategory::Banned,
            Self::Other => LogCategory::Refused,
            Self::SessionShare => LogCategory::SessionShare,
            Self::Sessions => LogCategory::Sessions,
            Self::Memory => LogCategory::MemorySession,
            Self::Disk => LogCategory::Disk,
            Self::Takeover => LogCategory::Takeover,
        }
    }

    pub(super) fn counter(self, refusals: &RefusalCounters) -> &Counter {
        match self {
            Self::Login => &refusals.connects_refused_login,
            Self::FailedLogins => &refusals.connects_refused_failed_logins,
            Self::Banned => &refusals.connects_refused_banned,
            Self::SessionShare => &refusals.connects_refused_user_sessions,
            Self::Sessions => &refusals.connects_refused_sessions,
            Self::Memory => &refusals.refused_memory_sessions,
            Self::Disk => &refusals.connects_refused_disk,
            Self::Takeover => &refusals.connects_refused_takeover,
            Self::Other => &refusals.connects_refused_other,
        }
    }
}
