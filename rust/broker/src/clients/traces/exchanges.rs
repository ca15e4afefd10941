//! Exchanges of messages in a trace with a topic filter: acknowledgements have no topic of their own.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};

use mqttcore_codec::{Packet, PacketId};

use crate::clients::traces::TraceDirection;

/// Maximum number of exchanges that a trace follows; the oldest make room.
const FOLLOWED_MAX: usize = 4_096;

/// The part of a packet in the exchange of a message above QoS 0.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExchangeStep {
    packet_id: PacketId,
    /// The client has sent the message. Client and broker choose identifiers independently.
    is_of_client: bool,
    part: ExchangePart,
}

#[derive(Clone, Copy, Debug)]
enum ExchangePart {
    Begin,
    Next,
    End,
}

impl ExchangeStep {
    /// The step of a packet that the client sent or got; `None` if it is of no such exchange.
    pub(crate) fn of(packet: &Packet<'_>, direction: TraceDirection) -> Option<Self> {
        use ExchangePart::{Begin, End, Next};
        let is_received = direction == TraceDirection::In;
        let (packet_id, is_of_client, part) = match packet {
            Packet::Publish(publish) => (publish.delivery.packet_id()?, is_received, Begin),
            Packet::PubRel(ack) => (ack.packet_id, is_received, Next),
            Packet::PubRec(ack) if !ack.reason.is_error() => (ack.packet_id, !is_received, Next),
            Packet::PubAck(ack) | Packet::PubRec(ack) | Packet::PubComp(ack) => {
                (ack.packet_id, !is_received, End)
            }
            _ => return None,
        };
        Some(Self {
            packet_id,
            is_of_client,
            part,
        })
    }
}

/// Hash of the client identifier, which may be long; packet identifier; whether the client has sent the message.
type Key = (u64, PacketId, bool);

/// The exchanges whose PUBLISH is in the trace.
#[derive(Debug, Default)]
pub(super) struct Followed {
    /// The number of each exchange.
    numbers: HashMap<Key, u64>,
    /// All of them, and some that have ended, the oldest first.
    begun: VecDeque<(u64, Key)>,
    last: u64,
    hasher: RandomState,
}

impl Followed {
    /// Whether the trace has a packet of `client_id` with this step; `is_matching`: its topic is one of the trace.
    pub(super) fn follow(
        &mut self,
        client_id: &str,
        step: ExchangeStep,
        is_matching: bool,
    ) -> bool {
        let client = self.hasher.hash_one(client_id);
        let key = (client, step.packet_id, step.is_of_client);
        match step.part {
            ExchangePart::Begin if is_matching => self.begin(key),
            ExchangePart::Next => return self.numbers.contains_key(&key),
            ExchangePart::End => return self.numbers.remove(&key).is_some(),
            // The identifier is that of another message now.
            ExchangePart::Begin => {
                self.numbers.remove(&key);
            }
        }
        is_matching
    }

    fn begin(&mut self, key: Key) {
        self.last += 1;
        self.numbers.insert(key, self.last);
        self.begun.push_back((self.last, key));
        if self.begun.len() > FOLLOWED_MAX
            && let Some((number, oldest)) = self.begun.pop_front()
            && self.numbers.get(&oldest) == Some(&number)
        {
            self.numbers.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_codec::{Ack, ReasonCode};

    use super::*;

    fn id(number: usize) -> PacketId {
        let number = u16::try_from(number).expect("a packet identifier");
        PacketId::new(number).expect("not 0")
    }

    fn step(packet: &Packet<'_>, direction: TraceDirection) -> ExchangeStep {
        ExchangeStep::of(packet, direction).expect("it is of an exchange")
    }

    fn begin(number: usize) -> ExchangeStep {
        ExchangeStep {
            packet_id: id(number),
            is_of_client: true,
            part: ExchangePart::Begin,
        }
    }

    #[test]
    fn an_exchange_is_followed_to_its_end() {
        let (mut followed, client) = (Followed::default(), "c");
        let rejected = Ack {
            reason: ReasonCode::NOT_AUTHORIZED,
            ..Ack::success(id(1))
        };
        let ack = Ack::success(id(1));
        let mut is_in = |packet: Packet<'_>, direction| {
            followed.follow(client, step(&packet, direction), false)
        };
        let (to_client, from_client) = (TraceDirection::Out, TraceDirection::In);

        assert!(!is_in(Packet::PubAck(ack), to_client), "no PUBLISH");
        followed.follow(client, begin(1), true);
        let mut is_in = |packet: Packet<'_>, direction| {
            followed.follow(client, step(&packet, direction), false)
        };
        assert!(
            !is_in(Packet::PubAck(ack), from_client),
            "of a message of the broker"
        );
        assert!(is_in(Packet::PubRec(ack), to_client));
        assert!(is_in(Packet::PubRel(ack), from_client));
        assert!(is_in(Packet::PubComp(ack), to_client));
        assert!(!is_in(Packet::PubComp(ack), to_client), "it has ended");
        followed.follow(client, begin(1), true);
        let mut is_in = |packet: Packet<'_>, direction| {
            followed.follow(client, step(&packet, direction), false)
        };
        assert!(is_in(Packet::PubRec(rejected), to_client));
        assert!(!is_in(Packet::PubRel(ack), from_client));
        followed.follow(client, begin(1), true);
        followed.follow(client, begin(1), false);
        assert!(!followed.follow(client, step(&Packet::PubAck(ack), to_client), false));
    }

    #[test]
    fn the_oldest_exchanges_make_room() {
        let (mut followed, client) = (Followed::default(), "c");
        for number in 1..=FOLLOWED_MAX + 2 {
            followed.follow(client, begin(number), true);
        }

        assert_eq!(followed.numbers.len(), FOLLOWED_MAX);
        let mut ends = |number| {
            let ack = Packet::PubAck(Ack::success(id(number)));
            followed.follow(client, step(&ack, TraceDirection::Out), false)
        };
        assert_eq!([1, 2, 3].map(&mut ends), [false, false, true]);
        for _ in 0..2 * FOLLOWED_MAX {
            followed.follow(client, begin(9), true);
        }
        let ack = Packet::PubAck(Ack::success(id(9)));
        let ack = step(&ack, TraceDirection::Out);
        assert_eq!(followed.begun.len(), FOLLOWED_MAX);
        assert!(followed.follow(client, ack, false), "the newest one");
    }
}
