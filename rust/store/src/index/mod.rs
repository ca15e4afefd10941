//! The index: sessions, their queues and live messages, as the records define them.
//!
//! The checkpoint has the state at `applied_lsn`. Changes by later records are in memory, row by row, until one
//! transaction writes them into the checkpoint; then their memory is freed. So a message that is delivered soon is
//! never written to the checkpoint, and the queue of an offline client does not stay in memory.
//!
//! Writing takes seconds and blocks nobody: the changes are *frozen*, another thread writes them, and new changes go
//! into a layer above them.

mod apply;
mod backend;
pub(crate) mod bodies;
mod changes;
mod chunk;
pub(crate) mod copying;
mod database;
pub(crate) mod flush;
#[cfg(feature = "faults")]
#[path = "../../../../fuzz/store.rs"]
pub mod fuzzing;
mod gaps;
mod messages;
pub(crate) mod naming;
pub(crate) mod notes;
mod numbered;
mod paged;
mod pages;
pub(crate) mod rescue;
pub(crate) mod restore;
pub(crate) mod rows;
pub(crate) mod source;
pub(crate) mod streams;
pub(crate) mod tables;
mod weight;

use std::collections::BTreeMap;
use std::sync::Arc;

use redb::ReadTransaction;

use crate::error::{Damage, StoreError};
use crate::files::{File, Files, read_full};
use crate::index::changes::{Cached, CachedSession, Changes, QueueChange};
use crate::index::flush::CheckpointDraft;
use crate::index::messages::MessageRow;
use crate::index::notes::Notes;
use crate::index::rows::{StoredDelivery, StoredMessage};
use crate::index::streams::StreamTable;
use crate::index::tables::{RETAINED, Tables, checkpoint, wrong};
use crate::index::weight::Weight;
use crate::wal::LogPosition;
use crate::wal::frame;
use crate::wal::identity::Meta;
use crate::wal::segment::{self, StoreId};

/// The state of the store that is not in the log.
#[derive(Debug)]
pub(crate) struct Index {
    files: Arc<dyn Files>,
    tables: Tables,
    store: StoreId,
    pub(crate) applied_lsn: u64,
    checkpoint_lsn: u64,
    pub(crate) next_number: u64,
    changes: Changes,
    /// The changes that are being written into the checkpoint.
    frozen: Option<Arc<CheckpointDraft>>,
    pub(crate) streams: StreamTable,
    pub(crate) notes: Notes,
    /// Messages of this group that have no reference so far.
    unwanted: Vec<u64>,
    /// Bytes of live messages, by segment.
    live: BTreeMap<u64, u64>,
    /// Live messages of segments up to this one are in the checkpoint.
    moved: u64,
    /// Bytes of live messages in the checkpoint, as they were in the log.
    moved_bytes: u64,
    /// The segment that was read last.
    reading: Option<(u64, Arc<dyn File>)>,
    /// Bytes of records since the checkpoint.
    pub(crate) pending_bytes: u64,
    weight: Weight,
}

/// Space that the first pages of a checkpoint need; an upper bound.
const BEGIN_BYTES: u64 = 1 << 20;
const RIGHTED: &str =
    "checkpoint.redb pointed to the older of its last two commits; this was corrected";
const WANTED: &str = "it is missing, and messages in it are needed";

/// Length and size of a session's queue.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct QueueSummary {
    /// Number of deliveries.
    pub deliveries: u64,
    /// Total size of their messages: topic, properties and payload.
    pub bytes: u64,
}

/// Where the content of a message is; not read yet.
#[derive(Debug)]
pub(crate) enum BodyLocation {
    /// In the checkpoint: flags and body of its record.
    Here(u8, Vec<u8>),
    Log {
        place: LogPosition,
        store: StoreId,
        file: Arc<dyn File>,
    },
}

impl BodyLocation {
    /// Reads the content and verifies its checksum.
    pub(crate) fn read(self) -> Result<StoredMessage, StoreError> {
        let (place, store, file) = match self {
            Self::Here(flags, body) => return StoredMessage::new(flags, body).map_err(wrong),
            Self::Log { place, store, file } => (place, store, file),
        };
        let name = segment::name(place.segment);
        let failed = |error| StoreError::io("read", &name, error);
        // A checkpoint that is damaged may name more bytes than there are.
        let length = place.bytes.min(file.bytes().map_err(failed)?);
        let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
        let read = read_full(&*file, &mut bytes, place.offset).map_err(failed)?;
        let seed = segment::seed(&store, place.segment);
        let frame = frame::parse(&bytes[..read], seed);
        let frame = frame.ok_or_else(|| Damage {
            file: name,
            offset: place.offset,
            is_whole: false,
            first_lsn: frame::claimed_lsn(&bytes).unwrap_or_default(),
            last_lsn: frame::claimed_lsn(&bytes).unwrap_or_default(),
            reason: "a committed message cannot be read",
            concerns: Vec::new(),
        })?;
        StoredMessage::new(frame.flags, frame.body.to_vec()).map_err(wrong)
    }
}

impl Index {
    /// Opens the checkpoint.
    pub(crate) fn open(
        files: &Arc<dyn Files>,
        cache_bytes: usize,
    ) -> Result<(Self, Option<Meta>), StoreError> {
        Self::of(files, Tables::open(&**files, cache_bytes)?)
    }

    /// Opens the new checkpoint under its temporary name, or begins one.
    pub(crate) fn open_new(
        files: &Arc<dyn Files>,
        cache_bytes: usize,
    ) -> Result<(Self, Option<Meta>), StoreError> {
        Self::of(files, Tables::open_new(&**files, cache_bytes)?)
    }

    fn of(files: &Arc<dyn Files>, tables: Tables) -> Result<(Self, Option<Meta>), StoreError> {
        let meta = tables.meta()?;
        let live = tables.segments()?;
        let known = meta.unwrap_or_default();
        let streams = tables.streams()?;
        let notes = Notes::read(&tables)?;
        let moved_bytes = bodies::count(&tables, known.moved)?;
        let index = Self {
            files: Arc::clone(files),
            tables,
            store: known.store,
            applied_lsn: known.applied_lsn,
            checkpoint_lsn: known.applied_lsn,
            next_number: known.next_number.max(1),
            changes: Changes::default(),
            frozen: None,
            moved: known.moved,
            moved_bytes,
            streams,
            notes,
            unwanted: Vec::new(),
            live,
            reading: None,
            pending_bytes: 0,
            weight: Weight::default(),
        };
        Ok((index, meta))
    }

    /// Sets the identifier of the store, after the log was opened.
    pub(crate) fn identify(&mut self, store: StoreId) {
        self.store = store;
    }

    /// Writes the identifier of the store into a new checkpoint, if the disk has space for it.
    pub(crate) fn begin_checkpoint(&mut self) -> Result<(), StoreError> {
        let space = self.files.space();
        let space = space.map_err(|error| StoreError::io("measure", ".", error))?;
        if space.free_bytes < BEGIN_BYTES {
            return Ok(());
        }
        self.write_identity()
    }

    /// Writes the identifier of the store into a new checkpoint.
    pub(crate) fn write_identity(&mut self) -> Result<(), StoreError> {
        self.tables.identify(self.store)
    }

    /// Checks that `numbers` has every segment with live messages or unsealed rows.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`] for the first missing segment.
    pub(crate) fn check_segments(&self, numbers: &[u64]) -> Result<(), StoreError> {
        let live = self
            .live
            .keys()
            .copied()
            .filter(|number| *number > self.moved);
        let mut needed = live.chain(self.streams.pinned());
        let Some(missing) = needed.find(|number| numbers.binary_search(number).is_err()) else {
            return Ok(());
        };
        let mut damage = Damage::whole(&segment::name(missing), WANTED);
        damage.concerns = self.wanting_of(missing)?;
        Err(damage.into())
    }

    /// A sentence about an error of the checkpoint that was corrected without loss, if there was one.
    pub(crate) fn righted(&self) -> Option<String> {
        self.tables.is_righted().then(|| RIGHTED.to_owned())
    }

    /// A snapshot of the checkpoint.
    pub(crate) fn snapshot(&self) -> Result<ReadTransaction, StoreError> {
        self.tables.snapshot()
    }

    /// The identifier of the store.
    pub(crate) fn store(&self) -> StoreId {
        self.store
    }

    /// The checkpoint has all records up to this LSN.
    pub(crate) fn checkpoint_lsn(&self) -> u64 {
        self.checkpoint_lsn
    }

    /// Whether the session exists.
    pub(crate) fn has_session(&mut self, session: u64) -> Result<bool, StoreError> {
        Ok(self.cached_session(session)?.row.is_some())
    }

    /// Layers of changes, newest first.
    fn layers(&self) -> impl Iterator<Item = &Changes> {
        let frozen = self.frozen.iter().map(|frozen| &frozen.changes);
        std::iter::once(&self.changes).chain(frozen)
    }

    /// Up to `limit` queued deliveries of the session, from number `from` on.
    pub(crate) fn queue(
        &self,
        session: u64,
        from: u64,
        limit: usize,
    ) -> Result<Vec<StoredDelivery>, StoreError> {
        let changes: Vec<_> = self
            .layers()
            .filter_map(|layer| layer.queue(session))
            .collect();
        let mut waiting = self.stored_queue(session, from, limit, &changes)?;
        let own = self.changes.queue(session);
        for change in &changes {
            let mut taken = 0;
            for delivery in change.added_from(from) {
                if taken >= limit {
                    break;
                }
                let delivery = delivery.map_err(wrong)?;
                // A delivery of the frozen layer may have been removed since.
                if own.is_none_or(|own| !own.has_removed(delivery.number)) {
                    taken += 1;
                    waiting.insert(delivery.number, delivery);
                }
            }
        }
        Ok(waiting.into_values().take(limit).collect())
    }

    /// Like [`queue`](Self::queue), but only deliveries of the checkpoint, without those that `changes` removed.
    fn stored_queue(
        &self,
        session: u64,
        from: u64,
        limit: usize,
        changes: &[&QueueChange],
    ) -> Result<BTreeMap<u64, StoredDelivery>, StoreError> {
        let is_gone = |number| changes.iter().any(|change| change.has_removed(number));
        let mut waiting = BTreeMap::new();
        for chunk in self.tables.chunks(session, from)? {
            for delivery in chunk?.deliveries() {
                let delivery = delivery.map_err(wrong)?;
                if delivery.number < from || is_gone(delivery.number) {
                    continue;
                }
                waiting.insert(delivery.number, delivery);
                if waiting.len() >= limit {
                    return Ok(waiting);
                }
            }
        }
        Ok(waiting)
    }

    /// Every topic with a retained message, and the message's number.
    pub(crate) fn retained(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut retained = BTreeMap::new();
        if let Some(table) = self.tables.table(RETAINED)? {
            for row in redb::ReadableTable::iter(&table).map_err(checkpoint)? {
                let (topic, message) = row.map_err(checkpoint)?;
                retained.insert(topic.value().to_owned(), message.value());
            }
        }
        let layers: Vec<_> = self.layers().collect();
        for (topic, message) in layers.into_iter().rev().flat_map(|layer| &layer.retained) {
            match message {
                Some(message) => retained.insert(topic.clone(), *message),
                None => retained.remove(topic),
            };
        }
        Ok(retained)
    }

    /// The content of a message; `None` if nothing refers to it.
    pub(crate) fn message(&mut self, message: u64) -> Result<Option<StoredMessage>, StoreError> {
        let found = self.find(message);
        let read = found.and_then(|found| found.map(BodyLocation::read).transpose());
        read.map_err(|error| self.explain(message, error))
    }

    /// Finds the content of a message; `None` if nothing refers to it. The result can be read after the index has
    /// changed: a file that is open stays readable.
    pub(crate) fn find(&mut self, message: u64) -> Result<Option<BodyLocation>, StoreError> {
        let Some(place) = self.message_row(message)?.map(|row| row.place()) else {
            return Ok(None);
        };
        if place.segment > self.moved {
            let (store, file) = (self.store, self.open_segment(place.segment)?);
            return Ok(Some(BodyLocation::Log { place, store, file }));
        }
        let Some((flags, body)) = self.tables.body(message)? else {
            return Err(StoreError::Checkpoint(
                format!("message {message} is missing").into(),
            ));
        };
        Ok(Some(BodyLocation::Here(flags, body)))
    }

    /// Closes the cached segment file if its number is up to `through`: a removed file frees its space only when it
    /// is closed.
    pub(crate) fn close(&mut self, through: u64) {
        self.reading.take_if(|(number, _)| *number <= through);
    }

    /// Bytes of live messages, by segment.
    pub(crate) fn live(&self) -> &BTreeMap<u64, u64> {
        &self.live
    }

    /// Bytes of all live messages, in the log and in the checkpoint.
    pub(crate) fn wanted_bytes(&self) -> u64 {
        self.live.values().sum::<u64>() + self.moved_bytes
    }

    /// Number of rows in memory that the checkpoint does not have.
    pub(crate) fn pending_rows(&self) -> usize {
        self.changes.rows()
    }

    fn open_segment(&mut self, number: u64) -> Result<Arc<dyn File>, StoreError> {
        match &self.reading {
            Some((open, file)) if *open == number => Ok(Arc::clone(file)),
            _ => {
                let name = segment::name(number);
                let file = self.files.open(&name);
                let file = file.map_err(|error| StoreError::io("read", &name, error))?;
                self.reading = Some((number, Arc::clone(&file)));
                Ok(file)
            }
        }
    }

    fn cached_session(&mut self, session: u64) -> Result<&mut Cached<CachedSession>, StoreError> {
        let mut before = None;
        if !self.changes.sessions.contains(session) {
            let frozen = self.frozen.as_ref();
            before = match frozen.and_then(|frozen| frozen.changes.sessions.get(session)) {
                Some(frozen) => frozen.row.clone(),
                None => self.tables.session(session)?.map(CachedSession::Packed),
            };
        }
        let cached = || Cached::stored(before);
        Ok(self.changes.sessions.get_or_insert_with(session, cached))
    }

    fn cached_subscriptions(&mut self, session: u64) -> Result<&mut Cached<Box<[u8]>>, StoreError> {
        let mut before = None;
        if !self.changes.subscriptions.contains(session) {
            let frozen = self.frozen.as_ref();
            before = match frozen.and_then(|frozen| frozen.changes.subscriptions.get(session)) {
                Some(frozen) => frozen.row.clone(),
                None => self.tables.subscriptions(session)?,
            };
        }
        let (subscriptions, cached) = (&mut self.changes.subscriptions, || Cached::stored(before));
        Ok(subscriptions.get_or_insert_with(session, cached))
    }

    /// The row of a message; `None` if nothing refers to it.
    fn message_row(&self, message: u64) -> Result<Option<MessageRow>, StoreError> {
        let of = |layer: &Changes| Some(layer.messages.get(message)?.row);
        match self.layers().find_map(of) {
            Some(row) => Ok(row),
            None => self.tables.message(message),
        }
    }

    /// The retained message of a topic.
    fn retained_of(&self, topic: &str) -> Result<Option<u64>, StoreError> {
        match self.layers().find_map(|layer| layer.retained.get(topic)) {
            Some(message) => Ok(*message),
            None => self.tables.retained(topic),
        }
    }

    /// A delivery that was queued before the newest layer began.
    fn queued_before(
        &self,
        session: u64,
        number: u64,
    ) -> Result<Option<StoredDelivery>, StoreError> {
        let frozen = self.frozen.as_ref();
        if let Some(queue) = frozen.and_then(|frozen| frozen.changes.queue(session)) {
            if let Some(delivery) = queue.find(number).map_err(wrong)? {
                return Ok(Some(delivery));
            }
            if queue.has_removed(number) {
                return Ok(None);
            }
        }
        self.tables.queued(session, number)
    }
}
