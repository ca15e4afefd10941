//! Admission, from an accepted socket to a session: listeners, CONNECT, authentication, takeover, rejection.
//!
//! Depends on connections, sessions and routing; only the start of the broker depends on it.

pub(crate) mod admitted;
pub(crate) mod arrival;
mod connect_hooks;
mod denial;
mod denial_cause;
mod exchange;
pub(crate) mod handshake;
pub(crate) mod identify;
pub(crate) mod listener;
pub(crate) mod opening;
pub(crate) mod proxy;
pub(crate) mod rejection;
mod session_share;
pub(crate) mod tls;
pub(crate) mod unix;
