//! The Kafka client over librdkafka: one thread sends records, one handles delivery reports.

mod problem;
mod threads;
mod token;
mod topic_setup;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rdkafka::config::ClientConfig;
use rdkafka::error::KafkaError as ClientError;
use rdkafka::producer::BaseProducer;

use super::{ConnectKafka, KafkaError, KafkaStream, KafkaTopic, RecordOutcomes, RecordSender};
use threads::{DeliveryReports, Threads};
use topic_setup::TopicSetup;

/// Largest record of a topic, in bytes, if Kafka does not report `max.message.bytes`.
const RECORD_BYTES: usize = 1_000_000;

/// Settings of the connection to Kafka.
#[derive(Clone, Debug)]
pub struct KafkaClient {
    /// Bootstrap servers, separated by commas.
    pub servers: String,
    /// How long the broker waits for Kafka at startup.
    pub start_deadline: Duration,
    /// Time after which a record that is not delivered counts as lost.
    pub delivery_timeout: Duration,
    /// How long a record waits for others of the same request.
    pub linger: Duration,
    /// Compression of records on the wire and on Kafka's disks.
    pub compression: Compression,
    /// TLS and SASL.
    pub security: Security,
}

/// How the client and Kafka prove their identities.
#[derive(Clone, Default, Eq, PartialEq)]
pub struct Security {
    /// Encrypts the connection.
    pub tls: Option<KafkaTls>,
    /// Proves the identity of this client.
    pub sasl: Option<KafkaSasl>,
}

/// Certificates of the connection to Kafka, as PEM files.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KafkaTls {
    /// The CAs that issue certificates of Kafka's nodes; `None`: those of the system.
    pub ca: Option<String>,
    /// The certificate of this client and its key.
    pub identity: Option<(String, String)>,
}

/// A user of Kafka.
#[derive(Clone, Eq, PartialEq)]
pub enum KafkaSasl {
    /// A name and a password.
    Password {
        /// Mechanism, as Kafka names it.
        mechanism: String,
        /// Name of the user.
        username: String,
        /// Secret of the user.
        password: String,
    },
    /// OAUTHBEARER: a file with a token, which is read again when most of the token's life is over.
    Token(PathBuf),
}

impl KafkaSasl {
    fn mechanism(&self) -> &str {
        match self {
            Self::Password { mechanism, .. } => mechanism,
            Self::Token(_) => "OAUTHBEARER",
        }
    }
}

impl std::fmt::Debug for Security {
    /// Leaves the password out.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mechanism = self.sasl.as_ref().map(KafkaSasl::mechanism);
        f.debug_struct("Security")
            .field("tls", &self.tls)
            .field("sasl", &mechanism)
            .finish_non_exhaustive()
    }
}

impl Security {
    /// The settings of librdkafka.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let protocol = match (&self.tls, &self.sasl) {
            (None, None) => return Vec::new(),
            (Some(_), None) => "ssl",
            (None, Some(_)) => "sasl_plaintext",
            (Some(_), Some(_)) => "sasl_ssl",
        };
        let mut settings = vec![("security.protocol", protocol.to_owned())];
        if let Some(tls) = &self.tls {
            let ca = tls.ca.clone();
            settings.extend(ca.map(|ca| ("ssl.ca.location", ca)));
            if let Some((certificate, key)) = tls.identity.clone() {
                settings.push(("ssl.certificate.location", certificate));
                settings.push(("ssl.key.location", key));
            }
        }
        if let Some(sasl) = &self.sasl {
            settings.push(("sasl.mechanism", sasl.mechanism().to_owned()));
        }
        if let Some(KafkaSasl::Password {
            username, password, ..
        }) = &self.sasl
        {
            settings.push(("sasl.username", username.clone()));
            settings.push(("sasl.password", password.clone()));
        }
        settings
    }

    /// The file with the token, if tokens prove the identity of this client.
    fn token_file(&self) -> Option<&Path> {
        match &self.sasl {
            Some(KafkaSasl::Token(path)) => Some(path),
            Some(KafkaSasl::Password { .. }) | None => None,
        }
    }
}

/// A compression codec of Kafka.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Compression {
    /// No compression.
    None,
    /// LZ4, the default.
    #[default]
    Lz4,
    /// Snappy.
    Snappy,
}

impl Compression {
    fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Lz4 => "lz4",
            Self::Snappy => "snappy",
        }
    }
}

impl ConnectKafka for KafkaClient {
    fn connect(
        &self,
        streams: &[KafkaStream],
        outcomes: RecordOutcomes,
    ) -> Result<(Box<dyn RecordSender>, Vec<KafkaTopic>), KafkaError> {
        let topics = TopicSetup::new(self)?.find(streams)?;
        let record_bytes = topics.iter().map(|topic| topic.record_bytes).max();
        let producer = self.producer(record_bytes.unwrap_or(RECORD_BYTES), outcomes.clone());
        let producer = Arc::new(producer.map_err(|error| self.unreachable(&error))?);
        let topics_by_stream = streams.iter().map(|stream| stream.topic.clone()).collect();
        let engine = Threads::start(producer, topics_by_stream, outcomes);
        let engine = engine.map_err(|error| self.unreachable(&error))?;
        Ok((Box::new(engine), topics))
    }
}

impl KafkaClient {
    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", &self.servers)
            .set("client.id", "mqttcore")
            .set("socket.keepalive.enable", "true");
        for (name, value) in self.security.settings() {
            config.set(name, value);
        }
        config
    }

    fn producer(
        &self,
        record_bytes: usize,
        outcomes: RecordOutcomes,
    ) -> Result<BaseProducer<DeliveryReports>, ClientError> {
        let millis = |time: Duration| time.as_millis().to_string();
        self.config()
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("message.timeout.ms", millis(self.delivery_timeout))
            .set("linger.ms", millis(self.linger))
            .set("compression.type", self.compression.name())
            .set("message.max.bytes", record_bytes.to_string())
            // The broker limits the bytes in flight itself and makes publishers wait.
            .set("queue.buffering.max.messages", "0")
            .set("queue.buffering.max.kbytes", "2147483647")
            // Retry soon: publishers wait for their acknowledgements.
            .set("reconnect.backoff.max.ms", "1000")
            .create_with_context(DeliveryReports {
                outcomes,
                token_file: self.security.token_file().map(Path::to_owned),
            })
    }

    /// The error of a request that no node answered, with the reason if a node tells one.
    fn without_answer(&self, error: &ClientError) -> KafkaError {
        let reason = problem::problem(&self.config(), self.security.token_file());
        let why = reason.map_or_else(|| error.to_string(), |reason| format!("{error}: {reason}"));
        KafkaError::Unreachable {
            servers: self.servers.clone(),
            why,
        }
    }

    fn unreachable(&self, error: &dyn std::error::Error) -> KafkaError {
        KafkaError::Unreachable {
            servers: self.servers.clone(),
            why: error.to_string(),
        }
    }
}
