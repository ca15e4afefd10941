//! Decides what a session does with a message for its client; delivery acts on the decision.

use std::time::Instant;

use mqttcore_codec::QoS;

use crate::event::DropReason;
use crate::limits::QueuePolicy;
use crate::message::Message;
use crate::outbound::{Delivered, Delivery, QueueRoom};
use crate::queue::{Hold, Outgoing};
use crate::session::Session;

/// The decision of [`Session::deliver`] about a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DeliveryDecision {
    /// It is sent at QoS 0.
    SendAtMostOnce,
    /// It gets a packet identifier and is sent.
    SendInFlight,
    /// It is queued.
    Queue {
        /// The reason why it waits.
        cause: QueueCause,
        /// How many of the oldest queued messages are dropped to make room for it.
        evicted: usize,
    },
    /// It is dropped.
    Drop {
        /// The reason.
        reason: DropReason,
        /// How many of the oldest queued messages are dropped although it does not fit.
        evicted: usize,
    },
}

/// Reasons why a queued message waits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum QueueCause {
    /// The client is not connected.
    Offline,
    /// The send quota is used up: too many messages, or bytes of them, are not acknowledged.
    SendQuota,
    /// Earlier messages are queued.
    Earlier,
    /// The engine decides about it first.
    Decision,
}

impl DeliveryDecision {
    /// The outcome that [`Session::deliver`] returns.
    pub fn delivered(self) -> Delivered {
        match self {
            Self::SendAtMostOnce | Self::SendInFlight => Delivered::Sent,
            Self::Queue { .. } => Delivered::Queued,
            Self::Drop { reason, .. } => Delivered::Dropped(reason),
        }
    }

    fn drop(reason: DropReason) -> Self {
        Self::Drop { reason, evicted: 0 }
    }
}

impl Session {
    /// Returns what [`Session::deliver`] would do with a message; changes nothing.
    pub fn foresee(
        &self,
        now: Instant,
        message: &Message,
        delivery: Delivery<'_>,
    ) -> DeliveryDecision {
        self.decide(now, &self.outgoing(message, delivery), delivery.room)
    }

    pub(crate) fn decide(
        &self,
        now: Instant,
        outgoing: &Outgoing,
        room: QueueRoom,
    ) -> DeliveryDecision {
        if outgoing.message.is_expired(now) {
            return DeliveryDecision::drop(DropReason::Expired);
        }
        let is_at_most_once = outgoing.qos == QoS::AtMostOnce;
        if !self.is_connected() {
            return if is_at_most_once && !self.limits.queue_qos0 {
                DeliveryDecision::drop(DropReason::Offline)
            } else {
                self.decide_queue(outgoing, room, QueueCause::Offline)
            };
        }
        if let Some(reason) = self.obstacle(outgoing) {
            return DeliveryDecision::drop(reason);
        }
        if outgoing.hold != Hold::Free {
            return self.decide_queue(outgoing, room, QueueCause::Decision);
        }
        if is_at_most_once && !self.queue.holds_qos0() {
            return self.decide_at_most_once(outgoing);
        }
        if !self.queue.is_empty() {
            return self.decide_queue(outgoing, room, QueueCause::Earlier);
        }
        if !self.has_room(outgoing.message.len()) {
            return self.decide_queue(outgoing, room, QueueCause::SendQuota);
        }
        DeliveryDecision::SendInFlight
    }

    fn decide_at_most_once(&self, outgoing: &Outgoing) -> DeliveryDecision {
        let bytes = self.live.backlog.bytes() + outgoing.cost_bytes();
        // Only queued bytes are compared: an empty backlog takes one message of any size.
        if self.live.backlog.bytes() > 0 && bytes > self.limits.qos0_backlog_bytes {
            return DeliveryDecision::drop(DropReason::BacklogFull);
        }
        DeliveryDecision::SendAtMostOnce
    }

    fn decide_queue(
        &self,
        outgoing: &Outgoing,
        room: QueueRoom,
        cause: QueueCause,
    ) -> DeliveryDecision {
        let (cost_bytes, is_stored) = (outgoing.cost_bytes(), outgoing.key != 0);
        let room = if is_stored { room } else { QueueRoom::Limits };
        let limits = &*self.limits;
        let may_evict =
            limits.queue_policy == QueuePolicy::DropOldest && cost_bytes <= limits.queue_bytes;
        let (evicted, fits) = match room {
            QueueRoom::Any => (0, true),
            QueueRoom::Limits if may_evict => self.queue.evictions(0, cost_bytes, limits),
            // The newest message takes the room of the oldest.
            QueueRoom::None if may_evict => self.queue.evictions(1, cost_bytes, limits),
            QueueRoom::Limits => (0, self.queue.has_room(is_stored, cost_bytes, limits)),
            QueueRoom::None => (0, false),
        };
        if fits {
            return DeliveryDecision::Queue { cause, evicted };
        }
        let reason = DropReason::QueueFull;
        DeliveryDecision::Drop { reason, evicted }
    }
}
