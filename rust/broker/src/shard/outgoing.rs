//! Moves packets from a session to the outbox of its connection.

use std::rc::Rc;
use std::time::Instant;

use mqttcore_codec::{PacketType, PropertiesBuf, ProtocolVersion, QoS};
use mqttcore_session::{Control, Delivery, Message, PublishTransmit, Transmit};

use crate::clients::client::Client;
use crate::clients::link::Link;
use crate::shard::{Due, Shard};
use crate::transport::outbox::{Outbox, SHARE_FROM_BYTES};

impl Client {
    /// Moves the outgoing packets of the session to the outbox of its connection, which is written behind the tasks that
    /// are due.
    pub(crate) fn flush_session(self: &Rc<Self>, shard: &Shard) {
        let own = self.link_ref();
        let Some(link) = &*own else { return };
        let mut session = self.session.borrow_mut();
        let was_empty = link.outbox().is_empty();
        let traces = self.traces(shard, link);
        while let Some(transmit) = session.poll_transmit() {
            link.push(shard, &transmit);
            if !traces.is_empty() {
                shard.trace_sent(traces, (self, link), &transmit);
            }
        }
        drop(session);
        self.after_push(shard, link, was_empty);
    }

    /// Puts a message into the connection's outbox without its session, if the client gets the publisher's own frame
    /// now, and has it written. Returns false and does nothing if not.
    pub(crate) fn forward(
        self: &Rc<Self>,
        shard: &Shard,
        message: &Message,
        delivery: &Delivery<'_>,
    ) -> bool {
        let own = self.link_ref();
        let Some(link) = &*own else { return false };
        let session = self.session.borrow();
        let Some((chunk, frame)) = session.forward(message, delivery) else {
            return false;
        };
        if !self.traces(shard, link).is_empty() {
            return false;
        }
        let metrics = shard.metrics();
        metrics.tallies.packets_sent.count(PacketType::Publish);
        metrics.tallies.messages_sent.count(QoS::AtMostOnce);
        let payload = message.payload_range().len();
        metrics.payload_bytes_sent.add(payload as u64);
        let mut borrowed = link.outbox_mut();
        let outbox: &mut Outbox = &mut borrowed;
        let was_empty = outbox.is_empty();
        outbox.push_shared(chunk, frame);
        if chunk.stamp() != 0 {
            shard.begin_delivery(link, QoS::AtMostOnce, chunk.stamp(), outbox.len());
        }
        drop((borrowed, session));
        self.after_push(shard, link, was_empty);
        true
    }

    /// Has the outbox of its connection written, if it `was_empty` before.
    fn after_push(self: &Rc<Self>, shard: &Shard, link: &Link, was_empty: bool) {
        let outbox = link.outbox();
        let (is_blocked, is_empty) = (outbox.is_blocked(), outbox.is_empty());
        drop(outbox);
        if is_blocked {
            self.weigh(shard);
        }
        if was_empty && !is_empty && !link.in_turn.get() && link.has_begun() {
            shard.due.push(Due::Output(Rc::clone(self)));
        }
    }
}

impl Link {
    /// Puts one packet into the outbox.
    pub(crate) fn push(&self, shard: &Shard, transmit: &Transmit) {
        let metrics = shard.metrics();
        let mut outbox = self.outbox_mut();
        match transmit {
            Transmit::Publish(publish) => {
                metrics.tallies.packets_sent.count(PacketType::Publish);
                metrics.tallies.messages_sent.count(publish.qos());
                let payload = publish.message().payload_range().len();
                metrics.payload_bytes_sent.add(payload as u64);
                let mut scratch = shard.properties.borrow_mut();
                push_publish(
                    &mut outbox,
                    self.version,
                    shard.now(),
                    &mut scratch,
                    publish,
                );
                let stamp = publish.message().bytes().stamp();
                if stamp != 0 {
                    shard.begin_delivery(self, publish.qos(), stamp, outbox.len());
                }
            }
            Transmit::Control(control) => {
                metrics.tallies.packets_sent.count(control.packet_type());
                outbox.push_with(|out| control.encode(self.version, self.packet_bytes, out));
            }
        }
    }

    /// Puts a packet that is not the session's turn into the outbox.
    pub(crate) fn push_control(&self, shard: &Shard, control: &Control) {
        let packets = &shard.metrics().tallies.packets_sent;
        packets.count(control.packet_type());
        let mut outbox = self.outbox_mut();
        outbox.push_with(|out| control.encode(self.version, self.packet_bytes, out));
    }
}

/// Uses the publisher's bytes if possible; otherwise a new head and a shared payload.
fn push_publish(
    outbox: &mut Outbox,
    version: ProtocolVersion,
    now: Instant,
    scratch: &mut PropertiesBuf,
    publish: &PublishTransmit,
) {
    if let Some((chunk, range)) = publish.shared_frame(version) {
        outbox.push_shared(chunk, range);
        return;
    }
    let message = publish.message();
    let payload = message.payload_range();
    let encoded = if payload.len() < SHARE_FROM_BYTES {
        outbox.push_with(|out| publish.encode(version, now, scratch, out))
    } else {
        outbox.push_with(|out| publish.encode_head(version, now, scratch, out))
    };
    // The session has checked the size; an error would write nothing.
    debug_assert!(encoded.is_ok(), "a session hands out what can be encoded");
    if encoded.is_ok() && payload.len() >= SHARE_FROM_BYTES {
        outbox.push_payload(message.bytes(), payload);
    }
}
