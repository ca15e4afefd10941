//! The open streams of a store.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::error::StoreError;
use crate::files::Files;
use crate::record::{MessageRecord, Record};
use crate::stream::definition::{Definition, PartitionKey};
use crate::stream::error::StreamError;
use crate::stream::file_index::FileIndex;
use crate::stream::history::History;
use crate::stream::holds::HoldTable;
use crate::stream::manifest::{self, ALIASES, KnownAliases, Sealed, StreamIdentity};
use crate::stream::row;
use crate::stream::tail::Tail;
use crate::stream::tier::StreamTier;
use crate::stream::typed::Typed;
use crate::wal::frame;
use crate::wal::writer::WrittenGroup;
use mqttcore_columnar::{MAX_ROW_BYTES, MetricAliases, Origin};

/// The streams of a store and their limits.
#[derive(Clone, Debug, Default)]
pub struct StreamOptions {
    /// Streams that take messages; other streams in the folder are read-only.
    pub definitions: Vec<Definition>,
    /// Sizes and times.
    pub limits: StreamLimits,
}

/// Limits for sealing rows into files and for removing files.
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Bytes of rows in memory at which a partition is sealed.
    pub partition_bytes: usize,
    /// Approximate size of the rows in one file, in bytes.
    pub file_bytes: usize,
    /// Bytes of rows in memory at which all partitions are sealed; at twice as many, new rows wait until they are.
    pub tail_bytes: usize,
    /// Age of the oldest row in memory at which a partition is sealed.
    pub tail_age: Duration,
    /// Size of the log in bytes at which all partitions are sealed, so that the log can shrink.
    pub log_bytes: u64,
    /// Size in bytes above which a row is rejected.
    pub row_bytes: usize,
    /// Size in bytes of a file that is not merged any more.
    pub merged_bytes: u64,
    /// Age from which on a sealed file may be merged; files of a partition that has many of them are merged earlier.
    pub merge_age: Duration,
    /// How long a file stays after retention has given it up.
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
            merged_bytes: 64 << 20,
            merge_age: Duration::from_secs(60),
            grace: Duration::from_secs(3_600),
        }
    }
}

/// Kept time: a clock that does not jump with the system's clock (ADR 0022).
pub trait KeptTime: fmt::Debug + Send + Sync {
    /// The current time in Unix microseconds. It does not decrease while the store is open.
    fn now_us(&self) -> u64;
}

/// Counters of all streams since the store was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StreamFigures {
    /// Bytes of rows in memory.
    pub tail_bytes: u64,
    /// Number of files written, merged ones included.
    pub files: u64,
    /// Number of rows that were rejected because they were too large.
    pub refused_rows: u64,
}

/// All streams of a store, for any number of threads.
#[derive(Debug)]
pub struct Streams {
    pub(super) list: Vec<Stream>,
    numbers: HashMap<u32, usize>,
    limits: StreamLimits,
    /// LSN up to which the log is safe.
    safe_lsn: OnceLock<Arc<AtomicU64>>,
    /// Clock for retention and holds.
    time: OnceLock<Arc<dyn KeptTime>>,
    held_bytes: AtomicUsize,
    pub(super) files: AtomicU64,
    refused_rows: AtomicU64,
    /// Locked while files are written or removed.
    pub(super) work: Mutex<()>,
    /// Whether the thread that uploads was left behind by a stop; changed while `work` is locked.
    pub(super) are_tiers_left: AtomicBool,
    /// Notified when memory for rows becomes free.
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
    pub(super) index: FileIndex,
    /// Object storage for its files.
    pub(super) tier: Option<Arc<StreamTier>>,
    /// URL of the folder of the files' objects, also if it is not configured any more.
    pub(super) tier_url: Option<String>,
    /// Number of the rows that were restored from object storage at this start.
    pub(super) restored_rows: Option<u64>,
    pub(super) partitions: Vec<Mutex<Partition>>,
    pub(super) aliases: Mutex<KnownMetrics>,
    pub(super) holds: Mutex<HoldTable>,
    /// Whether it takes messages.
    pub(super) is_configured: bool,
    /// The filters that it had before this start, if they were others.
    pub(super) old_filters: Option<Vec<String>>,
}

/// One partition.
#[derive(Debug)]
pub(super) struct Partition {
    pub(super) tail: Tail,
    pub(super) history: History,
    /// Files to remove, with the time of removal: kept time in Unix milliseconds.
    pub(super) to_remove: Vec<(String, u64)>,
}

/// Sparkplug aliases. Lock order: before the partitions.
#[derive(Debug, Default)]
pub(super) struct KnownMetrics {
    /// Aliases at the beginning of the tail.
    pub(super) now: MetricAliases,
    /// Aliases at the future beginning of the tail, when rows that are in files are removed from it.
    pub(super) next: Option<MetricAliases>,
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
            are_tiers_left: AtomicBool::new(false),
            has_room: (Mutex::default(), Condvar::new()),
        }
    }

    /// Sets the source of the safe LSN.
    pub(crate) fn follow(&self, safe_lsn: Arc<AtomicU64>) {
        // A store has one log, so this is called once.
        let _ = self.safe_lsn.set(safe_lsn);
    }

    /// Sets the clock for the age of files and holds. Without a clock no file is removed and holds do not expire.
    pub fn count_by(&self, time: Arc<dyn KeptTime>) {
        // A store has one clock, so this is called once.
        let _ = self.time.set(time);
    }

    /// Kept time in Unix microseconds; `None` without a clock.
    pub(super) fn kept_us(&self) -> Option<u64> {
        Some(self.time.get()?.now_us())
    }

    /// Names of all streams.
    pub fn names(&self) -> Vec<&str> {
        let streams = self.list.iter();
        streams.map(|stream| &*stream.identity.name).collect()
    }

    /// Notes for operators about streams whose configuration changed.
    pub fn notices(&self) -> Vec<String> {
        let streams = self.list.iter();
        let told =
            streams.flat_map(|stream| stream.notice().into_iter().chain(stream.tier_notice()));
        told.collect()
    }

    /// The number of a stream in the log.
    pub fn find(&self, name: &str) -> Option<u32> {
        let stream = self.stream(name).ok()?;
        Some(stream.identity.id)
    }

    /// The partition of a message of about `bytes`. `None` if there is no such stream, or if the message is too large
    /// for a row; such rows are counted.
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

    /// Returns the counters.
    pub fn figures(&self) -> StreamFigures {
        // ORDERING: counters.
        StreamFigures {
            tail_bytes: self.held_bytes.load(Ordering::Relaxed) as u64,
            files: self.files.load(Ordering::Relaxed),
            refused_rows: self.refused_rows.load(Ordering::Relaxed),
        }
    }

    /// Adds the rows of a written group; they become visible when the group is safe.
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

    /// Adds the rows of a message; appends their partitions to `touched`.
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
            // ORDERING: a counter; a waiter checks it again.
            self.held_bytes.fetch_add(added, Ordering::Relaxed);
            if !touched.contains(&(*number, place.partition)) {
                touched.push((*number, place.partition));
            }
        }
        Ok(())
    }

    /// The rows so far in the `touched` partitions are safe once the log is safe up to `lsn`.
    pub(super) fn mark(&self, touched: &mut Vec<(usize, u16)>, lsn: u64) {
        for (stream, partition) in touched.drain(..) {
            let partition = &self.list[stream].partitions[usize::from(partition)];
            lock(partition).tail.mark(lsn);
        }
    }

    /// Whether memory for rows is exhausted: new rows must wait.
    pub(crate) fn is_full(&self) -> bool {
        // ORDERING: a counter.
        self.held_bytes.load(Ordering::Relaxed) >= 2 * self.limits.tail_bytes
    }

    /// Blocks until there is memory for rows, up to `limit`.
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

    /// Locks a partition after making safe rows visible.
    pub(super) fn partition<'s>(
        &self,
        stream: &'s Stream,
        number: u16,
    ) -> MutexGuard<'s, Partition> {
        let mut partition = lock(&stream.partitions[usize::from(number)]);
        partition.tail.mark_safe(self.safe_lsn());
        partition
    }

    /// LSN up to which the log is safe.
    pub(super) fn safe_lsn(&self) -> u64 {
        let safe_lsn = self.safe_lsn.get();
        // ORDERING: pairs with the release store after the sync.
        safe_lsn.map_or(0, |lsn| lsn.load(Ordering::Acquire))
    }
}

impl Stream {
    /// Metadata for the stream's files about their origin.
    pub(super) fn origin(&self) -> Origin {
        let identity = &self.identity;
        Origin {
            stream: identity.name.clone(),
            epoch: format!("{}:{}", identity.store, identity.epoch),
            schema: identity.schema.as_ref().map_or(0, |schema| schema.version),
        }
    }

    /// The file index: files and earliest offset of each partition.
    pub(super) fn sealed(&self) -> Sealed {
        let mut sealed = Sealed {
            tier: self.tier_url.clone(),
            ..Sealed::default()
        };
        for partition in &self.partitions {
            let partition = lock(partition);
            sealed.partitions.push(partition.history.files.clone());
            sealed.earliest.push(partition.history.earliest);
        }
        sealed
    }

    /// A note for operators if its configuration changed.
    fn notice(&self) -> Option<String> {
        let name = &self.identity.name;
        if let Some(rows) = self.restored_rows {
            return Some(format!(
                "stream {name}: its folder was missing; {rows} rows were restored from object storage. Rows that were \
                 not uploaded are lost, so it has another epoch: queries that read it begin anew"
            ));
        }
        if let Some(old) = &self.old_filters {
            let new = &self.identity.filters;
            return Some(format!(
                "stream {name}: its filters were {old:?} and are {new:?} from now on; its rows stay"
            ));
        }
        if self.is_configured {
            return None;
        }
        let sealed = self.sealed();
        let files = sealed.partitions.iter().flatten();
        let files: Vec<_> = files.filter(|file| !file.is_remote).collect();
        let bytes: u64 = files.iter().map(|file| file.bytes).sum();
        let holders: Vec<String> = lock(&self.holds).holds.keys().cloned().collect();
        let held = match holders.join(", ") {
            none if none.is_empty() => String::new(),
            some => format!(", held by {some}"),
        };
        Some(format!(
            "stream {name}: it is not configured, so it takes no messages and nothing of it is deleted: {} files with \
             {bytes} bytes stay in streams/{name}{held}. Configure it again, or remove that folder while the broker \
             is stopped",
            files.len()
        ))
    }

    /// A note for operators if it has objects and no object storage any more.
    fn tier_notice(&self) -> Option<String> {
        let (None, Some(url)) = (&self.tier, &self.tier_url) else {
            return None;
        };
        let sealed = self.sealed();
        let files = sealed.partitions.iter().flatten();
        let remote = files.filter(|file| file.is_remote).count();
        let objects = sealed.objects().count();
        if objects == 0 {
            return None;
        }
        let name = &self.identity.name;
        let root = url.strip_suffix(&format!("/{name}/data")).unwrap_or(url);
        Some(format!(
            "stream {name}: it has no [streams.tier] any more, and {objects} objects in {url}. {remote} of its files are \
             there only: their rows cannot be read. Nothing removes the objects. Set url = \"{root}\" in its \
             [streams.tier] again, or, if the stream is given up, remove {root}/{name}, too"
        ))
    }

    /// Writes the file index in any case.
    pub(super) fn write_index(&self) -> Result<(), StoreError> {
        self.index.write(self.sealed())
    }

    /// Writes the Sparkplug aliases at the end of the rows in files.
    pub(super) fn write_aliases(&self, aliases: &MetricAliases) -> Result<(), StoreError> {
        let ends = self.partitions.iter();
        let known = KnownAliases {
            ends: ends
                .map(|partition| lock(partition).history.end_offset())
                .collect(),
            // INVARIANT: `to_json` writes JSON.
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

/// The system's clock in Unix microseconds.
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
