//! The store behind the broker: the log of all shards, what waits for it, its clock, and its share of the disk.

pub(crate) mod clock;
pub(crate) mod events;
pub(crate) mod journal;
pub(crate) mod line;
pub(crate) mod loading;
pub(crate) mod page;
pub(crate) mod pagings;
pub(crate) mod share;
pub(crate) mod store;
