//! Tools for a store that is not in use: info, verify, copy, repair.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::backup::{Copy, CopyProgress};
use crate::durable::{StoreOptions, claim};
use crate::error::StoreError;
use crate::files::Files;
use crate::index::{Index, bodies, tables};
pub use crate::repair::{Repair, repair};
pub use crate::stats::StreamInfo;
use crate::wal::identity;
use crate::wal::open::{self, LogExpectation, RecordVisitor, Recovery};
use crate::wal::segment;

/// The content of a store.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Info {
    /// Its identifier, as hexadecimal digits.
    pub store: String,
    /// Segment files of the log.
    pub segments: u64,
    /// Their bytes.
    pub log_bytes: u64,
    /// Records up to here are in the checkpoint.
    pub applied_lsn: u64,
    /// The last record of the log.
    pub last_lsn: u64,
    /// Sessions, dead ones excluded.
    pub sessions: u64,
    /// Subscriptions of all of them.
    pub subscriptions: u64,
    /// Messages that wait for them.
    pub queued: u64,
    /// Messages in flight to them.
    pub in_flight: u64,
    /// Topics with a retained message.
    pub retained: u64,
    /// Messages that something refers to and whose content was read, with every checksum.
    pub messages: u64,
    /// The torn tail that opening would cut off.
    pub torn: Option<crate::TornTail>,
    /// Damage that opening would repair without loss, one sentence each.
    pub rebuilt: Vec<String>,
    /// Its streams.
    pub streams: Vec<StreamInfo>,
}

/// Reads all of a store, log, messages and rows, and changes nothing in it.
///
/// # Errors
///
/// [`StoreError::Locked`], [`StoreError::Missing`], [`StoreError::Damaged`] with the first damage,
/// [`StoreError::Stream`] for rows that are missing.
pub fn verify(files: &Arc<dyn Files>) -> Result<Info, StoreError> {
    let _claim = claim(&**files)?;
    read_all(files)
}

pub(crate) fn read_all(files: &Arc<dyn Files>) -> Result<Info, StoreError> {
    let (mut index, recovery, log) = look(files)?;
    let mut info = describe(&index, &recovery, &log)?;
    for message in wanted(&index)?.into_keys() {
        let found = index.message(message)?;
        found.ok_or_else(|| {
            StoreError::Checkpoint(format!("message {message} is missing").into())
        })?;
        info.messages += 1;
    }
    // Those that nobody refers to are gone with the next checkpoint; what is rotten is rotten.
    let checked = bodies::check(&index.database(), || true);
    checked.map_err(|error| match error {
        StoreError::Damaged(damage) => index.explain(damage.offset, damage.into()),
        error => error,
    })?;
    info.streams = look_at_streams(files, &index, true)?;
    Ok(info)
}

#[cfg(feature = "columnar")]
use crate::stream::look::describe as look_at_streams;

#[cfg(not(feature = "columnar"))]
fn look_at_streams(
    _: &Arc<dyn Files>,
    index: &Index,
    _: bool,
) -> Result<Vec<StreamInfo>, StoreError> {
    crate::stream::refuse(index).map(|()| Vec::new())
}

/// Writes all rows of a store into files, so that they can be read without a broker; returns the resulting state of
/// the streams.
///
/// # Errors
///
/// As [`verify`], and those of writing files.
#[cfg(feature = "columnar")]
pub fn seal(files: &Arc<dyn Files>, options: &StoreOptions) -> Result<Vec<StreamInfo>, StoreError> {
    must_be_there(&**files)?;
    let (store, _) = crate::DurableStore::open(files, options)?;
    let streams = store.streams();
    for stream in streams.iter().flat_map(|streams| streams.names()) {
        let sealed = store.seal(stream);
        sealed.map_err(|error| match error {
            crate::stream::StreamError::Store(error) => error,
            error => StoreError::Stream {
                stream: stream.to_owned(),
                problem: error.to_string().into(),
            },
        })?;
    }
    crate::Store::close(&store)?;
    info(files).map(|info| info.streams)
}

/// Describes the content of a store, without reading messages.
///
/// # Errors
///
/// As [`verify`].
pub fn info(files: &Arc<dyn Files>) -> Result<Info, StoreError> {
    let _claim = claim(&**files)?;
    let (index, recovery, log) = look(files)?;
    let mut info = describe(&index, &recovery, &log)?;
    info.streams = look_at_streams(files, &index, false)?;
    Ok(info)
}

/// Calls `visit` for every record of the log, including those in the checkpoint.
///
/// # Errors
///
/// As [`verify`], and what `visit` returns.
pub fn dump(files: &Arc<dyn Files>, visit: &mut RecordVisitor<'_>) -> Result<Recovery, StoreError> {
    let _claim = claim(&**files)?;
    let (_, known) = begin(files)?;
    open::open(files, &known, visit).map(|(_, recovery)| recovery)
}

/// Copies a store into an empty folder; returns the bytes copied.
///
/// # Errors
///
/// [`StoreError::Locked`], [`StoreError::Missing`], and those of the file system.
pub fn backup(
    files: &Arc<dyn Files>,
    to: &dyn Files,
    progress: &CopyProgress,
) -> Result<u64, StoreError> {
    let _claim = claim(&**files)?;
    let mut copy = Copy::begin(&**files, to, progress);
    // The last segment goes on in both, the others stay as they are.
    let last = segment::numbers(&**files)?.last().copied();
    copy.hold_log(last.unwrap_or_default(), u64::MAX)?;
    copy.hold_checkpoint()?;
    if copy.is_empty() {
        return Err(StoreError::Missing);
    }
    copy.hold_beside()?;
    copy.finish()
}

/// The state of a store and the sizes of its segments; changes nothing on the disk, except repairs by redb.
fn look(files: &Arc<dyn Files>) -> Result<(Index, Recovery, Vec<u64>), StoreError> {
    let (mut index, known) = begin(files)?;
    let applied_lsn = known.applied_lsn;
    index.check_segments(&segment::numbers(&**files)?)?;
    let (_, mut recovery) = open::open(files, &known, &mut |logged| {
        if logged.lsn > applied_lsn {
            index.apply(&logged)
        } else {
            Ok(())
        }
    })?;
    recovery.rebuilt.extend(index.righted());
    let mut sizes = Vec::new();
    for number in segment::numbers(&**files)? {
        let name = segment::name(number);
        let bytes = files.open(&name).and_then(|file| file.bytes());
        sizes.push(bytes.map_err(|error| StoreError::io("open", &name, error))?);
    }
    Ok((index, recovery, sizes))
}

/// The checkpoint of an existing store, and the expected state of its log.
fn begin(files: &Arc<dyn Files>) -> Result<(Index, LogExpectation), StoreError> {
    must_be_there(&**files)?;
    let opened = Index::open(files, StoreOptions::default().cache_bytes);
    let (mut index, meta) = opened.map_err(|error| affected(&**files, error))?;
    let mut known = LogExpectation {
        is_read_only: true,
        ..LogExpectation::begin(0)
    };
    known.meet(meta, identity::peek(&**files)?);
    index.identify(known.store);
    Ok((index, known))
}

/// A damaged checkpoint is no loss where the log has all that was in it.
fn affected(files: &dyn Files, error: StoreError) -> StoreError {
    match (error, identity::first_lsn(files)) {
        (StoreError::Damaged(damage), Ok(first_lsn)) if first_lsn != Some(1) => {
            let last_lsn = first_lsn.map_or(0, |first| first - 1);
            damage.of(1, last_lsn).into()
        }
        (error, _) => error,
    }
}

/// A folder without a segment and without a checkpoint is no store.
pub(crate) fn must_be_there(files: &dyn Files) -> Result<(), StoreError> {
    let names = files.list();
    let names = names.map_err(|error| StoreError::io("list", ".", error))?;
    let is_ours = |name: &String| name == tables::FILE || segment::number(name).is_some();
    if names.iter().any(is_ours) {
        Ok(())
    } else {
        Err(StoreError::Missing)
    }
}

fn describe(index: &Index, recovery: &Recovery, sizes: &[u64]) -> Result<Info, StoreError> {
    let mut info = Info {
        segments: sizes.len() as u64,
        log_bytes: sizes.iter().sum(),
        applied_lsn: index.checkpoint_lsn(),
        last_lsn: recovery.last_lsn,
        torn: recovery.torn.clone(),
        rebuilt: recovery.rebuilt.clone(),
        retained: index.retained()?.len() as u64,
        ..Info::default()
    };
    for byte in index.store() {
        // INVARIANT: writing to a string does not fail.
        write!(info.store, "{byte:02x}").expect("a string takes all");
    }
    index.sessions(&mut |kept| {
        info.sessions += 1;
        info.subscriptions += kept.subscriptions.len() as u64;
        info.queued += kept.waiting.deliveries;
        info.in_flight += kept.row.publishes.len() as u64;
        Ok(())
    })?;
    Ok(info)
}

/// Every message that something refers to, and how often.
fn wanted(index: &Index) -> Result<BTreeMap<u64, u64>, StoreError> {
    let mut wanted = BTreeMap::new();
    index.sessions(&mut |kept| {
        let mut deliveries = index.queue(kept.number, 0, usize::MAX)?;
        deliveries.extend(kept.row.publishes.into_iter().map(|(_, delivery)| delivery));
        for delivery in deliveries {
            *wanted.entry(delivery.message).or_default() += 1;
        }
        Ok(())
    })?;
    for message in index.retained()?.into_values() {
        *wanted.entry(message).or_default() += 1;
    }
    Ok(wanted)
}
