//! A shard and the state that all shards share, composed of the state of the layers below, and messages between
//! shards.
//!
//! Depends on the state of the folders below, not on what is done with it: no routing, sessions or connections.

mod deliveries;
mod delivery_times;
mod engine_state;
pub(crate) mod guard;
mod handshakes;
mod held;
mod memory;
mod outcome_events;
mod outgoing;
mod outgoing_messages;
mod recent_events;
mod session_owners;
mod state;
mod store_events;
mod tracing;

#[cfg(test)]
pub(crate) use engine_state::RETAINED_WALKS;
pub(crate) use engine_state::{EngineParts, EngineState, Job, ShardMessage};
pub(crate) use held::{DeferredWork, WaitingClient};
pub(crate) use memory::SMALLER_READ_BYTES;
pub(crate) use recent_events::{EventPosition, NewEvent, RecentEvent, RecentKind};
pub(crate) use state::{Due, EventDetails, Rules, Shard};
