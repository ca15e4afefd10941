//! The reference client: as simple as the standard allows.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use mqttcore_codec::PublishQoS as Sent;
use mqttcore_codec::{
    Ack, Limits, Packet, PacketId, Properties, ProtocolVersion, Publish, QoS, Text, decode, encode,
};

pub(crate) const V5: ProtocolVersion = ProtocolVersion::V5;

/// An honest client with one connection at a time.
#[derive(Default)]
pub(crate) struct Client {
    /// PUBLISHes that it has not seen acknowledged to the end, oldest first.
    open: VecDeque<Open>,
    next_id: u16,
    pub(crate) published: u16,
    /// QoS 2 identifiers of the server's that it holds.
    held: BTreeSet<PacketId>,
    /// First deliveries, by QoS.
    pub(crate) received: BTreeMap<QoS, Vec<u16>>,
    /// Packets that it has read and not worked on.
    inbox: VecDeque<Vec<u8>>,
    pub(crate) receive_maximum: usize,
    /// The server's exchanges on this connection: what each identifier stands for.
    exchanges: BTreeMap<PacketId, u16>,
}

struct Open {
    packet_id: PacketId,
    qos: QoS,
    number: u16,
    is_released: bool,
    /// Sent on this connection.
    is_sent: bool,
    was_sent: bool,
}

impl Client {
    pub(crate) fn publish(&mut self, qos: QoS) {
        self.next_id += 1;
        self.open.push_back(Open {
            packet_id: PacketId::new(self.next_id).unwrap(),
            qos,
            number: self.published,
            is_released: false,
            is_sent: false,
            was_sent: false,
        });
        self.published += 1;
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.open.is_empty() && self.inbox.is_empty()
    }

    pub(crate) fn lose(&mut self) {
        self.inbox.clear();
        self.exchanges.clear();
        for open in &mut self.open {
            open.is_sent = false;
        }
    }

    /// A packet comes in; the server's Receive Maximum is checked as the client sees it.
    pub(crate) fn read(&mut self, bytes: Vec<u8>) {
        if let Packet::Publish(publish) = read(&bytes) {
            let packet_id = publish.delivery.packet_id().unwrap();
            let earlier = self.exchanges.insert(packet_id, number(publish.payload));
            assert_eq!(earlier, None, "{packet_id} was sent twice on a connection");
            assert!(
                self.exchanges.len() <= self.receive_maximum,
                "Receive Maximum"
            );
        }
        self.inbox.push_back(bytes);
    }

    /// Works on one packet, in the order in which they came.
    pub(crate) fn work(&mut self, answers: &mut Vec<Vec<u8>>) {
        let Some(bytes) = self.inbox.pop_front() else {
            return;
        };
        match read(&bytes) {
            Packet::Publish(publish) => self.receive(&publish, answers),
            Packet::PubRel(ack) => {
                self.held.remove(&ack.packet_id);
                self.exchanges.remove(&ack.packet_id);
                answers.push(write(&Packet::PubComp(Ack::success(ack.packet_id))));
            }
            Packet::PubAck(ack) | Packet::PubComp(ack) => {
                self.open.retain(|open| open.packet_id != ack.packet_id);
            }
            Packet::PubRec(ack) => {
                if let Some(open) = self.find(ack.packet_id) {
                    open.is_released = true;
                }
                answers.push(write(&Packet::PubRel(Ack::success(ack.packet_id))));
            }
            _ => {}
        }
    }

    fn receive(&mut self, publish: &Publish<'_>, answers: &mut Vec<Vec<u8>>) {
        let packet_id = publish.delivery.packet_id().unwrap();
        let qos = publish.delivery.qos();
        let is_new = qos != QoS::ExactlyOnce || self.held.insert(packet_id);
        if is_new {
            self.received
                .entry(qos)
                .or_default()
                .push(number(publish.payload));
        }
        if qos == QoS::ExactlyOnce {
            answers.push(write(&Packet::PubRec(Ack::success(packet_id))));
        } else {
            self.exchanges.remove(&packet_id);
            answers.push(write(&Packet::PubAck(Ack::success(packet_id))));
        }
    }

    fn find(&mut self, packet_id: PacketId) -> Option<&mut Open> {
        self.open
            .iter_mut()
            .find(|open| open.packet_id == packet_id)
    }

    /// Sends what is open and not sent on this connection, within the server's Receive Maximum.
    pub(crate) fn send_publishes(&mut self, answers: &mut Vec<Vec<u8>>, receive_maximum: u16) {
        let mut quota = usize::from(receive_maximum);
        for open in &mut self.open {
            if quota == 0 {
                return;
            }
            quota -= 1;
            if !open.is_sent {
                open.is_sent = true;
                answers.push(open.packet());
                open.was_sent = true;
            }
        }
    }
}

impl Open {
    fn packet(&self) -> Vec<u8> {
        let (packet_id, dup) = (self.packet_id, self.was_sent);
        if self.is_released {
            return write(&Packet::PubRel(Ack::success(packet_id)));
        }
        write(&Packet::Publish(Publish {
            delivery: match self.qos {
                QoS::ExactlyOnce => Sent::ExactlyOnce { packet_id, dup },
                _ => Sent::AtLeastOnce { packet_id, dup },
            },
            retain: false,
            topic: Text::new("u").unwrap(),
            properties: Properties::EMPTY,
            payload: &self.number.to_be_bytes(),
        }))
    }
}

pub(crate) fn number(payload: &[u8]) -> u16 {
    u16::from_be_bytes(payload.try_into().unwrap())
}

pub(crate) fn read(bytes: &[u8]) -> Packet<'_> {
    decode(bytes, V5, &Limits::default()).unwrap().unwrap().0
}

pub(crate) fn write(packet: &Packet<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    encode(packet, V5, &mut out).unwrap();
    out
}
