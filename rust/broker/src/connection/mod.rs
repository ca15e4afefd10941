//! A connected client: what moves its bytes, and what its packets ask for.

pub(crate) mod disconnect_cause;
pub(crate) mod full_queue;
pub(crate) mod last_packets;
pub(crate) mod linger;
pub(crate) mod reauthentication;
pub(crate) mod requests;
pub(crate) mod socket;
mod task;
pub(crate) mod throttle;
pub(crate) mod tls;
pub(crate) mod transport;
pub(crate) mod websocket;

pub(crate) use task::spawn;
