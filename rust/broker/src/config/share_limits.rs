//! Limits of one user: its part of the tables that all clients share.

/// What one user may have of the tables that all clients share. Clients without user name count by their address, if that
/// has limits. Never more than three quarters of a table; 0 is no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShareLimits {
    /// Sessions that do not end with their connection.
    pub sessions: usize,
    /// Topics with a retained message.
    pub retained_messages: usize,
    /// Bytes of retained messages.
    pub retained_bytes: usize,
}

impl Default for ShareLimits {
    fn default() -> Self {
        Self {
            sessions: 10_000,
            retained_messages: 10_000,
            retained_bytes: 256 << 20,
        }
    }
}
