//! A shard and what all shards share: the state of the layers below, put together, and messages between shards.

pub(crate) mod guard;
mod state;
mod store_events;

pub(crate) use state::{EventDetails, Letter, Rules, SCRATCH_BYTES, Shard, Signs, World};
