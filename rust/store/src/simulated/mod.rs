//! The durable store without threads: tests take each step, so that a seed determines everything.

mod serving;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::durable::index_thread::compact;
use crate::durable::{StoreOptions, claim, open_parts};
use crate::error::StoreError;
use crate::files::{Claim, Files};
use crate::index::Index;
use crate::index::flush::CheckpointDraft;
use crate::stream::Streams;
#[cfg(feature = "columnar")]
use crate::stream::{StreamOptions, sealing::SealRequest};
use crate::wal::commit::{Committer, Pressure};
use crate::wal::queue::LogQueue;
use crate::wal::{Durability, LogObserver, Recovery};

/// A [`DurableStore`](crate::DurableStore) that one thread drives, for tests.
#[derive(Debug)]
pub struct SimulatedStore {
    inner: Mutex<Inner>,
    _claim: Claim,
}

struct Inner {
    log_queue: LogQueue,
    committer: Committer,
    index: Index,
    /// A checkpoint that was begun.
    frozen: Option<Arc<CheckpointDraft>>,
    options: StoreOptions,
    observer: Option<Arc<dyn LogObserver>>,
    written: u64,
    durable: u64,
    refused: BTreeSet<u64>,
    stopped: Option<StoreError>,
    numbers: u64,
    streams: Option<Arc<Streams>>,
    safe_lsn: Arc<AtomicU64>,
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Inner").finish_non_exhaustive()
    }
}

impl SimulatedStore {
    /// Opens the store in `files`, or creates one.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`], and whatever keeps its content from being trusted.
    pub fn open(
        files: &Arc<dyn Files>,
        options: &StoreOptions,
    ) -> Result<(Self, Recovery), StoreError> {
        let claim = claim(&**files)?;
        let (committer, index, recovery) = open_parts(files, options)?;
        Ok((Self::of(claim, committer, index, options, None), recovery))
    }

    /// Opens the store in `files` with streams, or begins one.
    ///
    /// # Errors
    ///
    /// As [`SimulatedStore::open`], [`StoreError::Stream`].
    #[cfg(feature = "columnar")]
    pub fn open_with(
        files: &Arc<dyn Files>,
        options: &StoreOptions,
        streams: &StreamOptions,
    ) -> Result<(Self, Recovery), StoreError> {
        let claim = claim(&**files)?;
        let (mut committer, mut index, recovery) = open_parts(files, options)?;
        let streams = crate::stream::open::open(files, &mut committer, &mut index, streams)?;
        Ok((
            Self::of(claim, committer, index, options, streams),
            recovery,
        ))
    }

    fn of(
        claim: Claim,
        committer: Committer,
        index: Index,
        options: &StoreOptions,
        streams: Option<Arc<Streams>>,
    ) -> Self {
        let safe_lsn = Arc::new(AtomicU64::new(committer.writer.durable_lsn));
        if let Some(streams) = &streams {
            streams.follow(Arc::clone(&safe_lsn));
        }
        let inner = Inner {
            log_queue: LogQueue::default(),
            frozen: None,
            numbers: index.next_number,
            committer,
            index,
            options: *options,
            observer: None,
            written: 0,
            durable: 0,
            refused: BTreeSet::new(),
            stopped: None,
            streams,
            safe_lsn,
        };
        Self {
            inner: Mutex::new(inner),
            _claim: claim,
        }
    }

    /// The streams, if there are any.
    #[cfg(feature = "columnar")]
    pub fn streams(&self) -> Option<Arc<Streams>> {
        self.lock().streams.clone()
    }

    /// Writes all rows that are safe into files.
    ///
    /// # Errors
    ///
    /// The error that stopped the store; [`StoreError::NoSpace`], after which it goes on.
    #[cfg(feature = "columnar")]
    pub fn seal(&self) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        let Some(streams) = inner.streams.clone() else {
            return Ok(());
        };
        let sealed = streams.seal(&SealRequest::Everything, &mut |batch| inner.commit(batch));
        match sealed {
            Err(StoreError::NoSpace) => Err(StoreError::NoSpace),
            done => inner.remember_failure(done),
        }
    }

    /// Merges files and gives some up, as of `now_us` of kept time.
    ///
    /// # Errors
    ///
    /// As [`SimulatedStore::seal`].
    #[cfg(feature = "columnar")]
    pub fn maintain(&self, now_us: u64) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        let Some(streams) = inner.streams.clone() else {
            return Ok(());
        };
        match streams.maintain(now_us, &mut |batch| inner.commit(batch)) {
            Err(StoreError::NoSpace) => Err(StoreError::NoSpace),
            done => inner.remember_failure(done),
        }
    }

    /// Moves files of all streams to object storage, as of `now_us` of kept time.
    ///
    /// # Errors
    ///
    /// Those of the object store and of the files; the store goes on after them.
    #[cfg(feature = "columnar")]
    pub fn tier(&self, now_us: u64) -> Result<(), StoreError> {
        let streams = self.streams();
        let mut numbers = streams.iter().flat_map(|streams| {
            let numbers = streams.tiered().into_iter();
            numbers.map(move |number| (streams, number))
        });
        numbers.try_for_each(|(streams, number)| streams.tier(number, now_us))
    }

    /// Writes one group, and syncs it if one of its batches needs that; returns false if no batch waits.
    ///
    /// # Errors
    ///
    /// The error that stopped the store.
    pub fn step(&self) -> Result<bool, StoreError> {
        self.lock().step()
    }

    /// Takes a draft of the next checkpoint, after a last step; later records belong to the checkpoint after it.
    ///
    /// # Errors
    ///
    /// The error that stopped the store.
    pub fn begin_checkpoint(&self) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        let begun = inner.begin_checkpoint();
        inner.remember_failure(begun)
    }

    /// Writes the checkpoint that was begun, if there is one.
    ///
    /// # Errors
    ///
    /// The error that stopped the store.
    pub fn end_checkpoint(&self) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        let ended = inner.end_checkpoint();
        inner.remember_failure(ended)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn check(&self) -> Result<(), StoreError> {
        match &self.stopped {
            Some(error) => Err(StoreError::Stopped(error.to_string().into())),
            None => Ok(()),
        }
    }

    fn step(&mut self) -> Result<bool, StoreError> {
        self.check()?;
        let stepped = self.try_step();
        self.remember_failure(stepped)
    }

    fn remember_failure<T>(&mut self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        if let Err(error) = &done {
            self.stopped = Some(error.clone());
            if let Some(observer) = &self.observer {
                observer.stopped(error);
            }
        }
        done
    }

    fn try_step(&mut self) -> Result<bool, StoreError> {
        let Some(mut group) = self.log_queue.pop() else {
            return Ok(false);
        };
        let last = group.last_ticket;
        let durability = group.durability();
        let (written, refused) = self.committer.write(&mut group)?;
        self.refused
            .extend(refused.iter().map(|ticket| ticket.number));
        if let Some(observer) = self.observer.as_ref().filter(|_| !refused.is_empty()) {
            observer.refused(&refused);
        }
        self.written = last;
        self.tell(Durability::Os, last);
        if durability == Durability::Fsync {
            self.sync()?;
        }
        if let Some(written) = written {
            if let Some(streams) = self.streams.as_ref().filter(|_| written.has_rows) {
                streams.take_in(&group.bytes, &written)?;
            }
            self.index.apply_group(&group.bytes, &written)?;
        }
        self.log_queue.recycle(group);
        Ok(true)
    }

    fn sync(&mut self) -> Result<(), StoreError> {
        self.committer.writer.sync()?;
        // ORDERING: as behind the log's own thread.
        self.safe_lsn
            .store(self.committer.writer.durable_lsn, Ordering::Release);
        self.durable = self.written;
        self.tell(Durability::Fsync, self.durable);
        Ok(())
    }

    fn tell(&self, durability: Durability, number: u64) {
        if let Some(observer) = &self.observer {
            observer.kept(durability, number);
        }
    }

    fn drain(&mut self) -> Result<(), StoreError> {
        while self.try_step()? {}
        self.sync()
    }

    /// Writes a batch; it is safe when this returns.
    #[cfg(feature = "columnar")]
    fn commit(&mut self, batch: &mut crate::Batch) -> Result<(), StoreError> {
        let space = crate::wal::SpacePolicy::Essential;
        let ticket = self.log_queue.push(batch, Durability::Fsync, space);
        self.drain()?;
        if self.refused.contains(&ticket.number) {
            return Err(StoreError::NoSpace);
        }
        Ok(())
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        self.end_checkpoint()?;
        self.begin_checkpoint()?;
        self.end_checkpoint()
    }

    fn begin_checkpoint(&mut self) -> Result<(), StoreError> {
        self.end_checkpoint()?;
        self.drain()?;
        self.frozen = Some(self.index.freeze());
        Ok(())
    }

    fn end_checkpoint(&mut self) -> Result<(), StoreError> {
        let Some(frozen) = self.frozen.take() else {
            return Ok(());
        };
        let database = self.index.database();
        frozen.write(&database)?;
        let older = self.committer.writer.older.iter();
        let full: Vec<_> = older.map(|past| (past.number, past.last_lsn)).collect();
        let kept = match self.committer.pressure()? {
            Pressure::None => self.options.segments_kept,
            _ => 0,
        };
        let surplus = full.len().saturating_sub(kept);
        let moved = self.index.moved_through();
        let files = &*self.committer.writer.files;
        let compacted = compact(&frozen, &database, files, (&full, surplus), moved)?;
        self.index.thaw(&frozen)?;
        self.index.moved(compacted.moved);
        if let Some(through) = compacted.droppable {
            self.index.close(through);
            self.committer.writer.drop_up_to(through)?;
        }
        self.committer.restore()
    }
}
