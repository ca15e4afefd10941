//! The sealer: the thread that writes sealed files.

use std::fmt;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::error::StoreError;
use crate::stream::sealing::SealRequest;
use crate::stream::streams::{Streams, lock, now_us};
use crate::wal::batch::Batch;
use crate::wal::shared::LogShared;
use crate::wal::{Durability, SpacePolicy};

/// Interval at which the thread checks for rows to seal.
const TICK: Duration = Duration::from_secs(1);

/// Number of such checks between two runs of merging and retention.
const TICKS_TO_TIDY: u32 = 30;

/// Handle of the sealer's thread.
pub(crate) struct Sealer {
    requests: Mutex<Option<Sender<Request>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A request and the channel for its result.
struct Request(SealRequest, Sender<Result<(), StoreError>>);

/// What the thread needs from the rest of the store.
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
        let mut ticks = 0;
        loop {
            let done = match requests.recv_timeout(TICK) {
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => {
                    ticks += 1;
                    self.look(ticks % TICKS_TO_TIDY == 0)
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
    }

    fn look(&self, is_tidied: bool) -> Result<(), StoreError> {
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
            Some(kept_us) if is_tidied => self.streams.tidy(kept_us),
            _ => Ok(()),
        }
    }

    fn seal(&self, wanted: &SealRequest) -> Result<(), StoreError> {
        self.streams.seal(wanted, &mut |batch: &mut Batch| {
            let ticket = self
                .shared
                .append(batch, Durability::Fsync, SpacePolicy::Essential)?;
            self.shared.wait(ticket)
        })
    }
}

fn ended() -> StoreError {
    StoreError::Stopped("it was closed".into())
}
