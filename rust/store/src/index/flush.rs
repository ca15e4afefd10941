//! Writing the checkpoint, and emptying old segments into it.

use std::collections::BTreeMap;
use std::io;

use redb::WriteTransaction;

use crate::error::StoreError;
use crate::index::numbered::Numbered;
use crate::index::rows::{Body, encode_subscriptions};
use crate::index::tables::{
    MESSAGE, Meta, QUEUE, RETAINED, SEGMENT, SESSION, SUBSCRIPTION, checkpoint, put_meta,
    put_streams,
};
use crate::index::{Cached, Index};
use crate::journal::frame;
use crate::journal::scan::Groups;
use crate::journal::segment::{self, HEADER, Header};
use crate::record::Record;

impl Index {
    /// Writes everything that has changed, in one transaction with the LSN that it stands for.
    ///
    /// Everything applied must be safe in the log.
    pub(crate) fn flush(&mut self) -> Result<(), StoreError> {
        if self.applied_lsn == self.checkpoint_lsn {
            return Ok(());
        }
        let transaction = self.tables.begin()?;
        self.put_sessions(&transaction)?;
        self.put_queues(&transaction)?;
        self.put_messages(&transaction)?;
        self.put_segments(&transaction)?;
        let meta = Meta {
            store: self.store,
            applied_lsn: self.applied_lsn,
            next_number: self.next_number,
        };
        put_meta(&transaction, &meta)?;
        put_streams(&transaction, &self.streams)?;
        self.notes.put(&transaction)?;
        transaction.commit().map_err(checkpoint)?;
        self.tables.refresh()?;
        self.checkpoint_lsn = self.applied_lsn;
        self.notes.settle();
        self.forget();
        Ok(())
    }

    /// The last segment such that the log needs none up to it, after a [`Index::flush`]; the
    /// segment that is written to is not looked at.
    pub(crate) fn droppable(&self, full: &[(u64, u64)]) -> Option<u64> {
        let is_free = |&&(number, last_lsn): &&(u64, u64)| {
            last_lsn <= self.checkpoint_lsn
                && self.live.get(&number).is_none_or(|&live| live == 0)
                && self.streams.pinned().is_none_or(|pinned| number < pinned)
        };
        full.iter()
            .take_while(is_free)
            .last()
            .map(|(number, _)| *number)
    }

    /// Moves what is still wanted of a full segment into the checkpoint, after a
    /// [`Index::flush`]: then the segment can go.
    pub(crate) fn empty(&mut self, number: u64) -> Result<(), StoreError> {
        let name = segment::name(number);
        let file = self.files.open(&name);
        let file = file.map_err(|error| StoreError::io("open", &name, error))?;
        let mut bytes = Vec::new();
        segment::read(&*file, &name, &mut bytes)?;
        let header = Header::parse(&name, &bytes)?;
        let seed = header.map_or(0, |header| header.seed());
        let first_lsn = header.map_or(0, |header| header.first_lsn);
        let groups = Groups::new(&bytes, seed, HEADER, first_lsn);
        let frames = groups.flat_map(|group| group.records());
        self.move_messages(number, frames.map(|(offset, frame)| (offset as u64, frame)))
    }

    /// Moves those of `frames`, at their offsets, that are wanted messages into the checkpoint;
    /// nothing in the segment is wanted then.
    pub(crate) fn move_messages<'f>(
        &mut self,
        number: u64,
        frames: impl Iterator<Item = (u64, frame::Frame<'f>)>,
    ) -> Result<(), StoreError> {
        debug_assert_eq!(self.applied_lsn, self.checkpoint_lsn, "after a flush");
        let transaction = self.tables.begin()?;
        for (offset, frame) in frames {
            self.move_message(&transaction, number, offset, &frame)?;
        }
        self.live.remove(&number);
        self.reading = None;
        self.put_segments(&transaction)?;
        transaction.commit().map_err(checkpoint)?;
        self.tables.refresh()?;
        self.messages.clear();
        Ok(())
    }

    /// Drops every delivery and retained message whose content cannot be read; returns the
    /// sessions that lost some, by client identifier, and how many.
    pub(crate) fn drop_unreadable(&mut self) -> Result<BTreeMap<String, u64>, StoreError> {
        let mut lost = BTreeMap::new();
        for session in self.sessions()? {
            let mut deliveries = self.queue(session, 0, usize::MAX)?;
            let Some(row) = self.session(session)?.cloned() else {
                continue;
            };
            deliveries.extend(row.publishes.into_iter().map(|(_, delivery)| delivery));
            for delivery in deliveries {
                if !self.is_readable(delivery.message)? {
                    *lost.entry(row.client_id.clone()).or_default() += 1;
                    self.give_up(session, delivery.number)?;
                }
            }
        }
        for (topic, message) in self.retained()? {
            if !self.is_readable(message)? {
                self.give_up_retained(&topic)?;
            }
        }
        // What it gave up is in no record: the checkpoint is written for the same LSN again.
        self.checkpoint_lsn = 0;
        self.flush()?;
        Ok(lost)
    }

    fn is_readable(&mut self, message: u64) -> Result<bool, StoreError> {
        match self.message(message) {
            Ok(found) => Ok(found.is_some()),
            Err(StoreError::Damaged(_)) => Ok(false),
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }

    fn move_message(
        &mut self,
        transaction: &WriteTransaction,
        segment: u64,
        offset: u64,
        frame: &frame::Frame<'_>,
    ) -> Result<(), StoreError> {
        let Ok(Record::Message(message)) = Record::decode(frame.kind, frame.flags, frame.body)
        else {
            return Ok(());
        };
        let Some(mut row) = self.tables.message(message.message)? else {
            return Ok(());
        };
        if !matches!(&row.body, Body::Log(place) if place.segment == segment && place.offset == offset)
        {
            return Ok(());
        }
        row.body = Body::Here(frame.flags, frame.body.to_vec());
        let mut bytes = Vec::new();
        row.encode(&mut bytes);
        let mut table = transaction.open_table(MESSAGE).map_err(checkpoint)?;
        table
            .insert(message.message, &bytes[..])
            .map_err(checkpoint)?;
        Ok(())
    }

    fn put_sessions(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut table = transaction.open_table(SESSION).map_err(checkpoint)?;
        for (session, cached) in changed(self.sessions.iter()) {
            match &cached.row {
                None => drop(table.remove(*session).map_err(checkpoint)?),
                Some(row) => {
                    bytes.clear();
                    row.encode(&mut bytes);
                    table.insert(*session, &bytes[..]).map_err(checkpoint)?;
                }
            }
        }
        let mut table = transaction.open_table(SUBSCRIPTION).map_err(checkpoint)?;
        for (session, cached) in changed(self.subscriptions.iter()) {
            match &cached.row {
                Some(held) if !held.is_empty() => {
                    bytes.clear();
                    encode_subscriptions(held, &mut bytes);
                    table.insert(*session, &bytes[..]).map_err(checkpoint)?;
                }
                _ => drop(table.remove(*session).map_err(checkpoint)?),
            }
        }
        Ok(())
    }

    fn put_queues(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut table = transaction.open_table(QUEUE).map_err(checkpoint)?;
        for key in &self.unqueued {
            table.remove(*key).map_err(checkpoint)?;
        }
        for (key, delivery) in &self.queued {
            bytes.clear();
            delivery.encode(&mut bytes);
            table.insert(*key, &bytes[..]).map_err(checkpoint)?;
        }
        Ok(())
    }

    fn put_messages(&self, transaction: &WriteTransaction) -> Result<(), StoreError> {
        let mut bytes = Vec::new();
        let mut table = transaction.open_table(MESSAGE).map_err(checkpoint)?;
        for (message, cached) in changed(self.messages.iter()) {
            match &cached.row {
                None => drop(table.remove(*message).map_err(checkpoint)?),
                Some(row) => {
                    bytes.clear();
                    row.encode(&mut bytes);
                    table.insert(*message, &bytes[..]).map_err(checkpoint)?;
                }
            }
        }
        let mut table = transaction.open_table(RETAINED).map_err(checkpoint)?;
        for (topic, message) in &self.retained {
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
            .retain(|segment, _| self.live.get(&segment).is_some_and(|&live| live > 0))
            .map_err(checkpoint)?;
        for (segment, live) in self.live.iter().filter(|(_, live)| **live > 0) {
            table.insert(*segment, *live).map_err(checkpoint)?;
        }
        Ok(())
    }

    /// Gives the memory back of what the checkpoint has now.
    fn forget(&mut self) {
        self.sessions = Numbered::default();
        self.subscriptions = Numbered::default();
        self.queued.clear();
        self.unqueued.clear();
        self.messages = Numbered::default();
        self.retained.clear();
        self.live.retain(|_, live| *live > 0);
        self.pending_bytes = 0;
    }
}

/// The rows that differ from the checkpoint, in the order of their keys.
fn changed<'a, T: 'a>(
    rows: impl Iterator<Item = (&'a u64, &'a Cached<T>)>,
) -> impl Iterator<Item = (&'a u64, &'a Cached<T>)> {
    let mut rows: Vec<_> = rows.filter(|(_, cached)| cached.is_due()).collect();
    rows.sort_unstable_by_key(|(key, _)| **key);
    rows.into_iter()
}
