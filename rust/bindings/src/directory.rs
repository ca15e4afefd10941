//! `mqttcore.Directory`: the broker's own subscription directory for Python, without a broker.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use mqttcore_topics::{
    Change, Directory, Match, Options, SubscriberId, SubscriptionFilter, TopicLimits, TopicName,
    Visitor,
};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyDict;

use crate::columns::{InputColumn, array, array_of_words};
use crate::error::CoreError;
use crate::topics::{parse_name, qos_of, strategy_named};

/// Number of topics that are matched under one pin. A longer pin would delay the release of memory that writers
/// replace.
const TOPICS_A_PIN: usize = 1024;

/// Subscribers by filter: the broker's own directory, without a broker.
///
/// A client is a number of yours, from 0 to 2**64 - 1. Threads may share a directory: readers take no lock,
/// a match sees a batch of subscriptions whole or not at all, and the GIL is released meanwhile.
///
/// >>> from mqttcore import Directory
/// >>> directory = Directory()
/// >>> directory.subscribe(7, "sensors/+/temperature", qos=1)
/// True
/// >>> directory.match("sensors/1/temperature")
/// [Match(client=7, qos=1)]
/// >>> topics = "sensors/1/temperature", "doors/1", "sensors/2/temperature"
/// >>> found = directory.match_many(topics)
/// >>> found.clients, found.offsets
/// (array('Q', [7, 7]), array('Q', [0, 1, 1, 2]))
/// >>> directory.unsubscribe(7, "sensors/+/temperature")
/// True
#[pyclass(name = "Directory", module = "mqttcore", frozen)]
pub(crate) struct PyDirectory {
    /// Boxed, because it is aligned to a cache line, and Python aligns its objects only to 16 bytes.
    directory: Box<Directory>,
    clients: Mutex<HashMap<u64, SubscriberId>>,
    random: AtomicU64,
}

#[pymethods]
impl PyDirectory {
    #[new]
    #[pyo3(signature = (*, strategy = "round_robin", seed = None))]
    fn new(strategy: &str, seed: Option<u64>) -> Result<Self, CoreError> {
        let strategy = strategy_named(strategy)?;
        let seed = seed.unwrap_or_else(|| RandomState::new().hash_one(0));
        Ok(Self {
            directory: Box::new(Directory::new(seed, strategy)),
            clients: Mutex::default(),
            random: AtomicU64::new(seed),
        })
    }

    /// Subscribes a client, or changes the options of the same filter. True when the subscription is new.
    #[pyo3(signature = (
        client, filter, /, *, qos = 0, no_local = false, retain_as_published = false, subscription_id = None
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "keywords of the Python signature"
    )]
    fn subscribe(
        &self,
        py: Python<'_>,
        client: u64,
        filter: &str,
        qos: u8,
        no_local: bool,
        retain_as_published: bool,
        subscription_id: Option<NonZeroU32>,
    ) -> Result<bool, CoreError> {
        let options = Options {
            qos: qos_of(qos)?,
            no_local,
            retain_as_published,
            id: subscription_id,
        };
        let filter = SubscriptionFilter::parse(filter, &TopicLimits::WIDEST)?;
        Ok(py.detach(|| self.subscribe_batch(client, &[(filter, options)])) == 1)
    }

    /// Subscribes one client, or one a row, to `filters`; returns how many subscriptions are new.
    ///
    /// Rows that follow each other with the same client are one batch: a match sees all of them or none.
    #[pyo3(signature = (clients, filters, /, *, qos = None))]
    #[expect(clippy::needless_pass_by_value, reason = "extracted for this call")]
    fn subscribe_many(
        &self,
        py: Python<'_>,
        clients: &Bound<'_, PyAny>,
        filters: Vec<PyBackedStr>,
        qos: Option<&Bound<'_, PyAny>>,
    ) -> Result<usize, CoreError> {
        let clients: InputColumn<u64> = InputColumn::read("clients", clients, filters.len())?;
        let qos: InputColumn<u8> = qos.map_or(Ok(InputColumn::All(0)), |qos| {
            InputColumn::read("qos", qos, filters.len())
        })?;
        py.detach(|| {
            let mut rows = Vec::with_capacity(filters.len());
            for (index, text) in filters.iter().enumerate() {
                let filter = SubscriptionFilter::parse(text, &TopicLimits::WIDEST)
                    .map_err(|error| CoreError::FilterRow { index, error })?;
                rows.push((filter, Options::at(qos_of(qos.get(index))?)));
            }
            Ok(self.subscribe_rows(&clients, &rows))
        })
    }

    /// Unsubscribes a client from exactly this filter. True when it was subscribed.
    #[pyo3(signature = (client, filter, /))]
    fn unsubscribe(&self, py: Python<'_>, client: u64, filter: &str) -> Result<bool, CoreError> {
        let filter = SubscriptionFilter::parse(filter, &TopicLimits::WIDEST)?;
        Ok(py.detach(|| {
            let id = self.ids().get(&client).copied();
            id.is_some_and(|id| {
                let change = Change::Unsubscribe { filter: &filter };
                self.directory.commit(id, &[change])[0].existed
            })
        }))
    }

    /// Removes a client with all its subscriptions. True when it was there.
    #[pyo3(signature = (client, /))]
    fn leave(&self, py: Python<'_>, client: u64) -> bool {
        py.detach(|| {
            let Some(id) = self.ids().remove(&client) else {
                return false;
            };
            self.directory.leave(id);
            self.directory.clean(usize::MAX);
            true
        })
    }

    /// Subscribers of a message on ``topic`` from the client ``publisher``: one `Match` for each delivery.
    #[pyo3(name = "match", signature = (topic, /, *, publisher = None))]
    fn match_one(
        &self,
        py: Python<'_>,
        topic: &str,
        publisher: Option<u64>,
    ) -> Result<Vec<PyMatch>, CoreError> {
        let name = parse_name(topic)?;
        let found = py.detach(|| self.collect(&[name], publisher));
        Ok(found.of_topic(0).collect())
    }

    /// Subscribers of a message on each of ``topics``; faster than one at a time.
    #[pyo3(signature = (topics, /, *, publisher = None))]
    #[expect(clippy::needless_pass_by_value, reason = "extracted for this call")]
    fn match_many(
        &self,
        py: Python<'_>,
        topics: Vec<PyBackedStr>,
        publisher: Option<u64>,
    ) -> Result<PyMatches, CoreError> {
        py.detach(|| {
            let name = |(index, text)| {
                TopicName::parse(text, &TopicLimits::WIDEST)
                    .map_err(|error| CoreError::NameRow { index, error })
            };
            let texts = topics.iter().map(|topic| -> &str { topic });
            let names: Vec<_> = texts.enumerate().map(name).collect::<Result<_, _>>()?;
            Ok(self.collect(&names, publisher))
        })
    }

    /// Exact counts of the content at one moment.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.directory.stats();
        let dict = PyDict::new(py);
        dict.set_item("clients", stats.subscribers)?;
        dict.set_item("filters", stats.filters)?;
        dict.set_item("subscriptions", stats.subscriptions)?;
        dict.set_item("shared_subscriptions", stats.shared_subscriptions)?;
        dict.set_item("shared_groups", stats.shared_groups)?;
        dict.set_item("nodes", stats.nodes)?;
        dict.set_item("bytes", stats.bytes)?;
        dict.set_item("retired_bytes", stats.retired_bytes)?;
        dict.set_item("version", stats.version)?;
        Ok(dict)
    }

    /// How many subscriptions it holds.
    fn __len__(&self) -> usize {
        self.directory.stats().subscriptions
    }

    fn __repr__(&self) -> String {
        let stats = self.directory.stats();
        format!(
            "<Directory: {} clients, {} subscriptions>",
            stats.subscribers, stats.subscriptions
        )
    }
}

impl PyDirectory {
    fn ids(&self) -> MutexGuard<'_, HashMap<u64, SubscriberId>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn subscribe_rows(
        &self,
        clients: &InputColumn<u64>,
        rows: &[(SubscriptionFilter, Options)],
    ) -> usize {
        let (mut start, mut added) = (0, 0);
        while start < rows.len() {
            let client = clients.get(start);
            let same = (start..rows.len()).take_while(|row| clients.get(*row) == client);
            let end = start + same.count();
            added += self.subscribe_batch(client, &rows[start..end]);
            start = end;
        }
        added
    }

    fn subscribe_batch(&self, client: u64, rows: &[(SubscriptionFilter, Options)]) -> usize {
        let join = || self.directory.join(client);
        let id = *self.ids().entry(client).or_insert_with(join);
        let changes: Vec<_> = rows
            .iter()
            .map(|(filter, options)| Change::Subscribe {
                filter,
                options: *options,
            })
            .collect();
        let outcomes = self.directory.commit(id, &changes);
        outcomes.iter().filter(|outcome| !outcome.existed).count()
    }

    fn collect(&self, names: &[TopicName<'_>], publisher: Option<u64>) -> PyMatches {
        let publisher = publisher.and_then(|client| self.ids().get(&client).copied());
        let mut found = Collector::default();
        for names in names.chunks(TOPICS_A_PIN) {
            let random = self.next_random();
            self.directory
                .snapshot()
                .match_many(names, publisher, random, &mut found);
        }
        found.finish()
    }

    /// Returns a different word each time; the odd constant is that of a Weyl sequence.
    fn next_random(&self) -> u64 {
        let step = 0x9E37_79B9_7F4A_7C15;
        let word = self.random.fetch_add(step, Ordering::SeqCst);
        (word ^ (word >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }
}

/// One delivery of a message: all matching subscriptions of a client merged.
#[pyclass(name = "Match", module = "mqttcore", frozen, get_all)]
pub(crate) struct PyMatch {
    /// The client that gets the message.
    client: u64,
    /// The highest QoS of the matching subscriptions.
    qos: u8,
    /// Whether one of them keeps the RETAIN flag.
    retain_as_published: bool,
    /// Their Subscription Identifiers.
    subscription_ids: Vec<u32>,
    /// Whether the client was selected as a member of a shared group.
    shared: bool,
}

#[pymethods]
impl PyMatch {
    fn __repr__(&self) -> String {
        let shared = if self.shared { ", shared=True" } else { "" };
        format!("Match(client={}, qos={}{shared})", self.client, self.qos)
    }
}

/// The matches of several topics: a sequence with a list of `Match` a topic, and the same as columns.
///
/// The deliveries of topic ``i`` are the rows ``offsets[i]`` to ``offsets[i + 1]`` of the columns.
#[pyclass(name = "Matches", module = "mqttcore", frozen)]
#[derive(Default)]
pub(crate) struct PyMatches {
    offsets: Vec<u64>,
    clients: Vec<u64>,
    qos: Vec<u8>,
    retain_as_published: Vec<bool>,
    shared: Vec<bool>,
    /// Row and Subscription Identifier, in the order of the rows.
    subscription_ids: Vec<(usize, u32)>,
}

#[pymethods]
impl PyMatches {
    /// Where the rows of each topic begin, and after the last one where they end; ``array('Q')``.
    #[getter]
    fn offsets<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array_of_words(py, &self.offsets)
    }

    /// Subscriber of each delivery; ``array('Q')``.
    #[getter]
    fn clients<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array_of_words(py, &self.clients)
    }

    /// The QoS that each delivery has at most; ``array('B')``.
    #[getter]
    fn qos<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        array(py, "B", &self.qos)
    }

    fn __len__(&self) -> usize {
        self.offsets.len() - 1
    }

    fn __getitem__(&self, index: isize) -> PyResult<Vec<PyMatch>> {
        let from_end = if index < 0 { self.__len__() } else { 0 };
        let topic = from_end.checked_add_signed(index);
        match topic.filter(|topic| *topic < self.__len__()) {
            Some(topic) => Ok(self.of_topic(topic).collect()),
            None => Err(PyIndexError::new_err("no topic with this number")),
        }
    }

    fn __repr__(&self) -> String {
        let (topics, deliveries) = (self.__len__(), self.clients.len());
        format!("<Matches: {topics} topics, {deliveries} deliveries>")
    }
}

impl PyMatches {
    fn of_topic(&self, topic: usize) -> impl Iterator<Item = PyMatch> {
        let row = |offset: u64| usize::try_from(offset).unwrap_or(usize::MAX);
        (row(self.offsets[topic])..row(self.offsets[topic + 1])).map(|row| self.at(row))
    }

    fn at(&self, row: usize) -> PyMatch {
        let first = self.subscription_ids.partition_point(|(of, _)| *of < row);
        let ids = self.subscription_ids[first..].iter();
        PyMatch {
            client: self.clients[row],
            qos: self.qos[row],
            retain_as_published: self.retain_as_published[row],
            subscription_ids: ids
                .take_while(|(of, _)| *of == row)
                .map(|(_, id)| *id)
                .collect(),
            shared: self.shared[row],
        }
    }
}

#[derive(Default)]
struct Collector(PyMatches);

impl Collector {
    fn add(&mut self, found: Match<'_>, shared: bool) {
        let columns = &mut self.0;
        let row = columns.clients.len();
        columns.clients.push(found.handle);
        columns.qos.push(found.qos as u8);
        columns.retain_as_published.push(found.retain_as_published);
        columns.shared.push(shared);
        let ids = found.ids.iter().map(|id| (row, id.get()));
        columns.subscription_ids.extend(ids);
    }

    fn finish(mut self) -> PyMatches {
        self.topic(0);
        self.0
    }
}

impl Visitor for Collector {
    fn plain(&mut self, found: Match<'_>) {
        self.add(found, false);
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.add(candidate, true);
        true
    }

    fn shared_offline(&mut self, _first_choice: Match<'_>) {}

    fn topic(&mut self, _index: usize) {
        self.0.offsets.push(self.0.clients.len() as u64);
    }
}
