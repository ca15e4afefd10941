//! Routing: matches messages, writes their records, and delivers them; shared groups and retained messages.
//!
//! Depends on clients and the store, not on sockets and packets.

pub(crate) mod batch;
pub(crate) mod delivery;
pub(crate) mod drops;
pub(crate) mod external;
pub(crate) mod fill;
pub(crate) mod group;
pub(crate) mod journal;
pub(crate) mod matching;
pub(crate) mod memory;
mod memory_room;
pub(crate) mod message_hooks;
pub(crate) mod message_records;
pub(crate) mod publication;
pub(crate) mod queue_policy;
mod records;
pub(crate) mod retain;
mod retain_share;
pub(crate) mod router;
pub(crate) mod rows;
pub(crate) mod session_records;
pub(crate) mod sweep;
