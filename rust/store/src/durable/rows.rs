//! How rows come from the log into streams, and what streams ask of the rest.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
#[cfg(feature = "columnar")]
use std::sync::{Mutex, mpsc::channel};

use crate::durable::index_thread::{IDLE, IndexRequest};
#[cfg(feature = "columnar")]
use crate::index::Index;
use crate::stream::Streams;
use crate::wal::shared::LogShared;

/// The thread that takes rows out of groups, before the index has them.
pub(super) struct RowThread {
    pub(super) streams: Arc<Streams>,
    pub(super) shared: Arc<LogShared>,
}

impl RowThread {
    pub(super) fn run(&self, groups: &Receiver<IndexRequest>, to_index: &Sender<IndexRequest>) {
        for request in groups {
            if let IndexRequest::Group(group, Some(written)) = &request
                && written.has_rows
                && let Err(error) = self.streams.take_in(&group.bytes, written)
            {
                self.shared.stop(&error);
                return;
            }
            // Until rows are sealed, the line in front of the log grows, and nobody publishes.
            while self.streams.is_full() && self.shared.check().is_ok() {
                self.streams.wait_for_room(IDLE);
            }
            // The index ends before its sender only when it panicked, and has stopped the log then.
            let _ = to_index.send(request);
        }
    }
}

/// What the sealer asks of the rest.
#[cfg(feature = "columnar")]
pub(super) struct StoreSealerContext {
    pub(super) shared: Arc<LogShared>,
    pub(super) index: Arc<Mutex<Index>>,
    pub(super) requests: Option<Sender<IndexRequest>>,
}

#[cfg(feature = "columnar")]
impl crate::stream::sealer::SealerContext for StoreSealerContext {
    fn pinned_bytes(&self) -> Option<u64> {
        let pinned = self.index.try_lock().ok()?.streams.pinned();
        let full = self.shared.full_segments();
        let pinned = pinned.map(|first| full.iter().filter(|(number, _)| *number >= first).count());
        let stats = self.shared.stats();
        // Segments are of one size, but for those of a single large group.
        let bytes = stats.log_bytes / stats.segments.max(1);
        Some(pinned.unwrap_or_default() as u64 * bytes)
    }

    fn shrink(&self) {
        let (sender, _) = channel();
        if let Some(requests) = &self.requests {
            // A store that is being closed writes a checkpoint anyway.
            let _ = requests.send(IndexRequest::Checkpoint(sender));
        }
    }
}
