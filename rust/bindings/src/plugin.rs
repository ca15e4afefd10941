//! Python classes that plugins receive (`Login`, `Ask`, `Event`, ...): frozen views, whose fields are converted when
//! they are read.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mqttcore_broker::tls::{AlternativeName, ClientCertificate};
use mqttcore_broker::{Action, AuthorizeRequest, EventKind, Login, LoginExtras, Peer, PluginEvent};
use mqttcore_codec::{ProtocolVersion, ReasonCode};
use mqttcore_session::Secret;
use pyo3::prelude::*;
use pyo3::types::{IntoPyDict, PyBytes};

use crate::error::CoreError;
use crate::topics::{parse_filter, qos_of};

/// Host and port.
type HostAndPort = (String, u16);

/// A verified client certificate; its names have no control characters.
#[pyclass(name = "ClientCertificate", module = "mqttcore.plugin", frozen)]
pub(crate) struct PyClientCertificate(Arc<ClientCertificate>);

#[pymethods]
impl PyClientCertificate {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (*, common_name = None, subject = "", alternative_names = Vec::new()))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument made out of a Python list"
    )]
    fn new(
        common_name: Option<&str>,
        subject: &str,
        alternative_names: Vec<(String, String)>,
    ) -> Result<Self, CoreError> {
        let names = alternative_names
            .iter()
            .map(|(kind, name)| alternative_name(kind, name));
        Ok(Self(Arc::new(ClientCertificate {
            common_name: common_name.map(Into::into),
            subject: subject.into(),
            alternative_names: names.collect::<Result<_, _>>()?,
            not_after: SystemTime::UNIX_EPOCH,
        })))
    }

    /// The common name of the subject.
    #[getter]
    fn common_name(&self) -> Option<&str> {
        self.0.common_name.as_deref()
    }

    /// The whole subject, as RFC 4514 writes it: ``CN=truck-1,O=Fleet``.
    #[getter]
    fn subject(&self) -> &str {
        &self.0.subject
    }

    /// Pairs of ``dns``, ``email``, ``uri`` or ``ip`` and the name, in their order.
    #[getter]
    fn alternative_names(&self) -> Vec<(&'static str, String)> {
        let names = self.0.alternative_names.iter();
        names.map(|name| (name.kind(), name.to_string())).collect()
    }

    fn __repr__(&self) -> String {
        format!("<ClientCertificate {:?}>", self.0.subject)
    }
}

fn alternative_name(kind: &str, name: &str) -> Result<AlternativeName, CoreError> {
    let argument = |what: &str| CoreError::Argument(what.into());
    Ok(match kind {
        "dns" => AlternativeName::Dns(name.into()),
        "email" => AlternativeName::Email(name.into()),
        "uri" => AlternativeName::Uri(name.into()),
        "ip" => AlternativeName::Ip(name.parse().map_err(|_| argument("not an IP address"))?),
        _ => return Err(argument("a kind is dns, email, uri or ip")),
    })
}

/// One CONNECT: the client, its address and its credentials.
#[pyclass(name = "Login", module = "mqttcore.plugin", frozen)]
pub(crate) struct PyLogin(pub(crate) Arc<Login>);

impl PyLogin {
    /// The broker's own copy of the password.
    pub(crate) fn secret(&self) -> Option<Arc<Secret>> {
        self.0.password.clone()
    }
}

#[pymethods]
impl PyLogin {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (
        *, client_id, username = None, password = None, peer = ("127.0.0.1", 0),
        listener = "default", version = 5, clean_start = true, keep_alive = 60,
        session_expiry_interval = 0, will_topic = None, user_properties = Vec::new(),
        certificate = None, is_certified = false
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword a field, as a caller in Python wants it"
    )]
    fn new(
        client_id: &str,
        username: Option<&str>,
        password: Option<&[u8]>,
        peer: (&str, u16),
        listener: &str,
        version: u8,
        clean_start: bool,
        keep_alive: u16,
        session_expiry_interval: u32,
        will_topic: Option<&str>,
        user_properties: Vec<(String, String)>,
        certificate: Option<&PyClientCertificate>,
        is_certified: bool,
    ) -> Result<Self, CoreError> {
        let argument = |what: &str| CoreError::Argument(what.into());
        let extras = LoginExtras {
            certificate: certificate.map(|one| Arc::clone(&one.0)),
            will_topic: will_topic.map(Into::into),
            user_properties,
        };
        Ok(Self(Arc::new(Login {
            client_id: client_id.into(),
            version: ProtocolVersion::from_level(version)
                .ok_or_else(|| argument("version is 3, 4 or 5"))?,
            username: username.map(Into::into),
            password: password.map(|bytes| Arc::new(bytes.into())),
            is_certified,
            peer: Peer::parse(peer.0, peer.1)
                .map_err(|error| CoreError::Argument(error.to_string()))?,
            listener: Arc::new(listener.into()),
            clean_start,
            keep_alive_s: keep_alive,
            session_expiry_interval_s: session_expiry_interval,
            extras: extras.shared(),
        })))
    }

    /// The client identifier; the broker's own choice when the client sent none.
    #[getter]
    fn client_id(&self) -> &str {
        &self.0.client_id
    }

    /// The user name; an empty one is not the same as none.
    #[getter]
    fn username(&self) -> Option<&str> {
        self.0.username.as_deref()
    }

    /// The password, if one was sent: a copy, which is not wiped. The broker wipes its own one after admission.
    #[getter]
    fn password<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.0
            .password
            .as_ref()
            .map(|secret| PyBytes::new(py, secret.as_bytes()))
    }

    /// The certificate that the client presented, verified; none where the listener asks for none.
    #[getter]
    fn certificate(&self) -> Option<PyClientCertificate> {
        let certificate = self.0.certificate();
        certificate.map(|one| PyClientCertificate(Arc::clone(one)))
    }

    /// Whether the user name is that of the certificate or of the peer, as the listener's `identity` says.
    #[getter]
    fn is_certified(&self) -> bool {
        self.0.is_certified
    }

    /// The number of the user at the other end of a Unix socket; none for other clients.
    #[getter]
    fn uid(&self) -> Option<u32> {
        self.0.peer.uid()
    }

    /// Address and port of the client; `uid:1000` and 0 for a client of a Unix socket.
    #[getter]
    fn peer(&self) -> HostAndPort {
        self.0.peer.host_and_port()
    }

    /// Name of the listener that it came to.
    #[getter]
    fn listener(&self) -> &str {
        &self.0.listener
    }

    /// Protocol level: 3, 4 or 5.
    #[getter]
    fn version(&self) -> u8 {
        self.0.version.level()
    }

    /// Clean Start, or Clean Session before version 5.
    #[getter]
    fn clean_start(&self) -> bool {
        self.0.clean_start
    }

    /// The Keep Alive that was asked for, in seconds.
    #[getter]
    fn keep_alive(&self) -> u16 {
        self.0.keep_alive_s
    }

    /// The session expiry that was asked for, in seconds.
    #[getter]
    fn session_expiry_interval(&self) -> u32 {
        self.0.session_expiry_interval_s
    }

    /// Topic of the will, when there is one.
    #[getter]
    fn will_topic(&self) -> Option<&str> {
        self.0.will_topic()
    }

    /// User properties in their order.
    #[getter]
    fn user_properties(&self) -> Vec<(&str, &str)> {
        let pairs = self.0.user_properties().iter();
        pairs
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect()
    }

    /// An awaitable bool: whether the password belongs to ``hash``; None hashes all the same.
    ///
    /// Hashing runs on a pool of its own. Hand in None for an unknown user, so that the answer
    /// takes as long as for a known one.
    #[pyo3(signature = (hash, /))]
    fn password_matches<'py>(
        slf: &Bound<'py, Self>,
        py: Python<'py>,
        hash: Option<&str>,
    ) -> PyResult<Bound<'py, PyAny>> {
        // The hash pool serves addresses in turn.
        let peer = [("peer", slf.get().0.peer.host_and_port().0)].into_py_dict(py)?;
        py.import("mqttcore.auth.hashing")?.call_method(
            "password_matches",
            (slf, hash),
            Some(&peer),
        )
    }

    fn __repr__(&self) -> String {
        format!(
            "<Login client_id={:?} username={:?} peer={}>",
            self.0.client_id, self.0.username, self.0.peer
        )
    }
}

/// An authenticated client, without its password.
#[pyclass(name = "Client", module = "mqttcore.plugin", frozen)]
pub(crate) struct PyClient(pub(crate) Arc<Login>);

#[pymethods]
impl PyClient {
    /// The client identifier.
    #[getter]
    fn client_id(&self) -> &str {
        &self.0.client_id
    }

    /// The user name in force: that of the client, or the one that a plugin set instead.
    #[getter]
    fn username(&self) -> Option<&str> {
        self.0.username.as_deref()
    }

    /// Address and port.
    #[getter]
    fn peer(&self) -> HostAndPort {
        self.0.peer.host_and_port()
    }

    /// Name of the listener that it came to.
    #[getter]
    fn listener(&self) -> &str {
        &self.0.listener
    }

    /// Protocol level: 3, 4 or 5.
    #[getter]
    fn version(&self) -> u8 {
        self.0.version.level()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Client {:?} username={:?}>",
            self.0.client_id, self.0.username
        )
    }
}

/// A request of a client to publish or subscribe, for an `authorize` hook to decide.
#[pyclass(name = "Ask", module = "mqttcore.plugin", frozen)]
pub(crate) struct PyAsk(pub(crate) Arc<AuthorizeRequest>);

#[pymethods]
impl PyAsk {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (login, /, *, action, topic, qos = 0, retain = false, share = None))]
    fn new(
        login: &PyLogin,
        action: &str,
        topic: &str,
        qos: u8,
        retain: bool,
        share: Option<&str>,
    ) -> Result<Self, CoreError> {
        Ok(Self(Arc::new(AuthorizeRequest {
            login: Arc::clone(&login.0),
            action: action_named(action)?,
            topic: parse_filter(topic)?,
            qos: qos_of(qos)?,
            retain,
            share: share.map(Into::into),
        })))
    }

    /// The client that sends the request.
    #[getter]
    fn client(&self) -> PyClient {
        PyClient(Arc::clone(&self.0.login))
    }

    /// The requested action: `publish` or `subscribe`.
    #[getter]
    fn action(&self) -> &'static str {
        match self.0.action {
            Action::Publish => "publish",
            Action::Subscribe => "subscribe",
        }
    }

    /// The topic name, or the filter without its `$share` part.
    #[getter]
    fn topic(&self) -> &str {
        self.0.topic.as_str()
    }

    /// The requested QoS: 0, 1 or 2.
    #[getter]
    fn qos(&self) -> u8 {
        self.0.qos as u8
    }

    /// The RETAIN flag of a publish.
    #[getter]
    fn retain(&self) -> bool {
        self.0.retain
    }

    /// The group of a shared subscription.
    #[getter]
    fn share(&self) -> Option<&str> {
        self.0.share.as_deref()
    }

    fn __repr__(&self) -> String {
        format!(
            "<Ask {:?} {} {:?}>",
            self.0.login.client_id,
            self.action(),
            self.0.topic.as_str()
        )
    }
}

/// An event of the broker.
#[pyclass(name = "Event", module = "mqttcore.plugin", frozen)]
pub(crate) struct PyEvent(pub(crate) PluginEvent);

#[pymethods]
impl PyEvent {
    /// Makes one by hand, to try a plugin without a network.
    #[new]
    #[pyo3(signature = (
        kind, /, *, client_id, username = None, peer = None, topic = None, reason = None, at = 0.0
    ))]
    fn new(
        kind: &str,
        client_id: &str,
        username: Option<&str>,
        peer: Option<(&str, u16)>,
        topic: Option<&str>,
        reason: Option<u8>,
        at: f64,
    ) -> Result<Self, CoreError> {
        let argument = |what: &str| CoreError::Argument(what.into());
        let peer = peer.map(|(host, port)| Peer::parse(host, port));
        let since = Duration::try_from_secs_f64(at).ok();
        let at = since.and_then(|since| SystemTime::UNIX_EPOCH.checked_add(since));
        let known = ReasonCode::ALL.iter().copied();
        let reason = reason.map(|value| known.clone().find(|reason| reason.value() == value));
        Ok(Self(PluginEvent {
            kind: kind_named(kind)?,
            client_id: client_id.into(),
            username: username.map(Into::into),
            peer: peer
                .transpose()
                .map_err(|error| CoreError::Argument(error.to_string()))?,
            topic: topic.map(Into::into),
            reason: match reason {
                Some(None) => return Err(argument("reason is not a reason code")),
                Some(known) => known,
                None => None,
            },
            at: at.ok_or_else(|| argument("at is out of range"))?,
        }))
    }

    /// Kind of the event: `connected`, `disconnected`, `denied` and so on.
    #[getter]
    fn kind(&self) -> &'static str {
        self.0.kind.name()
    }

    /// The client identifier.
    #[getter]
    fn client_id(&self) -> &str {
        &self.0.client_id
    }

    /// The user name.
    #[getter]
    fn username(&self) -> Option<&str> {
        self.0.username.as_deref()
    }

    /// Address and port, if a connection is involved.
    #[getter]
    fn peer(&self) -> Option<HostAndPort> {
        self.0.peer.map(|peer| peer.host_and_port())
    }

    /// Topic or filter, if one is involved.
    #[getter]
    fn topic(&self) -> Option<&str> {
        self.0.topic.as_deref()
    }

    /// Value of the reason code, if there is one.
    #[getter]
    fn reason(&self) -> Option<u8> {
        self.0.reason.map(ReasonCode::value)
    }

    /// Time of the event, in seconds since 1970.
    #[getter]
    fn at(&self) -> f64 {
        let since = self.0.at.duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0.0, |time| time.as_secs_f64())
    }

    fn __repr__(&self) -> String {
        format!("<Event {} {:?}>", self.kind(), self.0.client_id)
    }
}

pub(crate) fn action_named(name: &str) -> Result<Action, CoreError> {
    match name {
        "publish" => Ok(Action::Publish),
        "subscribe" => Ok(Action::Subscribe),
        _ => Err(CoreError::Argument(format!("unknown action {name:?}"))),
    }
}

fn kind_named(name: &str) -> Result<EventKind, CoreError> {
    let found = EventKind::ALL.into_iter().find(|kind| kind.name() == name);
    found.ok_or_else(|| CoreError::Argument(format!("unknown event {name:?}")))
}

/// The bit of `HookInterests::events` for a kind.
pub(crate) fn kind_bit(name: &str) -> Result<u32, CoreError> {
    Ok(1 << kind_named(name)? as u32)
}
