//! Streams whose log is Kafka: a publish becomes a record there before it is acknowledged.
//!
//! The broker queues records and holds back acknowledgements until their records are stored
//! (`durability/external.rs` of the broker). A [`RecordSender`] sends the records from its own threads and reports
//! the outcome of each.

mod config;
mod producer;
mod record;

#[cfg(feature = "kafka")]
mod client;

pub use config::{ConnectKafka, KafkaConfig, KafkaError, KafkaStream, KafkaTopic, RecordSender};
pub use mqttcore_broker::{RecordOutcomes, RecordTicket as Ticket};
pub use record::KafkaRecord;

#[cfg(feature = "kafka")]
pub use client::{Compression, KafkaClient, KafkaSasl, KafkaTls, Security};

pub(crate) use producer::KafkaProducer;
