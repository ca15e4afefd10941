//! The store of a broker: one log for all shards, and how far it is safe.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, TryLockError, Weak};
use std::time::{Instant, SystemTime};

use mqttcore_panics::Panicked;
use mqttcore_store::files::{Files, Folder};
use mqttcore_store::record::Record;
use mqttcore_store::{
    Batch, CopyProgress, Durability, DurableStore, LogObserver, Pressure, Recovery, SpacePolicy,
    Store, StoreError, StoreOptions, StoreStats, Ticket,
};

use crate::config::measures::Histogram;
use crate::config::{Config, Data};
use crate::durability::clock::KeptClock;
use crate::durability::events::StoreEvents;
use crate::durability::page::QueuePage;
use crate::durability::row_log::RowLog;
use crate::durability::share::{self, QueueShare};
use crate::runtime::log::LogCategory;
use crate::runtime::memory_limit::memory_budget;

/// Under which key the store has the seed of hashes.
const SEED: &str = "seed";

/// Limits of the buckets of [`DurableLog::syncs`], in microseconds: shorter and longer syncs are not told apart.
const SHORT_SYNC_US: u64 = 64;
const LONG_SYNC_US: u64 = 8 << 20;

/// The log that all shards write to.
pub(crate) struct DurableLog {
    pub(crate) store: Arc<dyn Store>,
    /// Pages that are to be read, for a thread that may wait for the disk.
    pages: Mutex<Option<Sender<PageRequest>>>,
    /// Held while a copy is made, so that it gets the files that the notes in it tell of.
    copying: Mutex<()>,
    /// The last ticket that the system has, and the last one that the disk has.
    kept: [AtomicU64; 2],
    last_session: AtomicU64,
    /// Repairs after an unclean end of the last broker, as text.
    mended: Option<String>,
    /// Warnings of its start: damage that was rebuilt, permissions of the folder, a clock in doubt.
    warnings: Vec<(LogCategory, String)>,
    /// How much may be kept for all sessions.
    share: QueueShare,
    /// Kept time.
    pub(crate) clock: KeptClock,
    system_time: fn() -> SystemTime,
    failure: OnceLock<StoreError>,
    events: OnceLock<Weak<dyn StoreEvents>>,
}

impl DurableLog {
    /// Opens the store in the folder of `data`, or creates one, as `config` says, with the streams of `rows`.
    ///
    /// # Errors
    ///
    /// Whatever keeps the folder from being used or its content from being trusted.
    pub(crate) fn open(
        data: &Data,
        config: &Config,
        rows: Option<&dyn RowLog>,
    ) -> Result<Arc<Self>, StoreError> {
        let path = data.folder.display().to_string();
        let (folder, shared) = Folder::open(&data.folder)
            .and_then(|folder| folder.check_private().map(|shared| (folder, shared)))
            .map_err(io_error("open the folder", path))?;
        let files: Arc<dyn Files> = Arc::new(folder);
        let options = StoreOptions::within(memory_budget(config.memory_bytes));
        let (store, recovery) = if let Some(rows) = rows {
            rows.open_store(&files, &options)?
        } else {
            let (store, recovery) = DurableStore::open(&files, &options)?;
            (Arc::new(store), recovery)
        };
        let free = files.space().map_err(io_error("measure", ".".into()))?;
        let kept_bytes = store.stats().live_bytes;
        let share = QueueShare::new(config.queues_disk_bytes, kept_bytes, free.free_bytes);
        if !config.scrub_every.is_zero() {
            store.scrub_every(config.scrub_every)?;
        }
        let system = (config.system_time)();
        let (clock, doubt) =
            KeptClock::resume(&*store, system, Instant::now(), config.accepts_clock)?;
        if let Some(rows) = rows {
            let kept_us = move || clock.unix_ms(Instant::now()).saturating_mul(1_000);
            rows.count_by(Arc::new(kept_us));
        }
        let clocks = (clock, config.system_time);
        let doubt = doubt.map(|doubt| (LogCategory::Clock, doubt));
        let warnings = store_warning(&recovery, shared).into_iter().chain(doubt);
        let log = Self::over((store, share), &recovery, clocks, warnings.collect());
        log.write_clock_note();
        log.read_pages()
            .map_err(io_error("start the thread of", "pages".into()))?;
        Ok(log)
    }

    /// Puts `store` behind a broker.
    fn over(
        (store, share): (Arc<dyn Store>, QueueShare),
        recovery: &Recovery,
        (clock, system_time): (KeptClock, fn() -> SystemTime),
        warnings: Vec<(LogCategory, String)>,
    ) -> Arc<Self> {
        let log = Arc::new(Self {
            store,
            copying: Mutex::default(),
            pages: Mutex::default(),
            kept: [AtomicU64::new(0), AtomicU64::new(0)],
            last_session: AtomicU64::new(0),
            mended: mended(recovery),
            warnings,
            share,
            clock,
            system_time,
            failure: OnceLock::new(),
            events: OnceLock::new(),
        });
        log.store
            .observe(Arc::new(ShardNotifier(Arc::downgrade(&log))));
        log
    }

    /// Copies the store into a new or empty folder, and tells `progress` meanwhile; returns the bytes.
    ///
    /// # Errors
    ///
    /// Those of the store and of the file system.
    pub(crate) fn backup(&self, to: &Path, progress: &CopyProgress) -> Result<u64, StoreError> {
        let _nothing_goes = self.copying.lock().unwrap_or_else(PoisonError::into_inner);
        Folder::make(to, |to| self.store.backup(to, progress))
    }

    /// Writes a checkpoint; blocks until it is safe.
    pub(crate) fn checkpoint(&self) -> Result<(), StoreError> {
        self.store.checkpoint()
    }

    /// A lock to hold while files are removed that notes refer to; `None` while a copy is made, which may need them.
    pub(crate) fn may_remove(&self) -> Option<MutexGuard<'_, ()>> {
        match self.copying.try_lock() {
            Err(TryLockError::WouldBlock) => None,
            Err(TryLockError::Poisoned(copying)) => Some(copying.into_inner()),
            Ok(copying) => Some(copying),
        }
    }

    /// Starts the thread that reads pages. It ends with the log.
    fn read_pages(self: &Arc<Self>) -> io::Result<()> {
        let (sender, requests) = channel::<PageRequest>();
        let (store, log) = (Arc::clone(&self.store), Arc::downgrade(self));
        let clock = self.clock;
        let read = move || {
            for request in requests {
                match request.read(&*store, clock) {
                    Ok(page) => (request.answer)(page),
                    // Acknowledged data cannot be read: the broker stops.
                    Err(error) => log.upgrade().iter().for_each(|log| log.fail(&error)),
                }
            }
        };
        let own = Arc::downgrade(self);
        let on_panic = move |panicked: Panicked| {
            let error = panicked.into();
            own.upgrade().iter().for_each(|log| log.fail(&error));
        };
        mqttcore_panics::spawn("mqttcore-pages", on_panic, read)?;
        *self.lock_pages() = Some(sender);
        Ok(())
    }

    /// Requests a page of a queue; it arrives as a job of the shard that asks.
    pub(crate) fn read_page(&self, request: PageRequest) {
        if let Some(pages) = &*self.lock_pages() {
            // A thread that has ended has reported its failure.
            let _ = pages.send(request);
        }
    }

    fn lock_pages(&self) -> MutexGuard<'_, Option<Sender<PageRequest>>> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says which session numbers were given before.
    pub(crate) fn begin_sessions(&self, last: u64) {
        // ORDERING: before any shard asks for one.
        self.last_session.store(last, Ordering::Relaxed);
    }

    /// Sets the receiver of the events of the store, and logs repairs.
    pub(crate) fn serve(&self, events: &Arc<dyn StoreEvents>) {
        // One log serves one broker.
        let _ = self.events.set(Arc::downgrade(events));
        share::watch(&**events, &self.share, self.store.stats().live_bytes);
        // The log may have failed before it had an observer.
        if let Some(failure) = self.failure() {
            events.failed(failure);
        }
        if let Some(mended) = self.mended.clone() {
            events.say(mended);
        }
        for (category, text) in self.warnings.clone() {
            events.warn(category, text);
        }
    }

    /// The configuration was loaded again, with this `queues_disk_bytes`.
    pub(crate) fn limit_queues(&self, limit_bytes: u64) {
        if let Some(events) = self.events() {
            share::reload(&*events, &self.share, limit_bytes);
        }
    }

    /// The first of `count` numbers of messages and deliveries, never given before.
    pub(crate) fn numbers(&self, count: u64) -> u64 {
        self.store.numbers(count)
    }

    /// The seed of the hashes that distribute messages in shared groups; the same in every run on this folder.
    /// `fresh` if there is none yet.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(crate) fn seed(&self, fresh: u64) -> Result<u64, StoreError> {
        let mut noted = None;
        self.store.notes(&mut |key, value| {
            if key == SEED {
                noted = value.try_into().ok().map(u64::from_le_bytes);
            }
        })?;
        if noted.is_none() && self.store.pressure() == Pressure::None {
            let (key, value) = (SEED, &fresh.to_le_bytes()[..]);
            let mut batch = Batch::default();
            batch.push(&Record::Note { key, value });
            self.append(&mut batch, Durability::Memory);
        }
        Ok(noted.unwrap_or(fresh))
    }

    /// A number for a new session, which no session has that is kept.
    pub(crate) fn session_number(&self) -> u64 {
        // ORDERING: only uniqueness matters.
        self.last_session.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Hands over a batch; returns the number that [`DurableLog::kept`] reaches when the batch is as safe as
    /// `durability` requires.
    pub(crate) fn append(&self, batch: &mut Batch, durability: Durability) -> u64 {
        let appended = self.store.append(batch, durability, SpacePolicy::Essential);
        batch.clear();
        // If the log has stopped, continuations wait forever: nothing is acknowledged any more.
        appended.map_or(u64::MAX, |ticket| ticket.number)
    }

    /// The last ticket that is as safe as `durability` says.
    pub(crate) fn kept(&self, durability: Durability) -> u64 {
        self.mark(durability).load(Ordering::SeqCst)
    }

    fn mark(&self, durability: Durability) -> &AtomicU64 {
        &self.kept[usize::from(durability == Durability::Fsync)]
    }

    /// Bytes of memory that the store takes: the queue of the log, changed rows, cached pages.
    pub(crate) fn memory_bytes(&self) -> u64 {
        memory_bytes(&self.store.stats())
    }

    /// Figures by name; times in microseconds where they do not say seconds. Never waits.
    pub(crate) fn figures(&self) -> [(&'static str, u64); 17] {
        let stats = self.store.stats();
        let log = &stats.log;
        let micros = |share| u64::try_from(log.syncs.quantile(share).as_micros()).unwrap_or(0);
        [
            ("log_bytes", log.log_bytes),
            ("segments", log.segments),
            ("records", log.records),
            ("groups", log.groups),
            ("written_bytes", log.bytes),
            (
                "records_not_synced",
                log.last_lsn.saturating_sub(log.durable_lsn),
            ),
            ("waiting_bytes", log.waiting_bytes),
            ("memory_bytes", memory_bytes(&stats)),
            ("syncs", log.syncs.count()),
            ("sync_p50_us", micros(0.5)),
            ("sync_p99_us", micros(0.99)),
            ("live_bytes", stats.live_bytes),
            ("queues_percent", self.share.percent()),
            ("pending_rows", stats.pending_rows),
            ("checkpoints", stats.checkpoints),
            ("checkpoint_age_s", stats.checkpoint_age.as_secs()),
            ("pressure", self.store.pressure() as u64),
        ]
    }

    /// Durations of the syncs of the log. Never waits.
    pub(crate) fn syncs(&self) -> Histogram {
        let syncs = self.store.stats().log.syncs;
        let sum_us = u64::try_from(syncs.sum().as_micros()).unwrap_or(u64::MAX);
        let (mut buckets, mut others) = (vec![(SHORT_SYNC_US, 0)], 0);
        for (limit, count) in syncs.by_power() {
            if limit <= SHORT_SYNC_US {
                buckets[0].1 += count;
            } else if limit <= LONG_SYNC_US {
                buckets.push((limit, count));
            } else {
                others += count;
            }
        }
        buckets.push((u64::MAX, others));
        Histogram::new(sum_us, buckets)
    }

    /// Writes a note of both clocks for the next broker, if the disk has room for it.
    pub(crate) fn write_clock_note(&self) {
        if self.failure().is_some() || self.store.pressure() > Pressure::None {
            return;
        }
        let mut batch = Batch::default();
        let system = (self.system_time)();
        self.clock.write_note(system, Instant::now(), &mut batch);
        self.append(&mut batch, Durability::Memory);
    }

    /// Makes everything safe that was handed over, and ends.
    pub(crate) fn close(&self) {
        self.lock_pages().take();
        self.write_clock_note();
        // `ShardNotifier::stopped` has reported a failure.
        let _ = self.store.close();
    }

    /// The error that stopped the store, if there is one.
    pub(crate) fn failure(&self) -> Option<StoreError> {
        self.failure.get().cloned()
    }

    fn events(&self) -> Option<Arc<dyn StoreEvents>> {
        self.events.get().and_then(Weak::upgrade)
    }

    /// Nothing can be kept any more: nothing is acknowledged any more, and all shards are notified.
    pub(crate) fn fail(&self, error: &StoreError) {
        if self.failure.set(error.clone()).is_ok()
            && let Some(events) = self.events()
        {
            events.failed(error.clone());
        }
    }
}

fn memory_bytes(stats: &StoreStats) -> u64 {
    stats.log.memory_bytes + stats.index_memory_bytes
}

fn io_error(doing: &'static str, file: String) -> impl FnOnce(io::Error) -> StoreError {
    move |source| StoreError::Io {
        doing,
        file,
        source: Arc::new(source),
    }
}

/// Damaged parts that were rebuilt, and who else may write into the folder: one warning, since a category has one log line
/// a second.
fn store_warning(recovery: &Recovery, shared: Option<String>) -> Option<(LogCategory, String)> {
    let rebuilt = recovery.rebuilt.join("; ");
    let rebuilt =
        (!rebuilt.is_empty()).then(|| format!("no data is lost, but check the disk: {rebuilt}"));
    let texts: Vec<String> = rebuilt.into_iter().chain(shared).collect();
    (!texts.is_empty()).then(|| (LogCategory::Store, texts.join("; ")))
}

/// Repairs that were made when the store was opened, as text; data that was cut off had not been acknowledged.
fn mended(recovery: &Recovery) -> Option<String> {
    let torn = recovery.torn.as_ref().map(|torn| {
        let (bytes, file, offset) = (torn.bytes, &torn.file, torn.offset);
        format!("{bytes} bytes of an incomplete write at offset {offset} of {file} were removed")
    });
    let renewed = Some(recovery.renewed).filter(|records| *records > 0);
    let renewed = renewed.map(|records| {
        format!(
            "its last {records} records were written again, since they may not have been synced"
        )
    });
    let parts: Vec<String> = torn.into_iter().chain(renewed).collect();
    let all = parts.join("; ");
    (!all.is_empty()).then(|| format!("the log was not closed cleanly: {all}"))
}

/// A page of a queue that a shard wants to have read.
pub(crate) struct PageRequest {
    pub(crate) session: u64,
    pub(crate) from: u64,
    pub(crate) below: u64,
    /// Is given the page, on the thread that reads it.
    pub(crate) answer: Box<dyn FnOnce(QueuePage) + Send>,
}

impl PageRequest {
    fn read(&self, store: &dyn Store, clock: KeptClock) -> Result<QueuePage, StoreError> {
        QueuePage::read(store, clock, self.session, self.from, self.below)
    }
}

/// Receives notifications of the log thread.
struct ShardNotifier(Weak<DurableLog>);

impl LogObserver for ShardNotifier {
    fn kept(&self, durability: Durability, number: u64) {
        let Some(log) = self.0.upgrade() else { return };
        // The log counts refused batches as done, too; after a failure nothing may count as stored.
        if log.failure().is_some() {
            return;
        }
        log.mark(durability).store(number, Ordering::SeqCst);
        if let Some(events) = log.events() {
            events.kept(durability, number);
        }
    }

    fn refused(&self, _: &[Ticket]) {
        if let Some(log) = self.0.upgrade() {
            // New data were rejected before this; an essential record was refused, so the broker stops.
            log.fail(&StoreError::NoSpace);
        }
    }

    fn has_room(&self) {
        if let Some(events) = self.0.upgrade().and_then(|log| log.events()) {
            events.has_room();
        }
    }

    fn wanted(&self, bytes: u64) {
        if let Some(log) = self.0.upgrade()
            && let Some(events) = log.events()
        {
            share::watch(&*events, &log.share, bytes);
        }
    }

    fn scrubbed(&self, damage: Option<&StoreError>) {
        if let Some(events) = self.0.upgrade().and_then(|log| log.events()) {
            events.scrubbed(damage.map(ToString::to_string));
        }
    }

    fn tiered(&self, stream: &str, problem: Option<&StoreError>) {
        let Some(events) = self.0.upgrade().and_then(|log| log.events()) else {
            return;
        };
        match problem {
            Some(problem) => events.warn(
                LogCategory::Store,
                format!(
                    "stream {stream}: its files stay here until object storage takes them: {problem}"
                ),
            ),
            None => events.say(format!("stream {stream}: its files move to object storage again")),
        }
    }

    fn stopped(&self, error: &StoreError) {
        if let Some(log) = self.0.upgrade() {
            log.fail(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_store::MemoryStore;

    use super::*;
    use crate::durability::ack_queue::{AckQueues, Continuation};
    use crate::shard::{EngineParts, EngineState};

    fn log_over(store: Arc<dyn Store>) -> Arc<DurableLog> {
        let system_time: fn() -> SystemTime = SystemTime::now;
        let clock = KeptClock::begin(system_time(), Instant::now());
        DurableLog::over(
            (store, QueueShare::new(0, 0, u64::MAX)),
            &Recovery::default(),
            (clock, system_time),
            Vec::new(),
        )
    }

    /// The queue continues after a refused batch, and skips its number.
    #[test]
    fn what_was_refused_never_counts_as_kept() {
        let log = log_over(Arc::new(MemoryStore::default()));
        let notifier = ShardNotifier(Arc::downgrade(&log));
        let ticket = |number| Ticket {
            number,
            durability: Durability::Fsync,
        };
        notifier.kept(Durability::Fsync, 1);

        notifier.refused(&[ticket(2)]);
        notifier.kept(Durability::Fsync, 3);

        assert_eq!(log.kept(Durability::Fsync), 1);
        assert!(matches!(log.failure(), Some(StoreError::NoSpace)));
    }

    #[test]
    fn a_sync_wakes_the_shards_that_wait_for_it_and_no_others() {
        let log = log_over(Arc::new(MemoryStore::default()));
        let kept = EngineParts {
            log: Some(Arc::clone(&log)),
            ..EngineParts::default()
        };
        let engine = Arc::new(EngineState::new(&Arc::default(), 3, 1, kept));
        let events: Arc<dyn StoreEvents> = engine.clone();
        log.serve(&events);
        let notifier = ShardNotifier(Arc::downgrade(&log));
        let lines: Vec<AckQueues> = engine.awaited.iter().cloned().map(AckQueues::new).collect();
        for (index, durability) in [(1, Durability::Fsync), (2, Durability::Os)] {
            lines[index].advance_to(5, durability);
            lines[index].push(durability, Continuation::Call(Box::new(|| {})));
        }

        notifier.kept(Durability::Fsync, 4);
        assert!(engine.woken().is_empty());
        notifier.kept(Durability::Fsync, 5);
        assert_eq!(engine.woken(), [1]);
        notifier.kept(Durability::Os, 9);
        assert_eq!(engine.woken(), [2]);

        assert!(lines[1].is_due(&log) && lines[1].next_safe(&log).is_some());
        notifier.kept(Durability::Fsync, 6);
        assert!(engine.woken().is_empty());
    }

    #[test]
    fn only_repairs_are_logged() {
        let torn = mqttcore_store::TornTail {
            file: "1.log".into(),
            offset: 640,
            bytes: 12,
        };
        let mut recovery = Recovery::default();
        assert_eq!(mended(&recovery), None);

        (recovery.torn, recovery.renewed) = (Some(torn), 3);

        assert_eq!(
            mended(&recovery).as_deref(),
            Some(
                "the log was not closed cleanly: 12 bytes of an incomplete write at offset 640 of 1.log were removed; its last 3 records were written again, since they may not have been synced"
            )
        );
    }
}
