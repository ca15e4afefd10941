//! Topic names and filters for Python.

use mqttcore_codec::QoS;
use mqttcore_topics::{MountPoint, Strategy, TopicFilter, TopicLimits, TopicName};
use pyo3::prelude::*;

use crate::error::CoreError;

/// Raises `TopicFilterError` unless `rule` may stand in a grant: a topic filter, or ``$#``.
#[pyfunction]
#[pyo3(signature = (rule, /))]
pub(crate) fn check_grant_rule(rule: &str) -> Result<(), CoreError> {
    mqttcore_broker::check_grant_rule(rule).map_err(CoreError::Filter)
}

/// Raises `TopicNameError` unless ``text`` may be a mount point: a topic name that does not begin with ``$``.
#[pyfunction]
#[pyo3(signature = (text, /))]
pub(crate) fn check_mount_point(text: &str) -> Result<(), CoreError> {
    MountPoint::parse(text).map(|_| ()).map_err(CoreError::Name)
}

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

pub(crate) fn parse_filter(text: &str) -> Result<TopicFilter, CoreError> {
    TopicFilter::parse(text, &TopicLimits::WIDEST).map_err(CoreError::Filter)
}

pub(crate) fn parse_name(text: &str) -> Result<TopicName<'_>, CoreError> {
    TopicName::parse(text, &TopicLimits::WIDEST).map_err(CoreError::Name)
}

pub(crate) fn qos_of(value: u8) -> Result<QoS, CoreError> {
    QoS::try_from(value).map_err(|_| CoreError::Argument(format!("QoS is 0, 1 or 2, not {value}")))
}

/// Returns the strategy with this name in the configuration.
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
