//! The message queue of a session: messages that wait for send quota or for the client to reconnect.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use mqttcore_codec::QoS;

use crate::limits::{QueuePolicy, ServerLimits};
use crate::message::Message;

/// A message for this client: the shared message and the client's own delivery options.
#[derive(Clone, Debug)]
pub(crate) struct Outgoing {
    pub(crate) message: Message,
    pub(crate) subscription_ids: SubscriptionIds,
    /// The engine's key of the delivery.
    pub(crate) key: u64,
    /// The lower one of published and granted QoS [MQTT-3.8.4-8].
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    /// The message may have been sent before the engine restarted, without a record of that: it is sent with DUP
    /// [MQTT-3.3.1-1].
    pub(crate) maybe_sent: bool,
    pub(crate) hold: Hold,
}

/// Whether the engine decides about a message before it is sent.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Hold {
    /// It may be sent.
    #[default]
    Free,
    /// The engine has to be asked.
    Undecided,
    /// The engine was asked: the position of the message in the question.
    Asked(u8),
}

impl Hold {
    pub(crate) fn new(is_held: bool) -> Self {
        if is_held { Self::Undecided } else { Self::Free }
    }
}

impl Outgoing {
    /// Bytes that count against limits: the message and its queue entry.
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
    /// One thin pointer, since the case is rare and every queued message has this field.
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

/// A bounded message queue. Some of its messages may be in the store only.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    /// Messages that are in the store only (spilled). Their order is after `MemoryQueue::waiting`.
    spilled: u32,
    /// New stored messages are only counted: the client has been offline for long, or enough is in memory.
    is_closed: bool,
    /// Sum of [`Outgoing::cost_bytes`] of the spilled messages.
    spilled_bytes: usize,
    held: Option<Box<MemoryQueue>>,
}

/// The messages in memory.
#[derive(Debug, Default)]
struct MemoryQueue {
    waiting: VecDeque<Outgoing>,
    /// Messages that were queued after the spilled ones.
    behind: VecDeque<Outgoing>,
    /// Bytes of both.
    bytes: usize,
    /// Messages in both that the store does not have.
    unstored: u32,
    unstored_bytes: usize,
    /// QoS 0 messages in both: later ones must not overtake them [MQTT-4.6.0-5].
    qos0: u32,
    /// While the queue is open: the key of every spilled message is below this.
    below: u64,
    /// Keys below `below` that were queued after the queue was opened: these messages are in `behind`.
    late: Vec<u64>,
    /// Keys that were in `waiting` when the queue was opened: they are not fetched again.
    resident: Vec<u64>,
    /// Spilled QoS 1 messages with a key below this may have been sent before the engine restarted.
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

    /// Removes a message from `behind` because its page has arrived; it was queued after the queue was opened.
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

    /// Messages that can be sent before the next page arrives, and the bytes of all messages in memory.
    pub(crate) fn sendable(&self) -> (usize, usize) {
        let held = self.held.as_deref();
        held.map_or((0, 0), |held| (held.waiting.len(), held.bytes))
    }

    /// Number of messages that are in the store only.
    pub(crate) fn spilled(&self) -> usize {
        self.spilled as usize
    }

    pub(crate) fn holds_qos0(&self) -> bool {
        self.held.as_ref().is_some_and(|held| held.qos0 > 0)
    }

    /// The messages that can be sent before the next page arrives, oldest first.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = &Outgoing> {
        self.held.iter().flat_map(|held| &held.waiting)
    }

    /// Returns the next message in memory.
    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.held.as_ref()?.waiting.front()
    }

    /// Whether one more message of `cost_bytes` fits the limits: the disk limits if the store has it.
    pub(crate) fn has_room(
        &self,
        is_stored: bool,
        cost_bytes: usize,
        limits: &ServerLimits,
    ) -> bool {
        let (messages, bytes) = (self.len(), self.bytes().saturating_add(cost_bytes));
        if limits.queue_policy == QueuePolicy::DropOldest {
            return fits_memory(messages, bytes, limits);
        }
        if is_stored {
            return messages < limits.queue_disk_messages && bytes <= limits.queue_disk_bytes;
        }
        let held = self.held.as_deref();
        let (messages, bytes) = held.map_or((0, 0), |held| (held.unstored, held.unstored_bytes));
        (messages as usize) < limits.queue_messages
            && bytes.saturating_add(cost_bytes) <= limits.queue_bytes
    }

    /// Returns how many of the oldest messages, at least `least`, must be dropped to make room for one more of
    /// `cost_bytes`, and whether that one is then queued. Only [`QueuePolicy::DropOldest`] drops messages.
    pub(crate) fn evictions(
        &self,
        least: usize,
        cost_bytes: usize,
        limits: &ServerLimits,
    ) -> (usize, bool) {
        let (mut messages, mut bytes) = (self.len(), self.bytes().saturating_add(cost_bytes));
        let mut evicted = 0;
        let has_room =
            |evicted, messages, bytes| evicted >= least && fits_memory(messages, bytes, limits);
        let held = self.held.as_deref().into_iter();
        for oldest in held.flat_map(|held| &held.waiting) {
            if has_room(evicted, messages, bytes) {
                return (evicted, true);
            }
            (evicted, messages) = (evicted + 1, messages - 1);
            bytes -= oldest.cost_bytes();
        }
        // If messages are spilled, the oldest one is being read from the store: `Session::page` drops it.
        let is_queued = has_room(evicted, messages, bytes) || self.spilled > 0;
        (evicted, is_queued)
    }

    /// Maximum number of messages and bytes: the disk limits if the store keeps the session.
    pub(crate) fn limits(is_kept: bool, limits: &ServerLimits) -> (usize, usize) {
        let has_disk = is_kept && limits.queue_policy != QueuePolicy::DropOldest;
        if has_disk {
            (limits.queue_disk_messages, limits.queue_disk_bytes)
        } else {
            (limits.queue_messages, limits.queue_bytes)
        }
    }

    /// Usage of the limits in percent.
    pub(crate) fn fill_percent(&self, is_kept: bool, limits: &ServerLimits) -> usize {
        let (messages, bytes) = Self::limits(is_kept, limits);
        let percent = |used: usize, limit: usize| used.saturating_mul(100) / limit.max(1);
        percent(self.len(), messages).max(percent(self.bytes(), bytes))
    }

    /// Whether the stored messages that are also in memory are within the memory limits.
    pub(crate) fn is_within_memory(&self, limits: &ServerLimits) -> bool {
        self.held.as_deref().is_none_or(|held| {
            held.stored() <= limits.queue_messages && held.stored_bytes() <= limits.queue_bytes
        })
    }

    /// Whether a message in memory is also in the store.
    pub(crate) fn holds_stored(&self) -> bool {
        self.held.as_deref().is_some_and(|held| held.stored() > 0)
    }

    /// Whether the whole queue is within the memory limits.
    pub(crate) fn is_within(&self, limits: &ServerLimits) -> bool {
        self.len() <= limits.queue_messages && self.bytes() <= limits.queue_bytes
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether `outgoing` would be counted and not held in memory.
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

    /// Lets `decide` change the first `limit` messages that can be sent, and returns those for which it returns false:
    /// they are removed.
    pub(crate) fn decide_first(
        &mut self,
        limit: usize,
        mut decide: impl FnMut(&mut Outgoing) -> bool,
    ) -> Vec<Outgoing> {
        let (mut kept, mut removed) = (Vec::new(), Vec::new());
        while kept.len() + removed.len() < limit
            && let Some(mut outgoing) = self.pop()
        {
            if decide(&mut outgoing) {
                kept.push(outgoing);
            } else {
                removed.push(outgoing);
            }
        }
        let Some(held) = self.held.as_deref_mut() else {
            return removed;
        };
        for outgoing in kept.into_iter().rev() {
            held.count_in(&outgoing);
            held.waiting.push_front(outgoing);
        }
        removed
    }

    /// The messages that can be sent before the next page arrives, oldest first.
    pub(crate) fn waiting_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.held.iter_mut().flat_map(|held| &mut held.waiting)
    }

    /// Removes and returns the messages that `keep` rejects; the others keep their order.
    pub(crate) fn remove_unless_kept(&mut self, keep: impl Fn(&Outgoing) -> bool) -> Vec<Outgoing> {
        let mut taken = Vec::new();
        let Some(held) = self.held.as_deref_mut() else {
            return taken;
        };
        for line in [&mut held.waiting, &mut held.behind] {
            let (kept, refused): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(line).into_iter().partition(&keep);
            *line = kept;
            taken.extend(refused);
        }
        for outgoing in &taken {
            held.count_out(outgoing);
        }
        taken
    }

    /// Drops stored messages from memory. New stored messages are only counted until [`Queue::open`].
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

    /// Keeps `waiting` in memory, and drops the stored messages of `behind`. New stored messages are only counted until
    /// [`Queue::open`].
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

    /// Counts messages that were in the store when the engine started.
    pub(crate) fn count_spilled(&mut self, count: usize, bytes: usize) {
        self.count(
            u32::try_from(count).unwrap_or(u32::MAX),
            bytes + count * size_of::<Outgoing>(),
        );
    }

    /// Records which spilled messages may have been sent before the engine restarted.
    pub(crate) fn mark_maybe_sent_below(&mut self, key: u64) {
        if key > 0 {
            self.held.get_or_insert_default().maybe_sent_below = key;
        }
    }

    /// Whether a spilled message may have been sent. A QoS 2 message is not sent before its record is safe.
    pub(crate) fn is_maybe_sent(&self, outgoing: &Outgoing) -> bool {
        let below = self.held.as_deref().map_or(0, |held| held.maybe_sent_below);
        outgoing.qos == QoS::AtLeastOnce && outgoing.key < below
    }

    fn count(&mut self, count: u32, cost_bytes: usize) {
        self.spilled = self.spilled.saturating_add(count);
        self.spilled_bytes += cost_bytes;
    }

    /// Holds new messages in memory again. The key of every message that was counted so far is below `below`.
    pub(crate) fn open(&mut self, below: u64) {
        self.is_closed = false;
        if self.spilled > 0 {
            let held = self.held.get_or_insert_default();
            held.below = below;
            held.resident = held.waiting.iter().map(|outgoing| outgoing.key).collect();
        }
    }

    /// Subtracts the next message from the spilled ones; returns false if it was in memory already. The caller then
    /// calls [`Queue::put_back`], or drops the message.
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

    /// Ends paging, since the store has no more messages: appends `behind` to `waiting` and holds new messages in
    /// memory.
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

/// Whether one more message, which `bytes` includes, fits into a queue of `messages` in memory.
fn fits_memory(messages: usize, bytes: usize, limits: &ServerLimits) -> bool {
    messages < limits.queue_messages && bytes <= limits.queue_bytes
}
