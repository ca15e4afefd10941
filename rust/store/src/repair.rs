//! Mending a damaged store: what can be read is kept, the rest is given up and reported.

use std::collections::BTreeMap;
use std::sync::Arc;

#[cfg(feature = "columnar")]
use crate::backup::{RESTORED, mark_restored};
use crate::durable::{StoreOptions, claim, open_parts, set_aside};
use crate::error::{Damage, StoreError};
use crate::files::Files;
use crate::index::rescue::{self, GivenUp, Rescued};
use crate::index::source::Begin;
use crate::index::{Index, tables};
#[cfg(feature = "columnar")]
use crate::journal::commit::Committer;
use crate::journal::salvage::{self, Salvaged};
use crate::journal::writer::Writer;
use crate::journal::{identity, segment};
use crate::tools::{must_be_there, read_all};

/// What mending a store did.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
#[non_exhaustive]
pub struct Repair {
    /// What was damaged; `None` if nothing was, and nothing was done.
    pub damage: Option<Damage>,
    /// Records of the log that were read again.
    pub saved: u64,
    /// LSNs that are lost: first and last of each gap.
    pub lost: Vec<(u64, u64)>,
    /// Client identifiers whose messages are among what is lost, and how many; 0 for a session that
    /// was given up without any.
    pub sessions: BTreeMap<String, u64>,
    /// Topics of lost messages, and how many; of a retained message, too.
    pub topics: BTreeMap<String, u64>,
    /// Lost records and deliveries of which nothing can be said.
    pub unknown: u64,
    /// Pages of the checkpoint in which one bit was wrong, and was righted.
    pub mended_pages: u64,
    /// Pages of the checkpoint that could not be read: their rows are lost.
    pub lost_pages: u64,
    /// Files that were set aside.
    pub set_aside: Vec<String>,
}

/// Mends a damaged store by giving up what cannot be read; everything else is kept.
///
/// A store that is whole is left as it is. Damaged files are set aside under another name.
///
/// # Errors
///
/// [`StoreError::Locked`], [`StoreError::Missing`], [`StoreError::NewerFormat`], and those of the
/// file system.
pub fn repair(files: &Arc<dyn Files>, options: &StoreOptions) -> Result<Repair, StoreError> {
    let _claim = claim(&**files)?;
    must_be_there(&**files)?;
    let mut repair = Repair::default();
    loop {
        let damage = match read_all(files) {
            // What is torn is cut, as every opening does.
            Ok(_) => return open_parts(files, options).map(|_| repair),
            Err(StoreError::Damaged(damage)) => damage,
            Err(error) => return Err(error),
        };
        let is_checkpoint = damage.is_whole && damage.file == tables::FILE;
        repair.damage.get_or_insert(damage);
        if !is_checkpoint {
            break;
        }
        // The log may have all that was in it; else the next look finds out what is missing.
        let rescued = rescue_checkpoint(&**files)?;
        repair.set_aside.push(set_aside(&**files, tables::FILE)?);
        if let Some(rescued) = rescued {
            tables::name_new(&**files)?;
            mend(files, options, Some(rescued), &mut repair)?;
            return Ok(repair);
        }
    }
    mend(files, options, None, &mut repair)?;
    Ok(repair)
}

/// Writes what can be read of the checkpoint into a new one, unless the log has all that was in it.
fn rescue_checkpoint(files: &dyn Files) -> Result<Option<Rescued>, StoreError> {
    let first_lsn = identity::first_lsn(files)?;
    if first_lsn == Some(1) {
        return Ok(None);
    }
    let damaged = files.open(tables::FILE);
    let damaged = damaged.map_err(|error| StoreError::io("open", tables::FILE, error))?;
    let begin = Begin {
        lsn: first_lsn.unwrap_or_default(),
        segment: segment::numbers(files)?
            .first()
            .copied()
            .unwrap_or_default(),
    };
    rescue::rescue(&*damaged, files, begin)
}

/// Makes a checkpoint of all that can be read, and begins the log anew behind it.
fn mend(
    files: &Arc<dyn Files>,
    options: &StoreOptions,
    rescued: Option<Rescued>,
    repair: &mut Repair,
) -> Result<(), StoreError> {
    let (mut index, meta) = Index::open(files, options.cache_bytes)?;
    let numbers = segment::numbers(&**files)?;
    let known = identity::store_of(&**files, &numbers)?.or(meta.map(|meta| meta.store));
    let store = known.unwrap_or_else(segment::new_store);
    index.identify(store);
    let mut given_up = GivenUp::default();
    if let Some(rescued) = &rescued {
        rescued.attribute(&mut index, &mut given_up)?;
    }
    let mut salvaged = Salvaged::default();
    salvaged.rescued = rescued;
    for number in &numbers {
        let number = (*number, numbers.last() != Some(number));
        salvage::segment(&**files, store, number, &mut index, &mut salvaged)?;
    }
    salvaged.end(&mut index);
    if let Some(rescued) = salvaged.rescued.take() {
        (repair.mended_pages, repair.lost_pages) = (rescued.mended_pages, rescued.lost_pages);
        rescued.settle(&mut index, &mut given_up)?;
    }
    add_all(&mut repair.sessions, given_up.sessions);
    add_all(&mut repair.topics, given_up.topics);
    repair.unknown += given_up.unknown;
    report(&index, salvaged, repair)?;
    index.flush()?;
    for number in &numbers {
        salvage::keep_messages(&**files, store, *number, &index.database())?;
        index.moved(*number);
    }
    index.reread()?;
    // Messages may be wanted of segments that are not there: their numbers are not given again.
    let last = numbers.last().copied().max(index.last_segment());
    let mut writer = Writer::begin_at(
        Arc::clone(files),
        store,
        options.journal.segment_bytes,
        last.unwrap_or_default() + 1,
        index.applied_lsn + 1,
    )?;
    writer.numbering = index.streams.numbering.clone();
    rescue_rows(files, options, writer, &mut index)?;
    let (sessions, topics) = index.drop_unreadable()?;
    add_all(&mut repair.sessions, sessions);
    add_all(&mut repair.topics, topics);
    for number in numbers {
        let aside = set_aside(&**files, &segment::name(number))?;
        repair.set_aside.push(aside);
    }
    Ok(())
}

/// Says whose messages are among the lost records, as far as their bytes tell.
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
    add_all(&mut repair.sessions, salvaged.homeless);
    repair.saved = salvaged.records;
    repair.lost.extend(salvaged.lost);
    Ok(())
}

fn add_all(to: &mut BTreeMap<String, u64>, counts: impl IntoIterator<Item = (String, u64)>) {
    for (name, count) in counts {
        *to.entry(name).or_default() += count;
    }
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
