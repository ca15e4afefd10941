//! Functions that records of messages and of sessions share.

use std::num::NonZeroU32;
use std::time::Instant;

use smallvec::SmallVec;

use crate::clients::client::Client;
use crate::durability::journal::ShardLogWriter;
use crate::shard::Shard;

/// The journal, and the number that the store keeps the session of `client` under.
pub(super) fn kept<'s>(shard: &'s Shard, client: &Client) -> Option<(&'s ShardLogWriter, u64)> {
    shard.journal.as_ref().zip(client.number(&shard.engine))
}

pub(super) fn plain(ids: &[NonZeroU32]) -> SmallVec<[u32; 2]> {
    ids.iter().map(|id| id.get()).collect()
}

/// Converts a moment of the monotonic clock to kept time.
pub(super) fn kept_ms(shard: &Shard, at: Instant) -> u64 {
    let log = shard.engine.log.as_ref();
    log.map_or(0, |log| log.clock.unix_ms(at))
}
