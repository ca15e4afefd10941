//! `_core.Subscribe`: a SUBSCRIBE as `subscribe` hooks see it.

use std::sync::Arc;

use mqttcore_broker::Login;
use mqttcore_session::SubscribeEntry;
use mqttcore_topics::{Options, ShareName, SubscriptionFilter, TopicLimits};
use pyo3::prelude::*;

use crate::answers::retain_handling_of;
use crate::error::CoreError;
use crate::plugin::{PyClient, PyLogin};
use crate::topics::qos_of;

/// One filter of a SUBSCRIBE.
#[pyclass(
    name = "SubscribeEntry",
    module = "mqttcore.plugin",
    frozen,
    skip_from_py_object
)]
#[derive(Clone)]
pub(crate) struct PySubscribeEntry(SubscribeEntry);

#[pymethods]
impl PySubscribeEntry {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (
        text, /, *, qos = 0, no_local = false, retain_as_published = false, retain_handling = 0
    ))]
    fn new(
        text: &str,
        qos: u8,
        no_local: bool,
        retain_as_published: bool,
        retain_handling: u8,
    ) -> PyResult<Self> {
        let filter = SubscriptionFilter::parse(text, &TopicLimits::WIDEST)
            .map_err(|error| CoreError::Argument(error.to_string()))?;
        Ok(Self(SubscribeEntry {
            filter,
            options: Options {
                no_local,
                retain_as_published,
                ..Options::at(qos_of(qos)?)
            },
            retain_handling: retain_handling_of(retain_handling)?,
            is_new: true,
            refused: None,
        }))
    }

    /// The filter without its `$share` part.
    #[getter]
    fn topic(&self) -> &str {
        self.0.filter.filter().as_str()
    }

    /// The group of a shared subscription.
    #[getter]
    fn share(&self) -> Option<&str> {
        self.0.filter.share().map(ShareName::as_str)
    }

    /// The requested QoS: 0, 1 or 2.
    #[getter]
    fn qos(&self) -> u8 {
        self.0.options.qos as u8
    }

    /// Whether the client does not want its own messages.
    #[getter]
    fn no_local(&self) -> bool {
        self.0.options.no_local
    }

    /// Whether the RETAIN flag is kept.
    #[getter]
    fn retain_as_published(&self) -> bool {
        self.0.options.retain_as_published
    }

    /// Retain Handling: 0, 1 or 2.
    #[getter]
    fn retain_handling(&self) -> u8 {
        self.0.retain_handling as u8
    }

    fn __repr__(&self) -> String {
        format!(
            "<SubscribeEntry {:?} {}>",
            self.0.filter.as_str(),
            self.qos()
        )
    }
}

/// The filters of a SUBSCRIBE that its client may subscribe to.
#[pyclass(name = "Subscribe", module = "mqttcore.plugin", frozen)]
pub(crate) struct PySubscribe {
    login: Arc<Login>,
    entries: Vec<PySubscribeEntry>,
}

#[pymethods]
impl PySubscribe {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (login, /, *, entries))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument made out of a Python list"
    )]
    fn by_hand(login: &PyLogin, entries: Vec<PyRef<'_, PySubscribeEntry>>) -> Self {
        Self {
            login: Arc::clone(&login.0),
            entries: entries.iter().map(|entry| (**entry).clone()).collect(),
        }
    }

    /// The client that subscribes.
    #[getter]
    fn client(&self) -> PyClient {
        PyClient(Arc::clone(&self.login))
    }

    /// The filters in the order of the packet.
    #[getter]
    fn entries(&self) -> Vec<PySubscribeEntry> {
        self.entries.clone()
    }

    fn __repr__(&self) -> String {
        let (id, filters) = (&self.login.client_id, self.entries.len());
        format!("<Subscribe {id:?} {filters} filters>")
    }
}

impl PySubscribe {
    pub(crate) fn new(login: &Arc<Login>, entries: Vec<SubscribeEntry>) -> Self {
        Self {
            login: Arc::clone(login),
            entries: entries.into_iter().map(PySubscribeEntry).collect(),
        }
    }
}
