//! The configuration of Kafka, and the traits that a Kafka client implements.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_store::stream::PartitionKey;

use super::{KafkaRecord, RecordOutcomes};

/// Streams whose log is Kafka, and the connection to it.
#[derive(Clone)]
pub struct KafkaConfig {
    /// The streams.
    pub streams: Vec<KafkaStream>,
    /// Bytes in flight to Kafka above which publishers wait and QoS 0 messages are dropped.
    pub queue_bytes: usize,
    /// Creates the record sender when the broker starts.
    pub connect: Arc<dyn ConnectKafka>,
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("streams", &self.streams)
            .field("queue_bytes", &self.queue_bytes)
            .finish_non_exhaustive()
    }
}

/// One stream: its messages, and the Kafka topic of its records.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KafkaStream {
    /// Name in errors and log lines.
    pub name: String,
    /// The topic of Kafka.
    pub topic: String,
    /// Topic filters: a message that one of them matches becomes a record.
    pub filters: Vec<String>,
    /// How many partitions of the topic are used, from 0 on. Fewer partitions need fewer requests.
    pub partitions: u16,
    /// The field that selects the partition. The key of a record is always the MQTT topic.
    pub key: PartitionKey,
}

/// Properties of the topic of a stream, read from Kafka.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct KafkaTopic {
    /// Replicas of the topic.
    pub copies: u16,
    /// Least number of replicas that have a record when it is acknowledged; `None` if Kafka does not report it.
    pub in_sync: Option<u16>,
    /// Largest record of the topic, in bytes.
    pub record_bytes: usize,
}

/// Creates a [`RecordSender`].
pub trait ConnectKafka: Send + Sync {
    /// Connects to Kafka and returns the topics of `streams`, in the same order. Blocks.
    ///
    /// # Errors
    ///
    /// The broker must not start.
    fn connect(
        &self,
        streams: &[KafkaStream],
        outcomes: RecordOutcomes,
    ) -> Result<(Box<dyn RecordSender>, Vec<KafkaTopic>), KafkaError>;
}

/// Sends records to Kafka from its own threads.
///
/// Reports the outcome of each record exactly once to the [`RecordOutcomes`] that it was created with: stored by
/// [`KafkaTopic::in_sync`] replicas, or lost.
pub trait RecordSender: Send + Sync {
    /// Queues records in order; never blocks.
    fn send(&self, records: &mut Vec<KafkaRecord>);

    /// Sends the queued records and stops, after `limit` at the latest.
    fn close(&self, limit: Duration);
}

/// Kafka cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaError {
    /// A setting is not valid, or no node answers.
    #[error("{servers}: {why}")]
    Unreachable {
        /// The configured addresses.
        servers: String,
        /// The error of the client.
        why: String,
    },
    /// The topic of a stream cannot be used as configured.
    #[error("stream {stream}: topic {topic:?}: {why}")]
    Topic {
        /// The stream's name.
        stream: String,
        /// The topic of Kafka.
        topic: String,
        /// The reason.
        why: String,
    },
}
