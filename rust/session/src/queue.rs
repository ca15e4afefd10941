//! Messages that wait for the client: behind the window, or while it is away.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use mqttcore_codec::QoS;

use crate::limits::ServerLimits;
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
}

impl Outgoing {
    /// What counts against byte limits: the message's own bytes and the entry.
    pub(crate) fn cost_bytes(&self) -> usize {
        self.message.len() + size_of::<Self>()
    }
}

/// The Subscription Identifiers of the matching subscriptions [MQTT-3.3.4-4].
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
            [id] => Self::One(*id),
            ids => Self::Many(Arc::new(ids.to_vec())),
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

/// A bounded line of messages. A part of it may be in the engine's store alone ([`Spilled`]).
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Outgoing>,
    /// Of the whole line.
    bytes: usize,
    /// QoS 0 messages in memory: later ones must not overtake [MQTT-4.6.0-5].
    qos0: u32,
    /// The client is away for long: what comes and is in the store is counted, not held.
    is_closed: bool,
    spilled: Option<Box<Spilled>>,
}

/// Messages that are in the engine's store alone; in the line they stand behind those in
/// `Queue::waiting`, of which they are the rest.
#[derive(Debug, Default)]
struct Spilled {
    count: usize,
    bytes: usize,
    /// Once the line is open: every one of them has a key below this.
    below: u64,
    /// Keys below `below` that came after the line was opened: these are in memory.
    late: Vec<u64>,
    /// What came after them.
    behind: VecDeque<Outgoing>,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        let beyond = |spilled: &Spilled| spilled.count + spilled.behind.len();
        self.waiting.len() + self.spilled.as_deref().map_or(0, beyond)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Messages that can leave before the next page is there.
    pub(crate) fn at_hand(&self) -> usize {
        self.waiting.len()
    }

    /// Messages that are in the store alone.
    pub(crate) fn spilled(&self) -> usize {
        self.spilled.as_ref().map_or(0, |spilled| spilled.count)
    }

    pub(crate) fn holds_qos0(&self) -> bool {
        self.qos0 > 0
    }

    /// The next one that is at hand.
    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.waiting.front()
    }

    /// Whether one more message of `cost_bytes` is within the limits.
    pub(crate) fn has_room(&self, cost_bytes: usize, limits: &ServerLimits) -> bool {
        self.len() < limits.queue_messages
            && self.bytes.saturating_add(cost_bytes) <= limits.queue_bytes
    }

    /// Whether it is no longer than the limits allow.
    pub(crate) fn is_within(&self, limits: &ServerLimits) -> bool {
        self.len() <= limits.queue_messages && self.bytes <= limits.queue_bytes
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed
    }

    /// Whether `outgoing` would be counted and let go of.
    pub(crate) fn only_counts(&self, outgoing: &Outgoing) -> bool {
        self.is_closed && outgoing.key != 0
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        let cost_bytes = outgoing.cost_bytes();
        self.bytes += cost_bytes;
        if self.only_counts(&outgoing) {
            let spilled = self.spilled.get_or_insert_default();
            spilled.count += 1;
            spilled.bytes += cost_bytes;
            return;
        }
        self.qos0 += u32::from(outgoing.qos == QoS::AtMostOnce);
        let Some(spilled) = &mut self.spilled else {
            return self.waiting.push_back(outgoing);
        };
        if outgoing.key != 0 && outgoing.key < spilled.below {
            spilled.late.push(outgoing.key);
        }
        spilled.behind.push_back(outgoing);
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let outgoing = self.waiting.pop_front()?;
        self.bytes -= outgoing.cost_bytes();
        self.qos0 -= u32::from(outgoing.qos == QoS::AtMostOnce);
        Some(outgoing)
    }

    /// Takes out what `keep` does not want kept; the order of the rest stays.
    pub(crate) fn take_unless(&mut self, keep: impl Fn(&Message) -> bool) -> Vec<Outgoing> {
        let mut taken = Vec::new();
        let behind = self.spilled.as_mut().map(|spilled| &mut spilled.behind);
        for line in [Some(&mut self.waiting), behind].into_iter().flatten() {
            let (kept, refused): (VecDeque<_>, VecDeque<_>) = std::mem::take(line)
                .into_iter()
                .partition(|outgoing| keep(&outgoing.message));
            *line = kept;
            taken.extend(refused);
        }
        for outgoing in &taken {
            self.bytes -= outgoing.cost_bytes();
            self.qos0 -= u32::from(outgoing.qos == QoS::AtMostOnce);
        }
        taken
    }

    /// Lets go of everything that the store has; what comes next and is there, too, is only
    /// counted until [`Queue::open`].
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        let mut spilled = self.spilled.take().unwrap_or_default();
        let behind = std::mem::take(&mut spilled.behind);
        let all = std::mem::take(&mut self.waiting).into_iter().chain(behind);
        let (stored, unstored): (VecDeque<_>, VecDeque<_>) =
            all.partition(|outgoing| outgoing.key != 0);
        spilled.count += stored.len();
        spilled.bytes += stored.iter().map(Outgoing::cost_bytes).sum::<usize>();
        if spilled.count == 0 {
            self.waiting = unstored;
            return;
        }
        spilled.behind = unstored;
        (spilled.below, spilled.late) = (0, Vec::new());
        self.spilled = Some(spilled);
    }

    /// Counts what the store has of an earlier life of the engine.
    pub(crate) fn count(&mut self, count: usize, bytes: usize) {
        let spilled = self.spilled.get_or_insert_default();
        let bytes = bytes + count * size_of::<Outgoing>();
        spilled.count += count;
        spilled.bytes += bytes;
        self.bytes += bytes;
    }

    /// Holds again what comes. Everything counted so far has a key below `below`.
    pub(crate) fn open(&mut self, below: u64) {
        self.is_closed = false;
        match &mut self.spilled {
            Some(spilled) if spilled.count > 0 => spilled.below = below,
            _ => self.join(),
        }
    }

    /// Counts the next one from the store out; false if it is in memory already. What becomes of
    /// it is the caller's: [`Queue::put_back`], or nothing.
    pub(crate) fn fetch(&mut self, outgoing: &Outgoing) -> bool {
        let Some(spilled) = &mut self.spilled else {
            return false;
        };
        if spilled.late.contains(&outgoing.key) {
            return false;
        }
        let counted = outgoing.cost_bytes().min(spilled.bytes);
        spilled.count = spilled.count.saturating_sub(1);
        spilled.bytes -= counted;
        self.bytes -= counted;
        true
    }

    /// Puts one that was fetched behind what is at hand.
    pub(crate) fn put_back(&mut self, outgoing: Outgoing) {
        self.bytes += outgoing.cost_bytes();
        self.waiting.push_back(outgoing);
    }

    /// The store has no more: what came later follows.
    pub(crate) fn join(&mut self) {
        if let Some(spilled) = self.spilled.take() {
            self.bytes -= spilled.bytes;
            self.waiting.extend(spilled.behind);
        }
    }

    pub(crate) fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        let behind = self.spilled.iter_mut();
        let behind = behind.flat_map(|spilled| &mut spilled.behind);
        let all = self.waiting.iter_mut().chain(behind);
        all.map(|outgoing| &mut outgoing.message)
    }

    pub(crate) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let beyond = |spilled: &Spilled| {
            size_of::<Spilled>()
                + spilled.behind.capacity() * size_of::<Outgoing>()
                + spilled.late.capacity() * size_of::<u64>()
        };
        self.waiting.capacity() * size_of::<Outgoing>() + self.spilled.as_deref().map_or(0, beyond)
    }
}
