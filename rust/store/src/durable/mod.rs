//! The durable store: log, index with checkpoints, and the threads between them.

pub(crate) mod index_thread;
mod rows;
mod serving;

use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::durable::index_thread::{IndexRequest, IndexThread};
use crate::durable::rows::RowThread;
#[cfg(feature = "columnar")]
use crate::durable::rows::StoreSealerContext;
use crate::error::{Damage, StoreError};
use crate::files::{Claim, Files};
use crate::index::{Index, naming};
use crate::scrub::{self, Scrubber};
use crate::stats::Checkpoints;
use crate::store::{Store, StoreStats};
use crate::stream::Streams;
#[cfg(feature = "columnar")]
use crate::stream::{
    StreamError, StreamOptions, sealer::Sealer, sealing::SealRequest, tier_thread::TierThread,
};
use crate::wal::WalOptions;
use crate::wal::commit::Committer;
use crate::wal::identity;
use crate::wal::identity::Meta;
use crate::wal::log::Wal;
use crate::wal::open::{self, LogExpectation, Recovery};
use crate::wal::segment;
use crate::wal::shared::LogShared;
use crate::wal::writing::GroupForwarder;
use mqttcore_panics::Panicked;

/// Options of a durable store.
#[derive(Clone, Copy, Debug)]
pub struct StoreOptions {
    /// Options of the log.
    pub wal: WalOptions,
    /// Memory for reading the checkpoint, in bytes.
    pub cache_bytes: usize,
    /// Bytes of new records after which a checkpoint is written.
    pub checkpoint_bytes: u64,
    /// Changed rows in memory after which a checkpoint is written.
    pub checkpoint_rows: usize,
    /// Bytes of memory that changed rows take after which a checkpoint is written.
    pub checkpoint_row_bytes: usize,
    /// Full segments with live messages that are kept; older ones are compacted.
    pub segments_kept: usize,
}

#[cfg(feature = "faults")]
impl StoreOptions {
    /// Options of a store of a test: small segments, no space kept free, and checkpoints only when it is told to.
    pub const fn small(segment_bytes: u64, segments_kept: usize) -> Self {
        Self {
            wal: WalOptions {
                segment_bytes,
                ballast_bytes: 0,
                soft_bytes: 0,
                queue_bytes: 1 << 20,
            },
            cache_bytes: 1 << 20,
            checkpoint_bytes: u64::MAX,
            checkpoint_rows: usize::MAX,
            checkpoint_row_bytes: usize::MAX,
            segments_kept,
        }
    }
}

impl Default for StoreOptions {
    fn default() -> Self {
        Self {
            wal: WalOptions::default(),
            cache_bytes: 16 << 20,
            checkpoint_bytes: 256 << 20,
            checkpoint_rows: 1_000_000,
            checkpoint_row_bytes: 512 << 20,
            segments_kept: 16,
        }
    }
}

impl StoreOptions {
    /// The default options, with less memory where the whole process may use only `memory_bytes`.
    pub fn within(memory_bytes: usize) -> Self {
        const LEAST: usize = 1 << 20;
        let mut options = Self::default();
        let limit = |bytes: &mut usize, part: usize| {
            *bytes = (*bytes).min((memory_bytes / part).max(LEAST));
        };
        limit(&mut options.cache_bytes, 16);
        limit(&mut options.checkpoint_row_bytes, 8);
        limit(&mut options.wal.queue_bytes, 4);
        options
    }
}

/// The log and its checkpoint in one folder.
pub struct DurableStore {
    files: Arc<dyn Files>,
    wal: Wal,
    index: Arc<Mutex<Index>>,
    requests: Mutex<Option<Sender<IndexRequest>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
    numbers: AtomicU64,
    checkpoints: Arc<Checkpoints>,
    /// The last figures of the index, for when it is locked.
    seen: Mutex<StoreStats>,
    claim: Mutex<Option<Claim>>,
    scrubber: Mutex<Option<Scrubber>>,
    rows: Mutex<Option<JoinHandle<()>>>,
    #[cfg(feature = "columnar")]
    streams: Option<(Arc<Streams>, Sealer)>,
    #[cfg(feature = "columnar")]
    tier: Option<TierThread>,
}

impl fmt::Debug for DurableStore {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("DurableStore")
            .finish_non_exhaustive()
    }
}

impl DurableStore {
    /// Opens the store in `files`, or creates one; claims the folder and starts two threads, and
    /// two more if it has streams.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`], and damage that prevents opening.
    #[cfg(feature = "columnar")]
    pub fn open(
        files: &Arc<dyn Files>,
        options: &StoreOptions,
    ) -> Result<(Self, Recovery), StoreError> {
        Self::open_with(files, options, &StreamOptions::default())
    }

    /// Opens the store in `files`, or creates one; claims the folder and starts two threads.
    ///
    /// # Errors
    ///
    /// [`StoreError::Locked`], damage, and a store with streams, which need the feature
    /// `columnar`.
    #[cfg(not(feature = "columnar"))]
    pub fn open(
        files: &Arc<dyn Files>,
        options: &StoreOptions,
    ) -> Result<(Self, Recovery), StoreError> {
        let claim = claim(&**files)?;
        let (committer, index, recovery) = open_parts(files, options)?;
        crate::stream::refuse(&index)?;
        let store = Self::start(files, options, claim, (committer, index), None)?;
        Ok((store, recovery))
    }

    /// Opens the store in `files` with streams.
    ///
    /// # Errors
    ///
    /// As [`DurableStore::open`]; [`StoreError::Stream`] if the configuration of a stream
    /// contradicts its files, or a stream belongs to another store.
    #[cfg(feature = "columnar")]
    pub fn open_with(
        files: &Arc<dyn Files>,
        options: &StoreOptions,
        streams: &StreamOptions,
    ) -> Result<(Self, Recovery), StoreError> {
        let claim = claim(&**files)?;
        let (mut committer, mut index, recovery) = open_parts(files, options)?;
        let streams = crate::stream::open::open(files, &mut committer, &mut index, streams)?;
        let parts = (committer, index);
        let mut store = Self::start(files, options, claim, parts, streams.clone())?;
        if let Some(streams) = streams {
            let shared = Arc::clone(&store.wal.shared);
            let behind = Box::new(StoreSealerContext {
                shared: Arc::clone(&shared),
                index: Arc::clone(&store.index),
                requests: store.lock_requests().clone(),
            });
            store.tier = TierThread::start(&streams, &shared)?;
            let sealer = Sealer::start(Arc::clone(&streams), shared, behind)?;
            store.streams = Some((streams, sealer));
        }
        Ok((store, recovery))
    }

    /// The streams, if there are any.
    #[cfg(feature = "columnar")]
    pub fn streams(&self) -> Option<Arc<Streams>> {
        let (streams, _) = self.streams.as_ref()?;
        Some(Arc::clone(streams))
    }

    /// Seals the durable rows of a stream; blocks until their files are written.
    ///
    /// # Errors
    ///
    /// [`StreamError::Unknown`], and those of the file system.
    #[cfg(feature = "columnar")]
    pub fn seal(&self, stream: &str) -> Result<(), StreamError> {
        let unknown = || StreamError::Unknown(stream.to_owned());
        let (streams, sealer) = self.streams.as_ref().ok_or_else(unknown)?;
        streams.find(stream).ok_or_else(unknown)?;
        self.wal.shared.catch_up();
        Ok(sealer.seal(SealRequest::Stream(stream.to_owned()))?)
    }

    /// Starts the threads of an opened store.
    fn start(
        files: &Arc<dyn Files>,
        options: &StoreOptions,
        claim: Claim,
        (committer, index): (Committer, Index),
        streams: Option<Arc<Streams>>,
    ) -> Result<Self, StoreError> {
        let numbers = AtomicU64::new(index.next_number);
        let index = Arc::new(Mutex::new(index));
        let (sender, requests) = channel();
        let queue_bytes = options.wal.queue_bytes;
        let (wal, rows) = start_wal(committer, queue_bytes, streams, &sender)?;
        let checkpoints = Arc::new(Checkpoints::begin());
        let behind = IndexThread {
            files: Arc::clone(files),
            shared: Arc::clone(&wal.shared),
            index: Arc::clone(&index),
            options: *options,
            checkpoints: Arc::clone(&checkpoints),
        };
        let on_panic = Arc::clone(&wal.shared).stop_on_panic();
        let thread = spawn("index", on_panic, move || behind.run(&requests))?;
        Ok(Self {
            files: Arc::clone(files),
            wal,
            index,
            requests: Mutex::new(Some(sender)),
            thread: Mutex::new(Some(thread)),
            numbers,
            checkpoints,
            seen: Mutex::default(),
            claim: Mutex::new(Some(claim)),
            rows: Mutex::new(rows),
            scrubber: Mutex::default(),
            #[cfg(feature = "columnar")]
            streams: None,
            #[cfg(feature = "columnar")]
            tier: None,
        })
    }

    /// Starts scrubbing: reads each full segment and the messages in the checkpoint once in
    /// `every`, while no batch waits for the disk, and reports to [`LogObserver::scrubbed`](crate::LogObserver::scrubbed),
    /// until the store is closed.
    ///
    /// # Errors
    ///
    /// The thread cannot be created.
    pub fn scrub_every(&self, every: Duration) -> Result<(), StoreError> {
        let read = scrub::Read {
            files: Arc::clone(&self.files),
            shared: Arc::clone(&self.wal.shared),
            index: Arc::clone(&self.index),
        };
        let scrubber = Scrubber::start(read, every)?;
        let older = self.lock_scrubber().replace(scrubber);
        if let Some(older) = older {
            older.stop();
        }
        Ok(())
    }

    fn lock_scrubber(&self) -> MutexGuard<'_, Option<Scrubber>> {
        self.scrubber.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Verifies the checksums of the next full segment after number `after`; returns its number.
    /// After the last one, verifies the messages in the checkpoint and returns `None`. Takes no
    /// lock while it reads.
    ///
    /// # Errors
    ///
    /// [`StoreError::Damaged`]: a checksum is wrong.
    pub fn scrub(&self, after: u64) -> Result<Option<u64>, StoreError> {
        let full = self.wal.shared.full_segments();
        let Some(place) = full.iter().position(|(number, _)| *number > after) else {
            scrub::check_messages(&self.index, || true)?;
            return Ok(None);
        };
        let (number, last_lsn) = full[place];
        scrub::check(&*self.files, number, last_lsn)?;
        Ok(Some(number))
    }

    fn lock_requests(&self) -> MutexGuard<'_, Option<Sender<IndexRequest>>> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the index after all earlier batches were applied.
    fn index(&self) -> MutexGuard<'_, Index> {
        self.wal.shared.catch_up();
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for DurableStore {
    fn drop(&mut self) {
        // Callers that need the result call `close` first.
        let _ = self.close();
    }
}

/// Claims the folder.
pub(crate) fn claim(files: &dyn Files) -> Result<Claim, StoreError> {
    files.claim().map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => StoreError::Locked,
        _ => StoreError::io("claim", ".", error),
    })
}

/// The parts of an opened store.
pub(crate) type Parts = (Committer, Index, Recovery);

/// Opens the checkpoint, then the log after it. A damaged checkpoint is renamed and rebuilt if
/// the log has all of its records.
pub(crate) fn open_parts(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
) -> Result<Parts, StoreError> {
    open_or_rebuild(files, options).map(|(parts, _)| parts)
}

/// Same as [`open_parts`]; also returns the new name of a damaged checkpoint.
pub(crate) fn open_or_rebuild(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
) -> Result<(Parts, Option<String>), StoreError> {
    let (mut index, meta, damage) = open_checkpoint(files, options.cache_bytes)?;
    let mut known = LogExpectation::begin(options.wal.segment_bytes);
    known.meet(meta, identity::peek(&**files)?);
    index.identify(known.store);
    index.check_segments(&segment::numbers(&**files)?)?;
    let (mut writer, mut recovery) = open::open(files, &known, &mut |logged| index.apply(&logged))?;
    recovery.rebuilt.extend(index.righted());
    if meta.is_none() {
        index.begin_checkpoint()?;
    }
    // Renamed only now: the log must have been read completely first.
    let aside = damage.as_ref().map(|_| naming::replace_damaged(&**files));
    let aside = aside.transpose()?;
    if let Some((damage, aside)) = damage.zip(aside.as_ref()) {
        let rebuilt = format!("{damage}; it was renamed to {aside} and rebuilt from the log");
        recovery.rebuilt.push(rebuilt);
    }
    writer.numbering = index.streams.numbering.clone();
    let committer = Committer::new(writer, (&options.wal).into())?;
    Ok(((committer, index, recovery), aside))
}

/// Opens the checkpoint; returns its metadata, too. If it is damaged and the log begins with LSN
/// 1, returns an empty one, without a name yet, and the damage.
fn open_checkpoint(
    files: &Arc<dyn Files>,
    cache_bytes: usize,
) -> Result<(Index, Option<Meta>, Option<Damage>), StoreError> {
    naming::forget_new(&**files)?;
    let damage = match Index::open(files, cache_bytes) {
        Err(StoreError::Damaged(damage)) => damage,
        opened => return opened.map(|(index, meta)| (index, meta, None)),
    };
    let first_lsn = identity::first_lsn(&**files)?;
    if first_lsn != Some(1) {
        return Err(damage.of(1, first_lsn.map_or(0, |first| first - 1)).into());
    }
    let (index, meta) = Index::open_new(files, cache_bytes)?;
    Ok((index, meta, Some(damage)))
}

/// Starts the log. Written groups go to `index`; if there are streams, through the row thread.
fn start_wal(
    committer: Committer,
    queue_bytes: usize,
    streams: Option<Arc<Streams>>,
    index: &Sender<IndexRequest>,
) -> Result<(Wal, Option<JoinHandle<()>>), StoreError> {
    let (to_rows, groups) = channel();
    let next_thread = if streams.is_some() {
        to_rows
    } else {
        index.clone()
    };
    let wal = Wal::start(committer, queue_bytes, |_| forward_to(next_thread))?;
    let start_rows = |streams| start_rows(streams, groups, index.clone(), &wal.shared);
    let rows = streams.map(start_rows).transpose()?;
    Ok((wal, rows))
}

/// Returns a forwarder that sends written groups to a thread.
fn forward_to(thread: Sender<IndexRequest>) -> GroupForwarder {
    Box::new(move |group, written| {
        // The thread ends before its sender only if it panicked, and then it has stopped the
        // log.
        let _ = thread.send(IndexRequest::Group(group, written));
    })
}

/// Starts the row thread: it copies the rows of each group into their streams and passes the
/// group on.
fn start_rows(
    streams: Arc<Streams>,
    groups: Receiver<IndexRequest>,
    next_thread: Sender<IndexRequest>,
    shared: &Arc<LogShared>,
) -> Result<JoinHandle<()>, StoreError> {
    streams.follow(Arc::clone(&shared.durable_lsn));
    let shared = Arc::clone(shared);
    let on_panic = Arc::clone(&shared).stop_on_panic();
    let intake = RowThread { streams, shared };
    spawn("rows", on_panic, move || intake.run(&groups, &next_thread))
}

pub(crate) fn spawn<T: Send + 'static>(
    name: &str,
    on_panic: impl FnOnce(Panicked) -> T + Send + 'static,
    run: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, StoreError> {
    let thread = mqttcore_panics::spawn(&format!("mqttcore-{name}"), on_panic, run);
    thread.map_err(|error| StoreError::io("start the thread of", name, error))
}
