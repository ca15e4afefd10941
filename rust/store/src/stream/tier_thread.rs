//! The thread that moves sealed files to object storage.

use std::collections::HashMap;
use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::stream::streams::{Streams, lock};
use crate::wal::shared::LogShared;

/// Interval at which the thread looks for files to move.
const TICK: Duration = Duration::from_secs(1);

/// The longest pause after an error.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The longest that a stop waits for a call to the store: those to a mounted folder cannot be ended.
const STOP_LIMIT: Duration = Duration::from_secs(2);

/// Handle of the thread.
pub(crate) struct TierThread {
    streams: Arc<Streams>,
    shared: Arc<LogShared>,
    running: Mutex<Option<RunningTier>>,
}

/// The thread while it runs.
struct RunningTier {
    /// Dropped to end it.
    end: Sender<()>,
    /// Disconnected when it has ended.
    ended: Receiver<()>,
    thread: JoinHandle<()>,
}

impl fmt::Debug for TierThread {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("TierThread").finish_non_exhaustive()
    }
}

impl TierThread {
    /// Starts the thread if a stream uses object storage.
    pub(crate) fn start(
        streams: &Arc<Streams>,
        shared: &Arc<LogShared>,
    ) -> Result<Option<Self>, StoreError> {
        if streams.tiered().is_empty() {
            return Ok(None);
        }
        let (sender, end) = channel();
        let (ending, ended) = channel();
        let on_panic = Arc::clone(shared).stop_on_panic();
        let (moved, observed) = (Arc::clone(streams), Arc::clone(shared));
        let run = move || {
            let _ending: Sender<()> = ending;
            run(&moved, &observed, &end);
        };
        let thread = mqttcore_panics::spawn("mqttcore-tier", on_panic, run);
        let thread =
            thread.map_err(|error| StoreError::io("start the thread of", "tier", error))?;
        Ok(Some(Self {
            streams: Arc::clone(streams),
            shared: Arc::clone(shared),
            running: Mutex::new(Some(RunningTier {
                end: sender,
                ended,
                thread,
            })),
        }))
    }

    /// Ends the thread. If the store does not answer, the thread is left behind: it changes nothing any more, here or in
    /// the store, when the call returns.
    pub(crate) fn stop(&self) {
        let Some(running) = lock(&self.running).take() else {
            return;
        };
        drop(running.end);
        self.streams.close_tiers();
        if running.ended.recv_timeout(STOP_LIMIT) == Err(RecvTimeoutError::Timeout) {
            for (stream, error) in self.streams.leave_tiers(STOP_LIMIT) {
                self.shared.tiered(&stream, Some(&error));
            }
            return;
        }
        // After a panic the files are still here.
        let _ = running.thread.join();
    }
}

fn run(streams: &Streams, shared: &LogShared, end: &Receiver<()>) {
    let mut pauses: HashMap<usize, Pause> = HashMap::new();
    while let Err(RecvTimeoutError::Timeout) = end.recv_timeout(TICK) {
        let Some(kept_us) = streams.kept_us() else {
            continue;
        };
        for number in streams.tiered() {
            let pause = pauses.entry(number).or_default();
            if pause.until.is_some_and(|until| until > Instant::now()) {
                continue;
            }
            let moved = streams.tier(number, kept_us);
            if pause.is_news(moved.as_ref().err(), Instant::now()) {
                shared.tiered(streams.name_of(number), moved.as_ref().err());
            }
        }
    }
}

/// The pause of a stream after errors: twice as long after each.
#[derive(Debug, Default)]
struct Pause {
    length: Duration,
    until: Option<Instant>,
}

impl Pause {
    /// Notes what an attempt at `now` came to; returns whether it is the first error, or the first success after one.
    fn is_news(&mut self, error: Option<&StoreError>, now: Instant) -> bool {
        let was_failing = self.until.is_some();
        if error.is_none() {
            *self = Self::default();
            return was_failing;
        }
        self.length = (self.length * 2).clamp(TICK, LONGEST_PAUSE);
        self.until = Some(now + self.length);
        !was_failing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_minute_and_only_changes_are_news() {
        let (mut pause, now) = (Pause::default(), Instant::now());
        let error = StoreError::NoSpace;
        assert!(!pause.is_news(None, now));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            let is_news = pause.is_news(Some(&error), now);
            assert_eq!(is_news, pauses.is_empty());
            pauses.push(pause.until.map(|until| (until - now).as_secs()).unwrap());
        }

        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert!(pause.is_news(None, now));
        assert!(!pause.is_news(None, now));
    }
}
