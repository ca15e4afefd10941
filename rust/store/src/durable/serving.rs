//! The trait `Store` for the durable store.

use std::sync::atomic::Ordering;
use std::sync::mpsc::channel;
use std::sync::{Arc, PoisonError};
use std::thread::JoinHandle;

use crate::backup::{Copy, CopyProgress};
use crate::durable::DurableStore;
use crate::durable::index_thread::IndexRequest;
use crate::error::StoreError;
use crate::files::Files;
use crate::index::BodyLocation;
use crate::index::restore::KeptSession;
use crate::index::rows::{StoredDelivery, StoredMessage};
use crate::store::{Store, StoreStats, first_bytes};
use crate::wal::batch::Batch;
use crate::wal::{Durability, LogObserver, Pressure, SpacePolicy, Ticket};

impl Store for DurableStore {
    fn append(
        &self,
        batch: &mut Batch,
        durability: Durability,
        space: SpacePolicy,
    ) -> Result<Ticket, StoreError> {
        self.wal.append(batch, durability, space)
    }

    fn is_kept(&self, ticket: Ticket) -> bool {
        self.wal.is_kept(ticket)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.wal.wait(ticket)
    }

    fn observe(&self, observer: Arc<dyn LogObserver>) {
        self.wal.observe(observer);
    }

    fn has_room(&self) -> bool {
        self.wal.has_room()
    }

    fn pressure(&self) -> Pressure {
        self.wal.pressure()
    }

    fn numbers(&self, count: u64) -> u64 {
        // ORDERING: only uniqueness matters.
        self.numbers.fetch_add(count, Ordering::Relaxed)
    }

    fn sessions(&self, visit: &mut dyn FnMut(KeptSession)) -> Result<(), StoreError> {
        self.index().sessions(&mut |kept| {
            visit(kept);
            Ok(())
        })
    }

    fn clients(&self, visit: &mut dyn FnMut(u64, &str)) -> Result<(), StoreError> {
        self.index().clients(visit)
    }

    fn restore(
        &self,
        numbers: &[u64],
        visit: &mut dyn FnMut(KeptSession),
    ) -> Result<(), StoreError> {
        self.index().restore(numbers, visit)
    }

    fn queue(
        &self,
        session: u64,
        from: u64,
        limit: usize,
    ) -> Result<Vec<StoredDelivery>, StoreError> {
        self.index().queue(session, from, limit)
    }

    fn page(
        &self,
        session: u64,
        from: u64,
        limit: usize,
        bytes: u64,
    ) -> Result<Vec<(StoredDelivery, Option<StoredMessage>)>, StoreError> {
        let mut index = self.index();
        let queue = index.queue(session, from, limit)?;
        let mut found = Vec::new();
        for delivery in first_bytes(queue, bytes) {
            let message = index.find(delivery.message);
            let message = message.map_err(|error| index.explain(delivery.message, error))?;
            found.push((delivery, message));
        }
        // The index is unlocked while the disk is read.
        drop(index);
        let read = found.into_iter().map(|(delivery, message)| {
            let message = message.map(BodyLocation::read).transpose();
            let message = message.map_err(|error| self.index().explain(delivery.message, error))?;
            Ok((delivery, message))
        });
        read.collect()
    }

    fn retained(&self, visit: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError> {
        let retained = self.index().retained()?;
        for (topic, message) in &retained {
            visit(topic, *message);
        }
        Ok(())
    }

    fn notes(&self, visit: &mut dyn FnMut(&str, &[u8])) -> Result<(), StoreError> {
        for (key, value) in self.index().notes.all() {
            visit(key, value);
        }
        Ok(())
    }

    fn message(&self, message: u64) -> Result<Option<StoredMessage>, StoreError> {
        self.index().message(message)
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        // The backup contains all batches that were appended before.
        let all = self.append(
            &mut Batch::default(),
            Durability::Fsync,
            SpacePolicy::Essential,
        )?;
        self.wait(all)?;
        let (sender, done) = channel();
        let requests = self.lock_requests();
        let sent = requests
            .as_ref()
            .map(|requests| requests.send(IndexRequest::Checkpoint(sender)));
        drop(requests);
        match sent {
            Some(Ok(())) => done.recv().unwrap_or_else(|_| Err(closed())),
            _ => Err(closed()),
        }
    }

    fn backup(&self, to: &dyn Files, progress: &CopyProgress) -> Result<u64, StoreError> {
        let mut copy = Copy::begin(&*self.files, to, progress);
        let snapshot = {
            #[cfg(feature = "columnar")]
            let _work = self
                .streams
                .as_ref()
                .map(|(streams, _)| streams.lock_work());
            let index = self.index();
            let snapshot = index.snapshot()?;
            // The copy ends with the last written group: half of a group and the marker of a
            // later one would look like damage.
            let log = self.wal.shared.ask_for(|committer| {
                committer.writer.sync()?;
                let current = &committer.writer.current;
                Ok((current.header, current.end))
            });
            let (last, end) = log.ok_or_else(closed)?;
            copy.hold_running_log(last, end)?;
            drop(index);
            // From here on the copied log is complete, and no file of it is removed.
            copy.hold_beside()?;
            snapshot
        };
        copy.put_checkpoint(&snapshot)?;
        copy.finish()
    }

    fn stats(&self) -> StoreStats {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // Callers of `stats` must not block.
        if let Ok(index) = self.index.try_lock() {
            seen.applied_lsn = index.applied_lsn;
            seen.pending_rows = index.pending_rows() as u64;
            seen.index_memory_bytes = index.memory_bytes() as u64;
            seen.live_bytes = index.wanted_bytes();
        }
        seen.log = self.wal.stats();
        seen.checkpoints = self.checkpoints.count();
        seen.checkpoint_age = self.checkpoints.age();
        seen.clone()
    }

    fn close(&self) -> Result<(), StoreError> {
        #[cfg(feature = "columnar")]
        self.close_streams();
        let scrubber = self.lock_scrubber().take();
        if let Some(scrubber) = scrubber {
            scrubber.stop();
        }
        let written = self.wal.close();
        // The threads end when all their senders are dropped; the log's thread has ended.
        let rows = self
            .rows
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // A thread that panicked has stopped the log already.
        let _ = rows.map(JoinHandle::join);
        self.lock_requests().take();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        // As above.
        let _ = thread.map(JoinHandle::join);
        // The folder can be opened again.
        self.claim
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        written.and_then(|()| self.wal.check())
    }
}

impl DurableStore {
    /// Seals all rows and ends the threads of streams.
    #[cfg(feature = "columnar")]
    fn close_streams(&self) {
        if let Some(tier) = &self.tier {
            tier.stop();
        }
        let Some((_, sealer)) = &self.streams else {
            return;
        };
        // All earlier rows are in files then. If the log has stopped, recovery does the rest.
        let all = self.append(
            &mut Batch::default(),
            Durability::Fsync,
            SpacePolicy::Essential,
        );
        if all.and_then(|all| self.wait(all)).is_ok() {
            self.wal.shared.catch_up();
        }
        sealer.stop();
    }
}

fn closed() -> StoreError {
    StoreError::Stopped("it was closed".into())
}
