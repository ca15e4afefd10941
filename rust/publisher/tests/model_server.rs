//! Any rows to a server that answers when and in whichever order it likes.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::collections::{BTreeMap, VecDeque};

use common::{connected, rows, sent};
use mqttcore_codec::{Ack, Limits, Packet, PacketId, ProtocolVersion, decode, encode};
use mqttcore_publisher::Publisher;
use proptest::prelude::*;

/// What a server has to send for a packet identifier.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Owes {
    Ack,
    Receipt,
    Completion,
}

/// A server that remembers what it owes.
#[derive(Default)]
struct Server {
    torn: Vec<u8>,
    owes: BTreeMap<PacketId, Owes>,
    waits_for_pubrel: Vec<PacketId>,
    received: Vec<(Vec<u8>, u8, String)>,
    most_in_flight: usize,
}

impl Server {
    fn take(&mut self, bytes: &[u8]) {
        self.torn.extend_from_slice(bytes);
        let torn = std::mem::take(&mut self.torn);
        let mut rest = torn.as_slice();
        while let Some((packet, len)) = decode(rest, ProtocolVersion::V5, &Limits::MAX).unwrap() {
            self.packet(&packet);
            rest = &rest[len..];
        }
        self.torn = rest.to_vec();
    }

    fn packet(&mut self, packet: &Packet<'_>) {
        match packet {
            Packet::Publish(publish) => {
                let id = publish.delivery.packet_id().expect("QoS 1 or 2");
                let qos = publish.delivery.qos().into();
                let owed = if qos == 2 { Owes::Receipt } else { Owes::Ack };
                assert!(!self.waits_for_pubrel.contains(&id), "{id} is in use");
                assert_eq!(self.owes.insert(id, owed), None, "{id} is in use");
                let mut pairs = publish.properties.user_properties();
                let name = pairs.next().expect("a name").1.as_str().to_owned();
                self.received.push((publish.payload.to_vec(), qos, name));
            }
            Packet::PubRel(ack) => {
                let waiting = self.waits_for_pubrel.len();
                self.waits_for_pubrel.retain(|id| *id != ack.packet_id);
                assert_eq!(self.waits_for_pubrel.len(), waiting - 1);
                assert_eq!(self.owes.insert(ack.packet_id, Owes::Completion), None);
            }
            other => panic!("{other:?}"),
        }
        let in_flight = self.owes.len() + self.waits_for_pubrel.len();
        self.most_in_flight = self.most_in_flight.max(in_flight);
    }

    /// Pays one of its debts.
    fn answer(&mut self, choice: usize, out: &mut VecDeque<u8>) {
        let Some(&id) = self.owes.keys().nth(choice % self.owes.len().max(1)) else {
            return;
        };
        let ack = Ack::success(id);
        let packet = match self.owes.remove(&id) {
            Some(Owes::Ack) => Packet::PubAck(ack),
            Some(Owes::Receipt) => {
                self.waits_for_pubrel.push(id);
                Packet::PubRec(ack)
            }
            _ => Packet::PubComp(ack),
        };
        let mut bytes = Vec::new();
        encode(&packet, ProtocolVersion::V5, &mut bytes).unwrap();
        out.extend(bytes);
    }
}

/// One turn: `bytes` of what is under way arrive, each way; then the server may pay.
fn turn(
    publisher: &mut Publisher,
    server: &mut Server,
    (there, back): (&mut VecDeque<u8>, &mut VecDeque<u8>),
    (bytes, choice): (usize, Option<usize>),
) {
    there.extend(sent(publisher).unwrap());
    let arriving: Vec<u8> = there.drain(..bytes.min(there.len())).collect();
    server.take(&arriving);
    if let Some(choice) = choice {
        server.answer(choice, back);
    }
    let arriving: Vec<u8> = back.drain(..bytes.min(back.len())).collect();
    publisher.handle_bytes(&arriving).unwrap();
}

proptest! {
    #[test]
    fn every_row_arrives_once_in_its_order_and_within_receive_maximum(
        batches in prop::collection::vec(prop::collection::vec(0_i64..3, 0..12), 1..5),
        in_flight_max in 1_u16..8,
        receive_maximum in 1_u8..8,
        turns in prop::collection::vec((0_usize..90, prop::option::of(any::<usize>())), 0..80),
    ) {
        let mut publisher = connected(in_flight_max, &[33, 0, receive_maximum]);
        let (mut server, mut there, mut back) = (Server::default(), VecDeque::new(), VecDeque::new());
        for batch in &batches {
            publisher.publish(&rows(batch)).unwrap();
        }

        for step in turns {
            turn(&mut publisher, &mut server, (&mut there, &mut back), step);
        }
        let all: usize = batches.iter().map(Vec::len).sum();
        for _ in 0..20 * all {
            turn(&mut publisher, &mut server, (&mut there, &mut back), (1000, Some(0)));
        }

        let numbered = batches.iter().flat_map(|batch| batch.iter().enumerate()).enumerate();
        let expected: Vec<_> = numbered.map(|(row, (place, qos))| {
            (place.to_string().into_bytes(), u8::try_from(*qos.max(&1)).unwrap(), format!("q/3/1/{row}"))
        }).collect();
        prop_assert_eq!(&server.received, &expected);
        prop_assert!(server.most_in_flight <= usize::from(in_flight_max.min(receive_maximum.into())));
        prop_assert_eq!((publisher.in_flight(), publisher.has_rows()), (0, false));
    }

    #[test]
    fn garbage_is_an_error_or_nothing(bytes in prop::collection::vec(any::<u8>(), 0..60)) {
        let mut publisher = connected(9, &[]);
        publisher.publish(&rows(&[1, 2])).unwrap();
        sent(&mut publisher).unwrap();

        let taken = publisher.handle_bytes(&bytes);

        if let Err(failure) = taken {
            prop_assert!(!failure.to_string().is_empty());
        }
    }
}
