//! The trait `Store` for the simulated store.

use std::sync::Arc;

use crate::backup::{Copy, CopyProgress};
use crate::error::StoreError;
use crate::files::Files;
use crate::index::restore::KeptSession;
use crate::index::rows::{StoredDelivery, StoredMessage};
use crate::simulated::SimulatedStore;
use crate::store::{Store, StoreStats};
use crate::wal::batch::Batch;
use crate::wal::commit::Pressure;
use crate::wal::{Durability, LogObserver, SpacePolicy, Ticket};

impl Store for SimulatedStore {
    fn append(
        &self,
        batch: &mut Batch,
        durability: Durability,
        space: SpacePolicy,
    ) -> Result<Ticket, StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        let ticket = inner.log_queue.push(batch, durability, space);
        batch.clear();
        Ok(ticket)
    }

    fn is_kept(&self, ticket: Ticket) -> bool {
        let inner = self.lock();
        let reached = match ticket.durability {
            Durability::Memory => u64::MAX,
            Durability::Os => inner.written,
            Durability::Fsync => inner.durable,
        };
        ticket.number <= reached && !inner.refused.contains(&ticket.number)
    }

    fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        loop {
            if self.is_kept(ticket) {
                return Ok(());
            }
            if self.lock().refused.contains(&ticket.number) {
                return Err(StoreError::NoSpace);
            }
            if !self.step()? {
                return Err(StoreError::Stopped("there is no such ticket".into()));
            }
        }
    }

    fn observe(&self, observer: Arc<dyn LogObserver>) {
        self.lock().observer.get_or_insert(observer);
    }

    fn has_room(&self) -> bool {
        let inner = self.lock();
        inner.log_queue.bytes < inner.options.wal.queue_bytes
    }

    fn pressure(&self) -> Pressure {
        self.lock().committer.pressure().unwrap_or(Pressure::Hard)
    }

    fn numbers(&self, count: u64) -> u64 {
        let mut inner = self.lock();
        let first = inner.numbers;
        inner.numbers += count;
        first
    }

    fn sessions(&self, visit: &mut dyn FnMut(KeptSession)) -> Result<(), StoreError> {
        self.lock().index.sessions(&mut |kept| {
            visit(kept);
            Ok(())
        })
    }

    fn clients(&self, visit: &mut dyn FnMut(u64, &str)) -> Result<(), StoreError> {
        self.lock().index.clients(visit)
    }

    fn restore(
        &self,
        numbers: &[u64],
        visit: &mut dyn FnMut(KeptSession),
    ) -> Result<(), StoreError> {
        self.lock().index.restore(numbers, visit)
    }

    fn queue(
        &self,
        session: u64,
        from: u64,
        limit: usize,
    ) -> Result<Vec<StoredDelivery>, StoreError> {
        self.lock().index.queue(session, from, limit)
    }

    fn retained(&self, visit: &mut dyn FnMut(&str, u64)) -> Result<(), StoreError> {
        let retained = self.lock().index.retained()?;
        for (topic, message) in &retained {
            visit(topic, *message);
        }
        Ok(())
    }

    fn notes(&self, visit: &mut dyn FnMut(&str, &[u8])) -> Result<(), StoreError> {
        for (key, value) in self.lock().index.notes.all() {
            visit(key, value);
        }
        Ok(())
    }

    fn message(&self, message: u64) -> Result<Option<StoredMessage>, StoreError> {
        self.lock().index.message(message)
    }

    fn checkpoint(&self) -> Result<(), StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        let done = inner.checkpoint();
        inner.remember_failure(done)
    }

    fn backup(&self, to: &dyn Files, progress: &CopyProgress) -> Result<u64, StoreError> {
        let mut inner = self.lock();
        inner.check()?;
        inner.drain()?;
        let snapshot = inner.index.snapshot()?;
        let writer = &inner.committer.writer;
        let (last, end) = (writer.current.header, writer.current.end);
        let files = Arc::clone(&writer.files);
        let mut copy = Copy::begin(&*files, to, progress);
        copy.hold_running_log(last, end)?;
        copy.hold_beside()?;
        drop(inner);
        copy.put_checkpoint(&snapshot)?;
        copy.finish()
    }

    fn stats(&self) -> StoreStats {
        let inner = self.lock();
        StoreStats {
            applied_lsn: inner.index.applied_lsn,
            pending_rows: inner.index.pending_rows() as u64,
            index_memory_bytes: inner.index.memory_bytes() as u64,
            live_bytes: inner.index.wanted_bytes(),
            ..StoreStats::default()
        }
    }

    fn close(&self) -> Result<(), StoreError> {
        self.checkpoint()?;
        let mut inner = self.lock();
        inner.committer.writer.testify()?;
        inner.committer.writer.sync()?;
        inner.stopped = Some(StoreError::Stopped("it was closed".into()));
        Ok(())
    }
}
