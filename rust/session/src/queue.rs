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

/// A bounded line of messages.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    waiting: VecDeque<Outgoing>,
    bytes: usize,
    /// QoS 0 messages among them: later ones must not overtake [MQTT-4.6.0-5].
    qos0: usize,
}

impl Queue {
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn holds_qos0(&self) -> bool {
        self.qos0 > 0
    }

    pub(crate) fn front(&self) -> Option<&Outgoing> {
        self.waiting.front()
    }

    /// Whether one more message of `cost_bytes` is within the limits.
    pub(crate) fn has_room(&self, cost_bytes: usize, limits: &ServerLimits) -> bool {
        self.len() < limits.queue_messages
            && self.bytes.saturating_add(cost_bytes) <= limits.queue_bytes
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.bytes += outgoing.cost_bytes();
        self.qos0 += usize::from(outgoing.qos == QoS::AtMostOnce);
        self.waiting.push_back(outgoing);
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let outgoing = self.waiting.pop_front()?;
        self.bytes -= outgoing.cost_bytes();
        self.qos0 -= usize::from(outgoing.qos == QoS::AtMostOnce);
        Some(outgoing)
    }

    /// Takes out what `keep` does not want kept; the order of the rest stays.
    pub(crate) fn take_unless(&mut self, keep: impl Fn(&Message) -> bool) -> Vec<Outgoing> {
        let (kept, taken): (VecDeque<_>, VecDeque<_>) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|outgoing| keep(&outgoing.message));
        self.waiting = kept;
        for outgoing in &taken {
            self.bytes -= outgoing.cost_bytes();
            self.qos0 -= usize::from(outgoing.qos == QoS::AtMostOnce);
        }
        taken.into()
    }

    pub(crate) fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        self.waiting
            .iter_mut()
            .map(|outgoing| &mut outgoing.message)
    }

    pub(crate) fn shrink(&mut self) {
        if self.waiting.is_empty() {
            self.waiting = VecDeque::new();
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.waiting.capacity() * size_of::<Outgoing>()
    }
}
