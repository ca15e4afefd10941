//! `_core.Message`: a message as publish hooks see it.

use std::sync::Arc;
use std::time::Instant;

use mqttcore_broker::Login;
use mqttcore_codec::{PropertiesBuf, Property, Text};
use mqttcore_session::Message;
use mqttcore_topics::{TopicLimits, TopicName};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::error::CoreError;
use crate::plugin::{PyClient, PyLogin};
use crate::topics::qos_of;

/// A message that a client publishes.
#[pyclass(name = "Message", module = "mqttcore.plugin", frozen)]
pub(crate) struct PyMessage {
    login: Arc<Login>,
    message: Message,
}

#[pymethods]
impl PyMessage {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (
        login, /, *, topic, payload = Vec::new(), qos = 0, retain = false,
        message_expiry_interval = None, content_type = None, user_properties = Vec::new()
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as a caller in Python wants it"
    )]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments made out of Python objects"
    )]
    fn by_hand(
        login: &PyLogin,
        topic: &str,
        payload: Vec<u8>,
        qos: u8,
        retain: bool,
        message_expiry_interval: Option<u32>,
        content_type: Option<&str>,
        user_properties: Vec<(String, String)>,
    ) -> Result<Self, CoreError> {
        let mut list = PropertiesBuf::default();
        if let Some(seconds) = message_expiry_interval {
            list.push(Property::MessageExpiryInterval(seconds))?;
        }
        if let Some(text) = content_type {
            list.push(Property::ContentType(Text::new(text)?))?;
        }
        for (name, value) in &user_properties {
            list.push(Property::UserProperty(Text::new(name)?, Text::new(value)?))?;
        }
        let topic = TopicName::parse(topic, &TopicLimits::WIDEST)
            .map_err(|error| CoreError::Argument(error.to_string()))?;
        let (now, properties) = (Instant::now(), list.as_properties());
        let message = Message::copied(now, topic, properties, &payload, qos_of(qos)?, retain);
        Ok(Self::new(&login.0, message))
    }

    /// The client that publishes it.
    #[getter]
    fn client(&self) -> PyClient {
        PyClient(Arc::clone(&self.login))
    }

    /// The topic name.
    #[getter]
    fn topic(&self) -> &str {
        self.message.topic()
    }

    /// The payload; copied when it is read.
    #[getter]
    fn payload<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.message.payload())
    }

    /// The QoS that it is published with: 0, 1 or 2.
    #[getter]
    fn qos(&self) -> u8 {
        self.message.qos() as u8
    }

    /// The RETAIN flag.
    #[getter]
    fn retain(&self) -> bool {
        self.message.retain()
    }

    /// Seconds until it expires; None: it does not.
    #[getter]
    fn message_expiry_interval(&self) -> Option<u32> {
        self.message.remaining_expiry_s(Instant::now())
    }

    /// The Content Type.
    #[getter]
    fn content_type(&self) -> Option<&str> {
        self.find(|property| match property {
            Property::ContentType(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The Response Topic.
    #[getter]
    fn response_topic(&self) -> Option<&str> {
        self.find(|property| match property {
            Property::ResponseTopic(text) => Some(text.as_str()),
            _ => None,
        })
    }

    /// The Correlation Data.
    #[getter]
    fn correlation_data<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let data = self.find(|property| match property {
            Property::CorrelationData(data) => Some(data),
            _ => None,
        });
        data.map(|data| PyBytes::new(py, data))
    }

    /// The User Properties, in their order.
    #[getter]
    fn user_properties(&self) -> Vec<(&str, &str)> {
        let pairs = self.message.properties().user_properties();
        pairs
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    fn __repr__(&self) -> String {
        let bytes = self.message.payload().len();
        format!(
            "<Message {:?} {:?} {bytes} bytes>",
            self.login.client_id,
            self.topic()
        )
    }
}

impl PyMessage {
    pub(crate) fn new(login: &Arc<Login>, message: Message) -> Self {
        Self {
            login: Arc::clone(login),
            message,
        }
    }

    fn find<'m, T>(&'m self, wanted: impl Fn(Property<'m>) -> Option<T>) -> Option<T> {
        self.message.properties().iter().find_map(wanted)
    }
}
