//! Measures of one connection: packets a second, and how long deliveries take (ADR 0095).

use std::cell::{Cell, OnceCell};
use std::time::{Duration, Instant};

use mqttcore_codec::QoS;

use crate::runtime::reserved_bytes::Reservation;

/// Length of a period in which packets are counted.
const PERIOD_S: u64 = 10;
/// A shorter time than this says nothing about a rate.
const SHORTEST: Duration = Duration::from_secs(1);
/// How long the slowest delivery is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);

/// MQTT packets a second, over ten seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PacketRates {
    /// From the client.
    pub received: f64,
    /// To the client.
    pub sent: f64,
}

/// How long deliveries to a client took. Not all are measured.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct DeliveryTimes {
    /// The last one.
    pub last: Duration,
    /// The slowest one of the last ten minutes at least.
    pub worst: Duration,
}

/// Number of the period of ten seconds, counted from the start of the broker.
pub(crate) fn period_of(since_start: Duration) -> u32 {
    u32::try_from(since_start.as_secs() / PERIOD_S).unwrap_or(u32::MAX)
}

/// A count in 16 bits, with an error of at most 0.4 %: the upper half of a float.
#[derive(Clone, Copy, Default)]
struct RoundCount(u16);

impl RoundCount {
    #[expect(clippy::cast_precision_loss, reason = "it rounds")]
    fn of(count: u32) -> Self {
        let bits = (count as f32).to_bits() + (1 << 15);
        Self((bits >> 16) as u16)
    }

    fn value(self) -> f64 {
        f32::from_bits(u32::from(self.0) << 16).into()
    }
}

/// Packets of a connection, by period: 16 bytes, since idle connections have them, too.
#[derive(Clone, Copy, Default)]
struct Meter {
    /// The current period.
    period: u32,
    received: u32,
    sent: u32,
    /// Those of the period before: received, sent.
    previous: [RoundCount; 2],
}

impl Meter {
    fn turn_to(&mut self, period: u32) {
        if period == self.period {
            return;
        }
        let is_next = self.period.checked_add(1) == Some(period);
        let counts = [self.received, self.sent].map(RoundCount::of);
        *self = Self {
            period,
            previous: if is_next { counts } else { Default::default() },
            ..Self::default()
        };
    }

    /// Rates a second over ten seconds: the current period, and the share of the previous one that is missing. `age` is
    /// that of the connection.
    fn rates(mut self, since_start: Duration, age: Duration) -> PacketRates {
        let (now, period) = (period_of(since_start), Duration::from_secs(PERIOD_S));
        self.turn_to(now);
        let passed = since_start.saturating_sub(period * now);
        let share = 1.0 - passed.as_secs_f64() / period.as_secs_f64();
        let span = age.clamp(SHORTEST, period).as_secs_f64();
        let rate = |now: u32, before: RoundCount| (f64::from(now) + before.value() * share) / span;
        let [received, sent] = self.previous;
        PacketRates {
            received: rate(self.received, received),
            sent: rate(self.sent, sent),
        }
    }
}

/// A delivery whose last byte is not written yet.
#[derive(Clone, Copy)]
struct PendingDelivery {
    qos: QoS,
    /// When its PUBLISH was read.
    read_at: Instant,
    /// Bytes of the outbox up to its end.
    bytes_left: usize,
}

/// Times of measured deliveries.
#[derive(Clone, Copy)]
struct Measured {
    last: Duration,
    worst: Duration,
    worst_at: Instant,
}

/// Measures of one connection.
#[derive(Default)]
pub(crate) struct LinkMeasures {
    meter: Cell<Meter>,
    /// Created with the first measured delivery, or when the socket is full: idle clients have none.
    deliveries: OnceCell<Box<DeliveryMeasures>>,
}

#[derive(Default)]
struct DeliveryMeasures {
    /// Since when the socket has accepted no byte although some are queued.
    blocked_since: Cell<Option<Instant>>,
    /// The system holds more unsent bytes than for other connections, since the client gets large messages.
    more_unsent: OnceCell<Reservation>,
    pending: Cell<Option<PendingDelivery>>,
    measured: Cell<Option<Measured>>,
}

impl LinkMeasures {
    /// Counts packets that the client sent.
    pub(crate) fn count_received(&self, period: u32, packets: u32) {
        let mut meter = self.meter.get();
        meter.turn_to(period);
        meter.received = meter.received.saturating_add(packets);
        self.meter.set(meter);
    }

    /// Counts what was written to the client. Returns QoS and begin of a measured delivery that is complete with it.
    pub(crate) fn count_sent(
        &self,
        period: u32,
        packets: u32,
        bytes: usize,
    ) -> Option<(QoS, Instant)> {
        let mut meter = self.meter.get();
        meter.turn_to(period);
        meter.sent = meter.sent.saturating_add(packets);
        self.meter.set(meter);
        self.deliveries.get()?.count_written(bytes)
    }

    /// Notes that the socket accepts no byte; returns whether it accepted some before.
    pub(crate) fn note_blocked(&self, now: Instant) -> bool {
        let blocked_since = &self.deliveries().blocked_since;
        let was_free = blocked_since.get().is_none();
        if was_free {
            blocked_since.set(Some(now));
        }
        was_free
    }

    pub(crate) fn blocked_since(&self) -> Option<Instant> {
        self.deliveries.get()?.blocked_since.get()
    }

    /// Whether the system holds more unsent bytes than for other connections.
    pub(crate) fn holds_more_unsent(&self) -> bool {
        let deliveries = self.deliveries.get();
        deliveries.is_some_and(|deliveries| deliveries.more_unsent.get().is_some())
    }

    /// Notes that the system holds more unsent bytes, which are reserved as long as the connection exists.
    pub(crate) fn note_more_unsent(&self, reserved: Reservation) {
        // The first reservation stays.
        let _ = self.deliveries().more_unsent.set(reserved);
    }

    /// Whether a delivery is being measured.
    pub(crate) fn is_measuring(&self) -> bool {
        let deliveries = self.deliveries.get();
        deliveries.is_some_and(|deliveries| deliveries.pending.get().is_some())
    }

    /// Measures a delivery in place of another one: it ends with the first `bytes_left` bytes of the outbox.
    pub(crate) fn begin_delivery(&self, qos: QoS, read_at: Instant, bytes_left: usize) {
        self.deliveries().pending.set(Some(PendingDelivery {
            qos,
            read_at,
            bytes_left,
        }));
    }

    /// Notes a measured delivery.
    pub(crate) fn note_delivery(&self, now: Instant, time: Duration) {
        self.deliveries().note(now, time);
    }

    /// Packets a second; `age` is that of the connection.
    pub(crate) fn rates(&self, since_start: Duration, age: Duration) -> PacketRates {
        self.meter.get().rates(since_start, age)
    }

    /// The measured deliveries; the one that is being measured takes at least as long as until now.
    pub(crate) fn delivery_times(&self, now: Instant) -> Option<DeliveryTimes> {
        self.deliveries.get()?.times(now)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        let deliveries = self.deliveries.get();
        deliveries.map_or(0, |_| size_of::<DeliveryMeasures>())
    }

    fn deliveries(&self) -> &DeliveryMeasures {
        self.deliveries.get_or_init(Box::default)
    }
}

impl DeliveryMeasures {
    fn count_written(&self, bytes: usize) -> Option<(QoS, Instant)> {
        self.blocked_since.set(None);
        let pending = self.pending.get()?;
        let bytes_left = pending.bytes_left.saturating_sub(bytes);
        let is_over = bytes_left == 0;
        let rest = PendingDelivery {
            bytes_left,
            ..pending
        };
        self.pending.set((!is_over).then_some(rest));
        is_over.then_some((pending.qos, pending.read_at))
    }

    fn note(&self, now: Instant, time: Duration) {
        let measured = self.measured.get();
        let slower = measured.filter(|before| before.worst > time && before.is_remembered(now));
        let (worst, worst_at) =
            slower.map_or((time, now), |before| (before.worst, before.worst_at));
        self.measured.set(Some(Measured {
            last: time,
            worst,
            worst_at,
        }));
    }

    fn times(&self, now: Instant) -> Option<DeliveryTimes> {
        let pending = self.pending.get();
        let pending = pending.map(|pending| now.saturating_duration_since(pending.read_at));
        let measured = self.measured.get();
        let last = pending.or(measured.map(|measured| measured.last))?;
        let worst = measured
            .filter(|measured| measured.is_remembered(now))
            .map_or(last, |measured| measured.worst.max(last));
        Some(DeliveryTimes { last, worst })
    }
}

impl Measured {
    fn is_remembered(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.worst_at) < REMEMBERED
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_rate_is_that_of_the_last_ten_seconds() {
        let measures = LinkMeasures::default();
        // The broker is 1,000 s older than the connection.
        let rates = |age| measures.rates(s(1_000) + age, age);
        let count = |age, packets| {
            measures.count_received(period_of(s(1_000) + age), packets);
        };
        assert_eq!(rates(s(0)), PacketRates::default());

        let both = |received, sent| PacketRates { received, sent };
        count(s(0), 4);
        assert_eq!(rates(Duration::from_millis(10)), both(4.0, 0.0));
        assert_eq!(rates(s(2)), both(2.0, 0.0));
        count(s(9), 16);
        assert_eq!(rates(s(10)), both(2.0, 0.0));
        count(s(14), 5);
        measures.count_sent(period_of(s(1_014)), 10, 100);
        assert_eq!(rates(s(15)), both(1.5, 1.0));
        assert_eq!(rates(s(20)), both(0.5, 1.0));
        assert_eq!(rates(s(30)), both(0.0, 0.0));
    }

    #[test]
    fn a_round_count_differs_by_at_most_4_in_1000() {
        for count in [0, 1, 2, 255, 256, 257, 999, 65_535, 1_000_003, u32::MAX] {
            let (round, count) = (RoundCount::of(count).value(), f64::from(count));
            assert!(
                (round - count).abs() <= count * 0.004,
                "{round} for {count}"
            );
        }
    }

    #[test]
    fn a_delivery_ends_with_its_last_byte() {
        let (measures, start) = (LinkMeasures::default(), Instant::now());
        measures.begin_delivery(QoS::AtLeastOnce, start, 150);
        assert!(measures.is_measuring());
        assert!(measures.note_blocked(start) && !measures.note_blocked(start + s(1)));
        assert_eq!(measures.blocked_since(), Some(start));

        assert_eq!(measures.count_sent(0, 1, 100), None);
        assert_eq!(measures.blocked_since(), None);
        let times = measures.delivery_times(start + s(3)).expect("it lasts");
        assert_eq!((times.last, times.worst), (s(3), s(3)));
        let ended = measures.count_sent(0, 1, 100);
        assert_eq!(ended, Some((QoS::AtLeastOnce, start)));
        assert!(!measures.is_measuring());
        assert_eq!(measures.count_sent(0, 1, 100), None);
        assert_eq!(measures.delivery_times(start), None);
    }

    #[test]
    fn the_slowest_delivery_is_remembered_for_ten_minutes() {
        let (measures, start) = (LinkMeasures::default(), Instant::now());
        measures.note_delivery(start, s(9));
        measures.note_delivery(start + s(1), s(2));

        let times = |at| measures.delivery_times(start + at).expect("times");
        assert_eq!((times(s(2)).last, times(s(2)).worst), (s(2), s(9)));
        assert_eq!(times(s(600)).worst, s(2));
        measures.note_delivery(start + s(601), s(1));
        assert_eq!(times(s(602)).worst, s(1));
    }
}
