//! The store behind the broker: the log of all shards, what waits for it, its clock, and its share of the disk; the
//! rows beside it, and the external log that keeps some of them.

pub(crate) mod ack_queue;
pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod external;
pub(crate) mod journal;
pub(crate) mod loading;
pub(crate) mod outcomes;
pub(crate) mod page;
pub(crate) mod pagings;
pub(crate) mod row_log;
pub(crate) mod share;
pub(crate) mod store;
