//! Writes a checkpoint from a draft.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use redb::{Database, ReadableTable, Table, WriteTransaction};

use crate::error::StoreError;
use crate::index::Index;
use crate::index::changes::{Cached, CachedSession, Changes, QueueChange};
use crate::index::chunk::DeliveryChunk;
use crate::index::messages::{changed_page, number_of};
use crate::index::notes::{ChangedNotes, put_notes};
use crate::index::rows::{StoredDelivery, StoredMessage};
use crate::index::streams::StreamTable;
use crate::index::tables::{
    BODY, MESSAGE, QUEUE, RETAINED, SEGMENT, SESSION, SUBSCRIPTION, begin_change, checkpoint,
    chunk_at, put_meta, put_streams, wrong,
};
use crate::wal::identity::Meta;

/// The content of the next checkpoint: the index still reads it while another thread writes it.
#[derive(Debug)]
pub(crate) struct CheckpointDraft {
    pub(crate) changes: Changes,
    notes: ChangedNotes,
    streams: StreamTable,
    /// Bytes of live messages, by segment.
    pub(crate) live: BTreeMap<u64, u64>,
    meta: Meta,
    /// Whether anything changed since the last checkpoint.
    is_due: bool,
}

/// Number of lost messages by name: client identifier or topic.
pub(crate) type LiveCounts = BTreeMap<String, u64>;

impl Index {
    /// Writes all changes, with their LSN, in one transaction.
    ///
    /// Every applied record must be safe in the log.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        let frozen = self.freeze();
        frozen.write(&self.tables.database())?;
        self.thaw(&frozen)
    }

    /// Freezes the changes, so that another thread can write them; [`Index::thaw`] must come before the next freeze.
    ///
    /// Every applied record must be safe in the log.
    pub(crate) fn freeze(&mut self) -> Arc<CheckpointDraft> {
        debug_assert!(self.frozen.is_none(), "one at a time");
        debug_assert!(self.unwanted.is_empty(), "between two groups");
        self.live.retain(|_, live| *live > 0);
        self.weigh_frozen(self.changes.heap_bytes());
        let frozen = Arc::new(CheckpointDraft {
            changes: std::mem::take(&mut self.changes),
            notes: self.notes.take_changed(),
            streams: self.streams.clone(),
            live: self.live.clone(),
            meta: Meta {
                store: self.store,
                applied_lsn: self.applied_lsn,
                next_number: self.next_number,
                moved: self.moved,
            },
            is_due: self.applied_lsn != self.checkpoint_lsn,
        });
        self.frozen = Some(Arc::clone(&frozen));
        self.pending_bytes = 0;
        frozen
    }

    /// Drops the frozen changes after they were written into the checkpoint.
    pub(crate) fn thaw(&mut self, frozen: &CheckpointDraft) -> Result<(), StoreError> {
        self.tables.refresh()?;
        self.frozen = None;
        self.forget_frozen();
        self.checkpoint_lsn = frozen.meta.applied_lsn;
        Ok(())
    }

    /// Reads the checkpoint again after another writer changed it.
    pub(crate) fn reread(&mut self) -> Result<(), StoreError> {
        self.tables.refresh()
    }

    /// The database that the frozen changes are written into.
    pub(crate) fn database(&self) -> Arc<Database> {
        self.tables.database()
    }

    /// Drops every delivery and retained message whose content cannot be read. Returns the number of lost messages by
    /// client identifier, and by topic for retained messages.
    pub(crate) fn drop_unreadable(&mut self) -> Result<(LiveCounts, LiveCounts), StoreError> {
        let (mut lost, mut topics) = (LiveCounts::new(), LiveCounts::new());
        let mut sessions = Vec::new();
        self.clients(&mut |session, client_id| sessions.push((session, client_id.to_owned())))?;
        for (session, client_id) in sessions {
            for delivery in self.deliveries(session)? {
                if !self.is_readable(delivery.message)? {
                    *lost.entry(client_id.clone()).or_default() += 1;
                    self.give_up(session, delivery.number)?;
                }
            }
        }
        for (topic, message) in self.retained()? {
            if !self.is_readable(message)? {
                self.give_up_retained(&topic)?;
                topics.insert(topic, 1);
            }
        }
        // No record describes the dropped messages, so the checkpoint is written again with the same LSN.
        self.checkpoint_lsn = 0;
        self.flush()?;
        Ok((lost, topics))
    }

    /// Queued and in-flight deliveries of a session.
    pub(super) fn deliveries(&mut self, session: u64) -> Result<Vec<StoredDelivery>, StoreError> {
        let mut deliveries = self.queue(session, 0, usize::MAX)?;
        if let Some(row) = &self.cached_session(session)?.row {
            let row = row.row().map_err(wrong)?;
            deliveries.extend(row.publishes.iter().map(|(_, delivery)| delivery.clone()));
        }
        Ok(deliveries)
    }

    fn is_readable(&mut self, message: u64) -> Result<bool, StoreError> {
        Ok(self.readable(message)?.is_some())
    }

    /// The content of a message; `None` if it is missing or damaged.
    pub(super) fn readable(&mut self, message: u64) -> Result<Option<StoredMessage>, StoreError> {
        match self.message(message) {
            Err(StoreError::Damaged(_) | StoreError::Checkpoint(_)) => Ok(None),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(None)
            }
            found => found,
        }
    }
}

impl CheckpointDraft {
    /// The LSN of the last record in it.
    pub(crate) fn applied_lsn(&self) -> u64 {
        self.meta.applied_lsn
    }

    pub(crate) fn streams(&self) -> &StreamTable {
        &self.streams
    }

    /// The log does not need the segments of `full` up to the returned one, once this draft is written and live
    /// messages up to segment `moved` are in the checkpoint. The segment that is being written is not in `full`.
    pub(crate) fn droppable(&self, full: &[(u64, u64)], moved: u64) -> Option<u64> {
        let pinned = self.streams.pinned();
        let is_free = |&&(number, last_lsn): &&(u64, u64)| {
            last_lsn <= self.meta.applied_lsn
                && (number <= moved || !self.live.contains_key(&number))
                && pinned.is_none_or(|pinned| number < pinned)
        };
        full.iter()
            .take_while(is_free)
            .last()
            .map(|(number, _)| *number)
    }

    /// Writes the draft in one transaction.
    pub(crate) fn write(&self, database: &Database) -> Result<(), StoreError> {
        if !self.is_due {
            return Ok(());
        }
        let transaction = begin_change(database)?;
        self.put_sessions(&transaction)?;
        self.put_queues(&transaction)?;
        self.put_messages(&transaction)?;
        self.put_segments(&transaction)?;
        put_notes(&transaction, &self.notes)?;
        put_streams(&transaction, &self.streams)?;
        put_meta(&transaction, &self.meta)?;
        transaction.commit().map_err(checkpoint)
    }

    fn put_sessions(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut table = transaction.open_table(SESSION).map_err(checkpoint)?;
        for (session, cached) in changed(self.changes.sessions.iter()) {
            match &cached.row {
                None => drop(table.remove(session).map_err(checkpoint)?),
                Some(CachedSession::Packed(row)) => {
                    table.insert(session, &row[..]).map_err(checkpoint)?;
                }
                Some(CachedSession::Open(row)) => {
                    bytes.clear();
                    row.encode(&mut bytes);
                    table.insert(session, &bytes[..]).map_err(checkpoint)?;
                }
            }
        }
        let mut table = transaction.open_table(SUBSCRIPTION).map_err(checkpoint)?;
        for (session, cached) in changed(self.changes.subscriptions.iter()) {
            match &cached.row {
                Some(held) if held[..] != NONE => {
                    table.insert(session, &held[..]).map_err(checkpoint)?;
                }
                _ => drop(table.remove(session).map_err(checkpoint)?),
            }
        }
        Ok(())
    }

    fn put_queues(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut table = transaction.open_table(QUEUE).map_err(checkpoint)?;
        let mut queues: Vec<_> = self.changes.queues().collect();
        queues.sort_unstable_by_key(|(session, _)| *session);
        for (session, change) in queues {
            let mut queue = StoredQueue {
                table: &mut table,
                session,
                bytes: Vec::new(),
            };
            queue.remove(change)?;
            queue.add(&change.added)?;
        }
        Ok(())
    }

    fn put_messages(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut table = transaction.open_table(MESSAGE).map_err(checkpoint)?;
        let mut bodies = transaction.open_table(BODY).map_err(checkpoint)?;
        for (number, changes) in self.changes.messages.pages() {
            let stored = table.get(number).map_err(checkpoint)?;
            let stored = stored.map(|page| page.value().to_vec()).unwrap_or_default();
            let page = changed_page(&stored, &changes).map_err(wrong)?;
            if !page.is_empty() {
                table.insert(number, &page[..]).map_err(checkpoint)?;
            } else if !stored.is_empty() {
                table.remove(number).map_err(checkpoint)?;
            }
            let gone = changes.iter().filter(|changed| changed.row.is_none());
            for changed in gone.filter(|_| self.meta.moved > 0) {
                let message = number_of(number, changed);
                bodies.remove(message).map_err(checkpoint)?;
            }
        }
        let mut table = transaction.open_table(RETAINED).map_err(checkpoint)?;
        for (topic, message) in &self.changes.retained {
            match message {
                None => drop(table.remove(topic.as_str()).map_err(checkpoint)?),
                Some(message) => {
                    table.insert(topic.as_str(), *message).map_err(checkpoint)?;
                }
            }
        }
        Ok(())
    }

    fn put_segments(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut table = transaction.open_table(SEGMENT).map_err(checkpoint)?;
        table
            .retain(|segment, _| self.live.contains_key(&segment))
            .map_err(checkpoint)?;
        for (segment, live) in &self.live {
            table.insert(*segment, *live).map_err(checkpoint)?;
        }
        Ok(())
    }
}

/// An encoded empty list of subscriptions.
const NONE: [u8; 1] = [0];

/// The rows of one queue.
struct StoredQueue<'t, 'x> {
    table: &'t mut Table<'x, (u64, u64), &'static [u8]>,
    session: u64,
    bytes: Vec<u8>,
}

impl StoredQueue<'_, '_> {
    /// Removes the deliveries that are no longer queued.
    fn remove(&mut self, change: &QueueChange) -> Result<(), StoreError> {
        let mut numbers = change.removed().peekable();
        while let Some(number) = numbers.next() {
            let Some((key, mut chunk)) = chunk_at(&*self.table, self.session, number)? else {
                continue;
            };
            let last = chunk.last;
            chunk.take(number).map_err(wrong)?;
            while let Some(number) = numbers.next_if(|number| *number <= last) {
                chunk.take(number).map_err(wrong)?;
            }
            self.put(key, &chunk)?;
        }
        Ok(())
    }

    /// Adds chunks in their order.
    fn add(&mut self, chunks: &[DeliveryChunk]) -> Result<(), StoreError> {
        let Some(first) = chunks.first() else {
            return Ok(());
        };
        let Some((key, mut last)) = chunk_at(&*self.table, self.session, u64::MAX)? else {
            return chunks
                .iter()
                .try_for_each(|chunk| self.put(chunk.first, chunk));
        };
        if first.first <= last.last {
            return self.mix(chunks);
        }
        let mut rest = chunks;
        if last.append(first) {
            self.put(key, &last)?;
            rest = &chunks[1..];
        }
        rest.iter()
            .try_for_each(|chunk| self.put(chunk.first, chunk))
    }

    /// Adds chunks to a queue that already has later deliveries: its tail is rewritten.
    fn mix(&mut self, chunks: &[DeliveryChunk]) -> Result<(), StoreError> {
        let first = chunks[0].first;
        let from = chunk_at(&*self.table, self.session, first)?.map_or(first, |(key, _)| key);
        let mut all: BTreeMap<u64, StoredDelivery> = BTreeMap::new();
        let range = (self.session, from)..=(self.session, u64::MAX);
        let mut keys = Vec::new();
        for row in self.table.range(range).map_err(checkpoint)? {
            let (key, bytes) = row.map_err(checkpoint)?;
            keys.push(key.value());
            let chunk = DeliveryChunk::decode(bytes.value()).map_err(wrong)?;
            for delivery in chunk.deliveries() {
                let delivery = delivery.map_err(wrong)?;
                all.insert(delivery.number, delivery);
            }
        }
        for delivery in chunks.iter().flat_map(DeliveryChunk::deliveries) {
            let delivery = delivery.map_err(wrong)?;
            all.insert(delivery.number, delivery);
        }
        for key in keys {
            self.table.remove(key).map_err(checkpoint)?;
        }
        let anew = DeliveryChunk::all(all.values());
        anew.iter()
            .try_for_each(|chunk| self.put(chunk.first, chunk))
    }

    fn put(&mut self, key: u64, chunk: &DeliveryChunk) -> Result<(), StoreError> {
        let key = (self.session, key);
        if chunk.count == 0 {
            self.table.remove(key).map_err(checkpoint)?;
            return Ok(());
        }
        self.bytes.clear();
        chunk.encode(&mut self.bytes);
        self.table
            .insert(key, &self.bytes[..])
            .map_err(checkpoint)?;
        Ok(())
    }
}

/// The rows that the checkpoint must write or remove, in key order.
fn changed<'a, R: 'a>(
    rows: impl Iterator<Item = (u64, &'a Cached<R>)>,
) -> impl Iterator<Item = (u64, &'a Cached<R>)> {
    let mut rows: Vec<_> = rows.filter(|(_, cached)| cached.is_due()).collect();
    rows.sort_unstable_by_key(|(key, _)| *key);
    rows.into_iter()
}
