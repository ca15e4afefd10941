//! One trace: its conditions, and the packets that it keeps.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mqttcore_codec::ProtocolVersion;

use crate::clients::traces::exchanges::Followed;
use crate::clients::traces::{
    ExchangeStep, FrameTopics, TraceDirection, TraceSpec, TracedPacket, masked,
};
use crate::config::Peer;

/// The client that a packet belongs to.
#[derive(Clone, Copy)]
pub(crate) struct TraceSubject<'a> {
    pub(crate) client_id: &'a Arc<str>,
    pub(crate) username: Option<&'a str>,
    pub(crate) peer: Option<Peer>,
    pub(crate) version: ProtocolVersion,
}

/// A packet or an event to add to a trace.
pub(crate) struct NewPacket<'a> {
    pub(crate) direction: TraceDirection,
    pub(crate) subject: TraceSubject<'a>,
    pub(crate) bytes: usize,
    pub(crate) payload_bytes: usize,
    pub(crate) packet: Vec<u8>,
    pub(crate) topic: Option<&'a str>,
    pub(crate) note: Option<String>,
}

/// A trace, active or ended.
#[derive(Debug)]
pub struct Trace {
    id: String,
    slot: u32,
    spec: TraceSpec,
    begun: SystemTime,
    ends_at: Instant,
    is_active: AtomicBool,
    log: Mutex<TraceLog>,
    /// With a topic filter: the exchanges whose PUBLISH it has.
    followed: Mutex<Followed>,
}

#[derive(Debug, Default)]
struct TraceLog {
    packets: VecDeque<Arc<TracedPacket>>,
    bytes: usize,
    /// The number of the last packet.
    last: u64,
    dropped: u64,
    ended: Option<(Instant, SystemTime)>,
}

/// Figures of a trace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct TraceFigures {
    /// Packets and events that it keeps.
    pub packets: usize,
    /// Bytes of memory that they take.
    pub bytes: usize,
    /// Packets and events that had to make room.
    pub dropped: u64,
    /// The number of the last packet.
    pub last: u64,
    /// When it ended; `None` while it is active.
    pub ended: Option<SystemTime>,
}

/// Packets of a trace in their order.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TraceBatch {
    /// The packets. A gap in their numbers means that packets were dropped.
    pub packets: Vec<Arc<TracedPacket>>,
    /// The trace has ended, and there are no packets behind these.
    pub is_last: bool,
}

impl Trace {
    pub(crate) fn new(id: String, slot: u32, spec: TraceSpec, now: Instant) -> Self {
        Self {
            id,
            slot,
            begun: SystemTime::now(),
            ends_at: now + spec.duration,
            spec,
            is_active: AtomicBool::new(true),
            log: Mutex::default(),
            followed: Mutex::default(),
        }
    }

    /// Its identifier.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Its conditions and limits.
    pub fn spec(&self) -> &TraceSpec {
        &self.spec
    }

    /// When it was started.
    pub fn begun(&self) -> SystemTime {
        self.begun
    }

    /// Whether it still records.
    pub fn is_active(&self) -> bool {
        // ORDERING: a switch; a packet more or less does not matter.
        self.is_active.load(Ordering::Relaxed)
    }

    /// Figures of now.
    pub fn figures(&self) -> TraceFigures {
        let log = self.log();
        TraceFigures {
            packets: log.packets.len(),
            bytes: log.bytes,
            dropped: log.dropped,
            last: log.last,
            ended: log.ended.map(|(_, at)| at),
        }
    }

    /// At most `limit` packets behind number `after`.
    pub fn read(&self, after: u64, limit: usize) -> TraceBatch {
        let log = self.log();
        let start = log.packets.partition_point(|packet| packet.number <= after);
        let packets: Vec<_> = log.packets.range(start..).take(limit).cloned().collect();
        let is_all = start + packets.len() == log.packets.len();
        TraceBatch {
            is_last: is_all && log.ended.is_some(),
            packets,
        }
    }

    pub(crate) fn slot(&self) -> u32 {
        self.slot
    }

    fn log(&self) -> MutexGuard<'_, TraceLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether it records packets of `subject`.
    pub(crate) fn covers(&self, subject: &TraceSubject<'_>) -> bool {
        let ip = subject.peer.and_then(|peer| peer.ip());
        let filter = &self.spec.filter;
        filter.covers(subject.client_id, subject.username, ip)
    }

    /// Whether it records a packet of `client_id` with these topics. With a topic filter it has the acknowledgements of
    /// the messages that it has.
    pub(crate) fn wants(
        &self,
        client_id: &Arc<str>,
        topics: &FrameTopics<'_>,
        step: Option<ExchangeStep>,
    ) -> bool {
        let Some(filter) = &self.spec.filter.topic else {
            return true;
        };
        let is_matching = topics.concern(filter);
        step.map_or(is_matching, |step| {
            self.followed().follow(client_id, step, is_matching)
        })
    }

    fn followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a packet. If memory `is_short`, it is only counted as dropped.
    pub(crate) fn push(&self, new: NewPacket<'_>, now: Instant, is_short: bool) {
        let mut packet = TracedPacket {
            number: 0,
            at: SystemTime::now(),
            direction: new.direction,
            client_id: masked(new.subject.client_id)
                .map_or_else(|| Arc::clone(new.subject.client_id), Arc::from),
            peer: new.subject.peer,
            version: new.subject.version,
            bytes: new.bytes,
            payload_bytes: new.payload_bytes,
            packet: new.packet.into(),
            topic: new
                .topic
                .map(|topic| masked(topic).unwrap_or_else(|| topic.into()).into()),
            note: new.note.map(|note| masked(&note).unwrap_or(note).into()),
        };
        let bytes = packet.memory_bytes();
        let mut log = self.log();
        if log.ended.is_some() || now >= self.ends_at {
            return;
        }
        log.last += 1;
        if is_short || bytes > self.spec.bytes || self.spec.packets == 0 {
            log.dropped += 1;
            return;
        }
        packet.number = log.last;
        log.bytes += bytes;
        log.packets.push_back(Arc::new(packet));
        while (log.bytes > self.spec.bytes || log.packets.len() > self.spec.packets)
            && let Some(oldest) = log.packets.pop_front()
        {
            log.bytes -= oldest.memory_bytes();
            log.dropped += 1;
        }
    }

    /// Ends it, unless it has ended.
    pub(crate) fn end(&self, now: Instant) {
        let mut log = self.log();
        log.ended.get_or_insert_with(|| (now, SystemTime::now()));
        *self.followed() = Followed::default();
        // ORDERING: as in `is_active`.
        self.is_active.store(false, Ordering::Relaxed);
    }

    /// Ends it if its time is over; returns whether it did.
    pub(crate) fn end_if_due(&self, now: Instant) -> bool {
        let is_due = self.is_active() && now >= self.ends_at;
        if is_due {
            self.end(now);
        }
        is_due
    }

    /// Whether it ended at least `age` ago.
    pub(crate) fn ended_before(&self, now: Instant, age: Duration) -> bool {
        let ended = self.log().ended;
        ended.is_some_and(|(at, _)| now.saturating_duration_since(at) >= age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(spec: TraceSpec) -> Trace {
        Trace::new("t".into(), 0, spec, Instant::now())
    }

    fn push(trace: &Trace, len: usize) {
        push_at(trace, len, Instant::now(), false);
    }

    fn push_at(trace: &Trace, len: usize, now: Instant, is_short: bool) {
        let client_id = "c".into();
        let new = NewPacket {
            direction: TraceDirection::In,
            subject: TraceSubject {
                client_id: &client_id,
                username: None,
                peer: None,
                version: ProtocolVersion::V5,
            },
            bytes: len,
            payload_bytes: 0,
            packet: vec![0; len],
            topic: None,
            note: None,
        };
        trace.push(new, now, is_short);
    }

    fn numbers(batch: &TraceBatch) -> Vec<u64> {
        batch.packets.iter().map(|packet| packet.number).collect()
    }

    #[test]
    fn the_oldest_packets_make_room_and_are_counted() {
        let trace = trace(TraceSpec {
            packets: 3,
            ..TraceSpec::default()
        });
        for _ in 0..5 {
            push(&trace, 10);
        }

        let batch = trace.read(0, 10);
        assert_eq!(numbers(&batch), [3, 4, 5]);
        let figures = trace.figures();
        assert_eq!((figures.packets, figures.dropped, figures.last), (3, 2, 5));
    }

    #[test]
    fn a_flood_stays_within_the_bytes() {
        let bytes = 64 << 10;
        let trace = trace(TraceSpec {
            bytes,
            ..TraceSpec::default()
        });
        for number in 0..10_000 {
            push(&trace, number % 3_000);
            assert!(trace.figures().bytes <= bytes);
        }

        let batch = trace.read(0, usize::MAX);
        let kept: usize = batch
            .packets
            .iter()
            .map(|packet| packet.memory_bytes())
            .sum();
        assert_eq!(trace.figures().bytes, kept);
        let figures = trace.figures();
        assert_eq!(figures.dropped + batch.packets.len() as u64, 10_000);
        push(&trace, bytes);
        assert_eq!(trace.figures().last, 10_001, "one that is too large");
        assert!(numbers(&trace.read(10_000, 9)).is_empty());
    }

    #[test]
    fn packets_are_read_from_a_number_on() {
        let trace = trace(TraceSpec::default());
        for _ in 0..5 {
            push(&trace, 1);
        }

        let first = trace.read(0, 2);
        assert_eq!((numbers(&first), first.is_last), (vec![1, 2], false));
        assert_eq!(numbers(&trace.read(2, 9)), [3, 4, 5]);
        let none = trace.read(5, 9);
        assert_eq!((numbers(&none), none.is_last), (vec![], false));
        trace.end(Instant::now());
        assert!(!trace.read(2, 2).is_last);
        assert!(trace.read(3, 2).is_last && trace.read(9, 9).is_last);
    }

    #[test]
    fn nothing_is_added_after_the_end_or_while_memory_is_short() {
        let trace = trace(TraceSpec {
            duration: Duration::from_secs(5),
            ..TraceSpec::default()
        });
        let now = Instant::now();
        push_at(&trace, 1, now, true);
        push_at(&trace, 1, now + Duration::from_secs(6), false);
        assert_eq!((trace.figures().packets, trace.figures().dropped), (0, 1));

        push(&trace, 1);
        trace.end(now);
        push(&trace, 1);

        assert_eq!((trace.figures().packets, trace.figures().last), (1, 2));
    }
}
