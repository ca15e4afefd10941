//! Reading what nobody reads: a bit that rots in an old segment is better found while there is a
//! copy elsewhere than when the message is wanted.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::StoreError;
use crate::files::Files;
use crate::journal::log::Shared;
use crate::journal::open;

/// It looks so often whether a segment is due, or more often if that is needed.
const LOOK: Duration = Duration::from_secs(60);
const LOOKS_A_SEGMENT: u32 = 4;

/// The thread that reads every full segment once in so long, and compares every checksum.
#[derive(Debug)]
pub(crate) struct Scrubber {
    /// Dropping it ends the thread.
    stop: Sender<()>,
    thread: JoinHandle<()>,
}

impl Scrubber {
    pub(crate) fn start(
        files: Arc<dyn Files>,
        shared: Arc<Shared>,
        every: Duration,
    ) -> Result<Self, StoreError> {
        let (stop, stopped) = channel();
        let thread = thread::Builder::new().name("mqttcore-scrub".into());
        let thread = thread.spawn(move || run(&*files, &shared, every, &stopped));
        let thread = thread.map_err(|error| StoreError::io("start the thread of", "scrub", error));
        Ok(Self {
            stop,
            thread: thread?,
        })
    }

    /// Ends the thread, after the segment that it reads.
    pub(crate) fn stop(self) {
        drop(self.stop);
        // One that panicked has nothing to leave behind.
        let _ = self.thread.join();
    }
}

fn run(files: &dyn Files, shared: &Shared, every: Duration, stopped: &Receiver<()>) {
    let mut last = None;
    loop {
        let full = shared.full_segments();
        let segments = u32::try_from(full.len()).unwrap_or(u32::MAX).max(1);
        let wait = LOOK.min(every / segments / LOOKS_A_SEGMENT);
        if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
            return;
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let due = due(full.len(), since.unwrap_or_default(), every);
        // Who waits for the disk comes first.
        if due.is_none() || due == last || shared.is_busy() {
            continue;
        }
        last = due;
        if let Some((number, last_lsn)) = due.and_then(|(_, place)| full.get(place)) {
            shared.scrubbed(check(files, *number, *last_lsn).as_ref().err());
        }
    }
}

/// Reads a full segment.
pub(crate) fn check(files: &dyn Files, number: u64, last_lsn: u64) -> Result<(), StoreError> {
    match open::check_segment(files, number, last_lsn) {
        // It went while nobody looked.
        Err(StoreError::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
            Ok(())
        }
        other => other,
    }
}

/// Which of `segments` has its turn, and in which round: the time alone says so, and a store that
/// is opened anew goes on where it was.
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
