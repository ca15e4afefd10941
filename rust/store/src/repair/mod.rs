//! Repair: writes a new store from the readable parts of a damaged one, and reports what is lost.

pub(crate) mod salvage;

use std::collections::BTreeMap;
use std::sync::Arc;

use self::salvage::Salvaged;
use crate::aside;
#[cfg(feature = "columnar")]
use crate::backup::{RESTORED, mark_restored};
use crate::durable::{StoreOptions, claim, open_or_rebuild, open_parts};
use crate::error::{Damage, StoreError};
use crate::files::Files;
use crate::index::rescue::{self, GivenUp, SalvagedCheckpoint};
use crate::index::source::Begin;
use crate::index::{Index, bodies, naming};
use crate::tools::{must_be_there, read_all};
use crate::wal::segment::StoreId;
use crate::wal::writer::SegmentWriter;
use crate::wal::{identity, segment};

/// Result of a repair.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Repair {
    /// The damage that was found first; `None` if the store was intact and nothing was changed.
    pub damage: Option<Damage>,
    /// Number of log records that were applied again.
    pub saved: u64,
    /// Lost LSNs: first and last of each gap.
    pub lost: Vec<(u64, u64)>,
    /// Number of lost messages by client identifier; 0 for a session that was given up but lost no known message.
    pub sessions: BTreeMap<String, u64>,
    /// Number of lost messages by topic, retained messages included.
    pub topics: BTreeMap<String, u64>,
    /// Number of lost records and deliveries whose client and topic are unknown.
    pub unknown: u64,
    /// Number of checkpoint pages in which one wrong bit was corrected.
    pub mended_pages: u64,
    /// Number of checkpoint pages that could not be read: their rows are lost.
    pub lost_pages: u64,
    /// New names of the damaged files.
    pub set_aside: Vec<String>,
}

/// Repairs a damaged store: gives up unreadable data and keeps everything else.
///
/// An intact store is left as it is. Damaged files are renamed. A repair that is interrupted can be run again: the
/// new checkpoint gets its final name only after it holds all data that can be saved, and from then on the old log is
/// not needed.
///
/// # Errors
///
/// [`StoreError::Locked`], [`StoreError::Missing`], [`StoreError::NewerFormat`], and errors of the file system.
pub fn repair(files: &Arc<dyn Files>, options: &StoreOptions) -> Result<Repair, StoreError> {
    let _claim = claim(&**files)?;
    must_be_there(&**files)?;
    let mut repair = Repair::default();
    loop {
        let damage = match read_all(files) {
            // Opening cuts the torn tail, as always.
            Ok(_) => return open_parts(files, options).map(|_| repair),
            Err(StoreError::Damaged(damage)) => damage,
            Err(error) => return Err(error),
        };
        let is_checkpoint = damage.is_whole && damage.file == naming::FILE;
        repair.damage.get_or_insert(damage);
        // The log may have all data of a damaged checkpoint.
        match is_checkpoint.then(|| open_or_rebuild(files, options)) {
            Some(Ok((_, aside))) => repair.set_aside.extend(aside),
            None | Some(Err(StoreError::Damaged(_))) => {
                mend(files, options, is_checkpoint, &mut repair)?;
                return Ok(repair);
            }
            Some(Err(error)) => return Err(error),
        }
    }
}

/// Writes a checkpoint of all readable data and begins a new log after it.
fn mend(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
    is_checkpoint: bool,
    repair: &mut Repair,
) -> Result<(), StoreError> {
    let rescued = begin_new(&**files, is_checkpoint)?;
    let numbers = segment::numbers(&**files)?;
    let saved = save(files, options, &numbers, rescued, repair)?;
    // From here on the store is repaired, even if a later step fails: the old log is still damaged, but not needed.
    if is_checkpoint {
        repair.set_aside.push(naming::replace_damaged(&**files)?);
    } else {
        naming::name_new(&**files)?;
    }
    for number in numbers {
        let aside = aside::rename(&**files, &segment::name(number))?;
        repair.set_aside.push(aside);
    }
    // The old log must be renamed before: with a newer segment after it, its torn tail would count as complete.
    let bytes = options.wal.segment_bytes;
    SegmentWriter::begin_at(
        Arc::clone(files),
        saved.store,
        bytes,
        saved.segment,
        saved.lsn,
    )?;
    Ok(())
}

/// Begins a new checkpoint with the readable part of the old one.
fn begin_new(
    files: &dyn Files,
    is_damaged: bool,
) -> Result<Option<SalvagedCheckpoint>, StoreError> {
    if !is_damaged {
        naming::copy_to_new(files)?;
        return Ok(None);
    }
    naming::forget_new(files)?;
    let damaged = files.open(naming::FILE);
    let damaged = damaged.map_err(|error| StoreError::io("open", naming::FILE, error))?;
    rescue::rescue(&*damaged, files, Begin::of(files)?)
}

/// Where the log continues after the new checkpoint.
struct End {
    store: StoreId,
    segment: u64,
    lsn: u64,
}

/// Writes the readable part of the log into the new checkpoint: records, referenced messages, rows.
fn save(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
    numbers: &[u64],
    rescued: Option<SalvagedCheckpoint>,
    repair: &mut Repair,
) -> Result<End, StoreError> {
    let (mut index, meta) = Index::open_new(files, options.cache_bytes)?;
    let known = identity::store_of(&**files, numbers)?.or(meta.map(|meta| meta.store));
    let store = known.unwrap_or_else(segment::new_store);
    index.identify(store);
    if meta.is_none() {
        // Without a record to save, nothing else would write it.
        index.write_identity()?;
    }
    save_records(&**files, numbers, rescued, &mut index, repair)?;
    index.flush()?;
    for number in numbers {
        salvage::keep_messages(&**files, store, *number, &index.database())?;
        index.moved(*number);
    }
    // Messages may refer to segments that are missing: the numbers of those segments are not used again.
    let last = numbers.last().copied().max(index.last_segment());
    let last = last.unwrap_or_default();
    index.moved(last);
    index.reread()?;
    rescue_rows(files, &mut index)?;
    let (sessions, topics) = index.drop_unreadable()?;
    bodies::drop_unreadable(&index.database())?;
    add_all(&mut repair.sessions, sessions);
    add_all(&mut repair.topics, topics);
    Ok(End {
        store,
        segment: last + 1,
        lsn: index.applied_lsn + 1,
    })
}

/// Applies every readable record of the log and reports the lost records.
fn save_records(
    files: &dyn Files,
    numbers: &[u64],
    rescued: Option<SalvagedCheckpoint>,
    index: &mut Index,
    repair: &mut Repair,
) -> Result<(), StoreError> {
    let mut given_up = GivenUp::default();
    if let Some(rescued) = &rescued {
        rescued.attribute(index, &mut given_up)?;
    }
    let mut salvaged = Salvaged::default();
    salvaged.rescued = rescued;
    for number in numbers {
        let number = (*number, numbers.last() != Some(number));
        salvage::segment(files, index.store(), number, index, &mut salvaged)?;
    }
    salvaged.end(index);
    if let Some(rescued) = salvaged.rescued.take() {
        (repair.mended_pages, repair.lost_pages) = (rescued.mended_pages, rescued.lost_pages);
        rescued.settle(index, &mut given_up)?;
    }
    add_all(&mut repair.sessions, given_up.sessions);
    add_all(&mut repair.topics, given_up.topics);
    repair.unknown += given_up.unknown;
    report(index, salvaged, repair)
}

/// Reports the clients and topics of lost records, as far as the bytes of those records are readable.
fn report(index: &Index, salvaged: Salvaged, repair: &mut Repair) -> Result<(), StoreError> {
    let mut clients = BTreeMap::new();
    index.clients(&mut |session, client_id| {
        clients.insert(session, client_id.to_owned());
    })?;
    for &(first, last) in &salvaged.lost {
        let told = salvaged.broken.range(first..=last);
        let mut known = 0;
        for (_, broken) in told.filter(|(_, broken)| broken.is_readable) {
            known += 1;
            let of = broken
                .sessions
                .iter()
                .filter_map(|session| clients.get(session));
            add_all(
                &mut repair.sessions,
                of.map(|client_id| (client_id.clone(), 1)),
            );
            add_all(
                &mut repair.topics,
                broken.topic.iter().map(|topic| (topic.clone(), 1)),
            );
        }
        repair.unknown += last - first + 1 - known;
    }
    add_all(&mut repair.sessions, salvaged.without_session);
    repair.saved = salvaged.records;
    repair.lost.extend(salvaged.lost);
    Ok(())
}

fn add_all(to: &mut BTreeMap<String, u64>, counts: impl IntoIterator<Item = (String, u64)>) {
    for (name, count) in counts {
        *to.entry(name).or_default() += count;
    }
}

/// Saves the rows that only the damaged log has. Offsets of lost rows are not used again; the streams get a new
/// epoch, so that consumers notice.
#[cfg(feature = "columnar")]
fn rescue_rows(files: &Arc<dyn Files>, index: &mut Index) -> Result<(), StoreError> {
    if index.streams.is_empty() {
        return Ok(());
    }
    let marked = mark_restored(&**files);
    marked.map_err(|error| StoreError::io("make", RESTORED, error))?;
    crate::stream::open::rescue(files, index)
}

#[cfg(not(feature = "columnar"))]
fn rescue_rows(_: &Arc<dyn Files>, index: &mut Index) -> Result<(), StoreError> {
    crate::stream::refuse(index)
}
