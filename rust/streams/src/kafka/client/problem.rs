//! Finds out why Kafka does not answer: librdkafka tells it only to a client that is polled.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer as _, ProducerContext};

/// How long the answer of a node is waited for.
const LISTENING: Duration = Duration::from_secs(3);

/// How long one poll takes at most.
const POLL: Duration = Duration::from_millis(50);

/// The first error of a connection.
#[derive(Clone, Default)]
struct FirstError(Arc<Mutex<Option<String>>>);

impl FirstError {
    fn take(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl ClientContext for FirstError {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: ClientError, reason: &str) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| reason.to_owned());
    }
}

impl ProducerContext for FirstError {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// The first error of a new connection with this configuration, such as a certificate that is not trusted or a
/// password that is wrong; `None` if the nodes answer, or say nothing. Blocks for up to [`LISTENING`].
pub(super) fn problem(config: &ClientConfig) -> Option<String> {
    let first = FirstError::default();
    let client = BaseProducer::from_config_and_context(config, first.clone()).ok()?;
    let deadline = Instant::now() + LISTENING;
    // The client connects when it is asked for something.
    let _ = client.client().fetch_metadata(None, POLL);
    while Instant::now() < deadline {
        client.poll(POLL);
        if let Some(text) = first.take() {
            return Some(text);
        }
    }
    None
}
