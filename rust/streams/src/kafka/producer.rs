//! The Kafka producer that all shards share: record sender, topics, bytes in flight.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use mqttcore_broker::{
    Figure, RecordOutcomes, RowRecord, RowStream, RowSubscription, ServiceError,
};
use mqttcore_session::Message;
use mqttcore_store::stream::PartitionKey;
use mqttcore_topics::{SubscriptionFilter, TopicName};

use crate::filters::parse;

use super::record::{KafkaRecord, weight};
use super::{KafkaConfig, KafkaTopic, RecordSender};

/// The Kafka producer of a broker.
pub(crate) struct KafkaProducer {
    engine: Box<dyn RecordSender>,
    streams: Vec<ProducedStream>,
    outcomes: RecordOutcomes,
    /// Bytes of records in flight.
    waiting_bytes: AtomicUsize,
    kept: AtomicU64,
    lost: AtomicU64,
    queue_bytes: usize,
    record_bytes: usize,
}

/// A stream and its topic.
struct ProducedStream {
    name: String,
    filters: Vec<SubscriptionFilter>,
    partitions: u16,
    key: PartitionKey,
    topic: KafkaTopic,
}

impl ProducedStream {
    fn partition(&self, topic: &str, client_id: &str) -> u16 {
        // The seed is 0: other producers of the topic know neither the name nor the seed of a stream.
        self.key.partition(0, self.partitions, topic, client_id)
    }

    /// Largest record of the topic, in bytes.
    fn record_bytes(&self) -> usize {
        self.topic.record_bytes
    }

    fn guarantee(&self) -> String {
        let filters: Vec<_> = self
            .filters
            .iter()
            .map(SubscriptionFilter::as_str)
            .collect();
        let KafkaTopic { copies, .. } = self.topic;
        let copies = match self.topic.in_sync {
            Some(_) if copies == 1 => "1 copy".to_owned(),
            Some(count) => format!("{count} of {copies} copies"),
            None => "unknown number of copies".to_owned(),
        };
        format!("kafka on {} ({copies})", filters.join(", "))
    }

    /// Warns if one node alone may hold an acknowledged record.
    fn weakness(&self) -> Option<String> {
        let name = &self.name;
        match self.topic.in_sync {
            Some(count) if count > 1 => None,
            Some(_) => Some(format!(
                "stream {name}: Kafka acknowledges messages that only one node has"
            )),
            None => Some(format!(
                "stream {name}: Kafka does not report how many copies it waits for"
            )),
        }
    }
}

impl KafkaProducer {
    /// Connects to Kafka.
    ///
    /// # Errors
    ///
    /// Kafka cannot be reached, or a filter is not valid.
    pub(crate) fn open(
        config: &KafkaConfig,
        outcomes: &RecordOutcomes,
    ) -> Result<Self, ServiceError> {
        let filters = config.streams.iter();
        let filters = filters.map(|stream| parse(&stream.name, &stream.filters));
        let filters: Vec<_> = filters.collect::<Result<_, _>>()?;
        let connected = config.connect.connect(&config.streams, outcomes.clone());
        let (engine, topics) = connected.map_err(|error| format!("kafka: {error}"))?;
        let told = config.streams.iter().zip(topics).zip(filters);
        let streams: Vec<_> = told
            .map(|((stream, topic), filters)| ProducedStream {
                name: stream.name.clone(),
                filters,
                partitions: stream.partitions,
                key: stream.key,
                topic,
            })
            .collect();
        let limits = streams.iter().map(ProducedStream::record_bytes);
        Ok(Self {
            engine,
            record_bytes: limits.min().unwrap_or(usize::MAX),
            streams,
            outcomes: outcomes.clone(),
            waiting_bytes: AtomicUsize::new(0),
            kept: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            queue_bytes: config.queue_bytes,
        })
    }

    /// The subscriptions whose messages become records.
    pub(crate) fn subscriptions(&self) -> Vec<RowSubscription> {
        let streams = (0..).zip(&self.streams);
        let subscribe = |(number, stream): (u32, &ProducedStream)| RowSubscription {
            stream: RowStream::External(number),
            filters: stream.filters.clone(),
        };
        streams.map(subscribe).collect()
    }

    /// A warning for operators at startup.
    pub(crate) fn warning(&self) -> Option<String> {
        let weaknesses: Vec<_> = self
            .streams
            .iter()
            .filter_map(ProducedStream::weakness)
            .collect();
        (!weaknesses.is_empty()).then(|| weaknesses.join("; "))
    }

    /// Describes, for each stream, what an acknowledgement guarantees.
    pub(crate) fn guarantees(&self) -> Vec<String> {
        self.streams.iter().map(ProducedStream::guarantee).collect()
    }

    /// Sends the queued records and stops, after `limit` at the latest.
    pub(crate) fn close(&self, limit: Duration) {
        self.engine.close(limit);
    }

    /// Bytes of records in flight.
    pub(crate) fn waiting_bytes(&self) -> usize {
        // ORDERING: an approximate value is enough.
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    /// Figures of Kafka for `stats()`: zeros without a producer.
    pub(crate) fn figures(producer: Option<&Self>) -> [Figure; 3] {
        // ORDERING: as in `waiting_bytes`.
        let count = |counter: fn(&Self) -> &AtomicU64| {
            producer.map_or(0, |producer| counter(producer).load(Ordering::Relaxed))
        };
        let waiting_bytes = producer.map_or(0, Self::waiting_bytes) as u64;
        [
            Figure::new(
                "kafka_waiting_bytes",
                "Bytes that wait for Kafka.",
                waiting_bytes,
            ),
            Figure::new(
                "kafka_records",
                "Records that Kafka has accepted.",
                count(|producer| &producer.kept),
            ),
            Figure::new(
                "kafka_lost",
                "Records that were given up: Kafka did not accept them, as far as is known.",
                count(|producer| &producer.lost),
            ),
        ]
    }

    pub(crate) fn send(&self, records: &mut Vec<RowRecord>) {
        let mut records: Vec<_> = records.drain(..).map(KafkaRecord::from).collect();
        self.engine.send(&mut records);
    }

    /// The partition of a record of a stream.
    pub(crate) fn partition(&self, number: u32, topic: &str, client_id: &str) -> Option<u16> {
        let stream = self.streams.get(number as usize)?;
        Some(stream.partition(topic, client_id))
    }

    /// The numbers of the streams whose filters match `topic`.
    pub(crate) fn numbers_of(&self, topic: TopicName<'_>) -> Vec<u32> {
        self.matching(topic).map(|(number, _)| number).collect()
    }

    fn matching<'p>(
        &'p self,
        topic: TopicName<'p>,
    ) -> impl Iterator<Item = (u32, &'p ProducedStream)> {
        let matches = move |stream: &ProducedStream| {
            let mut filters = stream.filters.iter();
            filters.any(|filter| filter.filter().matches(topic))
        };
        let streams = (0..).zip(&self.streams);
        streams.filter(move |(_, stream)| matches(stream))
    }

    /// Why a QoS 1 or 2 message to `topic` is refused: it is larger than Kafka's limit, or the queue is overfull.
    pub(crate) fn refusal(&self, topic: TopicName<'_>, message: &Message) -> Option<&'static str> {
        let (bytes, is_overfull) = (weight(message), self.is_overfull());
        if bytes <= self.record_bytes && !is_overfull {
            return None;
        }
        self.matching(topic).find_map(|(_, stream)| {
            if bytes > stream.record_bytes() {
                Some("it is larger than Kafka's limit")
            } else {
                is_overfull.then_some("too many bytes wait for Kafka")
            }
        })
    }

    /// Whether the broker may read from publishers that wait for Kafka.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_bytes() < self.queue_bytes
    }

    /// Whether new records are refused. Above `queue_bytes`, publishers are not read, but each may still publish
    /// messages that were read before, so the limit here is twice as high.
    fn is_overfull(&self) -> bool {
        self.waiting_bytes() >= self.queue_bytes.saturating_mul(2)
    }

    /// Adds a record of `message` to the bytes in flight; returns its bytes.
    pub(crate) fn reserve(&self, message: &Message) -> usize {
        let bytes = weight(message);
        // ORDERING: as in `waiting_bytes`.
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
        bytes
    }

    /// Counts the outcome of a record of `bytes`; wakes every shard if there is room again.
    pub(crate) fn settled(&self, bytes: usize, is_kept: bool) {
        let outcome = if is_kept { &self.kept } else { &self.lost };
        // ORDERING: as in `waiting_bytes`.
        outcome.fetch_add(1, Ordering::Relaxed);
        let before = self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.queue_bytes && before - bytes < self.queue_bytes {
            self.outcomes.has_room();
        }
    }
}
