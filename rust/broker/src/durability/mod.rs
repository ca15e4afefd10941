//! Durability: the store of all shards, the audit log, acknowledgement queues, kept time, the limit on queues on
//! the disk; rows, and the external log.
//!
//! Depends on clients and their records, not on shards and routing.

pub(crate) mod ack_queue;
pub(crate) mod audit;
pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod external;
pub(crate) mod journal;
mod kept_bans;
pub(crate) mod loading;
pub(crate) mod outcomes;
pub(crate) mod page;
pub(crate) mod pagings;
mod room_wakers;
pub(crate) mod row_log;
pub(crate) mod share;
pub(crate) mod store;
