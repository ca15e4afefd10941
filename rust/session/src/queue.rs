//! The message queue of a session: for send quota, or for its client to return.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use mqttcore_codec::QoS;

use crate::limits::{QueuePolicy, ServerLimits};
use crate::message::Message;

/// A message on its way to this client: what is shared, and what is the client's own.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) subscription_ids: SubscriptionIds,
    /// The engine's own number for this delivery.
    pub(crate) key: u64,
    /// The lower one of published and granted QoS [MQTT-3.8.4-8].
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// It may have been sent in an earlier life of the engine, which has no record of that: it goes with DUP
    /// [MQTT-3.3.1-1].
    pub(crate) maybe_sent: bool,
}

impl Outgoing {
    /// What counts against byte limits: the message's own bytes and the entry.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.message.len() + size_of::<Self>()
    }
}

/// The Subscription Identifiers of the matching subscriptions, each once [MQTT-3.3.4-4].
#[derive(Clone, Debug, Default)]
pub(crate) enum SubscriptionIds {
    #[default]
    None,
    One(NonZeroU32),
    /// Behind one thin pointer: it is rare, and every waiting message has this field.
    Many(Arc<Vec<NonZeroU32>>),
}

impl SubscriptionIds {
    pub(crate) fn new(ids: &[NonZeroU32]) -> Self {
        match ids {
            [] => Self::None,
            [id, others @ ..] if others.iter().all(|other| other == id) => Self::One(*id),
            ids => {
                let mut ids = ids.to_vec();
                ids.sort_unstable();
                ids.dedup();
                Self::Many(Arc::new(ids))
            }
        }
    }

    pub(crate) fn as_slice(&self) -> &[NonZeroU32] {
        match self {
            Self::None => &[],
            Self::One(id) => std::slice::from_ref(id),
            Self::Many(ids) => ids,
        }
    }
}

/// A bounded line of messages. A part of it may be in the engine's store alone.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Messages that are in the store alone; in the line they stand behind those in
    /// `MemoryQueue::waiting`, of which they are the rest.
    spilled: u32,
    /// What comes and is in the store is counted, not held: the client is away for long, or memory holds enough.
    is_closed: bool,
    /// What the spilled ones count with.
    spilled_bytes: usize,
    held: Option<Box<MemoryQueue>>,
}

/// Messages in memory.
#[derive(Debug, Default)]
struct MemoryQueue {
    waiting: VecDeque<Outgoing>,
    /// What came after the spilled ones.
    behind: VecDeque<Outgoing>,
    /// Of both.
    bytes: usize,
    /// Of both: messages that the store does not have.
    unstored: u32,
    unstored_bytes: usize,
    /// QoS 0 messages: later ones must not overtake [MQTT-4.6.0-5].
    qos0: u32,
    /// Once the line is open: every spilled one has a key below this.
    below: u64,
    /// Keys below `below` that came after the line was opened: these are in `behind`.
    late: Vec<u64>,
    /// Keys of what was in `waiting` when the line was opened: it is not fetched another time.
    resident: Vec<u64>,
    /// Spilled ones of QoS 1 with a key below this may have been sent in an earlier life of the engine.
    maybe_sent_below: u64,
}

impl MemoryQueue {
    fn len(&self) -> usize {
        self.waiting.len() + self.behind.len()
    }

    fn count_in(&mut self, outgoing: &Outgoing) {
        self.bytes += outgoing.cost_bytes();
        self.qos0 += u32::from(outgoing.qos == QoS::AtMostOnce);
        if outgoing.key == 0 {
            self.unstored += 1;
            self.unstored_bytes += outgoing.cost_bytes();
        }
    }

    fn count_out(&mut self, outgoing: &Outgoing) {
        self.bytes -= outgoing.cost_bytes();
        self.qos0 -= u32::from(outgoing.qos == QoS::AtMostOnce);
        if outgoing.key == 0 {
            self.unstored -= 1;
            self.unstored_bytes -= outgoing.cost_bytes();
        }
    }

    fn stored(&self) -> usize {
        self.len() - self.unstored as usize
    }

    fn stored_bytes(&self) -> usize {
        self.bytes - self.unstored_bytes
    }

    /// Takes a message out of those that came after the line was opened, since its page is there.
    fn take_late(&mut self, key: u64) -> Option<Outgoing> {
        let place = self.late.iter().position(|late| *late == key)?;
        self.late.swap_remove(place);
        let place = self.behind.iter().position(|other| other.key == key)?;
        let outgoing = self.behind.remove(place)?;
        self.count_out(&outgoing);
        Some(outgoing)
    }
}

impl Queue {
    pub(crate) fn heap_bytes(&self) -> usize {
        let of = |held: &MemoryQueue| {
            size_of::<MemoryQueue>()
                + (held.waiting.capacity() + held.behind.capacity()) * size_of::<Outgoing>()
                + (held.late.capacity() + held.resident.capacity()) * size_of::<u64>()
        };
        self.held.as_deref().map_or(0, of)
    }

    pub(crate) fn len(&self) -> usize {
        self.spilled() + self.held.as_deref().map_or(0, MemoryQueue::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.spilled_bytes + self.held.as_ref().map_or(0, |held| held.bytes)
    }

    /// Messages that can leave before the next page is there, with bytes of all that memory holds.
    pub(crate) fn sendable(&self) -> (usize, usize) {
        let held = self.held.as_deref();
        held.map_or((0, 0), |held| (held.waiting.len(), held.bytes))
    }

    /// Messages that are in the store alone.
    pub(crate) fn spilled(&self) -> usize {
        self.spilled as usize
    }

    pub(crate) fn holds_qos0(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.qos0 > 0)
    }

    /// Returns the next message in memory.
    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.held.as_ref()?.waiting.front()
    }

    /// Whether one more message of `cost_bytes` is within the limits: those of the disk if the store has it.
    pub(crate) fn has_room(
        &self,
        is_stored: bool,
        cost_bytes: usize,
        limits: &ServerLimits,
    ) -> bool {
        let (messages, bytes) = (self.len(), self.bytes().saturating_add(cost_bytes));
        if limits.queue_policy == QueuePolicy::DropOldest {
            return messages < limits.queue_messages && bytes <= limits.queue_bytes;
        }
        if is_stored {
            return messages < limits.queue_disk_messages && bytes <= limits.queue_disk_bytes;
        }
        let held = self.held.as_deref();
        let (messages, bytes) = held.map_or((0, 0), |held| (held.unstored, held.unstored_bytes));
        (messages as usize) < limits.queue_messages
            && bytes.saturating_add(cost_bytes) <= limits.queue_bytes
    }

    /// How much of its limits is used, in percent: those of the disk if the store keeps the session.
    pub(crate) fn fill_percent(&self, is_kept: bool, limits: &ServerLimits) -> usize {
        let has_disk = is_kept && limits.queue_policy != QueuePolicy::DropOldest;
        let (messages, bytes) = if has_disk {
            (limits.queue_disk_messages, limits.queue_disk_bytes)
        } else {
            (limits.queue_messages, limits.queue_bytes)
        };
        let percent = |used: usize, limit: usize| used.saturating_mul(100) / limit.max(1);
        percent(self.len(), messages).max(percent(self.bytes(), bytes))
    }

    /// Whether memory holds no more than it should of what the store has, too.
    pub(crate) fn is_within_memory(&self, limits: &ServerLimits) -> bool {
        self.held.as_deref().is_none_or(|held| {
            held.stored() <= limits.queue_messages && held.stored_bytes() <= limits.queue_bytes
        })
    }

    /// Whether memory holds messages that the store has, too.
    pub(crate) fn holds_stored(&self) -> bool {
        self.held.as_deref().is_some_and(|held| held.stored() > 0)
    }

    /// Whether it is within the limits.
    pub(crate) fn is_within(&self, limits: &ServerLimits) -> bool {
        self.len() <= limits.queue_messages && self.bytes() <= limits.queue_bytes
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether `outgoing` would be counted and let go of.
    pub(crate) fn only_counts(&self, outgoing: &Outgoing) -> bool {
        self.is_closed && outgoing.key != 0
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        if self.only_counts(&outgoing) {
            return self.count(1, outgoing.cost_bytes());
        }
        let held = self.held.get_or_insert_default();
        held.count_in(&outgoing);
        if self.spilled == 0 {
            return held.waiting.push_back(outgoing);
        }
        if outgoing.key != 0 && outgoing.key < held.below {
            held.late.push(outgoing.key);
        }
        held.behind.push_back(outgoing);
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let held = self.held.as_deref_mut()?;
        let outgoing = held.waiting.pop_front()?;
        held.count_out(&outgoing);
        Some(outgoing)
    }

    /// Takes out what `keep` does not want kept; the order of the rest stays.
    pub(crate) fn remove_unless_kept(&mut self, keep: impl Fn(&Message) -> bool) -> Vec<Outgoing> {
        let mut taken = Vec::new();
        let Some(held) = self.held.as_deref_mut() else {
            return taken;
        };
        for line in [&mut held.waiting, &mut held.behind] {
            let (kept, refused): (VecDeque<_>, VecDeque<_>) = std::mem::take(line)
                .into_iter()
                .partition(|outgoing| keep(&outgoing.message));
            *line = kept;
            taken.extend(refused);
        }
        for outgoing in &taken {
            held.count_out(outgoing);
        }
        taken
    }

    /// Lets go of everything that the store has; what comes next and is there, too, is only
    /// counted until [`Queue::open`].
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        let held = self.held.take().unwrap_or_default();
        if self.spilled > 0 || held.waiting.iter().any(|outgoing| outgoing.maybe_sent) {
            self.mark_maybe_sent_below(held.maybe_sent_below);
        }
        for outgoing in held.waiting.into_iter().chain(held.behind) {
            self.push(outgoing);
        }
    }

    /// Keeps what is at hand, and lets go of what came after the spilled ones and is in the store; what comes next and
    /// is there, too, is only counted until [`Queue::open`].
    pub(crate) fn close_behind(&mut self) {
        self.is_closed = true;
        let Some(held) = &mut self.held else { return };
        held.late = Vec::new();
        let (kept, gone): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut held.behind)
            .into_iter()
            .partition(|outgoing| outgoing.key == 0);
        held.behind = kept;
        for outgoing in &gone {
            held.count_out(outgoing);
        }
        for outgoing in gone {
            self.count(1, outgoing.cost_bytes());
        }
    }

    /// Counts what the store has of an earlier life of the engine.
    pub(crate) fn count_spilled(&mut self, count: usize, bytes: usize) {
        self.count(
            u32::try_from(count).unwrap_or(u32::MAX),
            bytes + count * size_of::<Outgoing>(),
        );
    }

    /// Notes which spilled ones may have been sent in an earlier life of the engine.
    pub(crate) fn mark_maybe_sent_below(&mut self, key: u64) {
        if key > 0 {
            self.held.get_or_insert_default().maybe_sent_below = key;
        }
    }

    /// Whether a spilled one may have been sent. At QoS 2 the record of its sending comes first.
    pub(crate) fn is_maybe_sent(&self, outgoing: &Outgoing) -> bool {
        let below = self.held.as_deref().map_or(0, |held| held.maybe_sent_below);
        outgoing.qos == QoS::AtLeastOnce && outgoing.key < below
    }

    fn count(&mut self, count: u32, cost_bytes: usize) {
        self.spilled = self.spilled.saturating_add(count);
        self.spilled_bytes += cost_bytes;
    }

    /// Holds again what comes. Everything counted so far has a key below `below`.
    pub(crate) fn open(&mut self, below: u64) {
        self.is_closed = false;
        if self.spilled > 0 {
            let held = self.held.get_or_insert_default();
            held.below = below;
            held.resident = held.waiting.iter().map(|outgoing| outgoing.key).collect();
        }
    }

    /// Counts the next one from the store out; false if it was in memory already. What becomes of
    /// it is the caller's: [`Queue::put_back`], or nothing.
    pub(crate) fn fetch(&mut self, outgoing: &Outgoing) -> bool {
        if let Some(held) = self.held.as_deref_mut() {
            if held.resident.contains(&outgoing.key) {
                return false;
            }
            if held.take_late(outgoing.key).is_some() {
                return true;
            }
        }
        self.spilled = self.spilled.saturating_sub(1);
        self.spilled_bytes = self.spilled_bytes.saturating_sub(outgoing.cost_bytes());
        true
    }

    /// Appends a message that was read from the store to those in memory.
    pub(crate) fn put_back(&mut self, outgoing: Outgoing) {
        let held = self.held.get_or_insert_default();
        held.count_in(&outgoing);
        held.waiting.push_back(outgoing);
    }

    /// The store has no more: what came later follows, and what comes is held.
    pub(crate) fn join(&mut self) {
        self.is_closed = false;
        (self.spilled, self.spilled_bytes) = (0, 0);
        if let Some(held) = &mut self.held {
            held.waiting.append(&mut held.behind);
            held.below = 0;
            (held.late, held.resident) = (Vec::new(), Vec::new());
        }
    }

    pub(crate) fn shrink(&mut self) {
        if self.held.as_deref().is_some_and(|held| held.len() == 0) && self.spilled == 0 {
            self.held = None;
        }
    }
}
