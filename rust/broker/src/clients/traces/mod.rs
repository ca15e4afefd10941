//! Traces: packets of chosen clients, in bounded memory, for operators (ADR 0058).

mod exchanges;
mod packet;
mod redact;
mod spec;
mod trace;

use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use exchanges::ExchangeStep;
pub use packet::{TraceDirection, TracedPacket};
pub(crate) use redact::{FrameTopics, masked, redacted};
pub use spec::{
    ClientIdGlob, InvalidGlob, TRACE_BYTES, TRACE_DURATION_MAX, TRACE_PACKETS_MAX, TraceFilter,
    TraceSpec, TracedPayload,
};
pub(crate) use trace::{NewPacket, TraceSubject};
pub use trace::{Trace, TraceBatch, TraceFigures};

/// Maximum number of traces, ended ones too.
pub const TRACES_MAX: usize = 16;
/// Maximum of the bytes that all traces together may keep.
const TOTAL_BYTES: usize = 1 << 30;
/// How long an ended trace can be read.
const KEPT: Duration = Duration::from_secs(3_600);

/// The active traces that a connection belongs to: one bit for each slot.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct TraceSet(u16);

impl TraceSet {
    pub(crate) fn is_empty(self) -> bool {
        self.0 == 0
    }

    pub(crate) fn has(self, trace: &Trace) -> bool {
        self.0 & 1 << trace.slot() != 0
    }

    pub(crate) fn add(&mut self, trace: &Trace) {
        self.0 |= 1 << trace.slot();
    }
}

/// The active traces, as a shard has read them.
#[derive(Default)]
pub(crate) struct ActiveTraces {
    pub(crate) version: u16,
    pub(crate) traces: Vec<Arc<Trace>>,
}

/// Why a trace is not started.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// There are too many traces.
    #[error("there are {TRACES_MAX} traces")]
    TooMany,
    /// All traces together would keep too many bytes.
    #[error("traces may keep {TOTAL_BYTES} bytes together, and {left} are left")]
    TooManyBytes {
        /// Bytes that are left for a new trace.
        left: usize,
    },
}

/// All traces.
#[derive(Default)]
pub(crate) struct Traces {
    /// Changes whenever the active traces change; 0 if there are none. Two bytes, since each connection has a copy: one
    /// that stays silent for 65,535 changes may miss packets of a trace or have some of an ended one looked at.
    version: AtomicU16,
    known: Mutex<TraceTable>,
}

#[derive(Default)]
struct TraceTable {
    traces: Vec<Arc<Trace>>,
    /// The last version that was given.
    versions: u16,
}

impl Traces {
    /// The version of the active traces; 0 if there are none.
    #[inline]
    pub(crate) fn version(&self) -> u16 {
        // ORDERING: a hint. Who sees a new version takes the lock to read the traces.
        self.version.load(Ordering::Relaxed)
    }

    fn known(&self) -> MutexGuard<'_, TraceTable> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The active traces, and their version.
    pub(crate) fn active(&self) -> (u16, Vec<Arc<Trace>>) {
        let known = self.known();
        let active = known.traces.iter().filter(|trace| trace.is_active());
        (self.version(), active.cloned().collect())
    }

    /// All traces, the oldest first.
    pub(crate) fn list(&self) -> Vec<Arc<Trace>> {
        self.known().traces.clone()
    }

    /// Starts a trace.
    ///
    /// # Errors
    ///
    /// [`TraceError`]
    pub(crate) fn start(
        &self,
        id: String,
        spec: TraceSpec,
        now: Instant,
    ) -> Result<Arc<Trace>, TraceError> {
        let mut known = self.known();
        let used: u16 = known
            .traces
            .iter()
            .fold(0, |used, trace| used | 1 << trace.slot());
        let slot = used.trailing_ones();
        if known.traces.len() >= TRACES_MAX || slot >= u16::BITS {
            return Err(TraceError::TooMany);
        }
        let kept: usize = known.traces.iter().map(|trace| trace.spec().bytes).sum();
        let left = TOTAL_BYTES.saturating_sub(kept);
        if spec.bytes > left {
            return Err(TraceError::TooManyBytes { left });
        }
        let trace = Arc::new(Trace::new(id, slot, spec, now));
        known.traces.push(Arc::clone(&trace));
        self.publish(&mut known);
        Ok(trace)
    }

    /// Ends a trace, and removes it unless `keep`; false if there is none.
    pub(crate) fn end(&self, id: &str, keep: bool, now: Instant) -> bool {
        let mut known = self.known();
        let Some(index) = known.traces.iter().position(|trace| trace.id() == id) else {
            return false;
        };
        known.traces[index].end(now);
        if !keep {
            known.traces.remove(index);
        }
        self.publish(&mut known);
        true
    }

    /// Ends traces whose time is over, and removes those that ended long ago.
    pub(crate) fn sweep(&self, now: Instant) {
        let mut known = self.known();
        let mut has_changed = false;
        for trace in &known.traces {
            has_changed |= trace.end_if_due(now);
        }
        let before = known.traces.len();
        known.traces.retain(|trace| !trace.ended_before(now, KEPT));
        if has_changed || known.traces.len() != before {
            self.publish(&mut known);
        }
    }

    /// Bytes of memory of all traces.
    pub(crate) fn memory_bytes(&self) -> usize {
        let known = self.known();
        known.traces.iter().map(|trace| trace.figures().bytes).sum()
    }

    /// Gives the active traces a new version.
    fn publish(&self, known: &mut TraceTable) {
        let is_on = known.traces.iter().any(|trace| trace.is_active());
        known.versions = known.versions.checked_add(1).unwrap_or(1);
        let version = if is_on { known.versions } else { 0 };
        // ORDERING: as in `version`.
        self.version.store(version, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(bytes: usize) -> TraceSpec {
        TraceSpec {
            bytes,
            ..TraceSpec::default()
        }
    }

    #[test]
    fn there_are_16_traces_at_most_and_a_removed_one_makes_room() {
        let (traces, now) = (Traces::default(), Instant::now());
        let mut slots = TraceSet::default();
        for number in 0..TRACES_MAX {
            let trace = traces.start(number.to_string(), spec(1), now);
            slots.add(&trace.expect("room"));
        }
        assert_eq!(slots, TraceSet(u16::MAX), "each has a slot of its own");
        let refused = traces.start("more".into(), spec(1), now).err();
        assert_eq!(refused, Some(TraceError::TooMany));

        assert!(traces.end("3", false, now));
        assert!(!traces.end("3", false, now));

        let trace = traces.start("again".into(), spec(1), now).expect("room");
        assert_eq!(trace.slot(), 3);
    }

    #[test]
    fn all_traces_share_a_limit_of_bytes() {
        let (traces, now) = (Traces::default(), Instant::now());
        traces
            .start("a".into(), spec(TOTAL_BYTES - 10), now)
            .expect("room");

        let refused = traces.start("b".into(), spec(11), now).err();

        assert_eq!(refused, Some(TraceError::TooManyBytes { left: 10 }));
        assert!(traces.start("b".into(), spec(10), now).is_ok());
    }

    #[test]
    fn a_trace_ends_by_itself_and_is_removed_later() {
        let (traces, now) = (Traces::default(), Instant::now());
        assert_eq!(traces.version(), 0);
        let spec = TraceSpec {
            duration: Duration::from_secs(10),
            ..spec(1)
        };
        let trace = traces.start("a".into(), spec, now).expect("room");
        let begun = traces.version();
        assert_ne!(begun, 0);

        traces.sweep(now + Duration::from_secs(9));
        assert_eq!(traces.version(), begun);
        let end = now + Duration::from_secs(10);
        traces.sweep(end);
        assert_eq!(traces.version(), 0);
        assert!(!trace.is_active() && traces.active().1.is_empty());
        assert_eq!(traces.list().len(), 1);

        traces.sweep(end + KEPT);
        assert_eq!(traces.list().len(), 0);
    }
}
