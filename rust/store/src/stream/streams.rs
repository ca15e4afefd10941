//! The open streams of a store.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::StoreError;
use crate::files::Files;
use crate::record::{MessageRecord, Record};
use crate::stream::definition::{Definition, PartitionKey};
use crate::stream::error::StreamError;
use crate::stream::history::History;
use crate::stream::holds::HoldTable;
use crate::stream::manifest::{self, ALIASES, KnownAliases, SEALED, Sealed, StreamIdentity};
use crate::stream::row;
use crate::stream::tail::Tail;
use crate::stream::typed::Typed;
use crate::wal::frame;
use crate::wal::writer::WrittenGroup;
use mqttcore_columnar::{Aliases, MAX_ROW_BYTES, Origin};

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
            grace: Duration::from_secs(3_600),
        }
    }
}

/// Kept time, which does not step with the system's clock (ADR 0022).
pub trait KeptTime: fmt::Debug + Send + Sync {
    /// Now, in unix microseconds. It does not go back as long as the store is open.
    fn now_us(&self) -> u64;
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
    /// Retention and holds count by it.
    time: OnceLock<Arc<dyn KeptTime>>,
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
    pub(super) identity: StreamIdentity,
    pub(super) key: PartitionKey,
    pub(super) seed: u64,
    pub(super) typed: Typed,
    pub(super) retention_age: Option<Duration>,
    pub(super) retention_bytes: Option<u64>,
    pub(super) hold_max: Duration,
    pub(super) folder: Arc<dyn Files>,
    pub(super) partitions: Vec<Mutex<Partition>>,
    pub(super) aliases: Mutex<KnownMetrics>,
    pub(super) holds: Mutex<HoldTable>,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) tail: Tail,
    pub(super) history: History,
    /// Files that go, and when: kept time in unix milliseconds.
    pub(super) doomed: Vec<(String, u64)>,
}

/// What Sparkplug's aliases mean. Its lock comes before those of partitions.
#[derive(Debug, Default)]
pub(super) struct KnownMetrics {
    /// Where the tail begins.
    pub(super) now: Aliases,
    /// Where it will begin once rows that are in files leave it.
    pub(super) next: Option<Aliases>,
}

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
            time: OnceLock::new(),
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

    /// Counts the age of files and holds by `time`. Before this is called no file is given up, and a hold lasts.
    pub fn count_by(&self, time: Arc<dyn KeptTime>) {
        // One store has one clock.
        let _ = self.time.set(time);
    }

    /// Kept time, in unix microseconds; `None` if there is no clock yet.
    pub(super) fn kept_us(&self) -> Option<u64> {
        Some(self.time.get()?.now_us())
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
    pub(crate) fn take_in(&self, frames: &[u8], written: &WrittenGroup) -> Result<(), StoreError> {
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
        message: &MessageRecord<'_>,
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
        partition.tail.settle(self.safe_lsn());
        partition
    }

    /// The log is safe up to here.
    pub(super) fn safe_lsn(&self) -> u64 {
        let safe_lsn = self.safe_lsn.get();
        // ORDERING: pairs with the release behind the sync.
        safe_lsn.map_or(0, |lsn| lsn.load(Ordering::Acquire))
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
    pub(super) fn sealed(&self) -> Sealed {
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

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What the system's clock says, in unix microseconds.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
