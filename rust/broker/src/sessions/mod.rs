//! Sessions: lifecycle, wills, spilled queues, rights, loading after a restart.
//!
//! Depends on routing, the store and the shard, not on connections.

pub(crate) mod backlog;
pub(crate) mod lifecycle;
pub(crate) mod listing;
pub(crate) mod loading;
pub(crate) mod paging;
pub(crate) mod pressure;
pub(crate) mod recovery;
pub(crate) mod rights;
pub(crate) mod wills;
