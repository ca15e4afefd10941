//! Finds out why Kafka does not answer: librdkafka tells it only to a client that is polled.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::{ClientConfig, FromClientConfigAndContext as _, RDKafkaLogLevel};
use rdkafka::error::KafkaError as ClientError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, Producer as _, ProducerContext};

use super::token;

/// How long the answer of a node is waited for.
const LISTENING: Duration = Duration::from_secs(3);

/// How long one poll takes at most.
const POLL: Duration = Duration::from_millis(50);

/// The first error of a connection.
#[derive(Clone, Default)]
struct FirstError {
    text: Arc<Mutex<Option<String>>>,
    token_file: Option<PathBuf>,
}

impl FirstError {
    fn lock(&self) -> MutexGuard<'_, Option<String>> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Option<String> {
        self.lock().take()
    }
}

impl ClientContext for FirstError {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: ClientError, reason: &str) {
        self.lock().get_or_insert_with(|| reason.to_owned());
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        token::renew(self.token_file.as_deref())
    }
}

impl ProducerContext for FirstError {
    type DeliveryOpaque = ();

    fn delivery(&self, _: &DeliveryResult<'_>, (): ()) {}
}

/// The first error of a new connection with this configuration, such as a certificate that is not trusted or a
/// password that is wrong; `None` if the nodes answer, or say nothing. Blocks for up to [`LISTENING`].
pub(super) fn problem(config: &ClientConfig, token_file: Option<&Path>) -> Option<String> {
    let first = FirstError {
        token_file: token_file.map(Path::to_owned),
        ..FirstError::default()
    };
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
