//! A shard and what all shards share: the state of the layers below, put together, and messages between shards.

pub(crate) mod guard;
mod handshakes;
mod held;
mod memory;
mod outcome_events;
mod outgoing;
mod state;
mod store_events;
mod world;

pub(crate) use held::{Held, WaitingClient};
pub(crate) use state::{EventDetails, Rules, SCRATCH_BYTES, Shard};
pub(crate) use world::{EngineState, Job, Kept, ShardMessage};
