//! Streams whose log is Kafka: a publish becomes a record there before it is acknowledged.
//!
//! The broker queues records, and acknowledgements wait for them (`durability/external.rs` there); a [`RecordSender`] sends records
//! from threads of its own, and says of each what became of it.

mod config;
mod producer;
mod record;

#[cfg(feature = "kafka")]
mod client;

pub use config::{ConnectKafka, KafkaConfig, KafkaError, KafkaStream, KafkaTopic, RecordSender};
pub use mqttcore_broker::{RecordOutcomes, RecordTicket as Ticket};
pub use record::KafkaRecord;

#[cfg(feature = "kafka")]
pub use client::{Compression, KafkaClient};

pub(crate) use producer::KafkaProducer;
