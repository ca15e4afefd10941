//! The engine's interface to the crate that stores messages as rows.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_session::Message;
use mqttcore_store::files::Files;
use mqttcore_store::{DurableStore, Recovery, StoreError, StoreOptions};
use mqttcore_topics::{SubscriptionFilter, TopicName};

use crate::clients::handle::RowStream;
use crate::durability::outcomes::{RecordOutcomes, RecordTicket};
use crate::runtime::failure::ServiceError;
use crate::runtime::metrics::Figures;

/// Stores messages as rows of streams, in addition to their delivery.
///
/// A stream is a subscriber of the directory. The rows of a stored stream are part of the message's record in the
/// broker's own store. An external stream is another log, which reports the outcome of each record later;
/// acknowledgements to publishers wait for it.
pub trait RowLog: Figures {
    /// Opens the store in `files` with its streams, or creates one.
    ///
    /// # Errors
    ///
    /// Those of the store.
    fn open_store(
        &self,
        files: &Arc<dyn Files>,
        options: &StoreOptions,
    ) -> Result<(Arc<DurableStore>, Recovery), StoreError>;

    /// Counts the age of rows by `kept_us`: kept time (ADR 0022) in unix microseconds.
    fn count_by(&self, kept_us: Arc<dyn Fn() -> u64 + Send + Sync>);

    /// Connects to the external log; blocks. The outcomes of its records go to `outcomes`. Returns whether there is
    /// an external log.
    ///
    /// # Errors
    ///
    /// Why the broker must not start.
    fn open_external(&self, outcomes: &RecordOutcomes) -> Result<bool, ServiceError>;

    /// The subscriptions whose messages become rows.
    ///
    /// # Errors
    ///
    /// A filter that is not valid.
    fn subscriptions(&self) -> Result<Vec<RowSubscription>, ServiceError>;

    /// Notes for operators about the configuration of the streams.
    fn notices(&self) -> Vec<String>;

    /// A warning for operators about the external log while the broker runs.
    fn warning(&self) -> Option<String>;

    /// The guarantees of an acknowledgement of the external log, as text.
    fn guarantees(&self) -> Vec<String>;

    /// The partition of a row of `bytes`; `None` if the row is too large, which is counted.
    fn partition(
        &self,
        stream: RowStream,
        topic: &str,
        client_id: &str,
        bytes: usize,
    ) -> Option<u16>;

    /// The external streams that a message to `topic` is a record of.
    fn external_streams(&self, topic: TopicName<'_>) -> Vec<u32>;

    /// The reason why a message above QoS 0 on `topic` is refused, before it is acknowledged; `None` if it is
    /// accepted.
    fn refusal(&self, topic: TopicName<'_>, message: &Message) -> Option<&'static str>;

    /// Whether publishers that wait for the external log may be read.
    fn has_room(&self) -> bool;

    /// Counts a record of `message` as waiting; returns its bytes.
    fn reserve(&self, message: &Message) -> usize;

    /// A record of these bytes is settled: kept, or lost. Wakes all shards through [`RecordOutcomes::has_room`] if there
    /// is room again.
    fn settled(&self, bytes: usize, is_kept: bool);

    /// Accepts the records of a turn, in order. Never waits.
    fn send(&self, records: &mut Vec<RowRecord>);

    /// Sends waiting records for at most `limit`, and ends.
    fn close(&self, limit: Duration);
}

/// A stream and the topics of its messages.
#[derive(Clone, Debug)]
pub struct RowSubscription {
    /// The stream.
    pub stream: RowStream,
    /// Topic filters; a message that one of them matches becomes a row.
    pub filters: Vec<SubscriptionFilter>,
}

/// A message for an external log.
#[derive(Clone)]
pub struct RowRecord {
    /// The message.
    pub message: Message,
    /// Its publisher; empty for the broker itself.
    pub client_id: Box<str>,
    /// The number of its stream.
    pub stream: u32,
    /// The partition, as [`RowLog::partition`] said.
    pub partition: u16,
    /// When it was published, in microseconds since 1970.
    pub timestamp_us: i64,
    /// The ticket that outcomes refer to.
    pub ticket: RecordTicket,
}

impl fmt::Debug for RowRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowRecord")
            .field("stream", &self.stream)
            .field("partition", &self.partition)
            .field("ticket", &self.ticket)
            .finish_non_exhaustive()
    }
}
