//! Applies each record to the index.

use crate::error::StoreError;
use crate::index::Index;
use crate::index::messages::MessageRow;
use crate::index::rows::{
    SessionRow, StoredDelivery, StoredSubscriptions, StoredWill, decode_subscriptions,
    encode_subscriptions,
};
use crate::index::tables::wrong;
use crate::record::{Away, MessageRecord, Recipients, Record, SessionOpened};
#[cfg(feature = "columnar")]
use crate::wal::batch::Batch;
use crate::wal::frame;
use crate::wal::open::read_record;
use crate::wal::segment::REACHED_MAX;
use crate::wal::writer::WrittenGroup;
use crate::wal::{LogPosition, Logged};
use crate::wire::BodyError;

impl Index {
    /// Applies a record; records of sessions that have ended have no effect.
    ///
    /// Records must come in the order of the log.
    pub(crate) fn apply(&mut self, logged: &Logged<'_>) -> Result<(), StoreError> {
        debug_assert!(logged.lsn > self.applied_lsn, "records come once, in order");
        self.step(&logged.record, logged.place)?;
        self.applied_lsn = logged.lsn;
        self.pending_bytes += logged.place.bytes;
        if logged.ends_group {
            self.end_group();
        }
        Ok(())
    }

    /// Applies the records of a group that was just written.
    pub(crate) fn apply_group(
        &mut self,
        bytes: &[u8],
        written: &WrittenGroup,
    ) -> Result<(), StoreError> {
        let mut at = 0;
        while let Some(frame) = frame::split(&bytes[at..])
            && frame.commit().is_none()
        {
            let place = LogPosition {
                segment: written.segment,
                offset: written.offset + at as u64,
                bytes: frame.bytes() as u64,
            };
            self.apply(&read_record(place, &frame, frame.lsn == written.last_lsn)?)?;
            at += frame.bytes();
        }
        debug_assert!(
            self.applied_lsn == written.last_lsn,
            "the group is as it was written"
        );
        Ok(())
    }

    /// Applies a batch that no log has; the next checkpoint has it.
    #[cfg(feature = "columnar")]
    pub(crate) fn apply_unlogged(&mut self, batch: &mut Batch) -> Result<(), StoreError> {
        let first_lsn = self.applied_lsn + 1;
        frame::seal_all(&mut batch.bytes, 0, first_lsn);
        let written = WrittenGroup {
            segment: self.moved,
            offset: 0,
            first_lsn,
            last_lsn: self.applied_lsn + u64::from(batch.records),
            has_rows: false,
        };
        self.apply_group(&batch.bytes, &written)
    }

    /// One arm for each record: longer than other functions, so that the compiler reports a missing arm.
    fn step(&mut self, record: &Record<'_>, place: LogPosition) -> Result<(), StoreError> {
        match record {
            Record::Message(message) => self.add_message(message, place),
            Record::Route {
                message,
                first,
                recipients,
            } => self.route(*message, *first, *recipients),
            Record::ExactlyOnceKey { session, packet_id } => self.change(*session, |row| {
                row.exactly_once.insert(*packet_id);
            }),
            Record::Released { session, packet_id } => self.change(*session, |row| {
                row.exactly_once.remove(packet_id);
            }),
            Record::Sending {
                session,
                delivery,
                packet_id,
            } => self.send(*session, *delivery, *packet_id),
            Record::Received { session, packet_id } => self.receive(*session, *packet_id),
            Record::Completed {
                session,
                packet_ids,
            } => packet_ids
                .iter()
                .try_for_each(|packet_id| self.complete(*session, packet_id)),
            Record::Dropped { session, delivery } => self.drop_queued(*session, *delivery),
            Record::Opened(opened) => self.open_session(opened),
            Record::Away(away) => self.disconnect(away),
            Record::Ended { session } => self.end_session(*session),
            Record::Subscribed {
                session,
                filter,
                options,
                id,
            } => self.change_subscriptions(*session, |held| {
                held.insert((*filter).to_owned(), (*options, *id));
            }),
            Record::Unsubscribed { session, filter } => {
                self.change_subscriptions(*session, |held| {
                    held.remove(*filter);
                })
            }
            Record::RetainCleared { topic } => self.retain(topic, None),
            Record::WillSet(will) => self.change(will.session, |row| {
                row.will = Some(StoredWill::new(will));
            }),
            Record::WillEnded { session } => self.change(*session, |row| row.will = None),
            Record::Stream {
                stream,
                epoch,
                name,
            } => {
                self.streams.name(*stream, *epoch, name);
                Ok(())
            }
            Record::Sealed {
                stream,
                partition,
                end,
            } => {
                self.streams.seal((*stream, *partition), *end);
                Ok(())
            }
            Record::Note { key, value } => {
                self.notes.set(key, value);
                Ok(())
            }
        }
    }

    /// Drops the messages of a group without references; this waits for the end of the group because later records
    /// may route them.
    fn end_group(&mut self) {
        for message in std::mem::take(&mut self.unwanted) {
            self.forget_if_unwanted(message);
        }
        self.changes.messages.pack();
        self.weigh_if_due();
    }

    fn add_message(
        &mut self,
        message: &MessageRecord<'_>,
        place: LogPosition,
    ) -> Result<(), StoreError> {
        if let Some((session, packet_id)) = message.exactly_once {
            self.change(session, |row| {
                row.exactly_once.insert(packet_id);
            })?;
        }
        let row = MessageRow::new(message.size(), place).map_err(wrong)?;
        if let Some(streamed) = &message.streamed {
            self.streams.add(streamed, place.segment);
        }
        self.count_live(&row, true);
        self.changes.messages.set(message.message, Some(row), false);
        self.unwanted.push(message.message);
        self.use_up(message.message, 1)?;
        self.route(message.message, message.message, message.recipients)?;
        if message.kept {
            self.retain(message.topic, Some(message.message))?;
        }
        Ok(())
    }

    fn route(
        &mut self,
        message: u64,
        first: u64,
        recipients: Recipients<'_>,
    ) -> Result<(), StoreError> {
        self.use_up(first, recipients.len())?;
        let Some(row) = self.message_row(message)? else {
            return Ok(());
        };
        let bytes = row.size;
        let mut wanted = 0;
        for (number, recipient) in (first..).zip(recipients.iter()) {
            if !self.has_session(recipient.session)? {
                continue;
            }
            wanted += 1;
            let delivery = StoredDelivery {
                number,
                message,
                qos: recipient.qos,
                retain: recipient.retain,
                bytes,
                subscription_ids: recipient.subscription_ids,
            };
            self.changes
                .enqueue(recipient.session, &delivery)
                .map_err(wrong)?;
        }
        self.refer(message, wanted)
    }

    fn send(&mut self, session: u64, delivery: u64, packet_id: u16) -> Result<(), StoreError> {
        let Some(delivery) = self.unqueue(session, delivery)? else {
            return Ok(());
        };
        self.change(session, |row| row.publishes.push((packet_id, delivery)))
    }

    fn receive(&mut self, session: u64, packet_id: u16) -> Result<(), StoreError> {
        let mut taken = None;
        self.change(session, |row| {
            taken = take_publish(row, packet_id);
            if !row.releases.contains(&packet_id) {
                row.releases.push(packet_id);
            }
        })?;
        taken.map_or(Ok(()), |delivery| self.release(delivery.message))
    }

    fn complete(&mut self, session: u64, packet_id: u16) -> Result<(), StoreError> {
        let mut taken = None;
        self.change(session, |row| {
            taken = take_publish(row, packet_id);
            if taken.is_none() {
                row.releases.retain(|&open| open != packet_id);
            }
        })?;
        taken.map_or(Ok(()), |delivery| self.release(delivery.message))
    }

    fn drop_queued(&mut self, session: u64, delivery: u64) -> Result<(), StoreError> {
        let taken = self.unqueue(session, delivery)?;
        taken.map_or(Ok(()), |delivery| self.release(delivery.message))
    }

    fn open_session(&mut self, opened: &SessionOpened<'_>) -> Result<(), StoreError> {
        self.use_up(opened.session, 1)?;
        let cached = self.cached_session(opened.session)?;
        cached.is_changed = true;
        let row = cached.row.get_or_insert_default();
        row.open().map_err(wrong)?.open(opened);
        row.pack();
        Ok(())
    }

    fn disconnect(&mut self, away: &Away) -> Result<(), StoreError> {
        self.change(away.session, |row| {
            row.away_since_ms = Some(away.at_ms);
            row.expiry_s = away.expiry_s;
            row.maybe_sent_below = row.maybe_sent_below.max(away.maybe_sent_below);
        })?;
        if let Some(row) = &mut self.cached_session(away.session)?.row {
            row.pack();
        }
        Ok(())
    }

    pub(super) fn end_session(&mut self, session: u64) -> Result<(), StoreError> {
        let cached = self.cached_session(session)?;
        let Some(row) = cached.row.take() else {
            return Ok(());
        };
        cached.is_changed = true;
        let cached = self.cached_subscriptions(session)?;
        (cached.row, cached.is_changed) = (None, true);
        for (_, delivery) in row.row().map_err(wrong)?.into_owned().publishes {
            self.release(delivery.message)?;
        }
        for delivery in self.queue(session, 0, usize::MAX)? {
            if self.unqueue(session, delivery.number)?.is_some() {
                self.release(delivery.message)?;
            }
        }
        Ok(())
    }

    /// Ends a delivery, queued or in flight, that cannot be made.
    pub(crate) fn give_up(&mut self, session: u64, number: u64) -> Result<(), StoreError> {
        let queued = self.unqueue(session, number)?;
        let mut taken = queued;
        self.change(session, |row| {
            let place = row
                .publishes
                .iter()
                .position(|(_, held)| held.number == number);
            taken = taken
                .take()
                .or_else(|| Some(row.publishes.remove(place?).1));
        })?;
        taken.map_or(Ok(()), |delivery| self.release(delivery.message))
    }

    pub(crate) fn give_up_retained(&mut self, topic: &str) -> Result<(), StoreError> {
        self.retain(topic, None)
    }

    fn retain(&mut self, topic: &str, message: Option<u64>) -> Result<(), StoreError> {
        let old = self.retained_of(topic)?;
        self.changes.retained.insert(topic.to_owned(), message);
        if let Some(message) = message {
            self.refer(message, 1)?;
        }
        old.map_or(Ok(()), |old| self.release(old))
    }

    /// Removes a delivery from its queue, if it is still there.
    fn unqueue(&mut self, session: u64, number: u64) -> Result<Option<StoredDelivery>, StoreError> {
        let taken = self.changes.dequeue(session, number).map_err(wrong)?;
        if taken.is_some() {
            return Ok(taken);
        }
        let own = self.changes.queue(session);
        if own.is_some_and(|own| own.has_removed(number)) {
            return Ok(None);
        }
        let found = self.queued_before(session, number)?;
        if found.is_some() {
            self.changes.remove(session, number);
        }
        Ok(found)
    }

    fn refer(&mut self, message: u64, count: u32) -> Result<(), StoreError> {
        self.change_message(message, |row| {
            row.references = row.references.saturating_add(count);
        })
    }

    /// Removes one reference; a message without references is dropped.
    fn release(&mut self, message: u64) -> Result<(), StoreError> {
        self.change_message(message, |row| {
            row.references = row.references.saturating_sub(1);
        })?;
        self.forget_if_unwanted(message);
        Ok(())
    }

    /// Drops a message unless it has references.
    pub(super) fn drop_unwanted(&mut self, message: u64) -> Result<(), StoreError> {
        self.refer(message, 0)?;
        self.forget_if_unwanted(message);
        Ok(())
    }

    fn change_message(
        &mut self,
        message: u64,
        change: impl FnOnce(&mut MessageRow),
    ) -> Result<(), StoreError> {
        if let Some(changed) = self.changes.messages.get_mut(message) {
            if let Some(row) = &mut changed.row {
                change(row);
            }
            return Ok(());
        }
        if let Some(mut row) = self.message_row(message)? {
            change(&mut row);
            self.changes.messages.set(message, Some(row), true);
        }
        Ok(())
    }

    fn forget_if_unwanted(&mut self, message: u64) {
        let Some(changed) = self.changes.messages.get_mut(message) else {
            return;
        };
        let Some(row) = changed.row.take_if(|row| row.references == 0) else {
            return;
        };
        if !changed.is_stored {
            self.changes.messages.remove(message);
        }
        self.count_live(&row, false);
    }

    fn change(
        &mut self,
        session: u64,
        change: impl FnOnce(&mut SessionRow),
    ) -> Result<(), StoreError> {
        let cached = self.cached_session(session)?;
        if let Some(row) = &mut cached.row {
            change(row.open().map_err(wrong)?);
            cached.is_changed = true;
        }
        Ok(())
    }

    fn change_subscriptions(
        &mut self,
        session: u64,
        change: impl FnOnce(&mut StoredSubscriptions),
    ) -> Result<(), StoreError> {
        if !self.has_session(session)? {
            return Ok(());
        }
        let cached = self.cached_subscriptions(session)?;
        let mut held = match &cached.row {
            Some(row) => decode_subscriptions(row).map_err(wrong)?,
            None => StoredSubscriptions::new(),
        };
        change(&mut held);
        let mut row = Vec::new();
        encode_subscriptions(&held, &mut row);
        cached.row = Some(row.into());
        cached.is_changed = true;
        Ok(())
    }

    fn use_up(&mut self, first: u64, count: u64) -> Result<(), StoreError> {
        let next = first.saturating_add(count);
        if next > REACHED_MAX {
            return Err(wrong(BodyError::Number));
        }
        self.next_number = self.next_number.max(next);
        Ok(())
    }
}

fn take_publish(row: &mut SessionRow, packet_id: u16) -> Option<StoredDelivery> {
    let place = row.publishes.iter().position(|(id, _)| *id == packet_id)?;
    Some(row.publishes.remove(place).1)
}
