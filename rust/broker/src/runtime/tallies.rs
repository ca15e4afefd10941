//! Counters by packet type, QoS, protocol version and reason code, and a histogram.

use std::time::Duration;

use mqttcore_codec::{PacketType, ProtocolVersion, QoS, ReasonCode};

use crate::config::measures::{Histogram, Tally};
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

/// QoS values and their names in reports.
const QOS: [(QoS, &str); 3] = [
    (QoS::AtMostOnce, "0"),
    (QoS::AtLeastOnce, "1"),
    (QoS::ExactlyOnce, "2"),
];

/// PUBLISH packets of one direction, by QoS.
#[derive(Debug, Default)]
pub(crate) struct QosCounters([Counter; 3]);

impl QosCounters {
    /// Counts a packet. Only the shard's own thread may call this.
    pub(crate) fn count(&self, qos: QoS) {
        self.0[qos as usize].add(1);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::value).sum()
    }
}

/// Dropped messages, by the QoS of the delivery.
#[derive(Debug, Default)]
pub(crate) struct DropCounters {
    by_qos: QosCounters,
    /// Messages of sessions that have ended, which nobody reads for their QoS.
    unknown: Counter,
}

impl DropCounters {
    /// Counts a message. Only the shard's own thread may call this.
    pub(crate) fn count(&self, qos: QoS) {
        self.by_qos.count(qos);
    }

    /// Counts messages whose QoS is not known. Only the shard's own thread may call this.
    pub(crate) fn count_unknown(&self, messages: u64) {
        self.unknown.add(messages);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.by_qos.sum() + self.unknown.value()
    }
}

/// Dropped messages by QoS, summed over the counters of all shards. `unknown` is there if it has occurred.
pub(crate) fn drops(counters: &[&DropCounters]) -> Tally {
    let of = |qos: QoS| {
        counters
            .iter()
            .map(move |shard| shard.by_qos.0[qos as usize].value())
    };
    let unknown = counters.iter().map(|shard| shard.unknown.value()).sum();
    let unknown = (unknown > 0).then_some(("unknown", unknown));
    let known = QOS.iter().map(|(qos, name)| (*name, of(*qos).sum()));
    known.chain(unknown).collect()
}

/// What a connection runs over, for counts of bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum TransportKind {
    /// TCP or a Unix socket, without TLS.
    Tcp,
    Tls,
    /// With or without TLS.
    WebSocket,
}

/// Transports and their names in reports.
const TRANSPORTS: [(TransportKind, &str); 3] = [
    (TransportKind::Tcp, "tcp"),
    (TransportKind::Tls, "tls"),
    (TransportKind::WebSocket, "websocket"),
];

/// Bytes of one direction, by transport.
#[derive(Debug, Default)]
pub(crate) struct ByteCounters([Counter; TRANSPORTS.len()]);

impl ByteCounters {
    /// Counts bytes. Only the shard's own thread may call this.
    pub(crate) fn add(&self, transport: TransportKind, bytes: usize) {
        self.0[transport as usize].add(bytes as u64);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::value).sum()
    }
}

/// Protocol versions and their names in reports.
const VERSIONS: [(ProtocolVersion, &str); 3] = [
    (ProtocolVersion::V3_1, "3.1"),
    (ProtocolVersion::V3_1_1, "3.1.1"),
    (ProtocolVersion::V5, "5.0"),
];

/// Connected clients of one listener, by protocol version.
#[derive(Debug, Default)]
pub(crate) struct VersionCounters([Counter; 3]);

impl VersionCounters {
    fn of(&self, version: ProtocolVersion) -> &Counter {
        &self.0[usize::from(version.level() - ProtocolVersion::V3_1.level())]
    }

    /// Counts a client that connects. Only the shard's own thread may call this.
    pub(crate) fn add(&self, version: ProtocolVersion) {
        self.of(version).add(1);
    }

    /// Counts a client that disconnects. Only the shard's own thread may call this.
    pub(crate) fn sub(&self, version: ProtocolVersion) {
        self.of(version).sub(1);
    }

    pub(crate) fn sum(&self) -> u64 {
        self.0.iter().map(Counter::value).sum()
    }
}

/// Connected clients by protocol version, summed over the counters of all shards.
pub(crate) fn versions(counters: &[&VersionCounters]) -> Tally {
    let sum = |version| counters.iter().map(|shard| shard.of(version).value()).sum();
    tally(VERSIONS.iter().copied(), sum)
}

/// Upper limits of a histogram's buckets in microseconds: 1-2-5 from 10 us to 10 s; the last bucket has no limit.
const LIMITS_US: [u64; 20] = [
    10,
    20,
    50,
    100,
    200,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    20_000,
    50_000,
    100_000,
    200_000,
    500_000,
    1_000_000,
    2_000_000,
    5_000_000,
    10_000_000,
    u64::MAX,
];

/// Durations by size.
#[derive(Debug, Default)]
pub(crate) struct DurationCounters {
    buckets: [Counter; LIMITS_US.len()],
    sum_us: Counter,
}

impl DurationCounters {
    /// Counts a duration. Only the shard's own thread may call this.
    pub(crate) fn count(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        self.buckets[LIMITS_US.partition_point(|limit| *limit < us)].add(1);
        self.sum_us.add(us);
    }
}

/// Durations of all shards.
fn durations(
    shards: &[&TallyCounters],
    of: impl Fn(&TallyCounters) -> &DurationCounters,
) -> Histogram {
    let count = |bucket: usize| {
        let counters = shards.iter().map(|shard| &of(shard).buckets[bucket]);
        counters.map(Counter::value).sum()
    };
    let limits = LIMITS_US.iter().enumerate();
    let buckets = limits.map(|(bucket, limit)| (*limit, count(bucket)));
    let sums = shards.iter().map(|shard| of(shard).sum_us.value());
    Histogram::new(sums.sum(), buckets.collect())
}

/// Times of deliveries, by QoS.
fn deliveries(shards: &[&TallyCounters]) -> Vec<(&'static str, Histogram)> {
    let of = |qos: QoS| durations(shards, |shard| &shard.deliveries[qos as usize]);
    QOS.map(|(qos, name)| (name, of(qos))).into()
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
    /// Bytes received, by transport.
    pub(crate) bytes_received: ByteCounters,
    /// Bytes sent, by transport.
    pub(crate) bytes_sent: ByteCounters,
    /// PUBLISH packets received, by QoS.
    pub(crate) messages_received: QosCounters,
    /// PUBLISH packets sent, by QoS.
    pub(crate) messages_sent: QosCounters,
    /// Times from CONNECT to the decision about the login.
    pub(crate) logins: DurationCounters,
    /// Times that parts of lists of clients take.
    pub(crate) list_parts: DurationCounters,
    /// Times from the read of a PUBLISH to the write of a delivery, by the delivery's QoS.
    pub(crate) deliveries: [DurationCounters; 3],
    /// Answers to CONNECT.
    pub(crate) connects: ReasonCounters,
    /// Client connections that the broker closed.
    pub(crate) closed: ReasonCounters,
    /// Client connections that ended with a DISCONNECT of the client.
    pub(crate) left: ReasonCounters,
}

/// Counts by packet type and by reason code, summed over all shards. Reasons have the names of the specification; every
/// reason that can occur has an entry.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Tallies {
    /// Packets received, by type.
    pub packets_received: Tally,
    /// Packets sent, by type.
    pub packets_sent: Tally,
    /// Bytes received, by transport.
    pub bytes_received: Tally,
    /// Bytes sent, by transport.
    pub bytes_sent: Tally,
    /// PUBLISH packets received, by QoS.
    pub messages_received: Tally,
    /// PUBLISH packets sent, by QoS.
    pub messages_sent: Tally,
    /// Times from CONNECT to the decision about the login, plugins included.
    pub logins: Histogram,
    /// Times that a shard works for a part of a list of clients, during which it does nothing else.
    pub list_parts: Histogram,
    /// Times from the read of a PUBLISH until a delivery of it was written, by the QoS of the delivery. A sample: those of
    /// one read in 32 on each shard, one at a time for each client.
    pub deliveries: Vec<(&'static str, Histogram)>,
    /// Durations of syncs of the store; `None` without a store.
    pub syncs: Option<Histogram>,
    /// CONNECT packets that were answered, by the reason code of CONNACK.
    pub connects: Tally,
    /// Connections of clients that the broker closed, by the reason code of DISCONNECT; MQTT 3.x sends none.
    pub closed: Tally,
    /// Connections that ended with the client's DISCONNECT, by its reason code, which says whether the will is
    /// published.
    pub left: Tally,
    /// Dropped messages by the QoS of the delivery, for each figure `dropped_...` of [`Stats`](crate::Stats), which has
    /// their sum. `unknown` are messages of sessions that have ended; it is there if it has occurred.
    pub dropped: Vec<(&'static str, Tally)>,
}

impl Tallies {
    /// The sums over all shards, without those of the store; `dropped` as in the field. Longer than other functions: a line for each field.
    pub(crate) fn sum(shards: &[&TallyCounters], dropped: Vec<(&'static str, Tally)>) -> Self {
        let packets = |of: fn(&TallyCounters) -> &PacketCounters| {
            tally(TYPES.iter().copied(), |packet_type| {
                total(shards, |shard| &of(shard).0[packet_type as usize])
            })
        };
        let messages = |of: fn(&TallyCounters) -> &QosCounters| {
            tally(QOS.iter().copied(), |qos| {
                total(shards, |shard| &of(shard).0[qos as usize])
            })
        };
        let bytes = |of: fn(&TallyCounters) -> &ByteCounters| {
            tally(TRANSPORTS.iter().copied(), |transport| {
                total(shards, |shard| &of(shard).0[transport as usize])
            })
        };
        let from_client = [ReasonCode::SUCCESS, ReasonCode::DISCONNECT_WITH_WILL];
        Self {
            packets_received: packets(|shard| &shard.packets_received),
            packets_sent: packets(|shard| &shard.packets_sent),
            bytes_received: bytes(|shard| &shard.bytes_received),
            bytes_sent: bytes(|shard| &shard.bytes_sent),
            messages_received: messages(|shard| &shard.messages_received),
            messages_sent: messages(|shard| &shard.messages_sent),
            logins: durations(shards, |shard| &shard.logins),
            list_parts: durations(shards, |shard| &shard.list_parts),
            deliveries: deliveries(shards),
            syncs: None,
            connects: reasons(
                shards,
                |shard| &shard.connects,
                |reason| reason.allowed_in(PacketType::ConnAck),
            ),
            closed: reasons(
                shards,
                |shard| &shard.closed,
                |reason| reason.is_error() && reason.allowed_in(PacketType::Disconnect),
            ),
            left: reasons(
                shards,
                |shard| &shard.left,
                |reason| from_client.contains(&reason),
            ),
            dropped,
        }
    }
}

/// The sum of one counter over all shards.
fn total<'a>(
    shards: &[&'a TallyCounters],
    counter: impl Fn(&'a TallyCounters) -> &'a Counter,
) -> u64 {
    let counters = shards.iter().map(|shard| counter(shard));
    counters.map(Counter::value).sum()
}

fn tally<T>(named: impl Iterator<Item = (T, &'static str)>, count: impl Fn(T) -> u64) -> Tally {
    named.map(|(of, name)| (name, count(of))).collect()
}

/// Counts of the reasons that occurred or are `known`.
fn reasons(
    shards: &[&TallyCounters],
    of: fn(&TallyCounters) -> &ReasonCounters,
    known: impl Fn(ReasonCode) -> bool,
) -> Tally {
    let named = ReasonCode::ALL
        .iter()
        .map(|reason| (*reason, reason.name()));
    let count = |reason: ReasonCode| {
        let place = usize::from(reason.value());
        total(shards, |shard| &of(shard).0[place])
    };
    let wanted = named.filter(|(reason, _)| count(*reason) > 0 || known(*reason));
    tally(wanted, count)
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
        shards[0].bytes_received.add(TransportKind::Tls, 7);
        shards[1].bytes_received.add(TransportKind::Tls, 8);
        shards[1].bytes_sent.add(TransportKind::WebSocket, 9);
        shards[0].messages_received.count(QoS::ExactlyOnce);
        shards[1].messages_sent.count(QoS::AtMostOnce);
        shards[0].closed.count(ReasonCode::KEEP_ALIVE_TIMEOUT);
        shards[0].left.count(ReasonCode::DISCONNECT_WITH_WILL);

        let tallies = Tallies::sum(&shards.each_ref(), Vec::new());

        let nonzero = |tally: &Tally| -> Tally {
            let counts = tally.iter().filter(|(_, count)| *count > 0);
            counts.copied().collect()
        };
        assert_eq!(nonzero(&tallies.packets_received), [("publish", 2)]);
        assert_eq!(nonzero(&tallies.packets_sent), [("auth", 1)]);
        assert_eq!(nonzero(&tallies.bytes_received), [("tls", 15)]);
        assert_eq!(nonzero(&tallies.bytes_sent), [("websocket", 9)]);
        assert_eq!(shards[1].bytes_sent.sum(), 9);
        assert_eq!(nonzero(&tallies.messages_received), [("2", 1)]);
        assert_eq!(nonzero(&tallies.messages_sent), [("0", 1)]);
        assert_eq!(nonzero(&tallies.connects), [("Banned", 2)]);
        assert_eq!(nonzero(&tallies.closed), [("Keep Alive timeout", 1)]);
        assert_eq!(
            nonzero(&tallies.left),
            [("Disconnect with Will Message", 1)]
        );
        assert_eq!(tallies.packets_received.len(), 15);
        assert_eq!(tallies.left.len(), 2);
        assert_eq!(shards[0].packets_received.sum(), 1);
        assert_eq!(shards[0].messages_received.sum(), 1);
    }

    #[test]
    fn drops_are_summed_by_qos() {
        let shards = [DropCounters::default(), DropCounters::default()];
        for shard in &shards {
            shard.count(QoS::AtLeastOnce);
        }
        shards[0].count(QoS::AtMostOnce);
        let all = shards.each_ref();

        assert_eq!(drops(&all), [("0", 1), ("1", 2), ("2", 0)]);
        shards[1].count_unknown(3);
        let expected = [("0", 1), ("1", 2), ("2", 0), ("unknown", 3)];
        assert_eq!(drops(&all), expected);
        assert_eq!((shards[0].sum(), shards[1].sum()), (2, 4));
    }

    #[test]
    fn clients_are_summed_by_version() {
        let shards = [VersionCounters::default(), VersionCounters::default()];
        for shard in &shards {
            shard.add(ProtocolVersion::V3_1_1);
            shard.add(ProtocolVersion::V5);
        }
        shards[0].sub(ProtocolVersion::V5);

        let sums = versions(&shards.each_ref());

        assert_eq!(sums, [("3.1", 0), ("3.1.1", 2), ("5.0", 1)]);
        assert_eq!(shards[0].sum(), 1);
    }

    #[test]
    fn a_duration_is_in_the_first_bucket_whose_limit_it_does_not_exceed() {
        let shards = [TallyCounters::default(), TallyCounters::default()];
        for us in [0, 100, 101, 10_000_000] {
            shards[0].logins.count(Duration::from_micros(us));
        }
        shards[1].logins.count(Duration::from_secs(11));

        let logins = Tallies::sum(&shards.each_ref(), Vec::new()).logins;

        assert_eq!(logins.sum_us, 21_000_201);
        assert_eq!(logins.buckets[0], (10, 1));
        assert_eq!(logins.buckets[3], (100, 1));
        assert_eq!(logins.buckets[4], (200, 1));
        assert_eq!(logins.buckets[18], (10_000_000, 1));
        assert_eq!(logins.buckets[19], (u64::MAX, 1));
    }
}
