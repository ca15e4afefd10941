//! Messages to the client: queue, send quota, QoS 0 backlog.

use std::num::NonZeroU32;
use std::time::Instant;

use mqttcore_codec::{PacketId, ProtocolVersion, QoS};
use mqttcore_topics::MountPoint;

use crate::decision::DeliveryDecision;
use crate::event::{DropReason, ExchangeRecord, SessionEvent};
use crate::gate::AckToken;
use crate::inflight::InFlightLimits;
use crate::limits::{PACKET_BYTES_MAX, QueuePolicy};
use crate::live::ConnectionState;
use crate::message::Message;
use crate::queue::{Hold, Outgoing, SubscriptionIds};
use crate::session::{LinkState, Session};
use crate::transmit::{ALIAS_BYTES, PublishTransmit, publish_bytes};

/// How to deliver one message to one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery<'a> {
    /// The QoS granted to the subscription; the published QoS may differ.
    pub qos: QoS,
    /// The RETAIN flag to send, after Retain As Published [MQTT-3.3.1-12, -13].
    pub retain: bool,
    /// The Subscription Identifiers of all subscriptions that match [MQTT-3.3.4-3].
    pub subscription_ids: &'a [NonZeroU32],
    /// The engine's key of the delivery, returned in events and records; 0: the store does not have the message.
    pub key: u64,
    /// Which limits apply to the queue. Without a key it is always [`QueueRoom::Limits`].
    pub room: QueueRoom,
    /// The engine decides about the message before it is sent: [`SessionEvent::Undecided`].
    pub is_held: bool,
}

/// Which limits apply to a stored message.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum QueueRoom {
    /// The limits of the session.
    #[default]
    Limits,
    /// No limits: the publisher has an acknowledgement that the message is stored.
    Any,
    /// Nothing is queued: the total of all queues is at its limit.
    None,
}

impl<'a> Delivery<'a> {
    /// A delivery of a live message with RETAIN 0.
    pub const fn new(qos: QoS, subscription_ids: &'a [NonZeroU32]) -> Self {
        Self {
            qos,
            retain: false,
            subscription_ids,
            key: 0,
            room: QueueRoom::Limits,
            is_held: false,
        }
    }
}

/// Outcome of [`Session::deliver`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivered {
    /// The message is returned by the next polls.
    Sent,
    /// The message waits for send quota, or for the client to reconnect.
    Queued,
    /// The message will not reach the client.
    Dropped(DropReason),
}

impl Session {
    /// Delivers a message at the QoS that [`ServerLimits::outgoing_qos`](crate::ServerLimits::outgoing_qos) returns.
    ///
    /// Messages of one QoS are sent in the order of these calls [MQTT-4.6.0-5]. If a connected durable session drops a
    /// message with a key, confirm [`Session::last_token`] once the end of that delivery is safe.
    pub fn deliver(
        &mut self,
        now: Instant,
        message: &Message,
        delivery: Delivery<'_>,
    ) -> Delivered {
        let delivered = self.send_or_queue(now, message, delivery);
        if matches!(delivered, Delivered::Dropped(_)) {
            self.hold_drop(delivery.key);
        }
        delivered
    }

    fn send_or_queue(
        &mut self,
        now: Instant,
        message: &Message,
        delivery: Delivery<'_>,
    ) -> Delivered {
        let outgoing = self.outgoing(message, delivery);
        let decision = self.decide(now, &outgoing, delivery.room);
        match decision {
            DeliveryDecision::SendAtMostOnce => self.push_backlog(outgoing),
            DeliveryDecision::SendInFlight => self.admit(outgoing),
            DeliveryDecision::Queue { evicted, .. } => {
                self.evict(evicted);
                self.enqueue(outgoing);
                if delivery.is_held {
                    self.request_decisions();
                }
            }
            DeliveryDecision::Drop { reason, evicted } => {
                self.evict(evicted);
                self.note_overflow(reason);
            }
        }
        decision.delivered()
    }

    pub(crate) fn outgoing(&self, message: &Message, delivery: Delivery<'_>) -> Outgoing {
        Outgoing {
            message: message.clone(),
            subscription_ids: SubscriptionIds::new(delivery.subscription_ids),
            key: delivery.key,
            qos: self.limits.outgoing_qos(message.qos(), delivery.qos),
            retain: delivery.retain,
            maybe_sent: false,
            hold: Hold::new(delivery.is_held),
        }
    }

    /// Drops queued messages that `keep` rejects, such as after a resume with fewer rights (abuse F16); each is
    /// reported as [`SessionEvent::Dropped`]. Messages in flight stay.
    pub fn keep_queued(&mut self, keep: impl Fn(&Message) -> bool) {
        let keep = |outgoing: &Outgoing| keep(&outgoing.message);
        for outgoing in self.queue.remove_unless_kept(keep) {
            self.drop_message(DropReason::Revoked, outgoing);
        }
    }

    pub(crate) fn poll_publish(&mut self) -> Option<PublishTransmit> {
        let limits = self.in_flight_limits();
        let live = self.live.get_mut()?;
        let in_flight = live.in_flight.get_mut();
        let next = in_flight.and_then(|in_flight| in_flight.poll(limits, &self.gate));
        let mut transmit = match next {
            Some(transmit) => transmit,
            None => self.poll_backlog()?,
        };
        if let Some(mount_point) = &self.live.rare.mount_point {
            let hidden = mount_point.hidden_bytes(transmit.message().topic());
            debug_assert!(hidden.is_some(), "others are dropped before");
            transmit.hidden = hidden.unwrap_or(0);
        }
        if self.live.rare.aliases.is_some() {
            self.choose_alias(&mut transmit);
        }
        Some(transmit)
    }

    /// Moves queued messages into flight, as far as the send quota allows.
    pub(crate) fn refill(&mut self, now: Instant) {
        self.send_queued(now);
        self.request_decisions();
    }

    fn send_queued(&mut self, now: Instant) {
        while let Some(front) = self.queue.front() {
            let reason = if front.message.is_expired(now) {
                Some(DropReason::Expired)
            } else if let Some(reason) = self.obstacle(front) {
                Some(reason)
            } else if front.hold != Hold::Free
                || front.qos > QoS::AtMostOnce && !self.has_room(front.message.len())
            {
                return;
            } else {
                None
            };
            let Some(outgoing) = self.queue.pop() else {
                return;
            };
            match reason {
                Some(reason) => self.drop_message(reason, outgoing),
                None if outgoing.qos == QoS::AtMostOnce => self.push_backlog(outgoing),
                None => self.admit(outgoing),
            }
        }
    }

    pub(crate) fn drop_message(&mut self, reason: DropReason, outgoing: Outgoing) {
        let Outgoing {
            message, qos, key, ..
        } = outgoing;
        self.hold_drop(key);
        self.live.events.push_back(SessionEvent::Dropped {
            reason,
            qos,
            key,
            message,
        });
    }

    /// Holds later messages until the drop is recorded. Until then the store still has the dropped message, and after a
    /// crash it would be delivered behind them.
    fn hold_drop(&mut self, key: u64) {
        if key != 0 && self.is_durable && self.is_connected() {
            self.live.rare.dropped = self.gate.issue_token();
        }
    }

    fn push_backlog(&mut self, outgoing: Outgoing) {
        self.live.backlog.push(outgoing);
    }

    fn poll_backlog(&mut self) -> Option<PublishTransmit> {
        let outgoing = self.live.backlog.get_mut()?.pop()?;
        Some(PublishTransmit {
            outgoing,
            packet_id: None,
            dup: false,
            alias: None,
            hidden: 0,
        })
    }

    fn enqueue(&mut self, mut outgoing: Outgoing) {
        if !self.queue.only_counts(&outgoing) {
            outgoing.message.release_chunk();
        }
        self.queue.push(outgoing);
        self.spill_surplus();
    }

    /// Drops the oldest messages of the queue.
    fn evict(&mut self, count: usize) {
        for _ in 0..count {
            if let Some(oldest) = self.queue.pop() {
                self.drop_message(DropReason::QueueFull, oldest);
            }
        }
    }

    fn note_overflow(&mut self, reason: DropReason) {
        let disconnects = self.limits.queue_policy == QueuePolicy::Disconnect;
        if reason == DropReason::QueueFull && disconnects && self.is_connected() {
            self.live.events.push_back(SessionEvent::Overflowed);
        }
    }

    /// Whether the send quota allows a message of `message_bytes` now.
    pub(crate) fn has_room(&self, message_bytes: usize) -> bool {
        self.live
            .in_flight
            .has_room(self.in_flight_limits(), message_bytes)
    }

    fn in_flight_limits(&self) -> InFlightLimits {
        InFlightLimits {
            messages: self.live.link.send_quota,
            bytes: self.limits.max_inflight_bytes,
        }
    }

    pub(crate) fn obstacle(&self, outgoing: &Outgoing) -> Option<DropReason> {
        let mount_point = self.mount_point();
        self.live.link.obstacle(outgoing, self.version, mount_point)
    }

    /// Gives a message its identifier and puts it in flight. The caller has checked the send quota.
    fn admit(&mut self, outgoing: Outgoing) {
        let live = &mut *self.live;
        let packet_id = live.in_flight.take_id(&mut live.packet_ids);
        // INVARIANT: fewer than 65,535 messages are in flight, so an identifier is free.
        let packet_id = packet_id.expect("the send quota has room");
        let token = self.record_sending(packet_id, &outgoing);
        self.live.in_flight.push(outgoing, packet_id, token);
    }

    /// Records that a message is sent. A QoS 2 PUBLISH of a durable session waits for the record; otherwise it could be
    /// sent again after PUBREL if the broker crashes [MQTT-4.3.3-6]. A QoS 1 PUBLISH waits for the records of earlier
    /// drops.
    fn record_sending(&mut self, packet_id: PacketId, outgoing: &Outgoing) -> AckToken {
        if !self.is_durable {
            return AckToken::NONE;
        }
        let (qos, key) = (outgoing.qos, outgoing.key);
        if key == 0 && qos != QoS::ExactlyOnce {
            return AckToken::NONE;
        }
        let token = (qos == QoS::ExactlyOnce).then(|| self.gate.issue_token());
        let record = ExchangeRecord::Sending {
            packet_id,
            qos,
            key,
        };
        self.live
            .events
            .push_back(SessionEvent::Record { token, record });
        token.unwrap_or(self.live.rare.dropped)
    }

    fn choose_alias(&mut self, transmit: &mut PublishTransmit) {
        let outgoing = &transmit.outgoing;
        if self.version != ProtocolVersion::V5 || self.state != LinkState::Open {
            return;
        }
        let (version, hidden) = (self.version, transmit.hidden);
        if !self.live.link.fits(outgoing, version, hidden, ALIAS_BYTES) {
            return;
        }
        let rare = self.live.rare_mut();
        if let Some(aliases) = rare.and_then(|rare| rare.aliases.as_deref_mut()) {
            transmit.alias = aliases.outgoing.choose(outgoing.message.topic());
        }
    }
}

impl ConnectionState {
    /// Why a message cannot be sent on this connection: the client's mount point hides its topic, or the packet is too
    /// large for the client or for MQTT [MQTT-3.1.2-24].
    pub(crate) fn obstacle(
        &self,
        outgoing: &Outgoing,
        version: ProtocolVersion,
        mount_point: Option<&MountPoint>,
    ) -> Option<DropReason> {
        let hidden = match mount_point {
            Some(mount_point) => mount_point.hidden_bytes(outgoing.message.topic()),
            None => Some(0),
        };
        let Some(hidden) = hidden else {
            return Some(DropReason::OutsideMountPoint);
        };
        let fits = self.fits(outgoing, version, hidden, 0);
        (!fits).then_some(DropReason::PacketTooLarge)
    }

    /// Whether a packet can carry the message if `hidden` bytes of its topic are left out and `bytes` are added.
    fn fits(
        &self,
        outgoing: &Outgoing,
        version: ProtocolVersion,
        hidden: usize,
        bytes: u64,
    ) -> bool {
        let limit = self.packet_bytes.min(PACKET_BYTES_MAX);
        // Small messages skip the exact count of Subscription Identifiers and length fields.
        let is_small = limit == PACKET_BYTES_MAX && outgoing.message.len() < SMALL_BYTES;
        is_small || publish_bytes(outgoing, version, hidden) + bytes <= u64::from(limit)
    }
}

/// Messages with fewer bytes of payload, topic and properties fit into any packet.
const SMALL_BYTES: usize = PACKET_BYTES_MAX as usize / 2;
