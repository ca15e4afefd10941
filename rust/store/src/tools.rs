//! What can be done with a store that nobody has open: look, check, copy, mend.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::backup::Copy;
#[cfg(feature = "columnar")]
use crate::backup::{RESTORED, mark_restored};
use crate::durable::{StoreOptions, claim, open_parts};
use crate::error::{Damage, StoreError};
use crate::files::Files;
use crate::index::{Index, bodies};
#[cfg(feature = "columnar")]
use crate::journal::commit::Committer;
use crate::journal::identity;
use crate::journal::open::{self, Known, Recovery, Visit};
use crate::journal::salvage;
use crate::journal::segment;
use crate::journal::writer::Writer;

/// What a store holds.
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
    /// Messages under way to them.
    pub in_flight: u64,
    /// Topics with a retained message.
    pub retained: u64,
    /// Messages that something refers to and whose content was read, with every checksum.
    pub messages: u64,
    /// What opening would cut off.
    pub torn: Option<crate::Torn>,
    /// Its streams.
    pub streams: Vec<StreamInfo>,
}

/// What a stream holds, over all partitions.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct StreamInfo {
    /// Its name.
    pub name: String,
    /// Identifier of the store and a counter, as readers carry it.
    pub epoch: String,
    /// How many partitions it has.
    pub partitions: u16,
    /// Rows that may be read.
    pub rows: u64,
    /// Those of them that are in the log alone.
    pub unsealed_rows: u64,
    /// Files with the others.
    pub files: u64,
    /// Bytes of the files.
    pub bytes: u64,
}

/// What mending a store did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Repair {
    /// What was damaged; `None` if nothing was, and nothing was done.
    pub damage: Option<Damage>,
    /// Records that were saved from behind the damage.
    pub saved: u64,
    /// LSNs that are lost: first and last of each gap.
    pub lost: Vec<(u64, u64)>,
    /// Client identifiers whose messages are among what is lost, and how many.
    pub sessions: BTreeMap<String, u64>,
    /// Files that were set aside.
    pub set_aside: Vec<String>,
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

fn read_all(files: &Arc<dyn Files>) -> Result<Info, StoreError> {
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

/// Writes all rows of a store into files, so that they can be read without a broker; returns the
/// streams as they are then.
///
/// # Errors
///
/// As [`verify`], and those of writing files.
#[cfg(feature = "columnar")]
pub fn seal(files: &Arc<dyn Files>, options: &StoreOptions) -> Result<Vec<StreamInfo>, StoreError> {
    if identity::peek(&**files)?.is_none() {
        return Err(StoreError::Missing);
    }
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

/// Tells what a store holds, without reading messages.
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

/// Hands every record of the log to `visit`, those in the checkpoint included.
///
/// # Errors
///
/// As [`verify`], and what `visit` returns.
pub fn dump(files: &Arc<dyn Files>, visit: &mut Visit<'_>) -> Result<Recovery, StoreError> {
    let _claim = claim(&**files)?;
    let known = reading(&**files, 0)?;
    open::open(files, &known, visit).map(|(_, recovery)| recovery)
}

/// Copies a store into an empty folder; returns the bytes copied.
///
/// # Errors
///
/// [`StoreError::Locked`], [`StoreError::Missing`], and those of the file system.
pub fn backup(files: &Arc<dyn Files>, to: &dyn Files) -> Result<u64, StoreError> {
    let _claim = claim(&**files)?;
    let mut copy = Copy::begin(&**files, to);
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

/// Mends a damaged store by giving up what cannot be read; everything else is kept.
///
/// A store that is whole is left as it is. Damaged segments are set aside under another name.
///
/// # Errors
///
/// [`StoreError::Locked`], [`StoreError::NewerFormat`], and those of the file system.
pub fn repair(files: &Arc<dyn Files>, options: &StoreOptions) -> Result<Repair, StoreError> {
    let _claim = claim(&**files)?;
    let damage = match read_all(files) {
        // What is torn is cut, as every opening does.
        Ok(_) => return open_parts(files, options).map(|_| Repair::default()),
        Err(StoreError::Damaged(damage)) => damage,
        Err(error) => return Err(error),
    };
    let (mut index, _) = Index::open(files, options.cache_bytes)?;
    let mut repair = Repair {
        damage: Some(damage),
        ..Repair::default()
    };
    let numbers = segment::numbers(&**files)?;
    let store = identity::store_of(&**files, &numbers)?.unwrap_or(index.store());
    index.identify(store);
    for number in &numbers {
        repair.saved += salvage::segment(&**files, store, *number, &mut index, &mut repair.lost)?;
    }
    index.flush()?;
    for number in &numbers {
        salvage::keep_messages(&**files, store, *number, &index.database())?;
        index.moved(*number);
    }
    index.reread()?;
    let last = numbers.last().copied().unwrap_or_default();
    let next_lsn = index.applied_lsn + 1;
    let mut writer = Writer::begin_at(
        Arc::clone(files),
        store,
        options.journal.segment_bytes,
        last + 1,
        next_lsn,
    )?;
    writer.numbering = index.streams.numbering.clone();
    rescue_rows(files, options, writer, &mut index)?;
    repair.sessions = index.drop_unreadable()?;
    for number in numbers {
        let (name, mut aside) = (segment::name(number), String::new());
        // INVARIANT: writing to a string does not fail.
        write!(aside, "{name}.damaged").expect("a string takes all");
        let renamed = files.rename(&name, &aside);
        renamed.map_err(|error| StoreError::io("set aside", &name, error))?;
        repair.set_aside.push(aside);
    }
    files
        .sync_names()
        .map_err(|error| StoreError::io("sync the names of", ".", error))?;
    Ok(repair)
}

/// Saves the rows that are in the damaged log alone. Offsets of those that are lost will not be
/// given again, and whoever knows some is told that they are of another epoch.
#[cfg(feature = "columnar")]
fn rescue_rows(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
    writer: Writer,
    index: &mut Index,
) -> Result<(), StoreError> {
    if index.streams.is_empty() {
        return Ok(());
    }
    let marked = mark_restored(&**files);
    marked.map_err(|error| StoreError::io("make", RESTORED, error))?;
    let mut committer = Committer::new(writer, (&options.journal).into())?;
    crate::stream::open::rescue(files, &mut committer, index)
}

#[cfg(not(feature = "columnar"))]
fn rescue_rows(
    _: &Arc<dyn Files>,
    _: &StoreOptions,
    _: Writer,
    index: &mut Index,
) -> Result<(), StoreError> {
    crate::stream::refuse(index)
}

/// The state of a store and the sizes of its segments; nothing on the disk changes but what redb
/// mends by itself.
fn look(files: &Arc<dyn Files>) -> Result<(Index, Recovery, Vec<u64>), StoreError> {
    if identity::peek(&**files)?.is_none() {
        return Err(StoreError::Missing);
    }
    let (mut index, meta) = Index::open(files, StoreOptions::default().cache_bytes)?;
    let applied_lsn = meta.map_or(0, |meta| meta.applied_lsn);
    let known = reading(&**files, applied_lsn)?;
    index.identify(known.store);
    let (_, recovery) = open::open(files, &known, &mut |logged| {
        if logged.lsn > applied_lsn {
            index.apply(&logged)
        } else {
            Ok(())
        }
    })?;
    let mut sizes = Vec::new();
    for number in segment::numbers(&**files)? {
        let name = segment::name(number);
        let bytes = files.open(&name).and_then(|file| file.bytes());
        sizes.push(bytes.map_err(|error| StoreError::io("open", &name, error))?);
    }
    Ok((index, recovery, sizes))
}

fn reading(files: &dyn Files, applied_lsn: u64) -> Result<Known, StoreError> {
    let store = identity::peek(files)?.ok_or(StoreError::Missing)?;
    Ok(Known {
        store,
        knows_store: true,
        applied_lsn,
        is_full: true,
        is_read_only: true,
        ..Known::begin(0)
    })
}

fn describe(index: &Index, recovery: &Recovery, sizes: &[u64]) -> Result<Info, StoreError> {
    let mut info = Info {
        segments: sizes.len() as u64,
        log_bytes: sizes.iter().sum(),
        applied_lsn: index.checkpoint_lsn(),
        last_lsn: recovery.last_lsn,
        torn: recovery.torn.clone(),
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
