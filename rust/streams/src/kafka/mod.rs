//! Streams whose log is Kafka: a publish becomes a record there before it is acknowledged.
//!
//! The engine has records wait, and promises wait for them (`durability/external.rs` there); an [`Engine`] sends records
//! from threads of its own, and says of each what became of it.

mod config;
mod pipe;
mod record;

#[cfg(feature = "kafka")]
mod client;

pub use config::{Connect, Engine, KafkaConfig, KafkaError, KafkaStream, Topic};
pub use mqttcore_broker::{Outcomes, RecordTicket as Ticket};
pub use record::Record;

#[cfg(feature = "kafka")]
pub use client::{Compression, KafkaClient};

pub(crate) use pipe::Pipe;
