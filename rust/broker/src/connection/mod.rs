//! A connection: its transport, its packets and the requests in them.
//!
//! Depends on sessions, routing and the shard, not on listeners and the event loop.

mod authorize;
mod control;
pub(crate) mod disconnect_cause;
pub(crate) mod full_queue;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod held_publishes;
mod input;
mod large_frame;
pub(crate) mod last_packets;
pub(crate) mod linger;
pub(crate) mod login_limits;
pub(crate) mod output;
pub(crate) mod proxy_header;
pub(crate) mod publish;
pub(crate) mod rate_limit;
pub(crate) mod reauthentication;
pub(crate) mod renewal;
pub(crate) mod resumption;
pub(crate) mod subscribe;
mod subscribe_hooks;
mod task;

pub(crate) use task::spawn;

/// While the outbox of a client has more bytes, nothing is read from it.
const READ_BELOW_BYTES: usize = 256 * 1024;
