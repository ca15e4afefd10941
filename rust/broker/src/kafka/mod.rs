//! Streams whose log is Kafka: a publish becomes a record there before it is acknowledged.
//!
//! The directory finds these streams as it finds clients (decision 15). A shard hands the records
//! of a turn over at its end; an [`Engine`] sends them from threads of its own, and says of each
//! what became of it. What that decides:
//!
//! * **QoS 0** waits for nobody: while too much waits for Kafka it is dropped, and counted.
//! * **QoS 1** is delivered at once (decision 19), and acknowledged when Kafka has it and the store
//!   has what it has to keep. A record that Kafka did not take ends the publisher's connection
//!   without an acknowledgement, so that it sends the message again.
//! * **QoS 2** goes to Kafka first. When that has it, the message is accepted: written to the store,
//!   delivered, acknowledged. So a broker that dies between the two has promised nothing.
//!
//! While more waits for Kafka than should, publishers that wait for it are not read.

mod config;
mod line;
mod pipe;
mod record;

#[cfg(feature = "kafka")]
mod client;

pub use config::{Connect, Engine, KafkaConfig, KafkaError, KafkaStream, Topic};
pub use pipe::Outcomes;
pub use record::{Record, Ticket};

#[cfg(feature = "kafka")]
pub use client::{Compression, KafkaClient};

pub(crate) use line::{
    LOST, Line, advance, let_leave, log_first, own_lost, poll_room, produce, refusal, when_kept,
};
pub(crate) use pipe::Pipe;
