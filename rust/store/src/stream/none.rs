//! Replacement for streams in a build without them: it rejects stores that have streams.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use crate::error::StoreError;
use crate::index::Index;
use crate::wal::writer::WrittenGroup;

/// Rejects a store that has streams.
pub(crate) fn refuse(index: &Index) -> Result<(), StoreError> {
    let named = index.streams.names().next();
    named.map_or(Ok(()), |stream| {
        Err(StoreError::Stream {
            stream: stream.to_owned(),
            problem: "this build has no streams: its rows would be lost".into(),
        })
    })
}

/// A type without values: this build has no streams.
#[derive(Debug)]
pub(crate) enum Streams {}

impl Streams {
    pub(crate) fn follow(&self, _: Arc<AtomicU64>) {
        match *self {}
    }

    pub(crate) fn take_in(&self, _: &[u8], _: &WrittenGroup) -> Result<(), StoreError> {
        match *self {}
    }

    pub(crate) fn is_full(&self) -> bool {
        match *self {}
    }

    pub(crate) fn wait_for_room(&self, _: Duration) {
        match *self {}
    }
}
