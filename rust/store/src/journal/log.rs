//! The thread that writes the log, and the line in front of it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::batch::Batch;
use crate::error::StoreError;
use crate::files::Files;
use crate::journal::commit::{Committer, Pressure};
use crate::journal::inbox::{Errand, Group, Inbox, Level, Need, Ticket};
use crate::journal::numbering::Numbering;
use crate::journal::open::{Known, Recovery, Visit, open};
use crate::journal::writer::Written;
use crate::stats::LogStats;

/// Hears what becomes of batches. Called on the thread of the log: be quick, and never append.
pub trait Observer: Send + Sync {
    /// Every batch up to `number` that asked for `level` or less is kept, but for those that were
    /// refused, which have been told before.
    fn kept(&self, level: Level, number: u64);

    /// There was no room for these. They have left no trace. If one of them was essential,
    /// [`Observer::stopped`] comes next: what follows would not be true without it.
    fn refused(&self, tickets: &[Ticket]);

    /// [`Journal::has_room`] says yes again. May be called on the thread behind the log.
    fn has_room(&self) {}

    /// A segment that nobody writes to was read again, and is damaged, or whole. Called on the
    /// thread of the scrubber.
    fn scrubbed(&self, _damage: Option<&StoreError>) {}

    /// The store takes nothing any more; whatever was not kept never will be.
    fn stopped(&self, error: &StoreError);
}

/// Does with written groups what comes next; then gives them back with [`Shared::recycle`].
pub(crate) type Forward = Box<dyn FnMut(Group, Option<Written>) + Send>;

/// The log and the thread that writes it. May be shared by any number of threads.
pub struct Journal {
    pub(crate) shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How a log is kept.
#[derive(Clone, Copy, Debug)]
pub struct JournalOptions {
    /// Size of a segment file.
    pub segment_bytes: u64,
    /// Size of the file that is given up when the disk is full; 0 is no reserve.
    pub ballast_bytes: u64,
    /// Free bytes on the disk below which [`Pressure::Soft`] holds; on a small disk a tenth of it.
    pub soft_bytes: u64,
    /// Bytes that may wait for the disk before [`Journal::has_room`] says no.
    pub line_bytes: usize,
}

impl Default for JournalOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 << 20,
            ballast_bytes: 64 << 20,
            soft_bytes: 1 << 30,
            line_bytes: 32 << 20,
        }
    }
}

/// What the thread shares with those who append.
pub(crate) struct Shared {
    inbox: Mutex<Inbox>,
    arrived: Condvar,
    /// Locked by those who sleep until something is settled.
    refused: Mutex<BTreeSet<u64>>,
    settled: Condvar,
    written: AtomicU64,
    durable: AtomicU64,
    /// Those who show rows follow it.
    pub(crate) durable_lsn: Arc<AtomicU64>,
    pressure: AtomicU8,
    stopped: OnceLock<StoreError>,
    observer: OnceLock<Arc<dyn Observer>>,
    stats: Mutex<LogStats>,
    /// The last ticket that whoever comes behind the log has dealt with.
    applied: Mutex<u64>,
    caught_up: Condvar,
    /// Number and last LSN of each full segment.
    full: Mutex<Vec<(u64, u64)>>,
    line_bytes: usize,
}

/// Refused tickets that [`Shared::wait`] remembers.
const REMEMBERED: usize = 65_536;
/// The log syncs what nobody waits for after so long without work.
const IDLE: Duration = Duration::from_secs(1);
/// Rows are seen so long after they were written, if nobody waits for them.
const ROWS_UNSEEN: Duration = Duration::from_millis(50);

impl Journal {
    /// Opens the log in `files`, or begins one, and starts its thread. `visit` sees every record
    /// that is there, in order.
    ///
    /// # Errors
    ///
    /// Whatever keeps the log from being trusted: see [`StoreError`]; and what `visit` returns.
    pub fn open(
        files: &Arc<dyn Files>,
        options: &JournalOptions,
        visit: &mut Visit<'_>,
    ) -> Result<(Self, Recovery), StoreError> {
        let known = Known::begin(options.segment_bytes);
        let mut numbering = Numbering::default();
        let (mut writer, recovery) = open(files, &known, &mut |logged| {
            numbering.observe(&logged.record);
            visit(logged)
        })?;
        writer.numbering = numbering;
        let committer = Committer::new(writer, options.into())?;
        let recycling = |shared: &Arc<Shared>| {
            let shared = Arc::clone(shared);
            Box::new(move |group, _| shared.recycle(group)) as Forward
        };
        let journal = Self::start(committer, options.line_bytes, recycling)?;
        Ok((journal, recovery))
    }

    /// Starts the thread.
    pub(crate) fn start(
        committer: Committer,
        line_bytes: usize,
        forward: impl FnOnce(&Arc<Shared>) -> Forward,
    ) -> Result<Self, StoreError> {
        let shared = Arc::new(Shared::new(line_bytes, committer.writer.durable_lsn));
        let forward = forward(&shared);
        let mut writing = Writing {
            shared: Arc::clone(&shared),
            committer,
            forward,
            rows_due: None,
        };
        let thread = thread::Builder::new().name("mqttcore-log".into());
        let thread = thread.spawn(move || writing.run());
        let thread = thread.map_err(|error| StoreError::io("start the thread of", "log", error))?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Puts a batch into the line and empties it. Never waits.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub fn append(
        &self,
        batch: &mut Batch,
        level: Level,
        need: Need,
    ) -> Result<Ticket, StoreError> {
        self.shared.append(batch, level, need)
    }

    /// Whether the batch is kept; false for one that was refused, too.
    pub fn is_kept(&self, ticket: Ticket) -> bool {
        self.shared.is_kept(ticket)
    }

    /// Sleeps until the batch is kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, [`StoreError::Stopped`].
    pub fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        self.shared.wait(ticket)
    }

    /// Whether less waits for the disk than should; else read nothing new from publishers.
    pub fn has_room(&self) -> bool {
        self.shared.has_room()
    }

    /// How tight the room on the disk is.
    pub fn pressure(&self) -> Pressure {
        self.shared.pressure()
    }

    /// Names who hears what becomes of batches; the first one stays.
    pub fn observe(&self, observer: Arc<dyn Observer>) {
        self.shared.observe(observer);
    }

    /// Removes the full segments up to number `through`, soon: nobody needs them any more.
    pub fn drop_segments(&self, through: u64) {
        self.shared.ask(Box::new(move |committer| {
            committer.writer.drop_up_to(through)?;
            committer.restore()
        }));
    }

    /// Counters, and where the log stands.
    pub fn stats(&self) -> LogStats {
        self.shared.stats()
    }

    /// Whether it goes on.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        self.shared.check()
    }

    /// Writes and syncs everything, and ends the thread. Later calls change nothing.
    ///
    /// # Errors
    ///
    /// What stopped the log, if something did.
    pub fn close(&self) -> Result<(), StoreError> {
        self.shared.lock_inbox().is_closed = true;
        self.shared.arrived.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread
            && thread.join().is_err()
        {
            self.shared.stop(&StoreError::Stopped(
                "the thread of the log panicked".into(),
            ));
        }
        self.shared
            .stopped
            .get()
            .map_or(Ok(()), |error| Err(error.clone()))
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Who wants to know calls `close`.
        let _ = self.close();
    }
}

impl fmt::Debug for Journal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Journal").finish_non_exhaustive()
    }
}

impl Shared {
    fn new(line_bytes: usize, durable_lsn: u64) -> Self {
        Self {
            inbox: Mutex::default(),
            arrived: Condvar::new(),
            refused: Mutex::default(),
            settled: Condvar::new(),
            written: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            durable_lsn: Arc::new(AtomicU64::new(durable_lsn)),
            pressure: AtomicU8::new(0),
            stopped: OnceLock::new(),
            observer: OnceLock::new(),
            stats: Mutex::default(),
            applied: Mutex::default(),
            caught_up: Condvar::new(),
            full: Mutex::default(),
            line_bytes,
        }
    }

    /// Puts a batch into the line and empties it.
    ///
    /// # Errors
    ///
    /// [`StoreError::Stopped`].
    pub(crate) fn append(
        &self,
        batch: &mut Batch,
        level: Level,
        need: Need,
    ) -> Result<Ticket, StoreError> {
        self.check()?;
        let mut inbox = self.lock_inbox();
        if inbox.is_closed {
            return Err(StoreError::Stopped("it was closed".into()));
        }
        let was_empty = inbox.is_empty();
        let ticket = inbox.push(batch, level, need);
        drop(inbox);
        batch.clear();
        if was_empty {
            self.arrived.notify_one();
        }
        Ok(ticket)
    }

    /// Asks the thread of the log for something, between two groups; false if it has ended.
    pub(crate) fn ask(&self, errand: Errand) -> bool {
        let mut inbox = self.lock_inbox();
        if inbox.is_closed {
            return false;
        }
        inbox.errands.push(errand);
        drop(inbox);
        self.arrived.notify_one();
        true
    }

    /// Asks the thread of the log for an answer, and sleeps until it comes; none comes when the
    /// log has ended.
    pub(crate) fn ask_for<T: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Committer) -> Result<T, StoreError> + Send + 'static,
    ) -> Option<T> {
        let (sender, answer) = channel();
        let is_asked = self.ask(Box::new(move |committer| {
            // Who asked is waiting.
            let _ = sender.send(question(committer)?);
            Ok(())
        }));
        if is_asked { answer.recv().ok() } else { None }
    }

    /// Whether the line has room; a hint, since `append` takes what must be taken.
    pub(crate) fn has_room(&self) -> bool {
        self.lock_inbox().bytes < self.line_bytes
    }

    /// Whether anybody waits for the disk.
    pub(crate) fn is_busy(&self) -> bool {
        self.lock_inbox().bytes > 0
    }

    pub(crate) fn scrubbed(&self, damage: Option<&StoreError>) {
        if let Some(observer) = self.observer.get() {
            observer.scrubbed(damage);
        }
    }

    /// Whether the batch is kept; `false` for one that was refused, too.
    pub(crate) fn is_kept(&self, ticket: Ticket) -> bool {
        let reached = ticket.number <= self.reached(ticket.level);
        reached && !self.lock_refused().contains(&ticket.number)
    }

    /// Sleeps until the batch is kept.
    ///
    /// # Errors
    ///
    /// [`StoreError::NoSpace`] if it was refused, or what stopped the store.
    pub(crate) fn wait(&self, ticket: Ticket) -> Result<(), StoreError> {
        let mut refused = self.lock_refused();
        loop {
            if refused.contains(&ticket.number) {
                return Err(StoreError::NoSpace);
            }
            if ticket.number <= self.reached(ticket.level) {
                return Ok(());
            }
            self.check()?;
            refused = self
                .settled
                .wait(refused)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn observe(&self, observer: Arc<dyn Observer>) {
        // The first one stays.
        let _ = self.observer.set(observer);
    }

    pub(crate) fn durable_lsn(&self) -> u64 {
        // ORDERING: whoever sees the number may read what is below it from the disk only.
        self.durable_lsn.load(Ordering::Acquire)
    }

    pub(crate) fn pressure(&self) -> Pressure {
        // ORDERING: a hint.
        match self.pressure.load(Ordering::Relaxed) {
            0 => Pressure::None,
            1 => Pressure::Soft,
            _ => Pressure::Hard,
        }
    }

    pub(crate) fn stats(&self) -> LogStats {
        let mut stats = self.lock_stats().clone();
        stats.durable_lsn = self.durable_lsn();
        stats.waiting_bytes = self.lock_inbox().bytes as u64;
        stats
    }

    /// Number and last LSN of each full segment, oldest first.
    pub(crate) fn full_segments(&self) -> Vec<(u64, u64)> {
        self.full
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Takes a group back that was dealt with.
    pub(crate) fn recycle(&self, group: Group) {
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = group.last_ticket;
        self.caught_up.notify_all();
        let mut inbox = self.lock_inbox();
        let was_full = inbox.bytes >= self.line_bytes;
        inbox.recycle(group);
        let is_full = inbox.bytes >= self.line_bytes;
        drop(inbox);
        if was_full
            && !is_full
            && let Some(observer) = self.observer.get()
        {
            observer.has_room();
        }
    }

    /// Sleeps until everything that was appended before has been dealt with.
    pub(crate) fn catch_up(&self) {
        let appended = self.lock_inbox().last_ticket;
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        while *applied < appended && self.check().is_ok() {
            applied = self
                .caught_up
                .wait(applied)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.stopped.get() {
            Some(error) => Err(StoreError::Stopped(error.to_string().into())),
            None => Ok(()),
        }
    }

    /// Takes nothing any more.
    pub(crate) fn stop(&self, error: &StoreError) {
        if self.stopped.set(error.clone()).is_ok()
            && let Some(observer) = self.observer.get()
        {
            observer.stopped(error);
        }
        // Nobody does what was asked for any more; who waits for an answer hears that.
        let mut inbox = self.lock_inbox();
        inbox.is_closed = true;
        let errands = std::mem::take(&mut inbox.errands);
        drop(inbox);
        drop(errands);
        self.arrived.notify_one();
        drop(self.lock_refused());
        self.settled.notify_all();
        drop(self.applied.lock().unwrap_or_else(PoisonError::into_inner));
        self.caught_up.notify_all();
    }

    fn reached(&self, level: Level) -> u64 {
        // ORDERING: pairs with the release in `publish`.
        match level {
            Level::Memory => u64::MAX,
            Level::Os => self.written.load(Ordering::Acquire),
            Level::Fsync => self.durable.load(Ordering::Acquire),
        }
    }

    fn publish(&self, level: Level, number: u64) {
        let mark = if level == Level::Fsync {
            &self.durable
        } else {
            &self.written
        };
        // ORDERING: what was written or synced happened before.
        mark.store(number, Ordering::Release);
        if let Some(observer) = self.observer.get() {
            observer.kept(level, number);
        }
        // Whoever looked before is asleep by now.
        drop(self.lock_refused());
        self.settled.notify_all();
    }

    fn refuse(&self, tickets: &[Ticket]) {
        if tickets.is_empty() {
            return;
        }
        let mut refused = self.lock_refused();
        refused.extend(tickets.iter().map(|ticket| ticket.number));
        while refused.len() > REMEMBERED {
            refused.pop_first();
        }
        drop(refused);
        self.lock_stats().refused_batches += tickets.len() as u64;
        if let Some(observer) = self.observer.get() {
            observer.refused(tickets);
        }
    }

    fn lock_inbox(&self) -> MutexGuard<'_, Inbox> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_refused(&self) -> MutexGuard<'_, BTreeSet<u64>> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_stats(&self) -> MutexGuard<'_, LogStats> {
        self.stats.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The thread's own part.
struct Writing {
    shared: Arc<Shared>,
    committer: Committer,
    forward: Forward,
    /// When rows that were written and not synced are to be.
    rows_due: Option<Instant>,
}

/// What there is to do.
enum Work {
    Group(Group),
    Errands(Vec<Errand>),
    Idle,
    Rows,
    End,
}

impl Writing {
    fn run(&mut self) {
        self.note_segments();
        let mut is_settled = true;
        loop {
            let done = match self.next(is_settled) {
                Work::Group(group) => {
                    is_settled = false;
                    self.commit(group)
                }
                Work::Errands(errands) => self.run_errands(errands),
                Work::Rows => self.sync_written(),
                Work::Idle if is_settled => self.look_for_room(),
                Work::Idle => {
                    is_settled = true;
                    self.settle()
                }
                Work::End => {
                    if let Err(error) = self.settle() {
                        self.shared.stop(&error);
                    }
                    return;
                }
            };
            if let Err(error) = done {
                self.shared.stop(&error);
                return;
            }
        }
    }

    /// Sleeps until there is something to do; with nothing to settle as long as it takes.
    fn next(&self, is_settled: bool) -> Work {
        let shared = &*self.shared;
        let mut inbox = shared.lock_inbox();
        loop {
            if !inbox.errands.is_empty() {
                return Work::Errands(std::mem::take(&mut inbox.errands));
            }
            if let Some(group) = inbox.pop() {
                return Work::Group(group);
            }
            if inbox.is_closed {
                return Work::End;
            }
            // Nobody tells when a disk that is full has room again.
            let is_watched = shared.pressure() > Pressure::None;
            if is_settled && !is_watched {
                inbox = shared
                    .arrived
                    .wait(inbox)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let due = self
                .rows_due
                .map(|due| due.saturating_duration_since(Instant::now()));
            let (woken, timeout) = shared
                .arrived
                .wait_timeout(inbox, due.unwrap_or(IDLE))
                .unwrap_or_else(PoisonError::into_inner);
            inbox = woken;
            if timeout.timed_out() && inbox.is_empty() {
                return if due.is_some() {
                    Work::Rows
                } else {
                    Work::Idle
                };
            }
        }
    }

    fn commit(&mut self, mut group: Group) -> Result<(), StoreError> {
        let last = group.last_ticket;
        let level = group.level();
        let segment = self.committer.writer.current.header.number;
        let essential = group.essential();
        let (written, refused) = self.committer.write(&mut group)?;
        // Who hears of a refusal sees why.
        let is_rolled = segment != self.committer.writer.current.header.number;
        if is_rolled || !refused.is_empty() {
            self.note_segments();
        }
        self.shared.refuse(&refused);
        if group.essential() < essential {
            // What comes behind it says what it says because of it.
            return Err(StoreError::NoSpace);
        }
        self.note_written(&group, written.as_ref());
        self.shared.publish(Level::Os, last);
        if written.is_some_and(|written| written.has_rows) {
            self.rows_due
                .get_or_insert_with(|| Instant::now() + ROWS_UNSEEN);
        }
        if level == Level::Fsync || self.rows_due.is_some_and(|due| due <= Instant::now()) {
            self.sync(last)?;
        }
        (self.forward)(group, written);
        Ok(())
    }

    fn sync(&mut self, number: u64) -> Result<(), StoreError> {
        let began = Instant::now();
        self.committer.writer.sync()?;
        self.rows_due = None;
        self.shared.lock_stats().syncs.add(began.elapsed());
        // ORDERING: the sync happened before.
        self.shared
            .durable_lsn
            .store(self.committer.writer.durable_lsn, Ordering::Release);
        self.shared.publish(Level::Fsync, number);
        Ok(())
    }

    /// Nobody waits: makes safe what is not yet, and says so in the log.
    fn settle(&mut self) -> Result<(), StoreError> {
        self.sync_written()?;
        self.committer.writer.testify()?;
        self.committer.writer.sync()?;
        self.committer.restore()?;
        self.note_pressure();
        Ok(())
    }

    /// Makes everything safe that is written.
    fn sync_written(&mut self) -> Result<(), StoreError> {
        // ORDERING: this thread wrote it.
        let last = self.shared.written.load(Ordering::Relaxed);
        self.sync(last)
    }

    /// Nobody has told whether there is room again.
    fn look_for_room(&mut self) -> Result<(), StoreError> {
        self.committer.restore()?;
        self.note_pressure();
        Ok(())
    }

    fn run_errands(&mut self, errands: Vec<Errand>) -> Result<(), StoreError> {
        for errand in errands {
            errand(&mut self.committer)?;
        }
        self.note_segments();
        Ok(())
    }

    fn note_written(&self, group: &Group, written: Option<&Written>) {
        let Some(written) = written else { return };
        let mut stats = self.shared.lock_stats();
        stats.groups += 1;
        stats.records += u64::from(group.records);
        stats.batches += group.marks.len() as u64;
        stats.bytes += group.bytes.len() as u64;
        stats.last_lsn = written.last_lsn;
    }

    fn note_segments(&self) {
        let writer = &self.committer.writer;
        let older: u64 = writer.older.iter().map(|segment| segment.bytes).sum();
        let mut stats = self.shared.lock_stats();
        stats.segments = writer.older.len() as u64 + 1;
        stats.log_bytes = older + writer.current.bytes;
        drop(stats);
        let full = self.committer.writer.older.iter();
        let full = full.map(|past| (past.number, past.last_lsn)).collect();
        *self
            .shared
            .full
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = full;
        self.note_pressure();
    }

    fn note_pressure(&self) {
        // A disk that cannot be measured shows it at the next write.
        let pressure = self.committer.pressure().unwrap_or(Pressure::Hard);
        // ORDERING: a hint.
        self.shared
            .pressure
            .store(pressure as u8, Ordering::Relaxed);
    }
}
