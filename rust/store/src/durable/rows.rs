//! The row thread, and the implementation of the sealer's interface to the store.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
#[cfg(feature = "columnar")]
use std::sync::{Mutex, mpsc::channel};

use crate::durable::index_thread::{IDLE, IndexRequest};
#[cfg(feature = "columnar")]
use crate::index::Index;
use crate::stream::Streams;
use crate::wal::shared::LogShared;

/// The row thread: copies rows of written groups into streams, before the index gets the groups.
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
            // Backpressure: until rows are sealed, the log queue grows and publishers are not
            // read.
            while self.streams.is_full() && self.shared.check().is_ok() {
                self.streams.wait_for_room(IDLE);
            }
            // The index thread ends before its sender only if it panicked, and then it has
            // stopped the log.
            let _ = to_index.send(request);
        }
    }
}

/// The interface of the sealer to the store.
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
        // Segments have the same size, except those of a single large group.
        let bytes = stats.log_bytes / stats.segments.max(1);
        Some(pinned.unwrap_or_default() as u64 * bytes)
    }

    fn shrink(&self) {
        let (sender, _) = channel();
        if let Some(requests) = &self.requests {
            // A store that is being closed writes a checkpoint in any case.
            let _ = requests.send(IndexRequest::Checkpoint(sender));
        }
    }
}
