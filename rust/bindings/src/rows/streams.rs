//! Converts the configuration of streams and of their HTTP endpoint.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{Extensions, StartError};
use mqttcore_http::{Endpoint, HttpLimits, HttpListener, HttpOptions, MetricsAccess, Program};
use mqttcore_streams::{
    ProtobufMessage, RowStreams, Stream, StreamKey, StreamsConfig, TierOptions,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::kafka::{KafkaFields, kafka};
use crate::settings::{TlsFields, tls_settings};

/// The streams of a broker, and the HTTP endpoint.
pub(crate) struct Rows {
    streams: Arc<RowStreams>,
    endpoint: Arc<Endpoint>,
}

/// The fields of `mqttcore.config.Settings` that are read here.
#[derive(FromPyObject)]
struct RowsFields {
    streams: Vec<StreamFields>,
    http: Option<HttpFields>,
    kafka: Option<KafkaFields>,
}

#[derive(FromPyObject)]
pub(super) struct StreamFields {
    pub(super) name: String,
    pub(super) filter: Vec<String>,
    pub(super) partitions: u16,
    retention: RetentionFields,
    pub(super) key: String,
    schema: Vec<ColumnFields>,
    decode: String,
    descriptor_bytes: Option<Vec<u8>>,
    schemas_bytes: Option<Vec<u8>>,
    message: Option<String>,
    group_id: Option<u32>,
    tier: Option<TierFields>,
    log: String,
    #[cfg_attr(
        not(feature = "kafka"),
        expect(dead_code, reason = "read by builds with Kafka")
    )]
    pub(super) kafka_topic: String,
}

#[derive(FromPyObject)]
struct RetentionFields {
    age_s: Option<u64>,
    bytes: Option<u64>,
    hold_max_s: u64,
}

#[derive(FromPyObject)]
struct TierFields {
    url: String,
    storage_options: Vec<(String, String)>,
    upload_after_s: u64,
    local_age_s: Option<u64>,
    local_bytes: Option<u64>,
    grace_s: u64,
}

#[derive(FromPyObject)]
struct ColumnFields {
    name: String,
    r#type: String,
}

#[derive(FromPyObject)]
struct HttpFields {
    host_port: Option<(IpAddr, u16)>,
    token: Option<String>,
    metrics_access: String,
    keys_file: Option<PathBuf>,
    page: bool,
    login: bool,
    hosts: Vec<String>,
    tls: Option<TlsFields>,
}

/// Optional parts of the build, and whether it has them.
const FEATURES: [(&str, bool); 3] = [
    ("tier", cfg!(feature = "tier")),
    ("kafka", cfg!(feature = "kafka")),
    ("kafka-tls", cfg!(feature = "kafka-tls")),
];

impl Rows {
    /// Reads a `Settings` object.
    pub(crate) fn read(settings: &Bound<'_, PyAny>) -> PyResult<Self> {
        let fields: RowsFields = settings.extract()?;
        let streams = fields.streams.into_iter();
        let (outside, own): (Vec<_>, Vec<_>) = streams.partition(|stream| stream.log == "kafka");
        let streams = Arc::new(RowStreams::new(StreamsConfig {
            streams: own.into_iter().map(stream).collect::<PyResult<_>>()?,
            kafka: kafka(fields.kafka, &outside)?,
        }));
        let http = HttpOptions {
            is_enabled: fields.http.is_some(),
            keys_file: fields.http.as_ref().and_then(|http| http.keys_file.clone()),
            page: fields.http.as_ref().is_some_and(|http| http.page),
            login: fields.http.as_ref().is_some_and(|http| http.login),
            hosts: fields
                .http
                .as_ref()
                .map_or_else(Vec::new, |http| http.hosts.clone()),
            features: FEATURES
                .iter()
                .filter_map(|(name, is_in)| is_in.then_some(*name))
                .collect(),
            tcp: fields.http.map(http_listener).transpose()?.flatten(),
            limits: HttpLimits::default(),
        };
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&streams), http));
        Ok(Self { streams, endpoint })
    }

    /// The extensions that a broker starts with.
    pub(crate) fn extensions(&self) -> Extensions {
        Extensions {
            rows: Some(Arc::clone(&self.streams) as _),
            services: vec![Arc::clone(&self.endpoint) as _],
        }
    }

    /// Checks the files of the endpoint; returns the warnings that a start would log.
    pub(crate) fn check(&self) -> Result<Vec<String>, StartError> {
        self.endpoint.check().map_err(StartError::Service)
    }

    /// Has the endpoint call `operate` with an action and its argument; it returns JSON.
    pub(crate) fn set_program(&self, operate: Py<PyAny>) {
        self.endpoint.set_program(Arc::new(PyProgram(operate)));
    }

    /// The description of each stream for readers, as JSON.
    pub(crate) fn described(&self) -> Vec<String> {
        self.endpoint.streams()
    }

    /// The TCP address of the endpoint.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        self.endpoint.address()
    }
}

/// A Python function as [`Program`].
struct PyProgram(Py<PyAny>);

impl Program for PyProgram {
    fn call(&self, action: &str, argument: &str) -> Result<String, String> {
        Python::attach(|py| {
            let done = self.0.call1(py, (action, argument));
            done.and_then(|done| done.extract(py))
                .map_err(|error| error.value(py).to_string())
        })
    }
}

/// Converts the TCP listener; `None` for Unix sockets only.
fn http_listener(fields: HttpFields) -> PyResult<Option<HttpListener>> {
    let Some(address) = fields.host_port else {
        return Ok(None);
    };
    Ok(Some(HttpListener {
        address: address.into(),
        token: fields.token,
        metrics: metrics_access(&fields.metrics_access)?,
        tls: fields.tls.map(tls_settings).transpose()?,
    }))
}

fn metrics_access(name: &str) -> PyResult<MetricsAccess> {
    match name {
        "token" => Ok(MetricsAccess::Token),
        "open" => Ok(MetricsAccess::Open),
        "off" => Ok(MetricsAccess::Off),
        _ => Err(PyValueError::new_err(format!("unknown access {name:?}"))),
    }
}

fn stream(fields: StreamFields) -> PyResult<Stream> {
    let columns = fields.schema.into_iter();
    let described = fields.descriptor_bytes.zip(fields.message);
    let protobuf = described.map(|(descriptor, name)| ProtobufMessage { descriptor, name });
    Ok(Stream {
        protobuf,
        avro: fields.schemas_bytes,
        name: fields.name,
        filters: fields.filter,
        partitions: fields.partitions,
        key: stream_key(&fields.key)?,
        retention_age: fields.retention.age_s.map(Duration::from_secs),
        retention_bytes: fields.retention.bytes,
        hold_max: Some(Duration::from_secs(fields.retention.hold_max_s)),
        decode: (fields.decode != "none").then_some(fields.decode),
        columns: columns.map(|column| (column.name, column.r#type)).collect(),
        group: fields.group_id,
        tier: fields.tier.as_ref().map(tier).transpose()?,
    })
}

/// How long the start of a broker waits for the object storage of a stream. Requests to a store are tried again for 20 s.
const TIER_START_LIMIT: Duration = Duration::from_secs(60);

fn tier(fields: &TierFields) -> PyResult<TierOptions> {
    let objects = mqttcore_tier::open(&fields.url, &fields.storage_options);
    Ok(TierOptions {
        objects: objects.map_err(|error| PyValueError::new_err(error.to_string()))?,
        upload_after: Duration::from_secs(fields.upload_after_s),
        local_age: fields.local_age_s.map(Duration::from_secs),
        local_bytes: fields.local_bytes,
        grace: Duration::from_secs(fields.grace_s),
        start_limit: TIER_START_LIMIT,
    })
}

pub(super) fn stream_key(name: &str) -> PyResult<StreamKey> {
    match name {
        "topic" => Ok(StreamKey::Topic),
        "client_id" => Ok(StreamKey::ClientId),
        "sparkplug" => Ok(StreamKey::Sparkplug),
        _ => Err(PyValueError::new_err(format!("unknown key {name:?}"))),
    }
}
