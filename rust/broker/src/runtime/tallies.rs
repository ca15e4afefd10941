//! Counters by packet type and by reason code.

use mqttcore_codec::{PacketType, ReasonCode};

use crate::runtime::metrics::Counter;

/// Packet types and their names in reports.
const TYPES: [(PacketType, &str); 15] = [
    (PacketType::Connect, "connect"),
    (PacketType::ConnAck, "connack"),
    (PacketType::Publish, "publish"),
    (PacketType::PubAck, "puback"),
    (PacketType::PubRec, "pubrec"),
    (PacketType::PubRel, "pubrel"),
    (PacketType::PubComp, "pubcomp"),
    (PacketType::Subscribe, "subscribe"),
    (PacketType::SubAck, "suback"),
    (PacketType::Unsubscribe, "unsubscribe"),
    (PacketType::UnsubAck, "unsuback"),
    (PacketType::PingReq, "pingreq"),
    (PacketType::PingResp, "pingresp"),
    (PacketType::Disconnect, "disconnect"),
    (PacketType::Auth, "auth"),
];

/// Packets of one direction, by packet type.
#[derive(Debug, Default)]
pub(crate) struct PacketCounters([Counter; 16]);

impl PacketCounters {
    /// Counts a packet. Only the shard's own thread may call this.
    pub(crate) fn count(&self, packet_type: PacketType) {
        self.0[packet_type as usize].add(1);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::value).sum()
    }
}

/// Connections that were rejected or ended, by reason code.
#[derive(Debug)]
pub(crate) struct ReasonCounters([Counter; 256]);

impl Default for ReasonCounters {
    fn default() -> Self {
        Self(std::array::from_fn(|_| Counter::default()))
    }
}

impl ReasonCounters {
    /// Counts a reason. Only the shard's own thread may call this.
    pub(crate) fn count(&self, reason: ReasonCode) {
        self.0[usize::from(reason.value())].add(1);
    }
}

/// One shard's counters by type and by reason.
#[derive(Debug, Default)]
pub(crate) struct TallyCounters {
    pub(crate) packets_received: PacketCounters,
    pub(crate) packets_sent: PacketCounters,
    /// Answers to CONNECT.
    pub(crate) connects: ReasonCounters,
    /// Client connections that the broker closed.
    pub(crate) closed: ReasonCounters,
    /// Client connections that ended with a DISCONNECT of the client.
    pub(crate) left: ReasonCounters,
}

/// Names and counts.
pub type Tally = Vec<(&'static str, u64)>;

/// Counts by packet type and by reason code, summed over all shards. Reasons have the names of the specification; every
/// reason that can occur has an entry.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tallies {
    /// Packets received, by type.
    pub packets_received: Tally,
    /// Packets sent, by type.
    pub packets_sent: Tally,
    /// CONNECT packets that were answered, by the reason code of CONNACK.
    pub connects: Tally,
    /// Connections of clients that the broker closed, by the reason code of DISCONNECT; MQTT 3.x sends none.
    pub closed: Tally,
    /// Connections that ended with the client's DISCONNECT, by its reason code, which says whether the will is
    /// published.
    pub left: Tally,
}

impl Tallies {
    /// The sums over all shards.
    pub(crate) fn sum(shards: &[&TallyCounters]) -> Self {
        let packets = |of: fn(&TallyCounters) -> &PacketCounters| {
            let count = |packet_type: PacketType| {
                let counters = shards
                    .iter()
                    .map(|shard| &of(shard).0[packet_type as usize]);
                counters.map(Counter::value).sum()
            };
            TYPES.iter().map(|(of, name)| (*name, count(*of))).collect()
        };
        let reasons = |of: fn(&TallyCounters) -> &ReasonCounters,
                       known: &dyn Fn(ReasonCode) -> bool| {
            let count = |reason: ReasonCode| -> u64 {
                let place = usize::from(reason.value());
                let counters = shards.iter().map(|shard| &of(shard).0[place]);
                counters.map(Counter::value).sum()
            };
            let counted = ReasonCode::ALL
                .iter()
                .map(|reason| (*reason, count(*reason)));
            counted
                .filter(|(reason, count)| *count > 0 || known(*reason))
                .map(|(reason, count)| (reason.name(), count))
                .collect()
        };
        let from_client = [ReasonCode::SUCCESS, ReasonCode::DISCONNECT_WITH_WILL];
        Self {
            packets_received: packets(|shard| &shard.packets_received),
            packets_sent: packets(|shard| &shard.packets_sent),
            connects: reasons(|shard| &shard.connects, &|reason| {
                reason.allowed_in(PacketType::ConnAck)
            }),
            closed: reasons(|shard| &shard.closed, &|reason| {
                reason.is_error() && reason.allowed_in(PacketType::Disconnect)
            }),
            left: reasons(|shard| &shard.left, &|reason| from_client.contains(&reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_are_summed_by_type_and_by_reason() {
        let shards = [TallyCounters::default(), TallyCounters::default()];
        for shard in &shards {
            shard.packets_received.count(PacketType::Publish);
            shard.connects.count(ReasonCode::BANNED);
        }
        shards[1].packets_sent.count(PacketType::Auth);
        shards[0].closed.count(ReasonCode::KEEP_ALIVE_TIMEOUT);
        shards[0].left.count(ReasonCode::DISCONNECT_WITH_WILL);

        let tallies = Tallies::sum(&shards.each_ref());

        let nonzero = |tally: &Tally| -> Tally {
            let counts = tally.iter().filter(|(_, count)| *count > 0);
            counts.copied().collect()
        };
        assert_eq!(nonzero(&tallies.packets_received), [("publish", 2)]);
        assert_eq!(nonzero(&tallies.packets_sent), [("auth", 1)]);
        assert_eq!(nonzero(&tallies.connects), [("Banned", 2)]);
        assert_eq!(nonzero(&tallies.closed), [("Keep Alive timeout", 1)]);
        assert_eq!(
            nonzero(&tallies.left),
            [("Disconnect with Will Message", 1)]
        );
        assert_eq!(tallies.packets_received.len(), 15);
        assert_eq!(tallies.left.len(), 2);
        assert_eq!(shards[0].packets_received.sum(), 1);
    }
}
