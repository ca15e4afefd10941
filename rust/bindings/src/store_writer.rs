//! Writes a new store from the state of another broker, for `mqttcore store import-mosquitto`.
#![expect(
    clippy::needless_pass_by_value,
    reason = "Python hands over owned values"
)]

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mqttcore_codec::{Limits, Packet, ProtocolVersion, decode};
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::{Away, MessageRecord, RecipientsBuf, Record, SessionOpened};
use mqttcore_store::{
    Batch, Durability, DurableStore, SpacePolicy, Store, StoreError, StoreOptions,
};
use mqttcore_topics::{SubscriptionFilter, TopicLimits, TopicName};
use pyo3::prelude::*;

use crate::error::CoreError;

/// Bytes of records that are written together.
const BATCH_BYTES: usize = 4 << 20;

/// A session that gets a message: its number, QoS, RETAIN and Subscription Identifiers.
type Receiver = (u64, u8, bool, Vec<u32>);

/// Creates a store in ``directory``, a new or empty folder, with what ``fill`` writes: completely, or not at all.
///
/// ``fill`` is called with a ``StoreWriter``.
#[pyfunction]
#[pyo3(signature = (directory, fill, /))]
pub(crate) fn store_create(
    py: Python<'_>,
    directory: PathBuf,
    fill: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let mut refused = None;
    let made = Folder::make(&directory, |folder| {
        let files: Arc<dyn Files> = Arc::new(folder.reopen()?);
        let (store, _) = DurableStore::open(&files, &StoreOptions::default())?;
        let store = Arc::new(store);
        let filled = fill_with(py, fill, &store);
        let closed = py.detach(|| store.close());
        if let Err(error) = filled {
            refused = Some(error);
            return Err(StoreError::Stopped("the store was not filled".into()));
        }
        closed.map(|()| 0)
    });
    match refused {
        Some(error) => Err(error),
        None => Ok(made.map(|_| ()).map_err(CoreError::from)?),
    }
}

fn fill_with(py: Python<'_>, fill: &Bound<'_, PyAny>, store: &Arc<DurableStore>) -> PyResult<()> {
    let writer = Writer {
        store: Arc::clone(store),
        batch: Batch::default(),
        recipients: RecipientsBuf::default(),
    };
    let writer = Py::new(py, PyStoreWriter(Mutex::new(writer)))?;
    fill.call1((&writer,))?;
    Ok(py.detach(|| writer.get().lock().flush())?)
}

/// Writes sessions and messages into a new store. Of each session first the session, then what it has, in order.
#[pyclass(name = "StoreWriter", module = "mqttcore._core", frozen)]
pub(crate) struct PyStoreWriter(Mutex<Writer>);

struct Writer {
    store: Arc<DurableStore>,
    batch: Batch,
    recipients: RecipientsBuf,
}

impl Writer {
    fn push(&mut self, record: &Record<'_>) -> Result<(), CoreError> {
        self.batch.push(record);
        if self.batch.len_bytes() >= BATCH_BYTES {
            self.flush()?;
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CoreError> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let ticket =
            self.store
                .append(&mut self.batch, Durability::Fsync, SpacePolicy::Ordinary)?;
        Ok(self.store.wait(ticket)?)
    }

    fn receive_by(&mut self, receiver: Option<&Receiver>) {
        self.recipients.clear();
        if let Some((session, qos, retain, ids)) = receiver {
            self.recipients.push(*session, *qos, *retain, ids);
        }
    }
}

#[pymethods]
impl PyStoreWriter {
    /// Writes a session that has no connection since ``away_since_ms``, in Unix milliseconds; returns its number.
    ///
    /// ``expiry_s`` of 4294967295 is for ever.
    #[pyo3(signature = (client_id, /, *, username, version, expiry_s, away_since_ms))]
    fn session(
        &self,
        client_id: &str,
        username: Option<&str>,
        version: u8,
        expiry_s: u32,
        away_since_ms: u64,
    ) -> Result<u64, CoreError> {
        let mut writer = self.lock();
        let session = writer.store.numbers(1);
        writer.push(&Record::Opened(SessionOpened {
            session,
            at_ms: away_since_ms,
            version,
            expiry_s,
            client_id,
            username,
        }))?;
        writer.push(&Record::Away(Away {
            session,
            at_ms: away_since_ms,
            expiry_s,
            maybe_sent_below: 0,
        }))?;
        Ok(session)
    }

    /// Writes a subscription; ``options`` are those of SUBSCRIBE, without Retain Handling.
    ///
    /// Raises ``TopicFilterError`` if ``filter`` is no topic filter.
    #[pyo3(signature = (session, filter, /, *, options, subscription_id))]
    fn subscribe(
        &self,
        session: u64,
        filter: &str,
        options: u8,
        subscription_id: u32,
    ) -> Result<(), CoreError> {
        SubscriptionFilter::parse(filter, &TopicLimits::AS_IT_CAME)?;
        self.lock().push(&Record::Subscribed {
            session,
            options: options & 0b1111,
            id: subscription_id,
            filter,
        })
    }

    /// Writes the message of a PUBLISH of version 5, for a session or as the retained message of its topic; returns its
    /// number, which is also that of the delivery.
    ///
    /// Raises ``ValueError`` if it is no such packet, ``TopicNameError`` if it has no valid topic.
    #[pyo3(signature = (packet, /, *, kept, expires_at_ms, source, receiver))]
    fn message(
        &self,
        packet: &[u8],
        kept: bool,
        expires_at_ms: Option<u64>,
        source: Option<(String, Option<String>)>,
        receiver: Option<Receiver>,
    ) -> Result<u64, CoreError> {
        let decoded = decode(packet, ProtocolVersion::V5, &Limits::MAX)?;
        let Some((Packet::Publish(publish), _)) = decoded else {
            return Err(CoreError::Argument("the packet is no PUBLISH".into()));
        };
        let topic = publish.topic.as_str();
        TopicName::parse(topic, &TopicLimits::AS_IT_CAME).map_err(CoreError::Name)?;
        let mut writer = self.lock();
        let number = writer.store.numbers(1);
        writer.receive_by(receiver.as_ref());
        let recipients = std::mem::take(&mut writer.recipients);
        let (source, username) = source.unzip();
        let username = username.flatten();
        writer.push(&Record::Message(MessageRecord {
            message: number,
            qos: publish.delivery.qos() as u8,
            retain: publish.retain,
            kept,
            expires_at_ms,
            source: source.as_deref(),
            username: username.as_deref(),
            topic,
            properties: publish.properties.as_bytes(),
            recipients: recipients.as_recipients(),
            payload: publish.payload,
            ..MessageRecord::default()
        }))?;
        writer.recipients = recipients;
        Ok(number)
    }

    /// Queues a message that was written before for one more session; returns the number of the delivery.
    #[pyo3(signature = (message, receiver, /))]
    fn deliver(&self, message: u64, receiver: Receiver) -> Result<u64, CoreError> {
        let mut writer = self.lock();
        let first = writer.store.numbers(1);
        writer.receive_by(Some(&receiver));
        let recipients = std::mem::take(&mut writer.recipients);
        writer.push(&Record::Route {
            message,
            first,
            recipients: recipients.as_recipients(),
        })?;
        writer.recipients = recipients;
        Ok(first)
    }

    /// Writes that a delivery was sent with this packet identifier and is not acknowledged.
    #[pyo3(signature = (session, delivery, packet_id, /))]
    fn sending(&self, session: u64, delivery: u64, packet_id: u16) -> Result<(), CoreError> {
        self.lock().push(&Record::Sending {
            session,
            delivery,
            packet_id,
        })
    }

    /// Writes that the client has the QoS 2 message with this packet identifier, and only its release is open.
    #[pyo3(signature = (session, packet_id, /))]
    fn received(&self, session: u64, packet_id: u16) -> Result<(), CoreError> {
        self.lock().push(&Record::Received { session, packet_id })
    }
}

impl PyStoreWriter {
    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
