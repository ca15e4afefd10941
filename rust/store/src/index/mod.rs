//! What the records amount to: sessions, their queues, messages that are still wanted.
//!
//! The checkpoint has it as it was at `applied_lsn`. What later records changed is in memory,
//! row by row, and goes into the checkpoint in one transaction; then the memory is given back.
//! So a message that is delivered soon never reaches the checkpoint, and the queue of a client
//! that stays away does not stay in memory.

mod apply;
mod flush;
pub(crate) mod notes;
mod numbered;
pub(crate) mod rows;
pub(crate) mod streams;
pub(crate) mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use redb::ReadTransaction;

use crate::error::StoreError;
use crate::files::{File, Files, read_full};
use crate::index::notes::Notes;
use crate::index::numbered::Numbered;
use crate::index::rows::{Body, Delivery, MessageRow, SessionRow, StoredMessage, Subscriptions};
use crate::index::streams::StreamTable;
use crate::index::tables::{Meta, RETAINED, SEGMENT, SESSION, Tables, checkpoint, wrong};
use crate::journal::Place;
use crate::journal::frame;
use crate::journal::segment::{self, Header, StoreId};

/// A row as it is now: changed, or known to be as the checkpoint has it.
#[derive(Clone, Debug)]
struct Cached<T> {
    row: Option<T>,
    is_changed: bool,
    /// The checkpoint has a row for it, this one or an older one.
    is_stored: bool,
}

impl<T> Cached<T> {
    fn stored(row: Option<T>) -> Self {
        Self {
            is_stored: row.is_some(),
            row,
            is_changed: false,
        }
    }

    /// Whether the checkpoint has to be changed for it.
    fn is_due(&self) -> bool {
        self.is_changed && (self.is_stored || self.row.is_some())
    }
}

/// What the store knows besides the log.
#[derive(Debug)]
pub(crate) struct Index {
    files: Arc<dyn Files>,
    tables: Tables,
    store: StoreId,
    pub(crate) applied_lsn: u64,
    checkpoint_lsn: u64,
    pub(crate) next_number: u64,
    sessions: Numbered<Cached<SessionRow>>,
    subscriptions: Numbered<Cached<Subscriptions>>,
    /// Queued since the checkpoint and still waiting.
    queued: BTreeMap<(u64, u64), Delivery>,
    /// In the checkpoint's queues, but not waiting any more.
    unqueued: BTreeSet<(u64, u64)>,
    messages: Numbered<Cached<MessageRow>>,
    retained: BTreeMap<String, Option<u64>>,
    pub(crate) streams: StreamTable,
    pub(crate) notes: Notes,
    /// Messages that nobody seemed to want so far in this group.
    unwanted: Vec<u64>,
    /// Bytes of messages that are wanted, by the segment that holds them.
    live: BTreeMap<u64, u64>,
    /// The file that was read last.
    reading: Option<(u64, Arc<dyn File>)>,
    /// Bytes of records since the checkpoint.
    pub(crate) pending_bytes: u64,
}

/// What waits for a session.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Waiting {
    /// How many deliveries.
    pub deliveries: u64,
    /// Sizes of their messages: topic, properties and payload.
    pub bytes: u64,
}

/// The content of a message, not read yet.
#[derive(Debug)]
pub(crate) enum Found {
    /// Flags and body of its record.
    Here(u8, Vec<u8>),
    Log {
        place: Place,
        store: StoreId,
        file: Arc<dyn File>,
    },
}

impl Found {
    /// Reads it; the checksum is checked each time.
    pub(crate) fn read(self) -> Result<StoredMessage, StoreError> {
        let (place, store, file) = match self {
            Self::Here(flags, body) => return StoredMessage::new(flags, body).map_err(wrong),
            Self::Log { place, store, file } => (place, store, file),
        };
        let name = segment::name(place.segment);
        let mut bytes = vec![0; usize::try_from(place.bytes).unwrap_or(usize::MAX)];
        let read = read_full(&*file, &mut bytes, place.offset);
        let read = read.map_err(|error| StoreError::io("read", &name, error))?;
        let header = Header {
            store,
            number: place.segment,
            first_lsn: 0,
        };
        let frame = frame::parse(&bytes[..read], header.seed());
        let frame = frame.ok_or_else(|| crate::error::Damage {
            file: name,
            offset: place.offset,
            first_lsn: frame::claimed_lsn(&bytes).unwrap_or_default(),
            last_lsn: frame::claimed_lsn(&bytes).unwrap_or_default(),
            reason: "a message that was safe cannot be read",
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
        let tables = Tables::open(&**files, cache_bytes)?;
        let meta = tables.meta()?;
        let mut live = BTreeMap::new();
        if let Some(table) = tables.table(SEGMENT)? {
            for row in redb::ReadableTable::iter(&table).map_err(checkpoint)? {
                let (segment, bytes) = row.map_err(checkpoint)?;
                live.insert(segment.value(), bytes.value());
            }
        }
        let known = meta.unwrap_or_default();
        let streams = tables.streams()?;
        let notes = Notes::read(&tables)?;
        let index = Self {
            files: Arc::clone(files),
            tables,
            store: known.store,
            applied_lsn: known.applied_lsn,
            checkpoint_lsn: known.applied_lsn,
            next_number: known.next_number.max(1),
            sessions: Numbered::default(),
            subscriptions: Numbered::default(),
            queued: BTreeMap::new(),
            unqueued: BTreeSet::new(),
            messages: Numbered::default(),
            retained: BTreeMap::new(),
            streams,
            notes,
            unwanted: Vec::new(),
            live,
            reading: None,
            pending_bytes: 0,
        };
        Ok((index, meta))
    }

    /// Names the store, once the log has been opened.
    pub(crate) fn identify(&mut self, store: StoreId) {
        self.store = store;
    }

    /// The checkpoint as it is now, for as long as the snapshot is kept.
    pub(crate) fn snapshot(&self) -> Result<ReadTransaction, StoreError> {
        self.tables.snapshot()
    }

    /// Whose it is.
    pub(crate) fn store(&self) -> StoreId {
        self.store
    }

    /// Records up to here are in the checkpoint.
    pub(crate) fn checkpoint_lsn(&self) -> u64 {
        self.checkpoint_lsn
    }

    /// The session's row, if it is kept.
    pub(crate) fn session(&mut self, session: u64) -> Result<Option<&SessionRow>, StoreError> {
        Ok(self.cached_session(session)?.row.as_ref())
    }

    /// The session's row and subscriptions, without keeping them in memory: for whoever wants all
    /// sessions once.
    pub(crate) fn look_at(
        &self,
        session: u64,
    ) -> Result<Option<(SessionRow, Subscriptions)>, StoreError> {
        let row = match self.sessions.get(&session) {
            Some(cached) => cached.row.clone(),
            None => self.tables.session(session)?,
        };
        let subscriptions = match self.subscriptions.get(&session) {
            Some(cached) => cached.row.clone(),
            None => self.tables.subscriptions(session)?,
        };
        Ok(row.map(|row| (row, subscriptions.unwrap_or_default())))
    }

    /// The numbers of all sessions, ascending.
    pub(crate) fn sessions(&self) -> Result<Vec<u64>, StoreError> {
        let mut sessions = BTreeSet::new();
        if let Some(table) = self.tables.table(SESSION)? {
            for row in redb::ReadableTable::iter(&table).map_err(checkpoint)? {
                sessions.insert(row.map_err(checkpoint)?.0.value());
            }
        }
        for (session, cached) in &self.sessions {
            if cached.row.is_some() {
                sessions.insert(*session);
            } else {
                sessions.remove(session);
            }
        }
        Ok(sessions.into_iter().collect())
    }

    /// Up to `limit` deliveries that wait for the session, from number `from` on.
    pub(crate) fn queue(
        &self,
        session: u64,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Delivery>, StoreError> {
        let range = (session, from)..=(session, u64::MAX);
        let mut waiting = BTreeMap::new();
        if let Some(table) = self.tables.queues() {
            for row in table.range(range.clone()).map_err(checkpoint)? {
                let (key, bytes) = row.map_err(checkpoint)?;
                let key = key.value();
                if !self.unqueued.contains(&key) {
                    let delivery = Delivery::decode_row(key.1, bytes.value()).map_err(wrong)?;
                    waiting.insert(key.1, delivery);
                }
                if waiting.len() >= limit {
                    break;
                }
            }
        }
        for ((_, number), delivery) in self.queued.range(range).take(limit) {
            waiting.insert(*number, delivery.clone());
        }
        Ok(waiting.into_values().take(limit).collect())
    }

    /// How many deliveries wait for each session that has any, and the sizes of their messages.
    pub(crate) fn waiting(&self) -> Result<BTreeMap<u64, Waiting>, StoreError> {
        let mut waiting: BTreeMap<u64, Waiting> = BTreeMap::new();
        let mut count = |session: u64, bytes: u32| {
            let waiting = waiting.entry(session).or_default();
            waiting.deliveries += 1;
            waiting.bytes += u64::from(bytes);
        };
        if let Some(table) = self.tables.queues() {
            for row in redb::ReadableTable::iter(table).map_err(checkpoint)? {
                let (key, bytes) = row.map_err(checkpoint)?;
                let (session, number) = key.value();
                if !self.unqueued.contains(&(session, number)) {
                    let delivery = Delivery::decode_row(number, bytes.value()).map_err(wrong)?;
                    count(session, delivery.bytes);
                }
            }
        }
        for ((session, _), delivery) in &self.queued {
            count(*session, delivery.bytes);
        }
        Ok(waiting)
    }

    /// Every topic with a retained message, and the number of it.
    pub(crate) fn retained(&self) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut retained = BTreeMap::new();
        if let Some(table) = self.tables.table(RETAINED)? {
            for row in redb::ReadableTable::iter(&table).map_err(checkpoint)? {
                let (topic, message) = row.map_err(checkpoint)?;
                retained.insert(topic.value().to_owned(), message.value());
            }
        }
        for (topic, message) in &self.retained {
            match message {
                Some(message) => retained.insert(topic.clone(), *message),
                None => retained.remove(topic),
            };
        }
        Ok(retained)
    }

    /// The content of a message that is still wanted.
    pub(crate) fn message(&mut self, message: u64) -> Result<Option<StoredMessage>, StoreError> {
        let found = self.find(message)?;
        found.map(Found::read).transpose()
    }

    /// Where the content of a message is that is still wanted. What is found can be read when the
    /// index has gone on: an open file does not go away.
    pub(crate) fn find(&mut self, message: u64) -> Result<Option<Found>, StoreError> {
        let row = self.cached_message(message)?.row.as_ref();
        let Some(body) = row.map(|row| row.body.clone()) else {
            return Ok(None);
        };
        Ok(Some(match body {
            Body::Here(flags, body) => Found::Here(flags, body),
            Body::Log(place) => Found::Log {
                place,
                store: self.store,
                file: self.open_segment(place.segment)?,
            },
        }))
    }

    /// Leaves the file alone of a segment up to number `through`, which goes: as long as it is
    /// open, its room is taken.
    pub(crate) fn close(&mut self, through: u64) {
        self.reading.take_if(|(number, _)| *number <= through);
    }

    /// Messages whose content is in each segment, in bytes.
    pub(crate) fn live(&self) -> &BTreeMap<u64, u64> {
        &self.live
    }

    /// Rows in memory that the checkpoint does not have.
    pub(crate) fn pending_rows(&self) -> usize {
        self.sessions.len()
            + self.subscriptions.len()
            + self.queued.len()
            + self.unqueued.len()
            + self.messages.len()
            + self.retained.len()
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

    fn cached_session(&mut self, session: u64) -> Result<&mut Cached<SessionRow>, StoreError> {
        if !self.sessions.contains_key(&session) {
            let row = self.tables.session(session)?;
            self.sessions.insert(session, Cached::stored(row));
        }
        // INVARIANT: it was put there if it was missing.
        Ok(self.sessions.get_mut(&session).expect("cached"))
    }

    fn cached_subscriptions(
        &mut self,
        session: u64,
    ) -> Result<&mut Cached<Subscriptions>, StoreError> {
        if !self.subscriptions.contains_key(&session) {
            let row = self.tables.subscriptions(session)?;
            self.subscriptions.insert(session, Cached::stored(row));
        }
        // INVARIANT: it was put there if it was missing.
        Ok(self.subscriptions.get_mut(&session).expect("cached"))
    }

    fn cached_message(&mut self, message: u64) -> Result<&mut Cached<MessageRow>, StoreError> {
        if !self.messages.contains_key(&message) {
            let row = self.tables.message(message)?;
            self.messages.insert(message, Cached::stored(row));
        }
        // INVARIANT: it was put there if it was missing.
        Ok(self.messages.get_mut(&message).expect("cached"))
    }
}
