//! Limits of one user: its part of the tables that all clients share.

/// Limits of one user in the tables that all clients share. Clients without user name count by address, if limits apply
/// to the address. At most three quarters of a table; 0 means no limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShareLimits {
    /// Maximum number of sessions that outlive their connection.
    pub sessions: usize,
    /// Maximum number of topics with a retained message.
    pub retained_messages: usize,
    /// Maximum bytes of retained messages.
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
