//! Restores sessions: lists clients, and reads all data of chosen sessions.

use std::ops::RangeInclusive;

use redb::ReadableTable;

use crate::error::StoreError;
use crate::index::changes::Changes;
use crate::index::numbered::Numbered;
use crate::index::rows::{SessionRow, StoredDelivery, StoredSubscriptions, decode_subscriptions};
use crate::index::tables::{SESSION, checkpoint, wrong};
use crate::index::{Index, QueueSummary};

/// Number of sessions that are read in one step.
const TOGETHER: usize = 1024;
/// The largest number of clients that a report names.
const NAMED: usize = 16;

/// A stored session without its queue.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct KeptSession {
    /// Session number.
    pub number: u64,
    /// State of the session.
    pub row: SessionRow,
    /// Subscriptions.
    pub subscriptions: StoredSubscriptions,
    /// Length and size of its queue.
    pub waiting: QueueSummary,
}

impl Index {
    /// Calls `visit` with number and client identifier of every session, in no order.
    pub(crate) fn clients(&self, visit: &mut dyn FnMut(u64, &str)) -> Result<(), StoreError> {
        let layers: Vec<&Changes> = self.layers().collect();
        if let Some(table) = self.tables.table(SESSION)? {
            for row in table.iter().map_err(checkpoint)? {
                let (number, bytes) = row.map_err(checkpoint)?;
                let number = number.value();
                if !layers.iter().any(|layer| layer.sessions.contains(number)) {
                    visit(
                        number,
                        SessionRow::client_id_of(bytes.value()).map_err(wrong)?,
                    );
                }
            }
        }
        for (place, layer) in layers.iter().enumerate() {
            let newer = &layers[..place];
            for (number, cached) in layer.sessions.iter() {
                let is_old = newer.iter().any(|newer| newer.sessions.contains(number));
                if let Some(row) = cached.row.as_ref().filter(|_| !is_old) {
                    visit(number, row.client_id().map_err(wrong)?);
                }
            }
        }
        Ok(())
    }

    /// Calls `visit` with each existing session of `numbers`, which must be ascending.
    pub(crate) fn restore(
        &self,
        numbers: &[u64],
        visit: &mut dyn FnMut(KeptSession),
    ) -> Result<(), StoreError> {
        let (Some(first), Some(last)) = (numbers.first(), numbers.last()) else {
            return Ok(());
        };
        debug_assert!(numbers.is_sorted());
        let mut stored = self.stored(*first..=*last)?;
        for &number in numbers {
            let (mut kept, is_there) = stored.remove(&number).unwrap_or_default();
            kept.number = number;
            let row = self.layers().find_map(|layer| layer.sessions.get(number));
            let is_there = row.map_or(is_there, |cached| cached.row.is_some());
            if !is_there {
                continue;
            }
            if let Some(row) = row.and_then(|cached| cached.row.as_ref()) {
                kept.row = row.row().map_err(wrong)?.into_owned();
            }
            let held = self
                .layers()
                .find_map(|layer| layer.subscriptions.get(number));
            if let Some(cached) = held {
                let held = cached.row.as_deref().map(decode_subscriptions);
                kept.subscriptions = held.transpose().map_err(wrong)?.unwrap_or_default();
            }
            if self.layers().any(|layer| layer.queue(number).is_some()) {
                let queue = self.queue(number, 0, usize::MAX)?;
                kept.waiting = QueueSummary {
                    deliveries: queue.len() as u64,
                    bytes: queue.iter().map(|delivery| u64::from(delivery.bytes)).sum(),
                };
            }
            visit(kept);
        }
        Ok(())
    }

    /// Calls `visit` with every session, oldest first.
    pub(crate) fn sessions(
        &self,
        visit: &mut dyn FnMut(KeptSession) -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let mut numbers = Vec::new();
        self.clients(&mut |number, _| numbers.push(number))?;
        numbers.sort_unstable();
        for together in numbers.chunks(TOGETHER) {
            let mut visited = Ok(());
            self.restore(together, &mut |kept| {
                if visited.is_ok() {
                    visited = visit(kept);
                }
            })?;
            visited?;
        }
        Ok(())
    }

    /// Adds the clients and topics that need the message to a damage error.
    pub(crate) fn explain(&self, message: u64, error: StoreError) -> StoreError {
        match error {
            StoreError::Damaged(mut damage) if damage.concerns.is_empty() => {
                // If they cannot be read either, the error names none.
                damage.concerns = self.wanting(message).unwrap_or_default();
                damage.into()
            }
            error => error,
        }
    }

    /// The clients that the message is queued for or in flight to, and the topics that retain it.
    fn wanting(&self, message: u64) -> Result<Vec<String>, StoreError> {
        let mut wanting = Vec::new();
        self.sessions(&mut |kept| {
            let under_way = kept.row.publishes.iter().map(|(_, delivery)| delivery);
            let is_it = |delivery: &StoredDelivery| delivery.message == message;
            let has_it = under_way.into_iter().any(is_it)
                || self.queue(kept.number, 0, usize::MAX)?.iter().any(is_it);
            if has_it {
                wanting.push(format!("client {}", kept.row.client_id));
            }
            Ok(())
        })?;
        let retained = self.retained()?.into_iter();
        let topics = retained.filter(|(_, retained)| *retained == message);
        wanting.extend(topics.map(|(topic, _)| format!("topic {topic}")));
        Ok(wanting)
    }

    /// Clients with queued messages in a segment; at most [`NAMED`].
    pub(crate) fn wanting_of(&self, segment: u64) -> Result<Vec<String>, StoreError> {
        let mut wanting = Vec::new();
        self.sessions(&mut |kept| {
            if wanting.len() < NAMED {
                for delivery in self.queue(kept.number, 0, usize::MAX)? {
                    let row = self.message_row(delivery.message)?;
                    if row.is_some_and(|row| row.place().segment == segment) {
                        wanting.push(format!("client {}", kept.row.client_id));
                        break;
                    }
                }
            }
            Ok(())
        })?;
        Ok(wanting)
    }

    /// Reads these sessions from the checkpoint; the flag says whether it has a session row.
    fn stored(
        &self,
        numbers: RangeInclusive<u64>,
    ) -> Result<Numbered<(KeptSession, bool)>, StoreError> {
        let mut stored: Numbered<(KeptSession, bool)> = Numbered::default();
        for row in self.tables.sessions(numbers.clone())? {
            let (number, row) = row?;
            stored.insert(
                number,
                (
                    KeptSession {
                        row,
                        ..KeptSession::default()
                    },
                    true,
                ),
            );
        }
        for row in self.tables.all_subscriptions(numbers.clone())? {
            let (number, subscriptions) = row?;
            stored.entry(number).or_default().0.subscriptions = subscriptions;
        }
        for row in self.tables.figures(numbers)? {
            let (number, deliveries, bytes) = row?;
            let waiting = &mut stored.entry(number).or_default().0.waiting;
            waiting.deliveries += deliveries;
            waiting.bytes += bytes;
        }
        Ok(stored)
    }
}
