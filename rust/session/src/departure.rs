//! The end of a connection or of a session, and the decision about the will.

use std::time::Instant;

use mqttcore_codec::QoS;

use crate::cause::Cause;
use crate::deque::LazyDeque;
use crate::event::SessionEvent;
use crate::gate::HeldAcks;
use crate::live::ConnectionState;
use crate::message::Message;
use crate::packet_ids::PacketIdAllocator;
use crate::queue::{Outgoing, Queue};
use crate::session::{LinkState, Session};
use crate::subscriptions::Subscriptions;
use crate::timers::{Expiry, is_due};
use crate::will::WillMessage;

/// Tasks of the engine after a connection has ended.
#[derive(Debug)]
pub struct DetachOutcome {
    /// The will, if it must be published now. A delayed will stays with the session and is returned later as
    /// [`SessionEvent::WillDue`](crate::SessionEvent::WillDue).
    pub will: Option<Message>,
    /// How long the session is kept.
    pub expiry: Expiry,
}

impl Session {
    /// Ends the connection: drops its aliases, its QoS 0 messages and the publishes that were not accepted.
    ///
    /// The engine must drop the publishes that it has not accepted yet; the client sends them again. Returns the will
    /// if it is due, and how long to keep the session. Does nothing if there is no connection.
    pub fn detach(&mut self, now: Instant, cause: Cause) -> DetachOutcome {
        if !self.is_connected() {
            let expiry = Expiry::after(self.since.unwrap_or(now), self.expiry_interval_s);
            return DetachOutcome { will: None, expiry };
        }
        self.end_link();
        self.since = Some(now);
        let expiry = Expiry::after(now, self.expiry_interval_s);
        if cause == Cause::ClientDisconnect
            && let Some(rare) = self.live.rare_mut()
        {
            rare.will = None;
        }
        let will = self.take_due_will(now);
        DetachOutcome { will, expiry }
    }

    /// Takes the will that is due when the connection ends: every will except a delayed one of a kept session. A
    /// stopping server calls this to publish the will while subscribers are still connected.
    pub fn take_due_will(&mut self, now: Instant) -> Option<Message> {
        let waits = self
            .live
            .rare
            .will
            .as_ref()
            .is_some_and(|will| will.delay_s > 0);
        let is_kept = Expiry::after(now, self.expiry_interval_s) != Expiry::Now;
        if waits && is_kept {
            return None;
        }
        self.take_will(now)
    }

    /// Ends the session early, for a clean start or an administrator. Returns a will that was still waiting: it is due
    /// now [MQTT-3.1.2-8].
    pub fn end(&mut self, now: Instant) -> Option<Message> {
        self.end_link();
        self.state = LinkState::Ended;
        let will = self.take_will(now);
        self.forget();
        will
    }

    /// The will, if it waits for the end of the connection or for its delay.
    pub fn will(&self) -> Option<&WillMessage> {
        self.live.rare.will.as_deref()
    }

    /// Discards the will of a client that has lost its rights; returns false if there is none.
    pub fn discard_will(&mut self) -> bool {
        let will = self.live.rare_mut().and_then(|rare| rare.will.take());
        will.is_some()
    }

    /// Settles the will of an earlier connection: a resumed session cancels a waiting will [MQTT-3.1.3-9], the end of a
    /// session publishes it.
    pub(crate) fn settle_old_will(&mut self, now: Instant, is_resumed: bool) {
        let fires = !is_resumed || is_due(self.will_deadline(), now);
        if let Some(will) = self.take_will(now)
            && fires
        {
            self.live.events.push_back(SessionEvent::WillDue(will));
        }
    }

    pub(crate) fn take_will(&mut self, now: Instant) -> Option<Message> {
        let will = self.live.rare_mut()?.will.take();
        will.map(|will| will.message.published_at(now))
    }

    /// Drops the state of the connection.
    fn end_link(&mut self) {
        if self.is_connected() {
            self.state = LinkState::Away;
        }
        if !self.limits.queue_qos0 && self.queue.holds_qos0() {
            // Held messages, which an offline client would not get either.
            let is_kept = |outgoing: &Outgoing| outgoing.qos > QoS::AtMostOnce;
            self.queue.remove_unless_kept(is_kept);
        }
        let Some(live) = self.live.get_mut() else {
            return;
        };
        live.link = ConnectionState::AWAY;
        live.held = HeldAcks::NONE;
        live.controls = LazyDeque::EMPTY;
        live.backlog.clear();
        if let Some(in_flight) = live.in_flight.get_mut() {
            in_flight.restart();
        }
        if let Some(rare) = live.rare.get_mut() {
            (rare.mount_point, rare.aliases, rare.authentication) = (None, None, None);
            if let Some(incoming) = &mut rare.incoming {
                incoming.pending = Vec::new();
            }
        }
        self.shrink();
    }

    /// Drops the state of the session, except its tokens.
    pub(crate) fn forget(&mut self) {
        self.queue = Queue::default();
        self.subscriptions = Subscriptions::default();
        if let Some(live) = self.live.get_mut() {
            live.in_flight.clear();
            live.packet_ids = PacketIdAllocator::ALL;
            if let Some(rare) = live.rare.get_mut() {
                (rare.incoming, rare.will) = (None, None);
            }
        }
    }
}
