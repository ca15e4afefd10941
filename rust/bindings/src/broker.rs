//! Python classes of a running broker: `Engine`, its statistics and its sessions.

use std::borrow::Cow;
use std::path::PathBuf;
use std::time::Duration;

use mqttcore_broker::{AuditEntry, BanReason, Broker, BrokerFailure, ClientInfo, Config};
use mqttcore_codec::{PropertiesBuf, Property, ReasonCode, Text};
use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::error::CoreError;
use crate::hooks::PyHookQueues;
use crate::operators::{
    AuditFields, BanFields, ban_duration, ban_fields, ban_target, invalidation,
};
use crate::rows::Rows;
use crate::settings::engine_config;
use crate::store::PyCopyProgress;
use crate::topics::qos_of;

/// Sockets, shards and sessions of one broker; `mqttcore.Broker` wraps it.
#[pyclass(name = "Engine", module = "mqttcore._core", frozen)]
pub(crate) struct PyEngine {
    /// Never dropped in a forked child, which lacks the threads to join.
    broker: Option<Broker>,
    rows: Rows,
    process: u32,
}

#[pymethods]
impl PyEngine {
    /// Binds every listener and starts; clients can connect when it returns.
    #[new]
    #[pyo3(signature = (settings, queues, /, *, accepts_clock = false, operate = None))]
    fn new(
        py: Python<'_>,
        settings: &Bound<'_, PyAny>,
        queues: &PyHookQueues,
        accepts_clock: bool,
        operate: Option<Py<PyAny>>,
    ) -> PyResult<Self> {
        let config = Config {
            accepts_clock,
            ..engine_config(settings)?
        };
        let rows = Rows::read(settings)?;
        if let Some(operate) = operate {
            rows.set_program(operate);
        }
        let (hooks, extensions) = (queues.hooks(), rows.extensions());
        let broker = py.detach(|| Broker::start_with(config, &hooks, extensions));
        Ok(Self {
            broker: Some(broker.map_err(CoreError::Start)?),
            rows,
            process: std::process::id(),
        })
    }

    /// Checks whether a broker could start; raises the error. An address in use is accepted. Returns the warnings
    /// that a start would log.
    #[staticmethod]
    #[pyo3(signature = (settings, /))]
    fn check(py: Python<'_>, settings: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
        let config = engine_config(settings)?;
        let rows = Rows::read(settings)?;
        let check = || {
            let mut warnings = Broker::check(&config)?;
            warnings.extend(rows.check()?);
            Ok(warnings)
        };
        Ok(py.detach(check).map_err(CoreError::Start)?)
    }

    /// Addresses of the TCP listeners as (host, port), in the order of the settings.
    fn addresses(&self) -> Result<Vec<(String, u16)>, CoreError> {
        let addresses = self.running()?.addresses().iter();
        Ok(addresses
            .map(|address| (address.ip().to_string(), address.port()))
            .collect())
    }

    /// The levels of acknowledgements that are in force, in one line.
    fn guarantees(&self, py: Python<'_>) -> Result<String, CoreError> {
        let broker = self.running()?;
        Ok(py.detach(|| broker.guarantees()))
    }

    /// Publishes as the broker; returns the number of matching subscriptions.
    #[pyo3(signature = (topic, payload, /, *, qos, retain, properties))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "Python hands over owned values"
    )]
    fn publish(
        &self,
        py: Python<'_>,
        topic: &str,
        payload: Cow<'_, [u8]>,
        qos: &Bound<'_, PyAny>,
        retain: bool,
        properties: &PyMessageProperties,
    ) -> Result<usize, CoreError> {
        let broker = self.running()?;
        let qos = qos_of(bounded(qos, || "QoS is 0, 1 or 2".into())?)?;
        let properties = properties.0.as_properties();
        Ok(py.detach(|| broker.publish(topic, &payload, qos, retain, properties))?)
    }

    /// Every session, connected or not.
    fn clients(&self, py: Python<'_>) -> Result<Vec<PySession>, CoreError> {
        let broker = self.running()?;
        let clients = py.detach(|| broker.clients());
        Ok(clients.into_iter().map(PySession).collect())
    }

    /// The description of each stream for readers, as JSON.
    fn streams(&self, py: Python<'_>) -> Result<Vec<String>, CoreError> {
        self.running()?;
        Ok(py.detach(|| self.rows.described()))
    }

    /// TCP address of the HTTP endpoint, as (host, port).
    fn http_address(&self) -> Result<Option<(String, u16)>, CoreError> {
        self.running()?;
        let address = self.rows.address();
        Ok(address.map(|address| (address.ip().to_string(), address.port())))
    }

    /// Counters and gauges by name.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let broker = self.running()?;
        let figures = py.detach(|| broker.figures());
        let dict = PyDict::new(py);
        for (name, value) in figures {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    /// Disconnects a client by administrative action; returns False if it has no connection.
    #[pyo3(signature = (client_id, /))]
    fn disconnect(&self, py: Python<'_>, client_id: &str) -> Result<bool, CoreError> {
        let broker = self.running()?;
        Ok(py.detach(|| broker.disconnect(client_id, ReasonCode::ADMINISTRATIVE_ACTION)))
    }

    /// Bans a client identifier, user name or network; returns the number of disconnected clients.
    #[pyo3(signature = (kind, value, /, *, reason, by, seconds))]
    fn ban(
        &self,
        py: Python<'_>,
        kind: &str,
        value: &str,
        reason: String,
        by: &str,
        seconds: Option<f64>,
    ) -> PyResult<usize> {
        let broker = self.running()?;
        let target = ban_target(kind, value)?;
        let duration = seconds.map(ban_duration).transpose()?;
        let reason = BanReason::new(reason, by);
        let banned = py.detach(|| broker.ban(target, reason, duration));
        banned.map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Lifts a ban; returns False if there is none.
    #[pyo3(signature = (kind, value, /))]
    fn unban(&self, kind: &str, value: &str) -> PyResult<bool> {
        Ok(self.running()?.unban(&ban_target(kind, value)?))
    }

    /// The bans in force, as (kind, value, user, reason, by, seconds that remain).
    fn bans(&self) -> Result<Vec<BanFields>, CoreError> {
        let bans = self.running()?.bans().into_iter();
        Ok(bans.map(ban_fields).collect())
    }

    /// Appends to the audit log, if there is a data folder; returns when the entry is on the disk.
    #[pyo3(signature = (entry, /))]
    fn audit(&self, py: Python<'_>, entry: AuditFields) -> Result<(), CoreError> {
        let broker = self.running()?;
        let entry = AuditEntry::from(entry);
        py.detach(|| broker.audit(&entry));
        Ok(())
    }

    /// Invalidates the rights of clients: `client_id` or `username` with its value, or `everything`; returns how many are
    /// connected.
    #[pyo3(signature = (kind, value, /))]
    fn invalidate(&self, py: Python<'_>, kind: &str, value: &str) -> PyResult<usize> {
        let broker = self.running()?;
        let what = invalidation(kind, value)?;
        Ok(py.detach(|| broker.invalidate(&what)))
    }

    /// Replaces the reports of degraded plugins.
    #[pyo3(signature = (reasons, /))]
    fn set_degraded_plugins(&self, reasons: Vec<String>) -> Result<(), CoreError> {
        self.running()?.set_degraded_plugins(reasons);
        Ok(())
    }

    /// Returns which of the listeners of ``settings`` each bound one would be after a reload.
    #[pyo3(signature = (settings, /))]
    fn places(&self, settings: &Bound<'_, PyAny>) -> PyResult<Vec<Option<usize>>> {
        let broker = self.running()?;
        Ok(broker.places(&engine_config(settings)?))
    }

    /// Takes new limits, grants and plugins into force; sockets and shards stay. Answers which of
    /// the new listeners each bound one is now; None: it was taken out.
    #[pyo3(signature = (settings, queues, /))]
    fn reload(
        &self,
        py: Python<'_>,
        settings: &Bound<'_, PyAny>,
        queues: &PyHookQueues,
    ) -> PyResult<Vec<Option<usize>>> {
        let broker = self.running()?;
        let config = engine_config(settings)?;
        Rows::read(settings)?;
        let hooks = queues.hooks();
        let places = py.detach(|| broker.reload(&config, hooks));
        Ok(places.map_err(CoreError::Start)?)
    }

    /// Waits up to ``seconds`` for the broker to fail; returns the failed part and the reason.
    #[pyo3(signature = (seconds, /))]
    fn wait_for_failure(
        &self,
        py: Python<'_>,
        seconds: f64,
    ) -> PyResult<Option<(&'static str, String)>> {
        let broker = self.running()?;
        let limit = Duration::try_from_secs_f64(seconds)?;
        let failure = py.detach(|| broker.wait_for_failure(limit));
        let kind = |failure: &BrokerFailure| match failure {
            BrokerFailure::Store(_) => "store",
            _ => "broker",
        };
        Ok(failure.map(|failure| (kind(&failure), failure.to_string())))
    }

    /// Copies the data folder into ``to``, a new or empty folder; returns the bytes of the copy.
    #[pyo3(signature = (to, progress, /))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "Python hands over owned values"
    )]
    fn backup(
        &self,
        py: Python<'_>,
        to: PathBuf,
        progress: Py<PyCopyProgress>,
    ) -> Result<u64, CoreError> {
        let broker = self.running()?;
        let progress = &progress.get().0;
        Ok(py.detach(|| broker.backup(&to, progress))?)
    }

    /// Has `/readyz` fail from now on; clients are served as before.
    fn drain(&self) -> Result<(), CoreError> {
        self.running()?.drain();
        Ok(())
    }

    /// Disconnects every client, waits up to ``deadline`` seconds for their last bytes, and ends.
    #[pyo3(signature = (deadline, /))]
    fn stop(&self, py: Python<'_>, deadline: f64) -> PyResult<()> {
        let broker = self.running()?;
        let deadline = Duration::try_from_secs_f64(deadline)?;
        py.detach(|| broker.stop(deadline));
        Ok(())
    }
}

impl PyEngine {
    /// Returns the broker; fails in a process other than the one that started it.
    fn running(&self) -> Result<&Broker, CoreError> {
        self.broker
            .as_ref()
            .filter(|_| std::process::id() == self.process)
            .ok_or(CoreError::Forked)
    }
}

impl Drop for PyEngine {
    fn drop(&mut self) {
        if std::process::id() == self.process {
            if let Some(broker) = &self.broker {
                broker.stop(Duration::ZERO);
            }
        } else {
            std::mem::forget(self.broker.take());
        }
    }
}

/// Properties of a published message.
#[pyclass(name = "MessageProperties", module = "mqttcore._core", frozen)]
pub(crate) struct PyMessageProperties(PropertiesBuf);

#[pymethods]
impl PyMessageProperties {
    #[new]
    #[pyo3(signature = (
        *, user_properties = Vec::new(), content_type = None, response_topic = None,
        correlation_data = None, message_expiry_interval = None, payload_is_text = false
    ))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument made out of a Python list"
    )]
    fn new(
        user_properties: Vec<(String, String)>,
        content_type: Option<&str>,
        response_topic: Option<&str>,
        correlation_data: Option<Cow<'_, [u8]>>,
        message_expiry_interval: Option<Bound<'_, PyAny>>,
        payload_is_text: bool,
    ) -> Result<Self, CoreError> {
        let mut list = PropertiesBuf::default();
        if payload_is_text {
            list.push(Property::PayloadFormatIndicator(true))?;
        }
        if let Some(seconds) = message_expiry_interval {
            let seconds = bounded(&seconds, || {
                format!("message_expiry_interval is 0 to {} s", u32::MAX)
            })?;
            list.push(Property::MessageExpiryInterval(seconds))?;
        }
        if let Some(text) = content_type {
            list.push(Property::ContentType(Text::new(text)?))?;
        }
        if let Some(text) = response_topic {
            list.push(Property::ResponseTopic(Text::new(text)?))?;
        }
        if let Some(bytes) = &correlation_data {
            list.push(Property::CorrelationData(bytes))?;
        }
        for (name, value) in &user_properties {
            list.push(Property::UserProperty(Text::new(name)?, Text::new(value)?))?;
        }
        Ok(Self(list))
    }
}

/// Converts a number; if it is out of range, the error names `range` instead of a Rust type.
fn bounded<'py, T>(
    value: &Bound<'py, PyAny>,
    range: impl FnOnce() -> String,
) -> Result<T, CoreError>
where
    T: for<'a> FromPyObject<'a, 'py, Error = PyErr>,
{
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            return CoreError::Argument(format!("{}, not {value}", range()));
        }
        error.into()
    })
}

/// A snapshot of one session.
#[pyclass(name = "Session", module = "mqttcore.sessions", frozen)]
pub(crate) struct PySession(ClientInfo);

#[pymethods]
impl PySession {
    /// The client identifier.
    #[getter]
    fn client_id(&self) -> &str {
        &self.0.client_id
    }

    /// The user name in force.
    #[getter]
    fn username(&self) -> Option<&str> {
        self.0.username.as_deref()
    }

    /// Whether it has a connection.
    #[getter]
    fn connected(&self) -> bool {
        self.0.connected
    }

    /// Address and port of its last connection.
    #[getter]
    fn peer(&self) -> (String, u16) {
        self.0.peer.host_and_port()
    }

    /// Name of the listener of its last connection.
    #[getter]
    fn listener(&self) -> &str {
        &self.0.listener
    }

    /// Protocol level of its last connection: 3, 4 or 5.
    #[getter]
    fn version(&self) -> u8 {
        self.0.version.level()
    }

    /// The Keep Alive that it asked for, in seconds.
    #[getter]
    fn keep_alive(&self) -> u16 {
        self.0.keep_alive_s
    }

    /// Seconds that its connection has lasted; 0 without one.
    #[getter]
    fn connected_for(&self) -> f64 {
        self.0.connected_for.as_secs_f64()
    }

    /// The filters of its subscriptions, as the client sent them.
    #[getter]
    fn subscriptions(&self) -> Vec<String> {
        self.0.subscriptions.clone()
    }

    /// Number of queued messages.
    #[getter]
    fn queued(&self) -> usize {
        self.0.queued
    }

    /// Number of messages in flight to the client.
    #[getter]
    fn in_flight(&self) -> usize {
        self.0.in_flight
    }

    fn __repr__(&self) -> String {
        let state = if self.0.connected {
            "connected"
        } else {
            "away"
        };
        format!("<Session {:?} {state}>", self.0.client_id)
    }
}
