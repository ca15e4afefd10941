//! The sealer: the thread that writes sealed files.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::StoreError;
use crate::stream::sealing::SealRequest;
use crate::stream::streams::{Streams, lock, now_us};
use crate::wal::batch::Batch;
use crate::wal::shared::LogShared;
use crate::wal::{Durability, SpacePolicy};

/// Interval at which the thread checks for rows to seal.
const TICK: Duration = Duration::from_secs(1);

/// Number of such checks between two runs of merging and retention.
const LOOKS_TO_MAINTAIN: u32 = 30;

/// Handle of the sealer's thread.
pub(crate) struct Sealer {
    requests: Mutex<Option<Sender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A request and the channel for its result.
struct Request(SealRequest, Sender<Result<(), StoreError>>);

/// The interface of the thread to the rest of the store.
pub(crate) trait SealerContext: Send {
    /// Bytes of the log that cannot be removed because of unsealed rows; `None` if unknown.
    fn pinned_bytes(&self) -> Option<u64>;

    /// Requests the removal of segments that are not needed.
    fn shrink(&self);
}

impl fmt::Debug for Sealer {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Sealer").finish_non_exhaustive()
    }
}

impl Sealer {
    pub(crate) fn start(
        streams: Arc<Streams>,
        shared: Arc<LogShared>,
        behind: Box<dyn SealerContext>,
    ) -> Result<Self, StoreError> {
        let (sender, requests) = channel();
        let running = Running {
            streams,
            shared,
            behind,
        };
        let on_panic = Arc::clone(&running.shared).stop_on_panic();
        let seal = move || running.run(&requests);
        let thread = mqttcore_panics::spawn("mqttcore-sealer", on_panic, seal);
        let thread =
            thread.map_err(|error| StoreError::io("start the thread of", "sealer", error))?;
        Ok(Self {
            requests: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Blocks until the rows that were safe at the call are in files.
    ///
    /// # Errors
    ///
    /// Errors of the file system; [`StoreError::Stopped`].
    pub(crate) fn seal(&self, wanted: SealRequest) -> Result<(), StoreError> {
        let (sender, done) = channel();
        let requests = lock(&self.requests);
        let sent = requests
            .as_ref()
            .map(|requests| requests.send(Request(wanted, sender)));
        drop(requests);
        match sent {
            Some(Ok(())) => done.recv().unwrap_or_else(|_| Err(ended())),
            _ => Err(ended()),
        }
    }

    /// Seals everything and ends the thread.
    pub(crate) fn stop(&self) {
        lock(&self.requests).take();
        let thread = lock(&self.thread).take();
        if let Some(thread) = thread {
            // After a panic of the thread the rows are still in the log.
            let _ = thread.join();
        }
    }
}

struct Running {
    streams: Arc<Streams>,
    shared: Arc<LogShared>,
    behind: Box<dyn SealerContext>,
}

impl Running {
    fn run(&self, requests: &Receiver<Request>) {
        let mut schedule = Schedule::new(Instant::now());
        loop {
            let now = Instant::now();
            let next = if schedule.is_due(now) {
                Err(RecvTimeoutError::Timeout)
            } else {
                requests.recv_timeout(schedule.look_at.saturating_duration_since(now))
            };
            let done = match next {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    let done = self.look(schedule.begin());
                    schedule.end(Instant::now());
                    done
                }
                Ok(Request(wanted, asked)) => {
                    let done = self.seal(&wanted);
                    // The caller may have gone.
                    let _ = asked.send(done.clone());
                    done
                }
            };
            match done {
                // The rows stay in memory and in the log; the next check tries again.
                Ok(()) | Err(StoreError::NoSpace | StoreError::Stopped(_)) => {}
                Err(error) => {
                    self.shared.stop(&error);
                    return;
                }
            }
        }
        // Rows that cannot be sealed now stay in the log.
        let _ = self.seal(&SealRequest::Everything);
        // The next start writes it otherwise.
        let _ = self.streams.settle_indexes();
    }

    fn look(&self, is_maintaining: bool) -> Result<(), StoreError> {
        let now_us = now_us();
        let pinned_bytes = self.behind.pinned_bytes().unwrap_or_default();
        self.seal(&SealRequest::Due {
            now_us,
            log_bytes: pinned_bytes,
        })?;
        if self.streams.limits().log_bytes <= pinned_bytes {
            self.behind.shrink();
        }
        match self.streams.kept_us() {
            Some(kept_us) if is_maintaining => self
                .streams
                .maintain(kept_us, &mut |batch| self.commit(batch)),
            _ => Ok(()),
        }
    }

    fn seal(&self, wanted: &SealRequest) -> Result<(), StoreError> {
        self.streams.seal(wanted, &mut |batch| self.commit(batch))
    }

    fn commit(&self, batch: &mut Batch) -> Result<(), StoreError> {
        let (durability, space) = (Durability::Fsync, SpacePolicy::Essential);
        let ticket = self.shared.append(batch, durability, space)?;
        self.shared.wait(ticket)
    }
}

/// When the thread looks for rows to seal, however many requests there are. Between two looks it takes requests, however
/// long a look takes.
struct Schedule {
    look_at: Instant,
    /// Number of looks so far.
    looks: u32,
}

impl Schedule {
    fn new(now: Instant) -> Self {
        Self {
            look_at: now + TICK,
            looks: 0,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        self.look_at <= now
    }

    /// Begins a look; returns whether it includes merging and retention.
    fn begin(&mut self) -> bool {
        self.looks = self.looks.wrapping_add(1);
        self.looks.is_multiple_of(LOOKS_TO_MAINTAIN)
    }

    /// Ends a look at `now`.
    fn end(&mut self, now: Instant) {
        self.look_at = now + TICK;
    }
}

fn ended() -> StoreError {
    StoreError::Stopped("it was closed".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merging_and_retention_come_with_every_thirtieth_look() {
        let begin = Instant::now();
        let mut schedule = Schedule::new(begin);
        let mut tidied = Vec::new();
        // The thread is asked to seal ten times a second.
        for tenths in 1..=620 {
            let now = begin + TICK / 10 * tenths;
            if schedule.is_due(now) {
                if schedule.begin() {
                    tidied.push(tenths);
                }
                schedule.end(now);
            }
        }

        assert_eq!(tidied, [300, 600]);
    }

    #[test]
    fn after_a_look_that_takes_long_requests_are_taken() {
        let begin = Instant::now();
        let mut schedule = Schedule::new(begin);
        schedule.begin();
        let end = begin + 10 * TICK;

        schedule.end(end);

        assert!(!schedule.is_due(end));
        assert!(schedule.is_due(end + TICK));
    }
}
