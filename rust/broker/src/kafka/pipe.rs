//! What all shards share of the way to Kafka: the engine, its topics, and how much is under way.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use mqttcore_codec::QoS;
use mqttcore_panics::Panicked;
use mqttcore_store::stream::Key;
use mqttcore_topics::{Change, Options, SubscriptionFilter, TopicLimits, TopicName};

use crate::broker::StartError;
use crate::clients::handle::Handle;
use crate::runtime::log::LogClass;
use crate::shard::World;

use super::record::Record;
use super::{Engine, KafkaConfig, KafkaStream, Ticket, Topic};

/// Where no shard is: a subscriber there is a stream whose log is Kafka, and its slot its number.
const NOWHERE: u8 = 254;

impl Handle {
    fn of_kafka(stream: usize) -> Self {
        // INVARIANT: as many streams do not fit into a configuration.
        let slot = u32::try_from(stream).expect("fewer than 2^32 streams");
        Self::new(NOWHERE, 0, slot)
    }

    /// The number of the stream with Kafka as its log that it is, if it is one.
    pub(crate) fn kafka(self) -> Option<usize> {
        (self.shard() == usize::from(NOWHERE)).then_some(self.slot() as usize)
    }
}

/// The way to Kafka.
pub(crate) struct Pipe {
    engine: Box<dyn Engine>,
    streams: Vec<Stream>,
    inbox: Arc<Inbox>,
    /// Bytes of records of which nobody said yet what became of them.
    waiting_bytes: AtomicUsize,
    queue_bytes: usize,
    record_bytes: usize,
}

/// A stream and its topic.
pub(super) struct Stream {
    name: String,
    filters: Vec<SubscriptionFilter>,
    partitions: u16,
    key: Key,
    topic: Topic,
}

impl Stream {
    pub(super) fn partition(&self, topic: &str, client_id: &str) -> u16 {
        // Whoever else writes to the topic may know neither name nor seed of a stream.
        self.key.partition(0, self.partitions, topic, client_id)
    }

    /// The largest record that its topic takes.
    pub(super) fn record_bytes(&self) -> usize {
        self.topic.record_bytes
    }

    fn promise(&self) -> String {
        let filters: Vec<_> = self
            .filters
            .iter()
            .map(SubscriptionFilter::as_str)
            .collect();
        let Topic { copies, .. } = self.topic;
        let copies = match self.topic.in_sync {
            Some(_) if copies == 1 => "1 copy".to_owned(),
            Some(count) => format!("{count} of {copies} copies"),
            None => "nobody knows how many copies".to_owned(),
        };
        format!("kafka on {} ({copies})", filters.join(", "))
    }

    /// An acknowledgement means less than people expect of a cluster.
    fn weakness(&self) -> Option<String> {
        let name = &self.name;
        match self.topic.in_sync {
            Some(count) if count > 1 => None,
            Some(_) => Some(format!(
                "stream {name}: Kafka acknowledges what one node has: no other has to have it"
            )),
            None => Some(format!(
                "stream {name}: Kafka does not say how many copies it waits for"
            )),
        }
    }
}

impl Pipe {
    /// Reaches Kafka.
    ///
    /// # Errors
    ///
    /// What keeps the engine from it, or a filter that is none.
    pub(crate) fn open(config: &KafkaConfig, shards: usize) -> Result<Arc<Self>, StartError> {
        let inbox = Arc::new(Inbox {
            boxes: (0..shards).map(|_| Mutex::default()).collect(),
            world: OnceLock::new(),
        });
        let outcomes = Outcomes(Arc::clone(&inbox));
        let filters: Vec<_> = config.streams.iter().map(parse).collect::<Result<_, _>>()?;
        let connected = config.connect.connect(&config.streams, outcomes);
        let (engine, topics) = connected.map_err(StartError::Kafka)?;
        let told = config.streams.iter().zip(topics).zip(filters);
        let streams: Vec<_> = told
            .map(|((stream, topic), filters)| Stream {
                name: stream.name.clone(),
                filters,
                partitions: stream.partitions,
                key: stream.key,
                topic,
            })
            .collect();
        let limits = streams.iter().map(Stream::record_bytes);
        Ok(Arc::new(Self {
            engine,
            record_bytes: limits.min().unwrap_or(usize::MAX),
            streams,
            inbox,
            waiting_bytes: AtomicUsize::new(0),
            queue_bytes: config.queue_bytes,
        }))
    }

    /// Subscribes the streams to what becomes their records, and tells their outcomes to `world`.
    pub(crate) fn serve(&self, world: &Arc<World>) {
        // One pipe serves one broker.
        let _ = self.inbox.world.set(Arc::downgrade(world));
        let options = Options::at(QoS::ExactlyOnce);
        for (number, stream) in self.streams.iter().enumerate() {
            let filters = stream.filters.iter();
            let changes = filters.map(|filter| Change::Subscribe { filter, options });
            let changes: Vec<_> = changes.collect();
            let subscriber = world.directory.join(Handle::of_kafka(number).word());
            world.directory.commit(subscriber, &changes);
        }
        let weaknesses: Vec<_> = self.streams.iter().filter_map(Stream::weakness).collect();
        if !weaknesses.is_empty() {
            Outcomes(Arc::clone(&self.inbox)).trouble(weaknesses.join("; "));
        }
    }

    /// What an acknowledgement means where these streams match, for people.
    pub(crate) fn promises(&self) -> impl Iterator<Item = String> {
        self.streams.iter().map(Stream::promise)
    }

    /// Sends what is there, and ends.
    pub(crate) fn close(&self, limit: Duration) {
        self.engine.close(limit);
    }

    /// Bytes on their way.
    pub(crate) fn waiting_bytes(&self) -> usize {
        // ORDERING: a hint; a little more or less on the way does no harm.
        self.waiting_bytes.load(Ordering::Relaxed)
    }

    pub(super) fn send(&self, records: &mut Vec<Record>) {
        self.engine.send(records);
        records.clear();
    }

    pub(super) fn stream(&self, number: usize) -> Option<&Stream> {
        self.streams.get(number)
    }

    /// The streams that a message to `topic` is a record of.
    pub(super) fn matching<'p>(
        &'p self,
        topic: TopicName<'p>,
    ) -> impl Iterator<Item = (usize, &'p Stream)> {
        let matches = move |stream: &Stream| {
            let mut filters = stream.filters.iter();
            filters.any(|filter| filter.filter().matches(topic))
        };
        let streams = self.streams.iter().enumerate();
        streams.filter(move |(_, stream)| matches(stream))
    }

    /// What every topic takes.
    pub(super) fn record_bytes(&self) -> usize {
        self.record_bytes
    }

    /// Whether publishers that wait for Kafka may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.waiting_bytes() < self.queue_bytes
    }

    /// Whether nothing more is taken on: all were told to wait, and each sent what it had.
    pub(super) fn is_overfull(&self) -> bool {
        self.waiting_bytes() >= self.queue_bytes.saturating_mul(2)
    }

    pub(super) fn add(&self, bytes: usize) {
        // ORDERING: as in `waiting_bytes`.
        self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// These bytes wait no longer; wakes every shard when there is room again.
    pub(super) fn release(&self, bytes: usize) {
        // ORDERING: as in `waiting_bytes`.
        let before = self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
        if before >= self.queue_bytes && before - bytes < self.queue_bytes {
            self.inbox.world().iter().for_each(|world| world.ring_all());
        }
    }

    /// Takes out what became of records of a shard.
    pub(super) fn outcomes(&self, shard: usize, into: &mut Vec<(u64, Outcome)>) {
        into.append(&mut self.inbox.lock(shard));
    }
}

fn parse(stream: &KafkaStream) -> Result<Vec<SubscriptionFilter>, StartError> {
    let parse = |filter: &String| {
        let parsed = SubscriptionFilter::parse(filter, &TopicLimits::WIDEST);
        parsed.map_err(|error| StartError::Stream {
            name: stream.name.clone(),
            filter: filter.clone(),
            error,
        })
    };
    stream.filters.iter().map(parse).collect()
}

/// What became of one record.
pub(super) enum Outcome {
    Kept,
    Lost(Lost),
}

/// A record that Kafka did not take, as far as anybody knows.
pub(super) struct Lost {
    pub(super) topic: Box<str>,
    pub(super) why: Box<str>,
}

/// What became of records, for each shard; by their numbers.
struct Inbox {
    boxes: Vec<Mutex<Vec<(u64, Outcome)>>>,
    world: OnceLock<Weak<World>>,
}

impl Inbox {
    fn lock(&self, shard: usize) -> std::sync::MutexGuard<'_, Vec<(u64, Outcome)>> {
        let inbox = self.boxes[shard].lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }

    fn world(&self) -> Option<Arc<World>> {
        self.world.get().and_then(Weak::upgrade)
    }

    fn push(&self, ticket: Ticket, outcome: Outcome) {
        let shard = usize::from(ticket.shard);
        let was_empty = {
            let mut inbox = self.lock(shard);
            inbox.push((ticket.number, outcome));
            inbox.len() == 1
        };
        // Else it has been rung for, and did not look yet.
        if was_empty && let Some(world) = self.world() {
            world.ring(shard);
        }
    }
}

/// Where an [`Engine`] says what became of records; from any thread.
#[derive(Clone)]
pub struct Outcomes(Arc<Inbox>);

impl Outcomes {
    /// Kafka has a record.
    pub fn kept(&self, ticket: Ticket) {
        self.0.push(ticket, Outcome::Kept);
    }

    /// A record was given up; `key` is its own, or the MQTT topic.
    pub fn lost(&self, ticket: Ticket, key: &str, why: &str) {
        let (topic, why) = (key.into(), why.into());
        self.0.push(ticket, Outcome::Lost(Lost { topic, why }));
    }

    /// A thread of the engine panicked, and the broker cannot go on without it.
    pub fn panicked(&self, panicked: Panicked) {
        if let Some(world) = self.0.world() {
            world.fail(panicked.into());
        }
    }

    /// Something that operators should know; nothing is lost by it yet.
    pub fn trouble(&self, what: String) {
        if let Some(world) = self.0.world() {
            let say = |shard: &std::rc::Rc<crate::shard::Shard>| {
                let now = shard.now();
                shard.log.warn(LogClass::Kafka, now, || what);
            };
            world.run_on(0, Box::new(say));
        }
    }
}
