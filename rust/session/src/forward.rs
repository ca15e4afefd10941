//! Messages that are sent at once, as their publisher sent them.

use std::ops::Range;

use mqttcore_codec::QoS;

use crate::chunk::Chunk;
use crate::limits::PACKET_BYTES_MAX;
use crate::message::Message;
use crate::outbound::Delivery;
use crate::session::{LinkState, Session};

impl Session {
    /// The publisher's own frame of a message, if [`Session::deliver`] would send it unchanged and the next poll would
    /// return it. Then the engine may write the frame instead of delivering the message: nothing in the session changes.
    pub fn forward<'m>(
        &self,
        message: &'m Message,
        delivery: &Delivery<'_>,
    ) -> Option<(&'m Chunk, Range<usize>)> {
        let (chunk, frame) = message.frame(self.version)?;
        let is_unchanged = !delivery.retain
            && delivery.subscription_ids.is_empty()
            && self.limits.outgoing_qos(message.qos(), delivery.qos) == QoS::AtMostOnce;
        let limit = self.live.link.packet_bytes.min(PACKET_BYTES_MAX);
        let fits = frame.len() <= limit as usize;
        (is_unchanged && fits && self.forwards()).then_some((chunk, frame))
    }

    /// Whether the client may get frames of publishers unchanged, and no other packet waits to be sent.
    fn forwards(&self) -> bool {
        let live = &*self.live;
        self.state == LinkState::Open
            && live.rare.mount_point.is_none()
            && live.rare.aliases.is_none()
            && live.controls.is_empty()
            && live.backlog.is_empty()
            && !live.held.is_due(&self.gate)
            && !live.in_flight.has_unsent()
            && !self.queue.holds_qos0()
    }
}
