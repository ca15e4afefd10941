//! Streams of a broker: rows in its own store, or records of Kafka.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mqttcore_broker::{
    Figure, Figures, RecordOutcomes, RowLog, RowRecord, RowStream, RowSubscription, ServiceError,
    Stats,
};
use mqttcore_session::Message;
use mqttcore_store::files::Files;
use mqttcore_store::stream::{
    Bounds, Definition, KeptTime, StreamFigures, StreamLimits, StreamOptions, Streams, TierReport,
};
use mqttcore_store::{DurableStore, Recovery, StoreError, StoreOptions};
use mqttcore_topics::TopicName;

use crate::filters::parse;
use crate::kafka::{KafkaConfig, KafkaProducer};

/// Streams to create: in the broker's store and in Kafka.
#[derive(Clone, Debug, Default)]
pub struct StreamsConfig {
    /// Streams in the broker's store; they need a data folder.
    pub streams: Vec<Definition>,
    /// Streams in Kafka.
    pub kafka: Option<KafkaConfig>,
}

/// The streams of one broker. They are opened when the broker starts.
pub struct RowStreams {
    config: StreamsConfig,
    rows: OnceLock<Rows>,
    producer: OnceLock<KafkaProducer>,
}

/// A broker's store and the streams in it.
#[derive(Clone, Debug)]
pub struct Rows {
    /// The streams.
    pub streams: Arc<Streams>,
    /// The store.
    pub store: Arc<DurableStore>,
}

impl RowStreams {
    /// Streams of `config`, not opened yet.
    pub fn new(config: StreamsConfig) -> Self {
        Self {
            config,
            rows: OnceLock::new(),
            producer: OnceLock::new(),
        }
    }

    /// The streams in the broker's store; `None` before the store is open, or without such streams.
    pub fn rows(&self) -> Option<&Rows> {
        self.rows.get()
    }

    fn stored(rows: &Rows, stream: &Definition) -> Result<RowSubscription, ServiceError> {
        // INVARIANT: the store was opened with these streams.
        let number = rows
            .streams
            .find(&stream.name)
            .expect("a stream of the store");
        Ok(RowSubscription {
            stream: RowStream::Stored(number),
            filters: parse(&stream.name, &stream.filters)?,
        })
    }
}

impl RowLog for RowStreams {
    fn open_store(
        &self,
        files: &Arc<dyn Files>,
        options: &StoreOptions,
    ) -> Result<(Arc<DurableStore>, Recovery), StoreError> {
        let streams = StreamOptions {
            definitions: self.config.streams.clone(),
            limits: StreamLimits::default(),
        };
        let (store, recovery) = DurableStore::open_with(files, options, &streams)?;
        let store = Arc::new(store);
        if let Some(streams) = store.streams() {
            let store = Arc::clone(&store);
            // Each value serves one broker, so this is set once.
            let _ = self.rows.set(Rows { streams, store });
        }
        Ok((store, recovery))
    }

    fn count_by(&self, kept_us: Arc<dyn Fn() -> u64 + Send + Sync>) {
        if let Some(rows) = self.rows() {
            rows.streams.count_by(Arc::new(Clock(kept_us)));
        }
    }

    fn open_external(&self, outcomes: &RecordOutcomes) -> Result<bool, ServiceError> {
        let Some(config) = &self.config.kafka else {
            return Ok(false);
        };
        // As above.
        let _ = self.producer.set(KafkaProducer::open(config, outcomes)?);
        Ok(true)
    }

    fn subscriptions(&self) -> Result<Vec<RowSubscription>, ServiceError> {
        let mut subscriptions = Vec::new();
        if let Some(rows) = self.rows() {
            let streams = self.config.streams.iter();
            let stored = streams.map(|stream| Self::stored(rows, stream));
            subscriptions = stored.collect::<Result<_, _>>()?;
        }
        subscriptions.extend(
            self.producer
                .get()
                .into_iter()
                .flat_map(KafkaProducer::subscriptions),
        );
        Ok(subscriptions)
    }

    fn notices(&self) -> Vec<String> {
        self.rows()
            .map_or_else(Vec::new, |rows| rows.streams.notices())
    }

    fn warning(&self) -> Option<String> {
        self.producer.get().and_then(KafkaProducer::warning)
    }

    fn guarantees(&self) -> Vec<String> {
        self.producer
            .get()
            .map_or_else(Vec::new, KafkaProducer::guarantees)
    }

    fn partition(
        &self,
        stream: RowStream,
        topic: &str,
        client_id: &str,
        bytes: usize,
    ) -> Option<u16> {
        match stream {
            RowStream::Stored(number) => {
                let streams = &self.rows()?.streams;
                streams.route(number, topic, client_id, bytes)
            }
            RowStream::External(number) => self.producer.get()?.partition(number, topic, client_id),
        }
    }

    fn external_streams(&self, topic: TopicName<'_>) -> Vec<u32> {
        let producer = self.producer.get();
        producer.map_or_else(Vec::new, |producer| producer.numbers_of(topic))
    }

    fn refusal(&self, topic: TopicName<'_>, message: &Message) -> Option<&'static str> {
        self.producer.get()?.refusal(topic, message)
    }

    fn has_room(&self) -> bool {
        self.producer.get().is_none_or(KafkaProducer::has_room)
    }

    fn reserve(&self, message: &Message) -> usize {
        self.producer
            .get()
            .map_or(0, |producer| producer.reserve(message))
    }

    fn settled(&self, bytes: usize, is_kept: bool) {
        if let Some(producer) = self.producer.get() {
            producer.settled(bytes, is_kept);
        }
    }

    fn send(&self, records: &mut Vec<RowRecord>) {
        if let Some(producer) = self.producer.get() {
            producer.send(records);
        }
    }

    fn close(&self, limit: Duration) {
        if let Some(producer) = self.producer.get() {
            producer.close(limit);
        }
    }
}

impl Figures for RowStreams {
    fn figures(&self) -> Vec<Figure> {
        let (rows, unsealed) = self.counts().fold((0, 0), |(rows, unsealed), of| {
            (rows + of.rows, unsealed + of.unsealed)
        });
        let figures = self.stored_figures();
        let stored = [
            Figure::new(
                "stream_rows",
                "Rows of all streams that can be read, in files or not.",
                rows,
            ),
            Figure::new(
                "stream_rows_unsealed",
                "Rows that are not in files yet.",
                unsealed,
            ),
            Figure::new(
                "stream_tail_bytes",
                "Bytes of rows in memory.",
                figures.tail_bytes,
            ),
            Figure::new(
                "stream_rows_refused",
                "Rows that were refused because they were too large.",
                figures.refused_rows,
            ),
        ];
        let sent = KafkaProducer::figures(self.producer.get());
        let tiered = self.tier_figures();
        stored.into_iter().chain(tiered).chain(sent).collect()
    }

    fn memory_bytes(&self) -> usize {
        let waiting = self.producer.get().map_or(0, KafkaProducer::waiting_bytes);
        let tail = usize::try_from(self.stored_figures().tail_bytes);
        waiting.saturating_add(tail.unwrap_or(usize::MAX))
    }

    /// Topics of each stream, and of all streams together.
    fn sys_topics(&self, stats: &Stats) -> Vec<(String, String)> {
        if self.rows().is_none() {
            return Vec::new();
        }
        let stored = self.stored_figures();
        let lost = stats.dropped_stream_overload + stored.refused_rows;
        let mut topics = vec![
            ("streams/tail/bytes".to_owned(), stored.tail_bytes),
            ("streams/rows/dropped".to_owned(), lost),
        ];
        for StreamCounts {
            name,
            rows,
            unsealed,
        } in self.counts()
        {
            topics.push((format!("streams/{name}/rows"), rows));
            topics.push((format!("streams/{name}/unsealed"), unsealed));
        }
        let topics = topics.into_iter();
        topics
            .map(|(topic, value)| (format!("broker/{topic}"), value.to_string()))
            .collect()
    }
}

/// Counts of one stream: readable rows, and readable rows that are not in a file.
struct StreamCounts<'s> {
    name: &'s str,
    rows: u64,
    unsealed: u64,
}

impl RowStreams {
    fn tier_figures(&self) -> [Figure; 3] {
        let tiered = self
            .tiers()
            .fold((0, 0, 0), |(bytes, waiting, failing), of| {
                let fails = u64::from(of.problem.is_some());
                (
                    bytes + of.uploaded_bytes,
                    waiting + of.waiting_files,
                    failing + fails,
                )
            });
        [
            Figure::new(
                "stream_tier_uploaded_bytes",
                "Bytes of sealed files that were uploaded to object storage since the start.",
                tiered.0,
            ),
            Figure::new(
                "stream_tier_waiting_files",
                "Sealed files that are not in object storage yet, of streams that have it.",
                tiered.1,
            ),
            Figure::new(
                "stream_tier_failing",
                "Streams whose files do not move to object storage now.",
                tiered.2,
            ),
        ]
    }

    /// The object storage of each stream that has it.
    fn tiers(&self) -> impl Iterator<Item = TierReport> {
        let streams = self.rows().map(|rows| &rows.streams).into_iter();
        streams.flat_map(|streams| streams.tier_reports())
    }

    /// Counts the rows of each stream in the store.
    fn counts(&self) -> impl Iterator<Item = StreamCounts<'_>> {
        let streams = self.rows().map(|rows| &rows.streams).into_iter();
        let named = streams.flat_map(|streams| {
            let names = streams.names().into_iter();
            names.map(move |name| (streams, name))
        });
        named.map(|(streams, name)| {
            let bounds = streams.bounds(name).unwrap_or_default();
            let sum = |count: fn(&Bounds) -> u64| bounds.iter().map(count).sum();
            StreamCounts {
                name,
                rows: sum(|bounds| bounds.end - bounds.earliest),
                unsealed: sum(|bounds| bounds.end - bounds.sealed_end),
            }
        })
    }

    fn stored_figures(&self) -> StreamFigures {
        let rows = self.rows();
        rows.map_or_else(StreamFigures::default, |rows| rows.streams.figures())
    }
}

/// The engine's kept time.
struct Clock(Arc<dyn Fn() -> u64 + Send + Sync>);

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").finish_non_exhaustive()
    }
}

impl KeptTime for Clock {
    fn now_us(&self) -> u64 {
        (self.0)()
    }
}
