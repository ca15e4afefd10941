//! Messages to the client: queue, send quota, QoS 0 backlog.

use std::num::NonZeroU32;
use std::time::Instant;

use mqttcore_codec::{PacketId, ProtocolVersion, QoS};

use crate::event::{DropReason, ExchangeRecord, SessionEvent};
use crate::gate::AckToken;
use crate::inflight::Window;
use crate::limits::{PACKET_BYTES_MAX, QueuePolicy};
use crate::live::ConnectionState;
use crate::message::Message;
use crate::queue::{Outgoing, SubscriptionIds};
use crate::session::{LinkState, Session};
use crate::transmit::{ALIAS_BYTES, PublishTransmit, publish_bytes};

/// How one message goes to one client.
#[derive(Clone, Copy, Debug, Default)]
pub struct Delivery<'a> {
    /// The QoS granted to the subscription; the message's own may be another one.
    pub qos: QoS,
    /// The RETAIN flag to send, after Retain As Published [MQTT-3.3.1-12, -13].
    pub retain: bool,
    /// The Subscription Identifiers of all subscriptions that match [MQTT-3.3.4-3].
    pub subscription_ids: &'a [NonZeroU32],
    /// A number of the engine's own, told back in events and records; 0: the store does not have the
    /// message.
    pub key: u64,
    /// What the queue takes. Without a key it is always [`QueueRoom::Limits`].
    pub room: QueueRoom,
}

/// How much room a queue has for a message that the store has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum QueueRoom {
    /// As much as its limits say.
    #[default]
    Limits,
    /// Whatever comes: the publisher was told that it is kept.
    Any,
    /// None: all queues together are full.
    None,
}

impl<'a> Delivery<'a> {
    /// A live message with RETAIN 0.
    pub const fn new(qos: QoS, subscription_ids: &'a [NonZeroU32]) -> Self {
        Self {
            qos,
            retain: false,
            subscription_ids,
            key: 0,
            room: QueueRoom::Limits,
        }
    }
}

/// What became of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Delivered {
    /// It comes with the next polls.
    Sent,
    /// It waits behind the window, or for the client to come back.
    Queued,
    /// It will not reach the client.
    Dropped(DropReason),
}

impl Session {
    /// Delivers a message at the QoS that [`ServerLimits::outgoing_qos`](crate::ServerLimits::outgoing_qos) says.
    ///
    /// Messages leave in the order of these calls within a QoS [MQTT-4.6.0-5]. If a connected durable session
    /// drops one with a key, confirm [`Session::last_token`] once the end of that delivery is safe.
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
        if message.is_expired(now) {
            return Delivered::Dropped(DropReason::Expired);
        }
        let outgoing = Outgoing {
            message: message.clone(),
            subscription_ids: SubscriptionIds::new(delivery.subscription_ids),
            key: delivery.key,
            qos: self.limits.outgoing_qos(message.qos(), delivery.qos),
            retain: delivery.retain,
            maybe_sent: false,
        };
        if !self.is_connected() {
            return self.deliver_offline(outgoing, delivery.room);
        }
        if let Some(reason) = self.obstacle(&outgoing) {
            return Delivered::Dropped(reason);
        }
        if outgoing.qos == QoS::AtMostOnce && !self.queue.holds_qos0() {
            return self.deliver_at_most_once(outgoing);
        }
        if !self.queue.is_empty() || !self.has_room(outgoing.message.len()) {
            return self.enqueue(outgoing, delivery.room);
        }
        self.admit(outgoing);
        Delivered::Sent
    }

    /// Drops queued messages that `keep` rejects, such as after a resume with fewer rights
    /// (abuse F16); each comes as [`SessionEvent::Dropped`]. What was sent before stays in flight.
    pub fn keep_queued(&mut self, keep: impl Fn(&Message) -> bool) {
        for outgoing in self.queue.remove_unless_kept(keep) {
            self.drop_message(DropReason::Revoked, outgoing);
        }
    }

    pub(crate) fn poll_publish(&mut self) -> Option<PublishTransmit> {
        let window = self.window();
        let live = self.live.get_mut()?;
        let in_flight = live.in_flight.get_mut();
        let next = in_flight.and_then(|in_flight| in_flight.poll(window, &self.gate));
        let mut transmit = match next {
            Some(transmit) => transmit,
            None => self.poll_backlog()?,
        };
        if let Some(mount_point) = &self.live.link.mount_point {
            let hidden = mount_point.hidden_bytes(transmit.message().topic());
            debug_assert!(hidden.is_some(), "others are dropped before");
            transmit.hidden = hidden.unwrap_or(0);
        }
        if self.live.aliases.is_some() {
            self.choose_alias(&mut transmit);
        }
        Some(transmit)
    }

    /// Moves queued messages into flight, as far as the send quota allows.
    pub(crate) fn refill(&mut self, now: Instant) {
        while let Some(front) = self.queue.front() {
            let reason = if front.message.is_expired(now) {
                Some(DropReason::Expired)
            } else if let Some(reason) = self.obstacle(front) {
                Some(reason)
            } else if front.qos > QoS::AtMostOnce && !self.has_room(front.message.len()) {
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
        let Outgoing { message, key, .. } = outgoing;
        self.hold_drop(key);
        self.live.events.push_back(SessionEvent::Dropped {
            reason,
            key,
            message,
        });
    }

    /// The store still has a message that was dropped until it has the record of that, and would deliver it after
    /// a crash. Later messages wait for the record: else this one came behind them.
    fn hold_drop(&mut self, key: u64) {
        if key != 0 && self.is_durable && self.is_connected() {
            self.live.dropped = self.gate.issue_token();
        }
    }

    fn deliver_offline(&mut self, outgoing: Outgoing, room: QueueRoom) -> Delivered {
        if outgoing.qos == QoS::AtMostOnce && !self.limits.queue_qos0 {
            return Delivered::Dropped(DropReason::Offline);
        }
        self.enqueue(outgoing, room)
    }

    fn deliver_at_most_once(&mut self, outgoing: Outgoing) -> Delivered {
        let bytes = self.live.backlog_bytes + outgoing.cost_bytes();
        // Queued bytes count: a client with an empty queue takes one message of any size.
        if self.live.backlog_bytes > 0 && bytes > self.limits.qos0_backlog_bytes {
            return Delivered::Dropped(DropReason::BacklogFull);
        }
        self.push_backlog(outgoing);
        Delivered::Sent
    }

    fn push_backlog(&mut self, outgoing: Outgoing) {
        self.live.backlog_bytes += outgoing.cost_bytes();
        self.live.backlog.push_back(outgoing);
    }

    fn poll_backlog(&mut self) -> Option<PublishTransmit> {
        let outgoing = self.live.backlog.pop_front()?;
        self.live.backlog_bytes -= outgoing.cost_bytes();
        Some(PublishTransmit {
            outgoing,
            packet_id: None,
            dup: false,
            alias: None,
            hidden: 0,
        })
    }

    fn enqueue(&mut self, mut outgoing: Outgoing, room: QueueRoom) -> Delivered {
        if !self.queue.only_counts(&outgoing) {
            outgoing.message.release_chunk();
        }
        let cost_bytes = outgoing.cost_bytes();
        let may_evict = self.limits.queue_policy == QueuePolicy::DropOldest
            && cost_bytes <= self.limits.queue_bytes;
        let is_stored = outgoing.key != 0;
        let room = if is_stored { room } else { QueueRoom::Limits };
        // The newest message takes the room of the oldest.
        let mut is_exchanged = room != QueueRoom::None;
        while !is_exchanged
            || room != QueueRoom::Any && !self.queue.has_room(is_stored, cost_bytes, &self.limits)
        {
            is_exchanged = true;
            let oldest = if may_evict { self.queue.pop() } else { None };
            let Some(oldest) = oldest else {
                if may_evict && self.queue.spilled() > 0 {
                    // The oldest message is being read from the store: `page` drops it.
                    break;
                }
                return self.refuse_newest();
            };
            self.drop_message(DropReason::QueueFull, oldest);
        }
        self.queue.push(outgoing);
        self.spill_surplus();
        Delivered::Queued
    }

    fn refuse_newest(&mut self) -> Delivered {
        if self.limits.queue_policy == QueuePolicy::Disconnect && self.is_connected() {
            self.live.events.push_back(SessionEvent::Overflowed);
        }
        Delivered::Dropped(DropReason::QueueFull)
    }

    /// Whether a message of so many bytes may be sent now.
    pub(crate) fn has_room(&self, message_bytes: usize) -> bool {
        self.live.in_flight.has_room(self.window(), message_bytes)
    }

    fn window(&self) -> Window {
        Window {
            messages: self.live.link.window,
            bytes: self.limits.max_inflight_bytes,
        }
    }

    fn obstacle(&self, outgoing: &Outgoing) -> Option<DropReason> {
        self.live.link.obstacle(outgoing, self.version)
    }

    /// Gives a message its identifier and its place in the window, which has room.
    fn admit(&mut self, outgoing: Outgoing) {
        let live = &mut *self.live;
        let packet_id = live.in_flight.take_id(&mut live.packet_ids);
        // INVARIANT: the window is below 65,535, so an identifier is free.
        let packet_id = packet_id.expect("the window has room");
        let token = self.record_sending(packet_id, &outgoing);
        self.live.in_flight.push(outgoing, packet_id, token);
    }

    /// A QoS 2 PUBLISH of a durable session waits for its record; else a crash could send it
    /// again after PUBREL [MQTT-4.3.3-6]. One of QoS 1 waits for the records of drops before it.
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
        token.unwrap_or(self.live.dropped)
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
        if let Some(aliases) = &mut self.live.aliases {
            transmit.alias = aliases.outgoing.choose(outgoing.message.topic());
        }
    }
}

impl ConnectionState {
    /// Why a message cannot go over this connection: the client's mount point hides its topic, or its Maximum Packet
    /// Size or MQTT allow no such packet [MQTT-3.1.2-24].
    pub(crate) fn obstacle(
        &self,
        outgoing: &Outgoing,
        version: ProtocolVersion,
    ) -> Option<DropReason> {
        let hidden = match &self.mount_point {
            Some(mount_point) => mount_point.hidden_bytes(outgoing.message.topic()),
            None => Some(0),
        };
        let Some(hidden) = hidden else {
            return Some(DropReason::OutsideMountPoint);
        };
        let fits = self.fits(outgoing, version, hidden, 0);
        (!fits).then_some(DropReason::PacketTooLarge)
    }

    /// Whether a packet can carry the message without the `hidden` bytes of its topic, with `bytes` more.
    fn fits(
        &self,
        outgoing: &Outgoing,
        version: ProtocolVersion,
        hidden: usize,
        bytes: u64,
    ) -> bool {
        let limit = self.packet_bytes.min(PACKET_BYTES_MAX);
        // Far below the limit, Subscription Identifiers and length fields need not be counted.
        let is_small = limit == PACKET_BYTES_MAX && outgoing.message.len() < SMALL_BYTES;
        is_small || publish_bytes(outgoing, version, hidden) + bytes <= u64::from(limit)
    }
}

/// Payload, topic and properties of a message that any packet can carry, whatever comes beside it.
const SMALL_BYTES: usize = PACKET_BYTES_MAX as usize / 2;
