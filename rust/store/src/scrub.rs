//! Scrubbing: reads stored segments and messages again and verifies their checksums, so that a
//! bit error is found while a backup still has the data.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::error::StoreError;
use crate::files::Files;
use crate::index::{Index, bodies};
use crate::wal::open;
use crate::wal::shared::LogShared;

/// Longest interval in which the thread checks whether a segment is due.
const LOOK: Duration = Duration::from_secs(60);
const LOOKS_A_SEGMENT: u32 = 4;

/// Data that the scrubber reads.
pub(crate) struct Read {
    pub(crate) files: Arc<dyn Files>,
    pub(crate) shared: Arc<LogShared>,
    pub(crate) index: Arc<Mutex<Index>>,
}

/// The scrubber's thread: verifies each full segment and the messages in the checkpoint once in
/// each interval.
#[derive(Debug)]
pub(crate) struct Scrubber {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Scrubber {
    pub(crate) fn start(read: Read, every: Duration) -> Result<Self, StoreError> {
        let (stop, stopped) = channel();
        let on_panic = Arc::clone(&read.shared).stop_on_panic();
        let scrub = move || run(&read, every, &stopped);
        let thread = mqttcore_panics::spawn("mqttcore-scrub", on_panic, scrub);
        let thread = thread.map_err(|error| StoreError::io("start the thread of", "scrub", error));
        Ok(Self {
            stop,
            thread: thread?,
        })
    }

    /// Ends the thread, after the segment that it reads.
    pub(crate) fn stop(self) {
        drop(self.stop);
        // One that panicked has stopped the log.
        let _ = self.thread.join();
    }
}

/// The clock of scrubbing: starts from the system clock, so that a restart continues where the
/// last run was, and then follows the monotonic clock.
#[derive(Clone, Copy, Debug)]
struct Time {
    began: Instant,
    /// The system time at the start, since 1970.
    since: Duration,
}

impl Time {
    fn begin(system: SystemTime, now: Instant) -> Self {
        let since = system.duration_since(UNIX_EPOCH);
        Self {
            began: now,
            since: since.unwrap_or_default(),
        }
    }

    fn at(self, now: Instant) -> Duration {
        self.since + now.saturating_duration_since(self.began)
    }
}

fn run(read: &Read, every: Duration, stopped: &Receiver<()>) {
    let (shared, mut last) = (&read.shared, None);
    let time = Time::begin(SystemTime::now(), Instant::now());
    loop {
        let full = shared.full_segments();
        // The checkpoint comes after the segments.
        let places = full.len() + 1;
        let wait = LOOK.min(every / u32::try_from(places).unwrap_or(u32::MAX) / LOOKS_A_SEGMENT);
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let due = due(places, time.at(Instant::now()), every);
        // Batches that wait for the disk go first.
        if due.is_none() || due == last || shared.is_busy() {
            continue;
        }
        last = due;
        let Some((_, place)) = due else { continue };
        let checked = match full.get(place) {
            Some((number, last_lsn)) => check(&*read.files, *number, *last_lsn),
            None => check_messages(&read.index, || {
                stopped.try_recv() == Err(TryRecvError::Empty)
            }),
        };
        shared.scrubbed(checked.as_ref().err());
    }
}

/// Verifies the messages in the checkpoint while `goes_on` returns true.
pub(crate) fn check_messages(
    index: &Mutex<Index>,
    goes_on: impl FnMut() -> bool,
) -> Result<(), StoreError> {
    let lock = || index.lock().unwrap_or_else(PoisonError::into_inner);
    let database = lock().database();
    match bodies::check(&database, goes_on) {
        Ok(_) => Ok(()),
        Err(StoreError::Damaged(damage)) => Err(lock().explain(damage.offset, damage.into())),
        Err(error) => Err(error),
    }
}

/// Verifies a full segment.
pub(crate) fn check(files: &dyn Files, number: u64, last_lsn: u64) -> Result<(), StoreError> {
    match open::check_segment(files, number, last_lsn) {
        // The segment was removed meanwhile.
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(())
        }
        other => other,
    }
}

/// Which of `segments` is due, and in which round. Depends on the time alone, so a restart
/// continues where the last run was.
fn due(segments: usize, since: Duration, every: Duration) -> Option<(u128, usize)> {
    let (since, every) = (since.as_nanos(), every.as_nanos());
    let round = since.checked_div(every)?;
    let place = (since % every).checked_mul(segments as u128)? / every;
    let place = usize::try_from(place).ok()?;
    (place < segments).then_some((round, place))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_round_begins_where_the_last_run_was_and_continues_with_the_monotonic_clock() {
        let (system, now) = (UNIX_EPOCH + Duration::from_secs(900), Instant::now());

        let time = Time::begin(system, now);

        assert_eq!(
            time.at(now + Duration::from_secs(7)),
            Duration::from_secs(907)
        );
        let before_1970 = UNIX_EPOCH - Duration::from_secs(5);
        assert_eq!(Time::begin(before_1970, now).at(now), Duration::ZERO);
    }

    #[test]
    fn every_segment_has_its_turn_once_a_round() {
        let every = Duration::from_secs(7 * 24 * 3_600);
        let begin = every * 2_900;
        let turns: Vec<_> = (0..7 * 24)
            .filter_map(|hour| due(10, begin + Duration::from_secs(hour * 3_600), every))
            .collect();
        let mut distinct = turns.clone();
        distinct.dedup();

        assert_eq!(turns.len(), 7 * 24);
        assert_eq!(
            distinct,
            (0..10).map(|place| (2_900, place)).collect::<Vec<_>>()
        );
        assert_eq!(due(10, begin + every, every), Some((2_901, 0)));
        assert_eq!(due(0, begin, every), None);
    }
}
