//! Python classes over `mqttcore-topics`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use mqttcore_codec::QoS;
use mqttcore_topics::{
    Change, Directory, Match, Options, Strategy, SubscriberId, SubscriptionFilter, TopicFilter,
    TopicLimits, TopicName, Visitor,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::CoreError;

/// A checked topic filter. Immutable, hashable, safe to share between threads.
#[pyclass(name = "TopicFilter", module = "mqttcore", frozen, eq, hash)]
#[derive(Eq, Hash, PartialEq)]
pub(crate) struct PyTopicFilter(TopicFilter);

#[pymethods]
impl PyTopicFilter {
    #[new]
    #[pyo3(signature = (text, /))]
    fn new(text: &str) -> Result<Self, CoreError> {
        Ok(Self(parse_filter(text)?))
    }

    /// Whether a message published to ``topic`` goes to this filter.
    #[pyo3(signature = (topic, /))]
    fn matches(&self, topic: &str) -> Result<bool, CoreError> {
        Ok(self.0.matches(parse_name(topic)?))
    }

    /// Whether every topic that ``other`` matches is matched by this filter, too.
    #[pyo3(signature = (other, /))]
    fn covers(&self, other: &Self) -> bool {
        self.0.covers(&other.0)
    }

    /// Whether some topic is matched by both.
    #[pyo3(signature = (other, /))]
    fn overlaps(&self, other: &Self) -> bool {
        self.0.overlaps(&other.0)
    }

    /// Whether it holds `+` or `#`.
    #[getter]
    fn has_wildcard(&self) -> bool {
        self.0.has_wildcard()
    }

    fn __str__(&self) -> &str {
        self.0.as_str()
    }

    fn __repr__(&self) -> String {
        format!("TopicFilter({:?})", self.0.as_str())
    }
}

/// A checked topic name: no wildcards. Immutable, hashable, safe to share between threads.
#[pyclass(name = "TopicName", module = "mqttcore", frozen, eq, hash)]
#[derive(Eq, Hash, PartialEq)]
pub(crate) struct PyTopicName(Box<str>);

#[pymethods]
impl PyTopicName {
    #[new]
    #[pyo3(signature = (text, /))]
    fn new(text: &str) -> Result<Self, CoreError> {
        Ok(Self(parse_name(text)?.as_str().into()))
    }

    /// The parts between the slashes; an empty part is a level, too.
    #[getter]
    fn levels(&self) -> Vec<&str> {
        self.0.split('/').collect()
    }

    fn __str__(&self) -> &str {
        &self.0
    }

    fn __repr__(&self) -> String {
        format!("TopicName({:?})", self.0)
    }
}

/// Who subscribed to what: the broker's own directory, without a broker. Safe to share.
#[pyclass(name = "Directory", module = "mqttcore", frozen)]
pub(crate) struct PyDirectory {
    directory: Arc<Directory>,
    random: AtomicU64,
}

/// One subscriber of a `Directory`.
#[pyclass(name = "Subscriber", module = "mqttcore", frozen)]
pub(crate) struct PySubscriber {
    directory: Arc<Directory>,
    id: SubscriberId,
    handle: u64,
    has_left: AtomicBool,
}

/// One delivery of a message: all matching subscriptions of a subscriber merged.
#[pyclass(name = "Match", module = "mqttcore", frozen, get_all)]
pub(crate) struct PyMatch {
    /// What the subscriber gave to `Directory.join`.
    handle: u64,
    /// The highest QoS of the matching subscriptions.
    qos: u8,
    /// Whether one of them keeps the RETAIN flag.
    retain_as_published: bool,
    /// Their Subscription Identifiers.
    subscription_ids: Vec<u32>,
    /// Whether it was picked as a member of a shared group.
    shared: bool,
}

#[pymethods]
impl PyDirectory {
    #[new]
    #[pyo3(signature = (*, strategy = "round_robin", seed = 0))]
    fn new(strategy: &str, seed: u64) -> Result<Self, CoreError> {
        let strategy = strategy_named(strategy)?;
        Ok(Self {
            directory: Arc::new(Directory::new(seed, strategy)),
            random: AtomicU64::new(seed),
        })
    }

    /// A new subscriber; ``handle`` comes back with its matches.
    #[pyo3(signature = (handle, /))]
    fn join(&self, handle: u64) -> PySubscriber {
        PySubscriber {
            directory: Arc::clone(&self.directory),
            id: self.directory.join(handle),
            handle,
            has_left: AtomicBool::new(false),
        }
    }

    /// Who gets a message on ``topic``; ``publisher`` is left out by its No Local subscriptions.
    #[pyo3(signature = (topic, /, *, publisher = None))]
    fn matches(
        &self,
        topic: &str,
        publisher: Option<&PySubscriber>,
    ) -> Result<Vec<PyMatch>, CoreError> {
        let publisher = publisher.filter(|one| Arc::ptr_eq(&one.directory, &self.directory));
        let mut found = Found::default();
        self.directory.snapshot().match_one(
            parse_name(topic)?,
            publisher.map(|one| one.id),
            self.next_random(),
            &mut found,
        );
        Ok(found.0)
    }

    /// Forgets up to ``limit`` subscriptions of subscribers that left; returns how many remain.
    #[pyo3(signature = (limit, /))]
    fn clean(&self, limit: usize) -> usize {
        self.directory.clean(limit)
    }

    /// Counts of what is held.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let stats = self.directory.stats();
        let dict = PyDict::new(py);
        dict.set_item("filters", stats.filters)?;
        dict.set_item("subscriptions", stats.subscriptions)?;
        dict.set_item("shared_groups", stats.shared_groups)?;
        dict.set_item("nodes", stats.nodes)?;
        dict.set_item("bytes", stats.bytes)?;
        dict.set_item("version", stats.version)?;
        Ok(dict)
    }
}

impl PyDirectory {
    /// A word that differs each time; the odd constant is that of a Weyl sequence.
    fn next_random(&self) -> u64 {
        let word = self
            .random
            .fetch_add(0x9E37_79B9_7F4A_7C15, Ordering::SeqCst);
        (word ^ (word >> 31)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
    }
}

#[pymethods]
impl PySubscriber {
    /// Subscribes, or changes the options of the same filter. True when it was there before.
    #[pyo3(signature = (
        filter, /, *, qos = 0, no_local = false, retain_as_published = false, subscription_id = None
    ))]
    fn subscribe(
        &self,
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
        let filter = SubscriptionFilter::parse(filter, &TopicLimits::default())?;
        self.commit(Change::Subscribe {
            filter: &filter,
            options,
        })
    }

    /// Unsubscribes from exactly this filter. True when it was there.
    #[pyo3(signature = (filter, /))]
    fn unsubscribe(&self, filter: &str) -> Result<bool, CoreError> {
        let filter = SubscriptionFilter::parse(filter, &TopicLimits::default())?;
        self.commit(Change::Unsubscribe { filter: &filter })
    }

    /// Leaves the directory: no later match delivers to it. A second call does nothing.
    fn leave(&self) {
        if !self.has_left.swap(true, Ordering::SeqCst) {
            self.directory.leave(self.id);
        }
    }

    /// What it gave to `Directory.join`.
    #[getter]
    fn handle(&self) -> u64 {
        self.handle
    }
}

impl PySubscriber {
    fn commit(&self, change: Change<'_>) -> Result<bool, CoreError> {
        if self.has_left.load(Ordering::SeqCst) {
            return Err(CoreError::Argument("the subscriber has left".into()));
        }
        let outcomes = self.directory.commit(self.id, &[change]);
        Ok(outcomes.first().is_some_and(|outcome| outcome.existed))
    }
}

impl Drop for PySubscriber {
    fn drop(&mut self) {
        self.leave();
    }
}

#[derive(Default)]
struct Found(Vec<PyMatch>);

impl Found {
    fn add(&mut self, found: Match<'_>, shared: bool) {
        self.0.push(PyMatch {
            handle: found.handle,
            qos: found.qos as u8,
            retain_as_published: found.retain_as_published,
            subscription_ids: found.ids.iter().map(|id| id.get()).collect(),
            shared,
        });
    }
}

impl Visitor for Found {
    fn plain(&mut self, found: Match<'_>) {
        self.add(found, false);
    }

    fn shared(&mut self, candidate: Match<'_>) -> bool {
        self.add(candidate, true);
        true
    }

    fn shared_offline(&mut self, _first_choice: Match<'_>) {}
}

pub(crate) fn parse_filter(text: &str) -> Result<TopicFilter, CoreError> {
    TopicFilter::parse(text, &TopicLimits::default()).map_err(CoreError::Filter)
}

fn parse_name(text: &str) -> Result<TopicName<'_>, CoreError> {
    TopicName::parse(text, &TopicLimits::default()).map_err(CoreError::Name)
}

pub(crate) fn qos_of(value: u8) -> Result<QoS, CoreError> {
    QoS::try_from(value).map_err(|_| CoreError::Argument(format!("QoS is 0, 1 or 2, not {value}")))
}

/// The strategy with this name in the configuration.
pub(crate) fn strategy_named(name: &str) -> Result<Strategy, CoreError> {
    Ok(match name {
        "round_robin" => Strategy::RoundRobin,
        "random" => Strategy::Random,
        "client_hash" => Strategy::ClientHash,
        "topic_hash" => Strategy::TopicHash,
        "sticky" => Strategy::Sticky,
        _ => return Err(CoreError::Argument(format!("unknown strategy {name:?}"))),
    })
}
