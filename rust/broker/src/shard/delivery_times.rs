//! Measures how long deliveries take, from the read of a PUBLISH until it is written to a subscriber (ADR 0095).
//!
//! A few reads are marked; the mark stays with the bytes of their messages. All others cost a count for each read and a
//! look at the mark for each delivery.

use std::time::{Duration, Instant};

use mqttcore_codec::QoS;
use mqttcore_session::Chunk;

use crate::clients::link::Link;
use crate::clients::measures::{LinkMeasures, period_of};
use crate::shard::Shard;

/// One in so many reads of a shard is marked; the first one is.
const MARKED_EVERY: u8 = 32;

impl Shard {
    /// Notes the period in which rates of clients are counted. To be called some times in each.
    pub(crate) fn refresh_period(&self) {
        self.period.set(period_of(self.since_start()));
    }

    /// The period in which rates of clients are counted.
    pub(crate) fn period(&self) -> u32 {
        self.period.get()
    }

    /// How long the broker has run.
    pub(crate) fn since_start(&self) -> Duration {
        self.now().saturating_duration_since(self.engine.started)
    }

    /// When a client got its CONNACK.
    pub(crate) fn connected_at(&self, link: &Link) -> Instant {
        self.engine.started + link.connected_after()
    }

    /// The chunk of a read, marked if it is its turn.
    pub(crate) fn marked(&self, chunk: Chunk) -> Chunk {
        let left = self.until_mark.get();
        if left > 0 {
            self.until_mark.set(left - 1);
            return chunk;
        }
        self.mark(chunk)
    }

    #[cold]
    fn mark(&self, chunk: Chunk) -> Chunk {
        self.until_mark.set(MARKED_EVERY - 1);
        chunk.with_stamp(self.stamp())
    }

    /// Microseconds since the start of the broker, which begin again after 71 minutes; never 0.
    #[expect(clippy::cast_possible_truncation, reason = "a stamp begins again")]
    fn stamp(&self) -> u32 {
        (self.since_start().as_micros() as u32).max(1)
    }

    /// Measures the delivery of a message with this stamp, unless another one of the connection is being measured; its
    /// bytes are the last ones of the outbox, which has `queued_bytes`. A message from before the connection is not
    /// measured: it waited for the client.
    #[cold]
    pub(super) fn begin_delivery(&self, link: &Link, qos: QoS, stamp: u32, queued_bytes: usize) {
        if link.measures.is_measuring() {
            return;
        }
        let age = Duration::from_micros(self.stamp().wrapping_sub(stamp).into());
        let Some(read_at) = self.now().checked_sub(age) else {
            return;
        };
        if read_at >= self.connected_at(link) {
            link.measures.begin_delivery(qos, read_at, queued_bytes);
        }
    }

    /// Counts a delivery that was written.
    #[cold]
    pub(crate) fn count_delivery_time(&self, measures: &LinkMeasures, qos: QoS, read_at: Instant) {
        let now = Instant::now();
        let time = now.saturating_duration_since(read_at);
        self.metrics().tallies.deliveries[qos as usize].count(time);
        measures.note_delivery(now, time);
    }
}
