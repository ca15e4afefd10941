//! Clients: sessions, the outboxes of their connections, and the registry that finds them.
//!
//! State and its own functions. No dependency on shards: other modules decide what happens to a client.

pub(crate) mod ack_order;
pub(crate) mod bans;
pub(crate) mod client;
pub(crate) mod client_id_pattern;
pub(crate) mod connections;
pub(crate) mod delivery_observer;
pub(crate) mod due_wills;
pub(crate) mod durable;
pub(crate) mod failed_logins;
pub(crate) mod flags;
pub(crate) mod flapping;
pub(crate) mod full_sessions;
pub(crate) mod handle;
pub(crate) mod invalidations;
pub(crate) mod known_logins;
pub(crate) mod link;
pub(crate) mod measures;
pub(crate) mod presence;
pub(crate) mod registry;
pub(crate) mod retained;
pub(crate) mod shares;
pub(crate) mod sources;
pub(crate) mod target;
pub(crate) mod traces;
