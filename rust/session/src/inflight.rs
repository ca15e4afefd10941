//! QoS 1 and 2 messages in flight to the client, in the order of their first transmission.

use std::collections::VecDeque;
use std::mem;

use mqttcore_codec::{PacketId, QoS};

use crate::gate::{AckGate, AckToken};
use crate::message::Message;
use crate::packet_ids::PacketIdAllocator;
use crate::queue::{Hold, Outgoing};
use crate::transmit::PublishTransmit;

/// Limits of the messages in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlightLimits {
    /// PUBLISHes and PUBRELs that wait for an answer.
    pub(crate) messages: u16,
    /// Bytes of PUBLISHes that wait for PUBACK or PUBREC; 0: no limit.
    pub(crate) bytes: usize,
}

impl InFlightLimits {
    /// Whether a message of `message_bytes` may be sent while `bytes` are in flight. If nothing is in flight, any size
    /// may be sent.
    fn takes(self, bytes: usize, message_bytes: usize) -> bool {
        self.bytes == 0 || bytes == 0 || bytes.saturating_add(message_bytes) <= self.bytes
    }
}

/// The messages in flight to the client.
#[derive(Debug)]
pub(crate) struct InFlight {
    /// PUBLISHes without PUBACK or PUBREC, in their original order [MQTT-4.6.0-1].
    publishes: VecDeque<InFlightEntry>,
    /// How many of `publishes`, counted from the front, were sent on this connection.
    sent: u16,
    /// Bytes of all `publishes`.
    bytes: usize,
    /// Bytes of the publishes that were sent on this connection.
    sent_bytes: usize,
    /// PUBRELs without PUBCOMP, in the order of their PUBRECs [MQTT-4.6.0-4].
    releases: VecDeque<PacketId>,
}

/// A PUBLISH with its identifier.
#[derive(Debug)]
pub(crate) struct InFlightEntry {
    pub(crate) outgoing: Outgoing,
    pub(crate) packet_id: PacketId,
    /// It was sent on some connection: the next transmission is a repeat [MQTT-3.3.1-1].
    pub(crate) was_sent: bool,
    /// It is sent once this token is confirmed.
    token: AckToken,
}

/// A message in flight to the client, for management interfaces.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InFlightMessage {
    /// Its packet identifier.
    pub packet_id: PacketId,
    /// The message; `None` if the client has it and only PUBCOMP is missing.
    pub message: Option<Message>,
    /// The QoS that it is sent with.
    pub qos: QoS,
    /// Whether it was sent on some connection.
    pub is_sent: bool,
}

/// The stage of an exchange.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Stage {
    /// Its PUBLISH, at this index, was sent.
    Published(usize),
    /// Its PUBREL waits for PUBCOMP.
    Releasing,
    /// No packet with this identifier was sent.
    Unknown,
}

impl InFlightEntry {
    /// An entry that may have been sent before the broker restarted.
    pub(crate) fn restored(outgoing: Outgoing, packet_id: PacketId) -> Self {
        Self {
            outgoing,
            packet_id,
            was_sent: true,
            token: AckToken::default(),
        }
    }

    pub(crate) fn is_exactly_once(&self) -> bool {
        self.outgoing.qos == QoS::ExactlyOnce
    }

    /// Bytes of topic, properties and payload, which do not change after the message was sent.
    fn bytes(&self) -> usize {
        self.outgoing.message.len()
    }
}

impl InFlight {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.publishes.capacity() * size_of::<InFlightEntry>()
            + self.releases.capacity() * size_of::<PacketId>()
    }

    pub(crate) const NONE: Self = Self {
        publishes: VecDeque::new(),
        sent: 0,
        bytes: 0,
        sent_bytes: 0,
        releases: VecDeque::new(),
    };

    /// Number of exchanges that count against the client's Receive Maximum [MQTT-4.9.0-1].
    pub(crate) fn len(&self) -> usize {
        self.publishes.len() + self.releases.len()
    }

    /// Whether a message was not sent on this connection yet.
    pub(crate) fn has_unsent(&self) -> bool {
        usize::from(self.sent) < self.publishes.len()
    }

    /// Bytes of the messages.
    pub(crate) fn message_bytes(&self) -> usize {
        self.bytes
    }

    /// Whether a message of `message_bytes` fits into `limits`.
    pub(crate) fn has_room(&self, limits: InFlightLimits, message_bytes: usize) -> bool {
        self.len() < usize::from(limits.messages) && limits.takes(self.bytes, message_bytes)
    }

    /// Returns an identifier that no unfinished exchange uses [MQTT-2.2.1-4].
    pub(crate) fn take_id(&self, ids: &mut PacketIdAllocator) -> Option<PacketId> {
        ids.take(|| {
            let publishes = self.publishes.iter();
            publishes
                .map(|entry| entry.packet_id)
                .chain(self.releases())
        })
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing, packet_id: PacketId, token: AckToken) {
        self.bytes += outgoing.message.len();
        self.publishes.push_back(InFlightEntry {
            outgoing,
            packet_id,
            was_sent: false,
            token,
        });
    }

    /// Restores an exchange that was open before the broker restarted; call it in the original order.
    pub(crate) fn restore(&mut self, entry: InFlightEntry) {
        self.bytes += entry.bytes();
        self.publishes.push_back(entry);
    }

    pub(crate) fn restore_release(&mut self, packet_id: PacketId) {
        self.releases.push_back(packet_id);
    }

    /// Returns the next PUBLISH to send. PUBLISHes that an earlier connection left open come first.
    pub(crate) fn poll(
        &mut self,
        limits: InFlightLimits,
        gate: &AckGate,
    ) -> Option<PublishTransmit> {
        let place = usize::from(self.sent);
        let on_the_wire = place + self.releases.len();
        let entry = self.publishes.get_mut(place)?;
        let has_room = on_the_wire < usize::from(limits.messages)
            && limits.takes(self.sent_bytes, entry.bytes());
        let is_held = entry.outgoing.hold != Hold::Free;
        if !has_room || is_held || !gate.is_open(entry.token) {
            return None;
        }
        self.sent += 1;
        self.sent_bytes += entry.bytes();
        Some(PublishTransmit {
            outgoing: entry.outgoing.clone(),
            packet_id: Some(entry.packet_id),
            dup: mem::replace(&mut entry.was_sent, true) || entry.outgoing.maybe_sent,
            alias: None,
            hidden: 0,
        })
    }

    /// The next message that waits for a decision of the engine.
    pub(crate) fn next_held(&self) -> Option<&Outgoing> {
        if !self.has_unsent() {
            return None;
        }
        let unsent = self.publishes.iter().skip(self.sent.into());
        let mut unsent = unsent.map(|entry| &entry.outgoing);
        unsent.find(|outgoing| outgoing.hold != Hold::Free)
    }

    /// The messages that were not sent on this connection.
    pub(crate) fn unsent_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        let unsent = self.publishes.iter_mut().skip(self.sent.into());
        unsent.map(|entry| &mut entry.outgoing)
    }

    /// Lets `decide` change the messages that were not sent on this connection, and returns those for which it returns
    /// false. Their exchanges end: a message of QoS 2 is replaced by its PUBREL, which clients that have it and clients
    /// that do not have it answer.
    pub(crate) fn decide_unsent(
        &mut self,
        mut decide: impl FnMut(&mut Outgoing) -> bool,
    ) -> Vec<InFlightEntry> {
        let (mut place, mut removed) = (usize::from(self.sent), Vec::new());
        while let Some(entry) = self.publishes.get_mut(place) {
            let bytes = entry.bytes();
            if decide(&mut entry.outgoing) {
                self.bytes = self.bytes - bytes + entry.bytes();
                place += 1;
            } else {
                removed.extend(self.remove(place));
            }
        }
        let exact = removed.iter().filter(|entry| entry.is_exactly_once());
        self.releases.extend(exact.map(|entry| entry.packet_id));
        removed
    }

    pub(crate) fn stage(&self, packet_id: PacketId) -> Stage {
        // Most PUBCOMPs come in the order of the PUBRELs: no PUBLISH is looked at.
        if self.releases.front() == Some(&packet_id) {
            return Stage::Releasing;
        }
        let place = self.place(packet_id);
        match place.filter(|&place| self.publishes[place].was_sent) {
            Some(place) => Stage::Published(place),
            None if self.releases.contains(&packet_id) => Stage::Releasing,
            None => Stage::Unknown,
        }
    }

    /// Index of an identifier. Identifiers count up, so the computed index is nearly always right; otherwise all are
    /// searched.
    fn place(&self, packet_id: PacketId) -> Option<usize> {
        let first = self.publishes.front()?.packet_id.get();
        let guess = usize::from(packet_id.get().wrapping_sub(first));
        let is_there = |entry: &InFlightEntry| entry.packet_id == packet_id;
        if self.publishes.get(guess).is_some_and(is_there) {
            return Some(guess);
        }
        self.publishes.iter().position(is_there)
    }

    pub(crate) fn get(&self, place: usize) -> &InFlightEntry {
        &self.publishes[place]
    }

    /// Ends the exchange at `place`; its identifier is free.
    pub(crate) fn remove(&mut self, place: usize) -> Option<InFlightEntry> {
        let entry = self.publishes.remove(place)?;
        self.bytes -= entry.bytes();
        if place < usize::from(self.sent) {
            self.sent -= 1;
            self.sent_bytes -= entry.bytes();
        }
        Some(entry)
    }

    /// Replaces the PUBLISH by its PUBREL, since the client has the message [MQTT-4.3.3-6].
    pub(crate) fn release(&mut self, place: usize) -> Option<InFlightEntry> {
        let entry = self.remove(place)?;
        self.releases.push_back(entry.packet_id);
        Some(entry)
    }

    /// Ends an exchange with PUBCOMP; returns whether it was open.
    pub(crate) fn complete(&mut self, packet_id: PacketId) -> bool {
        let place = self.releases.iter().position(|&open| open == packet_id);
        place.is_some_and(|place| self.releases.remove(place).is_some())
    }

    /// All messages in flight: publishes, then releases.
    pub(crate) fn messages(&self) -> impl Iterator<Item = InFlightMessage> {
        let publishes = self.publishes.iter().map(|entry| InFlightMessage {
            packet_id: entry.packet_id,
            message: Some(entry.outgoing.message.clone()),
            qos: entry.outgoing.qos,
            is_sent: entry.was_sent,
        });
        publishes.chain(self.releases().map(|packet_id| InFlightMessage {
            packet_id,
            message: None,
            qos: QoS::ExactlyOnce,
            is_sent: true,
        }))
    }

    /// Identifiers whose PUBREL is open, in the order of their PUBRECs.
    pub(crate) fn releases(&self) -> impl Iterator<Item = PacketId> {
        self.releases.iter().copied()
    }

    /// Identifiers of QoS 2 messages whose exchange is open.
    pub(crate) fn exactly_once_ids(&self) -> impl Iterator<Item = PacketId> {
        let publishes = self.publishes.iter();
        let exact = publishes.filter(|entry| entry.outgoing.qos == QoS::ExactlyOnce);
        self.releases().chain(exact.map(|entry| entry.packet_id))
    }

    /// Starts a new connection, on which nothing has been sent yet.
    pub(crate) fn restart(&mut self) {
        (self.sent, self.sent_bytes) = (0, 0);
    }

    /// Removes the messages that `fits` rejects, for a client whose limits have changed.
    pub(crate) fn remove_unless(&mut self, fits: impl Fn(&Outgoing) -> bool) -> Vec<InFlightEntry> {
        if self.publishes.iter().all(|entry| fits(&entry.outgoing)) {
            return Vec::new();
        }
        debug_assert_eq!(self.sent, 0, "only between two connections");
        let (kept, removed) = mem::take(&mut self.publishes)
            .into_iter()
            .partition(|entry| fits(&entry.outgoing));
        self.publishes = kept;
        self.bytes = self.publishes.iter().map(InFlightEntry::bytes).sum();
        Vec::from(removed)
    }

    pub(crate) fn messages_mut(&mut self) -> impl Iterator<Item = &mut Message> {
        self.publishes
            .iter_mut()
            .map(|entry| &mut entry.outgoing.message)
    }

    pub(crate) fn shrink(&mut self) {
        if self.publishes.is_empty() {
            self.publishes = VecDeque::new();
        }
        if self.releases.is_empty() {
            self.releases = VecDeque::new();
        }
    }
}
