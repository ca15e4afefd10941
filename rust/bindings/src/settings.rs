//! Converts `mqttcore.config.Settings`, which Python has validated, to the engine's configuration.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mqttcore_broker::tls::{
    CertificateFiles, ClientCertificates, Identity, MinVersion, TlsSettings,
};
use mqttcore_broker::{
    AddressLimits, ClientRates, Config, Data, Durability, FailedLoginLimits, FlappingLimits,
    FullQueuePolicy, InvalidNetwork, InvalidProxySource, ListenAddress, Listener, ListenerCaps,
    Network, PeerIdentity, ProxySource, ShareLimits, UnixAddress, WebSocketRules,
};
use mqttcore_codec::ProtocolVersion;
use mqttcore_session::{QueuePolicy, ServerLimits};
use mqttcore_topics::{MountPoint, TopicLimits};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error::CoreError;
use crate::grants::{DurabilityWord, FullQueuePolicyWord, SessionTerms, access};
use crate::topic_settings::{
    MetricsFields, TopicFields, durability_by_topic, queue_policies_by_topic, topic_metrics,
};
use crate::topics::{qos_of, strategy_named};

#[derive(FromPyObject)]
struct SettingsFields<'py> {
    listeners: Vec<Bound<'py, PyAny>>,
    shards: usize,
    shared_strategy: String,
    sys_interval_s: f64,
    limits: ServerLimitsFields,
    data: String,
    scrub_interval_s: f64,
    durability: DurabilityWord,
    topics: Vec<TopicFields>,
    metrics: MetricsFields,
}

#[derive(FromPyObject)]
struct ListenerFields<'py> {
    title: String,
    host_port: Option<(IpAddr, u16)>,
    unix_socket: Option<(PathBuf, u32, Option<u32>)>,
    proxy_from: Vec<String>,
    identity: Option<String>,
    access: Option<Bound<'py, PyAny>>,
    session: SessionTerms,
    durability: Option<DurabilityWord>,
    queue_policy: Option<FullQueuePolicyWord>,
    transport: String,
    path: String,
    origins: Vec<String>,
    tls: Option<TlsFields>,
    protocol_versions: Vec<String>,
    max_connections: usize,
    maximum_packet_size: Option<u32>,
    receive_maximum: Option<u16>,
    deny: Vec<String>,
    mount_point: Option<String>,
}

/// `mqttcore.config.CertificateFiles`.
#[derive(FromPyObject)]
struct CertificateFields {
    certificate: PathBuf,
    key: PathBuf,
}

/// `mqttcore.config.Tls`.
#[derive(FromPyObject)]
pub(crate) struct TlsFields {
    certificate: PathBuf,
    key: PathBuf,
    sni: Vec<CertificateFields>,
    client_certificates: String,
    client_ca: Option<PathBuf>,
    crl: Option<PathBuf>,
    min_version: String,
    identity: Option<String>,
}

/// The fields of `mqttcore.config.ServerLimits`, in its order.
#[derive(FromPyObject)]
#[expect(clippy::struct_excessive_bools, reason = "one key of the file a field")]
struct ServerLimitsFields {
    receive_maximum: u16,
    maximum_packet_size: u32,
    connect_packet_bytes: u32,
    topic_alias_maximum: u16,
    outgoing_topic_alias_maximum: u16,
    maximum_qos: u8,
    retain_available: bool,
    wildcard_subscription_available: bool,
    subscription_identifiers_available: bool,
    shared_subscription_available: bool,
    keep_alive_max_s: u16,
    session_expiry_max_s: u32,
    client_id_bytes: usize,
    client_id_strict: bool,
    inflight_max: u16,
    max_inflight_bytes: usize,
    queue_messages: usize,
    queue_bytes: usize,
    queue_disk_bytes: usize,
    queues_disk_bytes: u64,
    queue_policy: String,
    queue_deadline_s: f64,
    queue_qos0: bool,
    upgrade_outgoing_qos: bool,
    queue_memory_s: f64,
    #[pyo3(attribute("backlog_bytes"))]
    qos0_backlog_bytes: usize,
    subscriptions: usize,
    wildcard_levels: usize,
    filters_per_packet: usize,
    topic_bytes: usize,
    topic_levels: usize,
    user_properties: u16,
    user_property_bytes: u32,
    payload_format_checked: bool,
    connect_deadline_s: f64,
    pending_connections: usize,
    connections: usize,
    connects_per_second: u32,
    address_connections: usize,
    address_pending_connections: usize,
    address_connects_per_second: u32,
    wills_per_second: u32,
    failed_logins_per_minute: u32,
    failed_login_pause_s: f64,
    flapping_connects_per_minute: u32,
    flapping_ban_s: f64,
    exempt_addresses: Vec<String>,
    control_packets_per_second: u32,
    messages_per_second: u32,
    anonymous_messages_per_second: u32,
    bytes_per_second: u32,
    retained_bytes_per_second: u32,
    sessions: usize,
    user_sessions: usize,
    stall_deadline_s: f64,
    retained_messages: usize,
    retained_bytes: usize,
    user_retained_messages: usize,
    user_retained_bytes: usize,
    check_retain_source: bool,
    memory_bytes: usize,
}

/// The budget of memory in bytes for ``memory_bytes`` of the configuration, where 0 is a share of the memory limit.
#[pyfunction]
#[pyo3(signature = (memory_bytes, /))]
pub(crate) fn memory_budget(memory_bytes: usize) -> usize {
    mqttcore_broker::memory_budget(memory_bytes)
}

/// Reads a `Settings` object. Longer than other functions: one line for each field.
pub(crate) fn engine_config(settings: &Bound<'_, PyAny>) -> PyResult<Config> {
    let fields: SettingsFields<'_> = settings.extract()?;
    let sys_interval = Duration::try_from_secs_f64(fields.sys_interval_s)?;
    let limits = &fields.limits;
    Ok(Config {
        listeners: fields
            .listeners
            .iter()
            .map(listener)
            .collect::<PyResult<_>>()?,
        shards: fields.shards,
        connect_deadline: Duration::try_from_secs_f64(limits.connect_deadline_s)?,
        pending_connections: limits.pending_connections,
        connections: limits.connections,
        connects_per_second: limits.connects_per_second,
        address_limits: address_limits(limits)?,
        client_rates: ClientRates {
            control_packets: limits.control_packets_per_second,
            messages: limits.messages_per_second,
            anonymous_messages: limits.anonymous_messages_per_second,
            bytes: limits.bytes_per_second,
            retained_bytes: limits.retained_bytes_per_second,
        },
        wills_per_second: limits.wills_per_second,
        failed_logins: FailedLoginLimits {
            per_minute: limits.failed_logins_per_minute,
            pause: Duration::try_from_secs_f64(limits.failed_login_pause_s)?,
        },
        flapping: FlappingLimits {
            connects_per_minute: limits.flapping_connects_per_minute,
            ban: Duration::try_from_secs_f64(limits.flapping_ban_s)?,
        },
        sessions: limits.sessions,
        user_limits: ShareLimits {
            sessions: limits.user_sessions,
            retained_messages: limits.user_retained_messages,
            retained_bytes: limits.user_retained_bytes,
        },
        stall_deadline: Duration::try_from_secs_f64(limits.stall_deadline_s)?,
        shared_strategy: strategy_named(&fields.shared_strategy)?,
        retained_messages: limits.retained_messages,
        retained_bytes: limits.retained_bytes,
        check_retain_source: limits.check_retain_source,
        memory_bytes: limits.memory_bytes,
        spill_after: Duration::try_from_secs_f64(limits.queue_memory_s)?,
        scrub_every: Duration::try_from_secs_f64(fields.scrub_interval_s)?,
        data: data(fields.data, fields.durability.0),
        topic_durability: durability_by_topic(&fields.topics)?,
        queues_disk_bytes: limits.queues_disk_bytes,
        queue_policy: full_queue_policy(&limits.queue_policy),
        topic_queue_policies: queue_policies_by_topic(&fields.topics)?,
        topic_metrics: topic_metrics(&fields.metrics)?,
        queue_deadline: Duration::try_from_secs_f64(limits.queue_deadline_s)?,
        sys_interval: (!sys_interval.is_zero()).then_some(sys_interval),
        system_time: SystemTime::now,
        accepts_clock: false,
        limits: Arc::new(server_limits(limits)?),
    })
}

fn networks(texts: &[String]) -> PyResult<Vec<Network>> {
    let networks: Result<_, InvalidNetwork> = texts.iter().map(|text| text.parse()).collect();
    networks.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn proxies(texts: &[String]) -> PyResult<Vec<ProxySource>> {
    let proxies: Result<_, InvalidProxySource> = texts.iter().map(|text| text.parse()).collect();
    proxies.map_err(|error| PyValueError::new_err(error.to_string()))
}

fn address_limits(limits: &ServerLimitsFields) -> PyResult<AddressLimits> {
    Ok(AddressLimits {
        exempt: networks(&limits.exempt_addresses)?,
        connections: limits.address_connections,
        pending_connections: limits.address_pending_connections,
        connects_per_second: limits.address_connects_per_second,
    })
}

/// An empty folder name keeps everything in memory.
fn data(folder: String, durability: Durability) -> Option<Data> {
    let folder = PathBuf::from(folder);
    (!folder.as_os_str().is_empty()).then_some(Data { folder, durability })
}

fn listener(object: &Bound<'_, PyAny>) -> PyResult<Listener> {
    let fields: ListenerFields<'_> = object.extract()?;
    let address = address(fields.host_port, fields.unix_socket)?;
    let anonymous = fields.access.map(|rules| access(&rules, fields.session));
    let rules = WebSocketRules {
        path: fields.path,
        origins: fields.origins,
    };
    let tls = fields.tls.map(tls_settings).transpose()?;
    let mount_point = fields.mount_point.as_deref().map(MountPoint::parse);
    Ok(Listener {
        mount_point: mount_point.transpose().map_err(CoreError::Name)?,
        name: fields.title,
        address,
        proxies: proxies(&fields.proxy_from)?,
        identity: fields.identity.as_deref().map(identity_named).transpose()?,
        anonymous: anonymous.transpose()?,
        durability: fields.durability.map(|level| level.0),
        protocol_versions: fields
            .protocol_versions
            .iter()
            .map(|name| version_named(name))
            .collect::<PyResult<_>>()?,
        max_connections: fields.max_connections,
        caps: ListenerCaps {
            deny: fields.deny,
            maximum_packet_size: fields.maximum_packet_size,
            receive_maximum: fields.receive_maximum,
        },
        queue_policy: fields.queue_policy.map(|policy| policy.0),
        tls,
        websocket: (fields.transport == "websocket").then_some(rules),
    })
}

/// The address of a listener: TCP, or path, mode and group of a Unix socket.
fn address(
    tcp: Option<(IpAddr, u16)>,
    unix: Option<(PathBuf, u32, Option<u32>)>,
) -> PyResult<ListenAddress> {
    match (tcp, unix) {
        (Some((host, port)), _) => Ok(SocketAddr::new(host, port).into()),
        (None, Some((path, mode, group))) => {
            Ok(ListenAddress::Unix(UnixAddress { path, mode, group }))
        }
        (None, None) => Err(PyValueError::new_err("a listener has no address")),
    }
}

fn identity_named(name: &str) -> PyResult<PeerIdentity> {
    match name {
        "uid" => Ok(PeerIdentity::Uid),
        "proxy_cn" => Ok(PeerIdentity::ProxyCommonName),
        "proxy_subject" => Ok(PeerIdentity::ProxyCertificate(Identity::Subject)),
        "proxy_san" => Ok(PeerIdentity::ProxyCertificate(Identity::AlternativeName)),
        _ => Err(PyValueError::new_err(format!("unknown identity {name:?}"))),
    }
}

/// Converts `mqttcore.config.Tls`.
pub(crate) fn tls_settings(fields: TlsFields) -> PyResult<TlsSettings> {
    let unknown = |key: &str, word: &str| PyValueError::new_err(format!("unknown {key} {word:?}"));
    let mut settings = TlsSettings::new(fields.certificate, fields.key);
    let more = fields.sni.into_iter().map(|pair| CertificateFiles {
        certificate: pair.certificate,
        key: pair.key,
    });
    settings.certificates.extend(more);
    settings.client_certificates = match fields.client_certificates.as_str() {
        "none" => ClientCertificates::None,
        "optional" => ClientCertificates::Optional,
        "required" => ClientCertificates::Required,
        word => return Err(unknown("client_certificates", word)),
    };
    settings.min_version = match fields.min_version.as_str() {
        "1.2" => MinVersion::Tls12,
        "1.3" => MinVersion::Tls13,
        word => return Err(unknown("min_version", word)),
    };
    settings.identity = match fields.identity.as_deref() {
        None => None,
        Some("cn") => Some(Identity::CommonName),
        Some("subject") => Some(Identity::Subject),
        Some("san") => Some(Identity::AlternativeName),
        Some(word) => return Err(unknown("identity", word)),
    };
    settings.client_ca = fields.client_ca;
    settings.crl = fields.crl;
    Ok(settings)
}

fn version_named(name: &str) -> PyResult<ProtocolVersion> {
    let mut all = ProtocolVersion::ALL.into_iter();
    all.find(|version| version.to_string() == name)
        .ok_or_else(|| PyValueError::new_err(format!("unknown protocol version {name:?}")))
}

fn server_limits(fields: &ServerLimitsFields) -> PyResult<ServerLimits> {
    Ok(ServerLimits {
        receive_maximum: fields.receive_maximum,
        maximum_packet_size: fields.maximum_packet_size,
        connect_packet_bytes: fields.connect_packet_bytes,
        topic_alias_maximum: fields.topic_alias_maximum,
        outgoing_topic_alias_maximum: fields.outgoing_topic_alias_maximum,
        maximum_qos: qos_of(fields.maximum_qos)?,
        retain_available: fields.retain_available,
        wildcard_subscription_available: fields.wildcard_subscription_available,
        subscription_identifiers_available: fields.subscription_identifiers_available,
        shared_subscription_available: fields.shared_subscription_available,
        keep_alive_max_s: fields.keep_alive_max_s,
        session_expiry_max_s: fields.session_expiry_max_s,
        client_id_bytes: fields.client_id_bytes,
        client_id_strict: fields.client_id_strict,
        inflight_max: fields.inflight_max,
        max_inflight_bytes: fields.max_inflight_bytes,
        queue_messages: fields.queue_messages,
        queue_bytes: fields.queue_bytes,
        queue_disk_bytes: fields.queue_disk_bytes,
        queue_policy: queue_policy(&fields.queue_policy)?,
        queue_qos0: fields.queue_qos0,
        upgrade_outgoing_qos: fields.upgrade_outgoing_qos,
        qos0_backlog_bytes: fields.qos0_backlog_bytes,
        subscriptions: fields.subscriptions,
        wildcard_levels: fields.wildcard_levels,
        filters_per_packet: fields.filters_per_packet,
        topic: TopicLimits {
            bytes: fields.topic_bytes,
            levels: fields.topic_levels,
            ..TopicLimits::default()
        },
        user_properties: fields.user_properties,
        user_property_bytes: fields.user_property_bytes,
        payload_format_checked: fields.payload_format_checked,
        ..ServerLimits::default()
    })
}

/// Whether a message to a full queue is refused. The engine has a second value for the same key, see [`queue_policy`]:
/// which message a session drops otherwise.
fn full_queue_policy(queue_policy: &str) -> FullQueuePolicy {
    if queue_policy == "refuse" {
        FullQueuePolicy::Refuse
    } else {
        FullQueuePolicy::Drop
    }
}

fn queue_policy(name: &str) -> PyResult<QueuePolicy> {
    match name {
        "drop_newest" | "refuse" => Ok(QueuePolicy::DropNewest),
        "drop_oldest" => Ok(QueuePolicy::DropOldest),
        "disconnect" => Ok(QueuePolicy::Disconnect),
        _ => Err(PyValueError::new_err(format!(
            "unknown queue_policy {name:?}"
        ))),
    }
}
