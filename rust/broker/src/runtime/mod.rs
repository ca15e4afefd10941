//! What a shard runs on: counters, logger, mailboxes, timer wheel, and the first failure.
//!
//! Knows the configuration and nothing above it: no client, no message, no shard.

pub(crate) mod failure;
pub(crate) mod log;
pub(crate) mod mailbox;
pub(crate) mod memory;
pub(crate) mod memory_limit;
pub(crate) mod metrics;
pub(crate) mod wheel;
