//! Basic parts of a shard: counters, logger, mailboxes, timer wheel, token buckets, bounded tables, and the first
//! failure.
//!
//! Depends on the configuration only: no clients, messages or shards.

pub(crate) mod address_space;
pub(crate) mod bounded_table;
pub(crate) mod due_queue;
pub(crate) mod failure;
pub(crate) mod freed_memory;
pub(crate) mod last_turns;
pub(crate) mod load_averages;
pub(crate) mod log;
pub(crate) mod mailbox;
pub(crate) mod memory;
pub(crate) mod memory_limit;
pub(crate) mod metrics;
pub(crate) mod reserved_bytes;
pub(crate) mod spare_buffers;
pub(crate) mod tallies;
pub(crate) mod tls_servers;
pub(crate) mod token_bucket;
pub(crate) mod topic_counters;
pub(crate) mod wheel;
