//! The two threads of a Kafka producer, and the queue between them and the shards.

use std::error::Error;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use rdkafka::client::{ClientContext, OAuthToken};
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::error::KafkaError as ClientError;
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use mqttcore_panics::Panicked;

use super::token;
use crate::kafka::{KafkaRecord, RecordOutcomes, RecordSender, Ticket};

/// Poll interval of the thread for delivery reports; each report is handled at once.
const HEARING: Duration = Duration::from_millis(100);

// A ticket passes through librdkafka as a pointer.
const _: () = assert!(usize::BITS >= u64::BITS);

/// Handles delivery reports of librdkafka.
pub(super) struct DeliveryReports {
    pub(super) outcomes: RecordOutcomes,
    /// Answers librdkafka's requests for a token.
    pub(super) token_file: Option<PathBuf>,
}

impl ClientContext for DeliveryReports {
    const ENABLE_REFRESH_OAUTH_TOKEN: bool = true;

    /// Does nothing: librdkafka also calls [`ClientContext::error`], which logs the errors.
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, _: ClientError, reason: &str) {
        self.outcomes.trouble(format!("Kafka: {reason}"));
    }

    fn generate_oauth_token(&self, _: Option<&str>) -> Result<OAuthToken, Box<dyn Error>> {
        token::renew(self.token_file.as_deref())
    }
}

impl ProducerContext for DeliveryReports {
    type DeliveryOpaque = usize;

    fn delivery(&self, result: &DeliveryResult<'_>, ticket: usize) {
        let ticket = Ticket::unpack(ticket as u64);
        match result {
            Ok(_) => self.outcomes.kept(ticket),
            Err((error, message)) => {
                let key = message.key().map(String::from_utf8_lossy);
                self.outcomes
                    .lost(ticket, &key.unwrap_or_default(), &error.to_string());
            }
        }
    }
}

/// The two threads of a producer.
pub(super) struct Threads {
    producer: Arc<BaseProducer<DeliveryReports>>,
    queue: Arc<SendQueue>,
    is_over: Arc<AtomicBool>,
    running: Mutex<Vec<JoinHandle<()>>>,
}

/// Records that are not sent yet.
#[derive(Default)]
struct SendQueue {
    waiting: Mutex<Waiting>,
    has_more: Condvar,
}

#[derive(Default)]
struct Waiting {
    records: Vec<KafkaRecord>,
    is_closed: bool,
}

impl SendQueue {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for records; returns false if the queue is closed and empty.
    fn take(&self, into: &mut Vec<KafkaRecord>) -> bool {
        let is_idle = |waiting: &mut Waiting| waiting.records.is_empty() && !waiting.is_closed;
        let waited = self.has_more.wait_while(self.lock(), is_idle);
        let mut waiting = waited.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.records, into);
        !into.is_empty()
    }
}

impl Threads {
    pub(super) fn start(
        producer: Arc<BaseProducer<DeliveryReports>>,
        topics: Vec<String>,
        outcomes: RecordOutcomes,
    ) -> io::Result<Self> {
        let made = Self {
            producer: Arc::clone(&producer),
            queue: Arc::default(),
            is_over: Arc::default(),
            running: Mutex::default(),
        };
        let (queue, sending) = (Arc::clone(&made.queue), Arc::clone(&producer));
        let told = outcomes.clone();
        let send = move || {
            let mut records = Vec::new();
            while queue.take(&mut records) {
                for record in records.drain(..) {
                    send(&sending, &topics, &told, &record);
                }
            }
        };
        let is_over = Arc::clone(&made.is_over);
        let hear = move || {
            while !is_over.load(Ordering::Acquire) {
                producer.poll(HEARING);
            }
        };
        let on_panic =
            |outcomes: RecordOutcomes| move |panicked: Panicked| outcomes.panicked(panicked);
        let threads = vec![
            mqttcore_panics::spawn("mqttcore-kafka", on_panic(outcomes.clone()), send)?,
            mqttcore_panics::spawn("mqttcore-kafka-2", on_panic(outcomes), hear)?,
        ];
        *made.lock() = threads;
        Ok(made)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<JoinHandle<()>>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn send(
    producer: &BaseProducer<DeliveryReports>,
    topics: &[String],
    outcomes: &RecordOutcomes,
    record: &KafkaRecord,
) {
    let topic = topics.get(record.stream).map_or("", String::as_str);
    let mut headers = Some(OwnedHeaders::new());
    record.headers(|key, value| {
        let header = Header {
            key,
            value: Some(value),
        };
        headers = headers.take().map(|headers| headers.insert(header));
    });
    // INVARIANT: `pack` makes a word of 64 bits, which is the size of a pointer.
    let ticket = usize::try_from(record.ticket.pack()).expect("64 bits");
    let sent = BaseRecord::with_opaque_to(topic, ticket)
        .partition(record.partition.into())
        .key(record.key())
        .payload(record.value())
        .timestamp(record.timestamp_us / 1_000)
        .headers(headers.unwrap_or_default());
    if let Err((error, _)) = producer.send(sent) {
        outcomes.lost(record.ticket, record.key(), &error.to_string());
    }
}

impl RecordSender for Threads {
    fn send(&self, records: &mut Vec<KafkaRecord>) {
        let mut waiting = self.queue.lock();
        waiting.records.append(records);
        drop(waiting);
        self.queue.has_more.notify_one();
    }

    fn close(&self, limit: Duration) {
        self.queue.lock().is_closed = true;
        self.queue.has_more.notify_one();
        let mut threads = self.lock();
        let mut threads = threads.drain(..);
        if let Some(sender) = threads.next() {
            // A thread that panicked has reported it.
            let _ = sender.join();
        }
        // Records that are not delivered within `limit` were not acknowledged to their publishers.
        let _ = self.producer.flush(limit);
        self.is_over.store(true, Ordering::Release);
        // The callback may have dropped the last reference to the broker; then this code runs on that thread.
        let own = std::thread::current().id();
        for thread in threads.filter(|thread| thread.thread().id() != own) {
            // As above.
            let _ = thread.join();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.close(Duration::ZERO);
    }
}
