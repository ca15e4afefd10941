//! One JSON line a row.

use std::time::Duration;

use super::options::{Options, Row};

/// What one busy row measured.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// Measured time.
    pub seconds: f64,
    /// Messages that subscribers received in that time, without repeats; that were acknowledged,
    /// where they are away.
    pub delivered: u64,
    /// Bytes of a topic, on average over the publishers.
    pub topic_bytes: f64,
    /// Messages that were published in the whole run.
    pub sent: u64,
    /// Processor time of the broker in that time, when its process was named.
    pub broker_cpu_s: Option<f64>,
    /// Processor time of the load itself.
    pub load_cpu_s: f64,
    /// Half of the messages took no longer, from before the write to after the read.
    pub p50_ns: u64,
    /// 99 of 100 took no longer.
    pub p99_ns: u64,
    /// Half of the messages were acknowledged to their publishers in no more; 0 at QoS 0.
    pub ack_p50_ns: u64,
    /// 99 of 100 were.
    pub ack_p99_ns: u64,
    /// A write of the messages in flight of all publishers to a plain file, and its sync: half of them took no longer.
    pub synced: Option<Duration>,
    /// Messages of the whole run that never came.
    pub lost: u64,
    /// Messages of the whole run that came again.
    pub duplicated: u64,
}

/// What the turns measured.
#[derive(Clone, Copy, Debug)]
pub struct TurnsReport {
    /// How many there were.
    pub turns: usize,
    /// From before the write of a PUBLISH until its PUBACK was read: half of them, 99 of 100.
    pub acknowledged: [Duration; 2],
    /// A write of as much to a plain file, and its sync: half of them, 99 of 100.
    pub synced: [Duration; 2],
}

/// What connections, filters or retained messages cost at rest.
#[derive(Clone, Copy, Debug)]
pub struct IdleReport {
    /// Open connections, filters, or retained messages.
    pub count: usize,
    /// Resident memory of the broker without them.
    pub before_bytes: u64,
    /// And with them.
    pub after_bytes: u64,
    /// Processor time of the broker for them.
    pub broker_cpu_s: f64,
    /// From SUBSCRIBE to the last of the retained messages.
    pub replay: Option<Duration>,
}

/// A number with some digits, or `null`.
fn or_null(value: Option<f64>, digits: usize) -> String {
    value.map_or("null".into(), |value| format!("{value:.digits$}"))
}

impl Report {
    /// The row as one line of JSON.
    #[expect(clippy::cast_precision_loss, reason = "counts of a run of seconds")]
    pub fn to_json(&self, options: &Options) -> String {
        let delivered = self.delivered as f64;
        let cpu_s = self.broker_cpu_s.filter(|_| self.delivered > 0);
        let synced_s = self.synced.map(|time| time.as_secs_f64());
        let in_flight = options.in_flight() as f64;
        format!(
            concat!(
                "{{\"row\":\"{}\",\"publishers\":{},\"subscribers\":{},\"qos\":{},\"window\":{},",
                "\"payload_bytes\":{},\"topic_bytes\":{:.1},\"seconds\":{:.3},\"delivered\":{},\"sent\":{},",
                "\"messages_per_s\":{:.0},",
                "\"p50_us\":{:.1},\"p99_us\":{:.1},\"ack_p50_us\":{:.1},\"ack_p99_us\":{:.1},",
                "\"broker_cpu_us\":{},\"load_busy\":{:.2},",
                "\"disk_sync_us\":{},\"disk_allows_per_s\":{},",
                "\"lost\":{},\"duplicated\":{}}}"
            ),
            options.row.name(),
            options.publishers,
            options.subscribers,
            options.qos,
            options.window,
            options.payload_bytes,
            self.topic_bytes,
            self.seconds,
            self.delivered,
            self.sent,
            delivered / self.seconds,
            self.p50_ns as f64 / 1e3,
            self.p99_ns as f64 / 1e3,
            self.ack_p50_ns as f64 / 1e3,
            self.ack_p99_ns as f64 / 1e3,
            or_null(cpu_s.map(|seconds| seconds * 1e6 / delivered), 3),
            self.load_cpu_s / self.seconds,
            or_null(synced_s.map(|seconds| seconds * 1e6), 1),
            or_null(synced_s.map(|seconds| in_flight / seconds), 0),
            self.lost,
            self.duplicated,
        )
    }
}

impl TurnsReport {
    /// The row as one line of JSON.
    pub fn to_json(&self) -> String {
        let [ack_p50, ack_p99, disk_p50, disk_p99] = [
            self.acknowledged[0],
            self.acknowledged[1],
            self.synced[0],
            self.synced[1],
        ]
        .map(|time| time.as_secs_f64() * 1e6);
        format!(
            concat!(
                "{{\"row\":\"{}\",\"turns\":{},\"ack_p50_us\":{:.1},\"ack_p99_us\":{:.1},",
                "\"disk_p50_us\":{:.1},\"disk_p99_us\":{:.1}}}"
            ),
            Row::Turns.name(),
            self.turns,
            ack_p50,
            ack_p99,
            disk_p50,
            disk_p99,
        )
    }
}

impl IdleReport {
    /// The row as one line of JSON.
    #[expect(clippy::cast_precision_loss, reason = "bytes of one process")]
    pub fn to_json(&self, row: Row) -> String {
        let grown = self.after_bytes.saturating_sub(self.before_bytes);
        let count = self.count.max(1) as f64;
        let each = grown as f64 / count;
        format!(
            concat!(
                "{{\"row\":\"{}\",\"count\":{},\"rss_before_bytes\":{},",
                "\"rss_after_bytes\":{},\"bytes_each\":{:.0},",
                "\"broker_cpu_us\":{:.3},\"replay_s\":{}}}"
            ),
            row.name(),
            self.count,
            self.before_bytes,
            self.after_bytes,
            each,
            self.broker_cpu_s * 1e6 / count,
            or_null(self.replay.map(|time| time.as_secs_f64()), 3),
        )
    }
}
