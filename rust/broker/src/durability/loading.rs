//! Progress of loading sessions, shared by all shards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};

/// Progress of loading.
pub(crate) struct Loading {
    /// Number of sessions in the store that the shards do not have yet; all ones while it is unknown.
    pub(crate) to_come: AtomicU64,
    /// Clients whose sessions are loaded first.
    pub(crate) wanted: Mutex<Option<Sender<AwaitedSession>>>,
}

/// A client that waits for its session.
pub(crate) struct AwaitedSession {
    pub(crate) client_id: Arc<str>,
    pub(crate) home: usize,
}

impl Loading {
    pub(crate) fn new(has_store: bool) -> Self {
        Self {
            to_come: AtomicU64::new(if has_store { u64::MAX } else { 0 }),
            wanted: Mutex::default(),
        }
    }

    /// Number of sessions that the shards do not have yet; `None` while it is unknown.
    pub(crate) fn remaining(&self) -> Option<u64> {
        // ORDERING: a figure; jobs carry what it stands for.
        Some(self.to_come.load(Ordering::Relaxed)).filter(|sessions| *sessions != u64::MAX)
    }

    /// Counts a loaded session.
    pub(crate) fn one_loaded(&self) {
        // ORDERING: as in `to_come`.
        self.to_come.fetch_sub(1, Ordering::Relaxed);
    }

    pub(crate) fn ask(&self, client_id: &Arc<str>, home: usize) {
        let wanted = self.wanted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(wanted) = &*wanted {
            let client_id = Arc::clone(client_id);
            // A thread that has ended has finished, or has reported its failure.
            let _ = wanted.send(AwaitedSession { client_id, home });
        }
    }
}
