//! What the broker is told of Kafka, and what it asks of whoever speaks to it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_store::stream::Key;

use super::{Outcomes, Record};

/// Streams whose log is Kafka, and the way there.
#[derive(Clone)]
pub struct KafkaConfig {
    /// What becomes records.
    pub streams: Vec<KafkaStream>,
    /// Bytes on their way to Kafka above which publishers wait, and QoS 0 is dropped.
    pub queue_bytes: usize,
    /// Makes the engine when the broker starts.
    pub connect: Arc<dyn Connect>,
}

impl fmt::Debug for KafkaConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaConfig")
            .field("streams", &self.streams)
            .field("queue_bytes", &self.queue_bytes)
            .finish_non_exhaustive()
    }
}

/// One stream: which messages become records of which topic.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KafkaStream {
    /// How errors and logs call it.
    pub name: String,
    /// The topic of Kafka.
    pub topic: String,
    /// Messages to topics that one of these matches are its records.
    pub filters: Vec<String>,
    /// Partitions of the topic that are used, the first ones: few make few requests.
    pub partitions: u16,
    /// What decides about the partition; the key of a record is the MQTT topic whatever this is.
    pub key: Key,
}

/// What an engine found out about the topic of a stream.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Topic {
    /// Copies that Kafka keeps of it.
    pub copies: u16,
    /// Copies that have a record when it is acknowledged, at least; `None`: Kafka does not say.
    pub in_sync: Option<u16>,
    /// The largest record that it takes, in bytes.
    pub record_bytes: usize,
}

/// Makes an engine.
pub trait Connect: Send + Sync {
    /// Reaches Kafka and finds the topics of `streams`, in their order; blocks.
    ///
    /// # Errors
    ///
    /// Why the broker must not start.
    fn connect(
        &self,
        streams: &[KafkaStream],
        outcomes: Outcomes,
    ) -> Result<(Box<dyn Engine>, Vec<Topic>), KafkaError>;
}

/// Whoever sends records to Kafka, from threads of its own.
///
/// Of each record that it was handed it says once what became of it, to the [`Outcomes`] that it
/// was made with: kept by as many copies as [`Topic::in_sync`] says, or given up.
pub trait Engine: Send + Sync {
    /// Takes records over, in their order. It never waits.
    fn send(&self, records: &mut Vec<Record>);

    /// Sends what it has, for as long as this at most, and ends.
    fn close(&self, limit: Duration);
}

/// Why there is no way to Kafka.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KafkaError {
    /// A setting is none, or nobody answers.
    #[error("{servers}: {why}")]
    Unreachable {
        /// Where Kafka was looked for.
        servers: String,
        /// What its client says.
        why: String,
    },
    /// The topic of a stream cannot be used as it was asked for.
    #[error("stream {stream}: topic {topic:?}: {why}")]
    Topic {
        /// The stream's name.
        stream: String,
        /// The topic of Kafka.
        topic: String,
        /// What is wrong.
        why: String,
    },
}
