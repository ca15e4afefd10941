//! All streams of a store, while it is open.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arrow_array::RecordBatch;

use crate::error::StoreError;
use crate::files::Files;
use crate::journal::frame;
use crate::journal::writer::Written;
use crate::record::{Message, Record};
use crate::stream::columnar::{Aliases, ColumnarError, MAX_ROW_BYTES, Origin, telling};
use crate::stream::definition::{Definition, Key};
use crate::stream::error::StreamError;
use crate::stream::history::History;
use crate::stream::manifest::{
    self, ALIASES, HOLDS, Hold, Holds, Identity, KnownAliases, SEALED, Sealed,
};
use crate::stream::row;
use crate::stream::tail::Tail;
use crate::stream::typed::Typed;

/// Which streams there are, and how they are kept.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// The streams that take messages; others that are in the folder can be read only.
    pub definitions: Vec<Definition>,
    /// Sizes and times.
    pub limits: StreamLimits,
}

/// When rows go from memory into files, and how long files stay.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Bytes of rows in memory at which a partition is sealed.
    pub partition_bytes: usize,
    /// Bytes of rows of one file, about.
    pub file_bytes: usize,
    /// Bytes of rows in memory at which all partitions are sealed; at twice as much nothing new
    /// is taken in until they are.
    pub tail_bytes: usize,
    /// Age of the oldest row in memory at which a partition is sealed.
    pub tail_age: Duration,
    /// Bytes of the log at which everything is sealed, so that it can shrink.
    pub log_bytes: u64,
    /// Bytes of a row above which it is refused.
    pub row_bytes: usize,
    /// For how long a consumer that says nothing keeps its rows.
    pub hold: Duration,
    /// How long a file stays that nobody may begin to read any more.
    pub grace: Duration,
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            partition_bytes: 32 << 20,
            file_bytes: 64 << 20,
            tail_bytes: 256 << 20,
            tail_age: Duration::from_secs(15 * 60),
            log_bytes: 1 << 30,
            row_bytes: MAX_ROW_BYTES,
            hold: Duration::from_secs(7 * 86_400),
            grace: Duration::from_secs(3_600),
        }
    }
}

/// Where a partition begins and ends.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Bounds {
    /// The first offset that may be read.
    pub earliest: u64,
    /// The first offset that is in no file.
    pub sealed_end: u64,
    /// Behind the last row that is safe.
    pub end: u64,
}

/// What a reader has to know of a stream.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// Its name.
    pub name: String,
    /// Identifier of the store and a counter: offsets of another epoch mean other rows.
    pub epoch: String,
    /// Seed of the hash that chooses the partition.
    pub seed: u64,
    /// Which messages are its rows.
    pub filters: Vec<String>,
    /// Typed columns, as JSON; `null` without.
    pub schema: String,
    /// Where each partition begins and ends.
    pub partitions: Vec<Bounds>,
}

/// Counters of all streams since the store was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StreamFigures {
    /// Bytes of rows in memory.
    pub tail_bytes: u64,
    /// Files written, merged ones included.
    pub files: u64,
    /// Rows that were refused because they were too large.
    pub refused_rows: u64,
}

/// All streams of a store. May be shared by any number of threads.
#[derive(Debug)]
pub struct Streams {
    pub(super) list: Vec<Stream>,
    numbers: HashMap<u32, usize>,
    limits: StreamLimits,
    /// The log is safe up to this LSN.
    safe_lsn: OnceLock<Arc<AtomicU64>>,
    held_bytes: AtomicUsize,
    pub(super) files: AtomicU64,
    refused_rows: AtomicU64,
    /// Held by whoever writes or removes files.
    pub(super) work: Mutex<()>,
    /// Who waits for memory sleeps on it.
    has_room: (Mutex<()>, Condvar),
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) identity: Identity,
    pub(super) key: Key,
    pub(super) seed: u64,
    pub(super) typed: Typed,
    pub(super) retention_age: Option<Duration>,
    pub(super) retention_bytes: Option<u64>,
    pub(super) folder: Arc<dyn Files>,
    pub(super) partitions: Vec<Mutex<Partition>>,
    pub(super) aliases: Mutex<Known>,
    pub(super) holds: Mutex<Kept>,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) tail: Tail,
    pub(super) history: History,
    /// Files that go, and when: unix milliseconds.
    pub(super) doomed: Vec<(String, u64)>,
}

/// What Sparkplug's aliases mean. Its lock comes before those of partitions.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Where the tail begins.
    pub(super) now: Aliases,
    /// Where it will begin once rows that are in files leave it.
    pub(super) next: Option<Aliases>,
}

/// What consumers still need, and when that was last written.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) holds: Holds,
    written_ms: u64,
}

/// A hold that only moves on is written this seldom.
const HOLDS_WRITTEN_MS: u64 = 10_000;

impl Streams {
    pub(super) fn new(list: Vec<Stream>, limits: StreamLimits) -> Self {
        let numbers = list.iter().enumerate();
        Self {
            numbers: numbers
                .map(|(place, stream)| (stream.identity.id, place))
                .collect(),
            list,
            limits,
            safe_lsn: OnceLock::new(),
            held_bytes: AtomicUsize::new(0),
            files: AtomicU64::new(0),
            refused_rows: AtomicU64::new(0),
            work: Mutex::default(),
            has_room: (Mutex::default(), Condvar::new()),
        }
    }

    /// Follows how far the log is safe.
    pub(crate) fn follow(&self, safe_lsn: Arc<AtomicU64>) {
        // One log has one set of streams.
        let _ = self.safe_lsn.set(safe_lsn);
    }

    /// All names.
    pub fn names(&self) -> Vec<&str> {
        let streams = self.list.iter();
        streams.map(|stream| &*stream.identity.name).collect()
    }

    /// The number of a stream in the log.
    pub fn find(&self, name: &str) -> Option<u32> {
        let stream = self.stream(name).ok()?;
        Some(stream.identity.id)
    }

    /// Returns the partition of a message of about `bytes`; `None` if it is too large for a row,
    /// which is counted, or if there is no such stream.
    pub fn route(&self, stream: u32, topic: &str, client_id: &str, bytes: usize) -> Option<u16> {
        let stream = &self.list[*self.numbers.get(&stream)?];
        if bytes > self.limits.row_bytes {
            // ORDERING: a counter.
            self.refused_rows.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        let partitions = stream.identity.partitions;
        Some(
            stream
                .key
                .partition(stream.seed, partitions, topic, client_id),
        )
    }

    /// Where each partition begins and ends.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`].
    pub fn bounds(&self, name: &str) -> Result<Vec<Bounds>, StreamError> {
        let stream = self.stream(name)?;
        let numbers = 0..stream.identity.partitions;
        Ok(numbers
            .map(|number| self.bounds_of(stream, number))
            .collect())
    }

    /// What a reader has to know of a stream.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`].
    pub fn describe(&self, name: &str) -> Result<Description, StreamError> {
        let stream = self.stream(name)?;
        let schema = serde_json::to_string(&stream.identity.schema);
        Ok(Description {
            name: name.to_owned(),
            epoch: stream.origin().epoch,
            seed: stream.seed,
            filters: stream.identity.filters.clone(),
            // INVARIANT: all keys are texts.
            schema: schema.expect("columns are texts"),
            partitions: self.bounds(name)?,
        })
    }

    /// Which files hold which rows: what `sealed.json` says, as JSON.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`].
    pub fn sealed(&self, name: &str) -> Result<String, StreamError> {
        let sealed = serde_json::to_string(&self.stream(name)?.sealed());
        // INVARIANT: all keys are texts.
        Ok(sealed.expect("a value of texts, numbers and lists"))
    }

    /// Batches with exactly the rows `from..to` of a partition, out of memory.
    ///
    /// # Errors
    ///
    /// [`StreamError::Sealed`] if some of them are in files, [`StreamError::Gone`],
    /// [`StreamError::Beyond`], [`StreamError::Missing`], and those of the arguments.
    pub fn tail(
        &self,
        name: &str,
        partition: u16,
        from: u64,
        to: u64,
    ) -> Result<Vec<RecordBatch>, StreamError> {
        let found = self.stream(name)?;
        let partitions = found.identity.partitions;
        let stream = name.to_owned();
        if from > to {
            let problem = format!("offsets {from} to {to} are no range");
            return Err(StreamError::Argument { stream, problem });
        }
        if partition >= partitions {
            return Err(StreamError::Partition {
                stream,
                partition,
                partitions,
            });
        }
        let known = lock(&found.aliases);
        let mut rows = self.partition(found, partition);
        let (earliest, start, end) = (
            rows.history.earliest,
            rows.tail.start(),
            rows.tail.visible(),
        );
        if to > end {
            return Err(StreamError::Beyond {
                stream,
                partition,
                end,
                to,
            });
        }
        if from < earliest.min(to) {
            let to = to.min(earliest);
            return Err(StreamError::Gone {
                stream,
                partition,
                from,
                to,
                earliest,
            });
        }
        if from < start.min(to) {
            let to = to.min(start);
            return Err(StreamError::Sealed {
                stream,
                partition,
                from,
                to,
            });
        }
        let read = rows.tail.read(from..to);
        let read = read.map_err(|Range { start, end }| StreamError::Missing {
            stream,
            partition,
            from: start,
            to: end,
        })?;
        // Rows that are lost say nothing.
        let before = rows.tail.read(start..from).unwrap_or_default();
        let aliases = known.now.clone();
        drop(rows);
        drop(known);
        let told = told(&before, read, aliases);
        told.map_err(|error| StreamError::Store(found.failed(&error)))
    }

    /// The first offset at or behind a time, in unix microseconds, of each partition; its end
    /// where there is none.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], and those of reading a file.
    pub fn offsets_at(&self, name: &str, timestamp_us: i64) -> Result<Vec<u64>, StreamError> {
        let stream = self.stream(name)?;
        let _work = self.lock_work();
        let at = |number| {
            let mut rows = self.partition(stream, number);
            let sealed = rows.history.at(timestamp_us)?;
            let found = sealed.or_else(|| rows.tail.at(timestamp_us));
            let end = rows.tail.visible();
            Ok(found.map_or(end, |offset| offset.max(rows.history.earliest)))
        };
        (0..stream.identity.partitions).map(at).collect()
    }

    /// Keeps the rows from `offsets` on, one of each partition, for `consumer`; its former hold
    /// ends. The hold ends by itself after seven days in which it is not renewed.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], [`StreamError::Argument`] for offsets that there are not, and
    /// those of the file system.
    pub fn hold(&self, name: &str, consumer: &str, offsets: &[u64]) -> Result<(), StreamError> {
        let stream = self.stream(name)?;
        let bounds = self.bounds(name)?;
        let fits = bounds
            .iter()
            .zip(offsets)
            .all(|(bounds, offset)| *offset <= bounds.end);
        if bounds.len() != offsets.len() || !fits || consumer.is_empty() {
            let problem = format!("it has no offsets {offsets:?} to hold for {consumer:?}");
            let stream = name.to_owned();
            return Err(StreamError::Argument { stream, problem });
        }
        let now_ms = now_us() / 1_000;
        let hold = self.limits.hold.as_millis();
        let hold = Hold {
            offsets: offsets.to_owned(),
            until_ms: now_ms.saturating_add(u64::try_from(hold).unwrap_or(u64::MAX)),
        };
        let mut kept = lock(&stream.holds);
        let is_new = kept.holds.insert(consumer.to_owned(), hold).is_none();
        if is_new || now_ms.saturating_sub(kept.written_ms) >= HOLDS_WRITTEN_MS {
            kept.write(stream, now_ms)?;
        }
        Ok(())
    }

    /// Ends the hold of `consumer`; false if it has none.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], and those of the file system.
    pub fn release(&self, name: &str, consumer: &str) -> Result<bool, StreamError> {
        let stream = self.stream(name)?;
        let mut kept = lock(&stream.holds);
        let is_held = kept.holds.remove(consumer).is_some();
        if is_held {
            kept.write(stream, now_us() / 1_000)?;
        }
        Ok(is_held)
    }

    /// Counters.
    pub fn figures(&self) -> StreamFigures {
        // ORDERING: counters.
        StreamFigures {
            tail_bytes: self.held_bytes.load(Ordering::Relaxed) as u64,
            files: self.files.load(Ordering::Relaxed),
            refused_rows: self.refused_rows.load(Ordering::Relaxed),
        }
    }

    /// Takes in the rows of a group that was written; they are visible once it is safe.
    pub(crate) fn take_in(&self, frames: &[u8], written: &Written) -> Result<(), StoreError> {
        let (mut at, mut touched) = (0, Vec::new());
        while let Some(frame) = frame::split(&frames[at..])
            && frame.commit().is_none()
        {
            if crate::record::is_streamed(frame.kind, frame.flags)
                && let Ok(Record::Message(message)) =
                    Record::decode(frame.kind, frame.flags, frame.body)
            {
                self.add(&message, &mut touched)?;
            }
            at += frame.bytes();
        }
        self.mark(&mut touched, written.last_lsn);
        Ok(())
    }

    /// Adds the rows that a message is; notes which partitions those are.
    pub(super) fn add(
        &self,
        message: &Message<'_>,
        touched: &mut Vec<(usize, u16)>,
    ) -> Result<(), StoreError> {
        let Some(streamed) = &message.streamed else {
            return Ok(());
        };
        let mut properties = Vec::new();
        let row = row::of(message, streamed, &mut properties);
        for place in streamed.rows.iter() {
            let Some(number) = self.numbers.get(&place.stream) else {
                continue;
            };
            let stream = &self.list[*number];
            let Some(partition) = stream.partitions.get(usize::from(place.partition)) else {
                continue;
            };
            let mut partition = lock(partition);
            let before = partition.tail.bytes();
            let pushed = partition
                .tail
                .push(place.offset, &row::at(&row, place.offset));
            pushed.map_err(|error| stream.failed(&error))?;
            let added = partition.tail.bytes() - before;
            // ORDERING: a counter; who waits for it looks again.
            self.held_bytes.fetch_add(added, Ordering::Relaxed);
            if !touched.contains(&(*number, place.partition)) {
                touched.push((*number, place.partition));
            }
        }
        Ok(())
    }

    /// The rows pushed so far into `touched` partitions are safe once the log is, up to `lsn`.
    pub(super) fn mark(&self, touched: &mut Vec<(usize, u16)>, lsn: u64) {
        for (stream, partition) in touched.drain(..) {
            let partition = &self.list[stream].partitions[usize::from(partition)];
            lock(partition).tail.mark(lsn);
        }
    }

    /// Whether more rows are in memory than there should be: the next have to wait.
    pub(crate) fn is_full(&self) -> bool {
        // ORDERING: a counter.
        self.held_bytes.load(Ordering::Relaxed) >= 2 * self.limits.tail_bytes
    }

    /// Sleeps until there is memory for rows, for so long at most.
    pub(crate) fn wait_for_room(&self, limit: Duration) {
        let (mutex, room) = &self.has_room;
        let guard = lock(mutex);
        let waited = room.wait_timeout_while(guard, limit, |()| self.is_full());
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    pub(super) fn give_back(&self, bytes: usize) {
        // ORDERING: a counter.
        self.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        let (mutex, room) = &self.has_room;
        drop(lock(mutex));
        room.notify_all();
    }

    pub(super) fn limits(&self) -> &StreamLimits {
        &self.limits
    }

    pub(super) fn held_bytes(&self) -> usize {
        // ORDERING: a counter.
        self.held_bytes.load(Ordering::Relaxed)
    }

    pub(crate) fn lock_work(&self) -> MutexGuard<'_, ()> {
        lock(&self.work)
    }

    pub(super) fn stream(&self, name: &str) -> Result<&Stream, StreamError> {
        let mut streams = self.list.iter();
        let found = streams.find(|stream| stream.identity.name == name);
        found.ok_or_else(|| StreamError::Unknown(name.to_owned()))
    }

    /// A partition that shows what is safe by now.
    pub(super) fn partition<'s>(
        &self,
        stream: &'s Stream,
        number: u16,
    ) -> MutexGuard<'s, Partition> {
        let mut partition = lock(&stream.partitions[usize::from(number)]);
        // ORDERING: pairs with the release behind the sync.
        let safe_lsn = self
            .safe_lsn
            .get()
            .map_or(0, |lsn| lsn.load(Ordering::Acquire));
        partition.tail.settle(safe_lsn);
        partition
    }

    fn bounds_of(&self, stream: &Stream, number: u16) -> Bounds {
        let partition = self.partition(stream, number);
        Bounds {
            earliest: partition.history.earliest,
            sealed_end: partition.tail.start(),
            end: partition.tail.visible(),
        }
    }
}

impl Stream {
    /// What its files say about where they come from.
    pub(super) fn origin(&self) -> Origin {
        let identity = &self.identity;
        Origin {
            stream: identity.name.clone(),
            epoch: format!("{}:{}", identity.store, identity.epoch),
            schema: identity.schema.as_ref().map_or(0, |schema| schema.version),
        }
    }

    /// Which files there are.
    fn sealed(&self) -> Sealed {
        let mut sealed = Sealed::default();
        for partition in &self.partitions {
            let partition = lock(partition);
            sealed.partitions.push(partition.history.files.clone());
            sealed.earliest.push(partition.history.earliest);
        }
        sealed
    }

    /// Writes which files there are.
    pub(super) fn write_index(&self) -> Result<(), StoreError> {
        manifest::write(&*self.folder, SEALED, &self.sealed())
    }

    /// Writes what Sparkplug's aliases mean behind the rows that are in files.
    pub(super) fn write_aliases(&self, aliases: &Aliases) -> Result<(), StoreError> {
        let ends = self.partitions.iter();
        let known = KnownAliases {
            ends: ends
                .map(|partition| lock(partition).history.end())
                .collect(),
            // INVARIANT: it writes JSON.
            nodes: serde_json::from_str(&aliases.to_json()).expect("JSON"),
        };
        manifest::write(&*self.folder, ALIASES, &known)
    }

    pub(super) fn failed(&self, problem: &impl ToString) -> StoreError {
        StoreError::Stream {
            stream: self.identity.name.clone(),
            problem: problem.to_string().into(),
        }
    }
}

impl Kept {
    pub(super) fn new(holds: Holds) -> Self {
        Self {
            holds,
            written_ms: 0,
        }
    }

    fn write(&mut self, stream: &Stream, now_ms: u64) -> Result<(), StoreError> {
        self.holds.retain(|_, hold| hold.until_ms > now_ms);
        self.written_ms = now_ms;
        manifest::write(&*stream.folder, HOLDS, &self.holds)
    }

    /// The first offset of a partition that somebody holds.
    pub(super) fn floor(&self, partition: usize, now_ms: u64) -> u64 {
        let holds = self.holds.values().filter(|hold| hold.until_ms > now_ms);
        let floors = holds.filter_map(|hold| hold.offsets.get(partition).copied());
        floors.min().unwrap_or(u64::MAX)
    }
}

/// Batches that say what their rows need of Sparkplug's aliases: what was known before the tail, and what it says.
fn told(
    before: &[RecordBatch],
    batches: Vec<RecordBatch>,
    mut aliases: Aliases,
) -> Result<Vec<RecordBatch>, ColumnarError> {
    for batch in before {
        aliases.follow(batch)?;
    }
    telling(batches, aliases)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The time, in unix microseconds.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
