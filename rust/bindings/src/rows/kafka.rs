//! Converts `mqttcore.streams.settings.Kafka` and its streams to the engine's configuration.

use std::path::PathBuf;

use pyo3::prelude::*;

#[cfg(feature = "kafka")]
pub(crate) use with::kafka;
#[cfg(not(feature = "kafka"))]
pub(crate) use without::kafka;

/// The fields of `mqttcore.streams.settings.Kafka`.
#[derive(FromPyObject)]
#[cfg_attr(
    not(feature = "kafka"),
    expect(dead_code, reason = "read by builds with Kafka")
)]
pub(crate) struct KafkaFields {
    addresses: String,
    delivery_timeout_s: f64,
    linger_ms: u64,
    compression: String,
    queue_bytes: usize,
    start_deadline_s: f64,
    tls: Option<KafkaTlsFields>,
    sasl: Option<SaslFields>,
}

/// The fields of `mqttcore.streams.kafka.KafkaTls`.
#[derive(FromPyObject)]
#[cfg_attr(
    not(feature = "kafka"),
    expect(dead_code, reason = "read by builds with Kafka")
)]
pub(crate) struct KafkaTlsFields {
    ca: Option<PathBuf>,
    certificate: Option<PathBuf>,
    key: Option<PathBuf>,
}

/// The fields of `mqttcore.streams.kafka.KafkaSasl`.
#[derive(FromPyObject)]
#[cfg_attr(
    not(feature = "kafka"),
    expect(dead_code, reason = "read by builds with Kafka")
)]
pub(crate) struct SaslFields {
    mechanism: String,
    username: Option<String>,
    password: Option<String>,
    token_file: Option<PathBuf>,
}

#[cfg(feature = "kafka")]
mod with {
    use std::path::PathBuf;
    use std::sync::Arc;
    use std::time::Duration;

    use mqttcore_streams::kafka::{
        Compression, KafkaClient, KafkaConfig, KafkaSasl, KafkaStream, KafkaTls, Security,
    };
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    use super::{KafkaFields, KafkaTlsFields, SaslFields};
    use crate::rows::streams::{StreamFields, stream_key};

    /// Converts the Kafka configuration of these streams; `None` without streams.
    pub(crate) fn kafka(
        fields: Option<KafkaFields>,
        streams: &[StreamFields],
    ) -> PyResult<Option<KafkaConfig>> {
        let Some(fields) = fields.filter(|_| !streams.is_empty()) else {
            return Ok(None);
        };
        let client = KafkaClient {
            servers: fields.addresses,
            start_deadline: Duration::try_from_secs_f64(fields.start_deadline_s)?,
            delivery_timeout: Duration::try_from_secs_f64(fields.delivery_timeout_s)?,
            linger: Duration::from_millis(fields.linger_ms),
            compression: compression(&fields.compression)?,
            security: security(fields.tls, fields.sasl),
        };
        Ok(Some(KafkaConfig {
            streams: streams.iter().map(stream).collect::<PyResult<_>>()?,
            queue_bytes: fields.queue_bytes,
            connect: Arc::new(client),
        }))
    }

    fn stream(fields: &StreamFields) -> PyResult<KafkaStream> {
        Ok(KafkaStream {
            name: fields.name.clone(),
            topic: fields.kafka_topic.clone(),
            filters: fields.filter.clone(),
            partitions: fields.partitions,
            key: stream_key(&fields.key)?,
        })
    }

    fn security(tls: Option<KafkaTlsFields>, sasl: Option<SaslFields>) -> Security {
        let text = |path: PathBuf| path.to_string_lossy().into_owned();
        Security {
            tls: tls.map(|tls| KafkaTls {
                ca: tls.ca.map(text),
                identity: tls.certificate.map(text).zip(tls.key.map(text)),
            }),
            sasl: sasl.map(|sasl| match sasl.token_file {
                Some(path) => KafkaSasl::Token(path),
                None => KafkaSasl::Password {
                    mechanism: sasl.mechanism,
                    username: sasl.username.unwrap_or_default(),
                    password: sasl.password.unwrap_or_default(),
                },
            }),
        }
    }

    fn compression(name: &str) -> PyResult<Compression> {
        match name {
            "none" => Ok(Compression::None),
            "lz4" => Ok(Compression::Lz4),
            "snappy" => Ok(Compression::Snappy),
            _ => {
                let what = format!("unknown compression {name:?}");
                Err(PyValueError::new_err(what))
            }
        }
    }
}

#[cfg(not(feature = "kafka"))]
mod without {
    use mqttcore_streams::kafka::KafkaConfig;
    use pyo3::exceptions::PyValueError;
    use pyo3::prelude::*;

    use super::KafkaFields;
    use crate::rows::streams::StreamFields;

    /// Returns `None`: `mqttcore.config` has checked that no stream uses Kafka.
    pub(crate) fn kafka(
        _: Option<KafkaFields>,
        streams: &[StreamFields],
    ) -> PyResult<Option<KafkaConfig>> {
        if streams.is_empty() {
            return Ok(None);
        }
        let what = "this build of mqttcore has no Kafka";
        Err(PyValueError::new_err(what))
    }
}
