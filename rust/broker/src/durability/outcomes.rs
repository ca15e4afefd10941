//! Outcomes of records of an external log, for the shards that wait for them.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use mqttcore_panics::Panicked;

/// Names a record to the shard that waits for it.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct RecordTicket {
    pub(crate) shard: u8,
    /// Of 56 bits, from 1, growing by one on each shard.
    pub(crate) number: u64,
}

impl RecordTicket {
    /// The same as one word.
    pub fn pack(self) -> u64 {
        u64::from(self.shard) << 56 | self.number
    }

    /// The ticket that [`RecordTicket::pack`] encoded.
    pub fn unpack(word: u64) -> Self {
        let [shard, ..] = word.to_be_bytes();
        Self {
            shard,
            number: word & !(0xFF << 56),
        }
    }
}

/// The outcome of one record.
pub(crate) enum RecordOutcome {
    Kept,
    Lost(LostRecord),
}

/// A record that was given up: the external log did not accept it, as far as is known.
pub(crate) struct LostRecord {
    pub(crate) topic: Box<str>,
    pub(crate) why: Box<str>,
}

/// Handles events of the external log.
pub(crate) trait OutcomeEvents: Send + Sync {
    /// There is something for this shard.
    fn wake(&self, shard: usize);
    /// The external log has room again.
    fn has_room(&self);
    /// A thread panicked without which the broker cannot go on.
    fn panicked(&self, panicked: Panicked);
    /// Something that operators should know.
    fn warn(&self, text: String);
}

/// Where an external log reports outcomes of records, from any thread. It does not keep the
/// broker alive.
#[derive(Clone)]
pub struct RecordOutcomes(Arc<Inbox>);

/// Outcomes for each shard, by record number.
struct Inbox {
    boxes: Vec<Mutex<Vec<(u64, RecordOutcome)>>>,
    events: OnceLock<Weak<dyn OutcomeEvents>>,
}

impl RecordOutcomes {
    pub(crate) fn new(shards: usize) -> Self {
        Self(Arc::new(Inbox {
            boxes: (0..shards).map(|_| Mutex::default()).collect(),
            events: OnceLock::new(),
        }))
    }

    /// Sets the receiver of events.
    pub(crate) fn serve(&self, events: &Arc<dyn OutcomeEvents>) {
        // One external log serves one broker.
        let _ = self.0.events.set(Arc::downgrade(events));
    }

    /// Takes the outcomes for a shard.
    pub(crate) fn take(&self, shard: usize, into: &mut Vec<(u64, RecordOutcome)>) {
        into.append(&mut self.0.lock(shard));
    }

    /// The external log has a record.
    pub fn kept(&self, ticket: RecordTicket) {
        self.push(ticket, RecordOutcome::Kept);
    }

    /// A record was given up; `key` is its own, or the MQTT topic.
    pub fn lost(&self, ticket: RecordTicket, key: &str, why: &str) {
        let (topic, why) = (key.into(), why.into());
        self.push(ticket, RecordOutcome::Lost(LostRecord { topic, why }));
    }

    /// The external log has room again, after it had none.
    pub fn has_room(&self) {
        if let Some(events) = self.events() {
            events.has_room();
        }
    }

    /// A thread of the external log panicked, and the broker cannot go on without it.
    pub fn panicked(&self, panicked: Panicked) {
        if let Some(events) = self.events() {
            events.panicked(panicked);
        }
    }

    /// Something that operators should know; nothing is lost by it yet.
    pub fn trouble(&self, what: String) {
        if let Some(events) = self.events() {
            events.warn(what);
        }
    }

    fn events(&self) -> Option<Arc<dyn OutcomeEvents>> {
        self.0.events.get().and_then(Weak::upgrade)
    }

    fn push(&self, ticket: RecordTicket, outcome: RecordOutcome) {
        let shard = usize::from(ticket.shard);
        let was_empty = {
            let mut inbox = self.0.lock(shard);
            inbox.push((ticket.number, outcome));
            inbox.len() == 1
        };
        // Otherwise the shard is already woken and has not read yet.
        if was_empty && let Some(events) = self.events() {
            events.wake(shard);
        }
    }
}

impl Inbox {
    fn lock(&self, shard: usize) -> MutexGuard<'_, Vec<(u64, RecordOutcome)>> {
        let inbox = self.boxes[shard].lock();
        inbox.unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ticket_survives_its_packing() {
        for (shard, number) in [(0, 1), (63, (1 << 56) - 1)] {
            let ticket = RecordTicket { shard, number };

            assert_eq!(RecordTicket::unpack(ticket.pack()), ticket);
        }
    }
}
