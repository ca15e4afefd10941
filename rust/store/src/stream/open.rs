//! Opens the streams of a store: valid files, and the rows that only the log has.

use std::sync::{Arc, Mutex};

use crate::backup::{RESTORED, STREAMS};
use crate::error::StoreError;
use crate::files::{Files, FolderAccess};
use crate::index::Index;
use crate::record::Record;
use crate::stream::definition::PartitionKey;
use crate::stream::file_index::{self, FileIndex};
use crate::stream::history::{self, Expected, History};
use crate::stream::holds::{HOLD_MAX, HoldTable};
use crate::stream::identity::{Found, find, identify, uuid, wrong};
use crate::stream::manifest::{
    self, ALIASES, HOLDS, Holds, KnownAliases, STREAM, Sealed, StreamIdentity,
};
use crate::stream::refill::{FindFrames, refill, salvaged, whole};
use crate::stream::sealing::SealRequest;
use crate::stream::streams::{KnownMetrics, Partition, Stream, StreamOptions, Streams};
use crate::stream::tail::Tail;
use crate::stream::tier::StreamTier;
use crate::stream::tier_owner;
use crate::stream::tier_restore::restore;
use crate::stream::typed::Typed;
use crate::wal::batch::Batch;
use crate::wal::commit::Committer;
use mqttcore_columnar::MetricAliases;

/// Opens the streams that are defined or have a folder; `None` if there are none.
///
/// Nothing else may write to the log meanwhile.
///
/// # Errors
///
/// [`StoreError::Stream`] for a definition that contradicts the stored one, or for a folder of another store; errors
/// of the file system.
pub(crate) fn open(
    files: &Arc<dyn Files>,
    committer: &mut Committer,
    index: &mut Index,
    options: &StreamOptions,
) -> Result<Option<Arc<Streams>>, StoreError> {
    let write = &mut |index: &mut Index, batch: &mut Batch| write(committer, index, batch);
    open_from(files, write, index, options, whole)
}

/// Saves the rows of a damaged log: all readable rows are sealed into files, and the log is not needed for them any
/// more. Records of this step go into the index only, which is then written as a checkpoint.
///
/// # Errors
///
/// Errors of [`open`] and of writing files.
pub(crate) fn rescue(files: &Arc<dyn Files>, index: &mut Index) -> Result<(), StoreError> {
    let options = StreamOptions::default();
    let streams = open_from(files, &mut Index::apply_unlogged, index, &options, salvaged)?;
    if let Some(streams) = streams {
        streams.seal(&SealRequest::Everything, &mut |batch| {
            index.apply_unlogged(batch)
        })?;
    }
    index.streams.forget_rows(|_| false);
    Ok(())
}

/// Writes a batch of records about the streams that are opened.
type Write<'w> = dyn FnMut(&mut Index, &mut Batch) -> Result<(), StoreError> + 'w;

/// Writes a batch to the log on this thread; the batch is safe when this returns.
fn write(
    committer: &mut Committer,
    index: &mut Index,
    batch: &mut Batch,
) -> Result<(), StoreError> {
    let writer = &mut committer.writer;
    let written = writer.write(&mut batch.bytes, batch.records)?;
    writer.sync()?;
    index.apply_group(&batch.bytes, &written)?;
    writer.numbering = index.streams.numbering.clone();
    Ok(())
}

fn open_from(
    files: &Arc<dyn Files>,
    write: &mut Write<'_>,
    index: &mut Index,
    options: &StreamOptions,
    find_frames: FindFrames,
) -> Result<Option<Arc<Streams>>, StoreError> {
    let failed = |error| StoreError::io("open", STREAMS, error);
    let names = files.list().map_err(failed)?;
    let is_there = names.iter().any(|name| name == STREAMS);
    if options.definitions.is_empty() && !is_there {
        return Ok(None);
    }
    let is_restored = names.iter().any(|name| name == RESTORED);
    let group = options.definitions.iter().find_map(|known| known.group);
    let root = files
        .folder(STREAMS, FolderAccess::Passage(group))
        .map_err(failed)?;
    let mut found = find(&*root, options)?;
    let next_id = index.streams.next_stream();
    let mut opening = Opening {
        write,
        index,
        is_restored,
        next_id,
    };
    let streams = opening.streams(&mut found)?;
    if is_restored {
        files
            .remove(RESTORED)
            .and_then(|()| files.sync_names())
            .map_err(failed)?;
    }
    let streams = Arc::new(Streams::new(streams, options.limits));
    refill(files, index, &streams, find_frames)?;
    Ok(Some(streams))
}

struct Opening<'o, 'w> {
    write: &'o mut Write<'w>,
    index: &'o mut Index,
    is_restored: bool,
    /// The number of the next new stream.
    next_id: u32,
}

/// A stream that can be opened.
struct Prepared {
    identity: StreamIdentity,
    files: SealedFiles,
    holds: Holds,
    tier: Option<Arc<StreamTier>>,
    /// Number and epoch in the log.
    known: Option<(u32, u64)>,
    /// Whether a new epoch begins, so that the objects must be taken over.
    has_new_epoch: bool,
}

/// The files of a stream and its file index.
struct SealedFiles {
    histories: Vec<History>,
    sealed: Sealed,
    /// Whether the index has a log.
    is_logged: bool,
}

impl SealedFiles {
    /// Whether the index names objects.
    fn has_objects(&self) -> bool {
        self.sealed.objects().next().is_some()
    }
}

/// The file index, the holds, the URL of the objects, and the object storage that is configured.
type Kept = (FileIndex, Holds, Option<String>, Option<Arc<StreamTier>>);

impl Opening<'_, '_> {
    /// Opens all streams. What can be refused is refused before the first one takes its objects over.
    fn streams(&mut self, found: &mut [Found]) -> Result<Vec<Stream>, StoreError> {
        let prepared = found.iter_mut().map(|found| self.prepare(found));
        let prepared: Vec<Prepared> = prepared.collect::<Result<_, _>>()?;
        let found = found.iter().zip(prepared);
        found
            .map(|(found, prepared)| self.stream(found, prepared))
            .collect()
    }

    /// Reads what a stream has. Objects are not taken over yet, unless its folder is lost: then it is restored.
    fn prepare(&mut self, found: &mut Found) -> Result<Prepared, StoreError> {
        let store = uuid(self.index.store());
        let before = self.index.streams.find(&found.name);
        let before = before.map_or(0, |(_, known)| known.epoch);
        restore(found, &store, self.next_id, before)?;
        let mut identity = identify(self.index, found, &store, self.next_id)?;
        self.next_id = self.next_id.max(identity.id.saturating_add(1));
        let files = self.histories(found, &identity)?;
        let holds: Holds = manifest::read(&*found.folder, HOLDS)?.unwrap_or_default();
        let is_new = found.identity.is_none();
        let known = self.index.streams.find(&identity.name);
        let known = known.map(|(id, known)| (id, known.epoch));
        let is_known = known.is_some_and(|(id, _)| id == identity.id);
        if let Some((_, epoch)) = known {
            identity.epoch = identity.epoch.max(epoch);
        }
        let tier = tier_of(found, &files.histories);
        let has_new_epoch =
            !is_new && (self.is_restored || !is_known || self.is_behind(&identity, &files, &holds));
        if has_new_epoch {
            identity.epoch += 1;
            if let Some(tier) = &tier {
                tier_owner::look(&tier.limited(), &identity, files.has_objects())?;
            }
        }
        Ok(Prepared {
            identity,
            files,
            holds,
            tier,
            known,
            has_new_epoch,
        })
    }

    /// Opens a stream. If a new epoch begins, it takes the objects over first: if the folder is an older copy, the rows
    /// behind its end are in object storage only, and the next files here would replace them there.
    ///
    /// If this fails for a stream, those before it have taken their objects over and have a new epoch. The next start
    /// goes on: it gives them one more epoch, of which no reader has seen the one before.
    fn stream(&mut self, found: &Found, prepared: Prepared) -> Result<Stream, StoreError> {
        let Prepared {
            identity,
            files,
            holds,
            tier,
            known,
            has_new_epoch,
        } = prepared;
        if has_new_epoch && let Some(tier) = &tier {
            tier_owner::claim(&tier.limited(), &identity, files.has_objects())?;
        }
        self.record(&identity, known, &files.histories)?;
        if found.identity.as_ref() != Some(&identity) {
            manifest::write(&*found.folder, STREAM, &identity)?;
        }
        let index = FileIndex::new(Arc::clone(&found.folder), &files.sealed);
        let tier_url = files.sealed.tier.clone();
        let kept = (index, holds, tier_url, tier);
        let stream = self.stream_of(found, identity, files.histories, kept)?;
        let is_moved = stream.tier_url != files.sealed.tier;
        let written: Vec<_> = files.sealed.partitions;
        let now = stream.partitions.iter().map(|partition| {
            let partition = crate::stream::streams::lock(partition);
            partition.history.files.clone()
        });
        if files.is_logged || is_moved || !now.eq(written) {
            stream.write_index()?;
        }
        Ok(stream)
    }

    fn histories(
        &self,
        found: &Found,
        identity: &StreamIdentity,
    ) -> Result<SealedFiles, StoreError> {
        let group = found.definition.as_ref().and_then(|known| known.group);
        let data = found.folder.folder("data", FolderAccess::Group(group));
        let data = data.map_err(|error| StoreError::io("open", "data", error))?;
        let (sealed, is_logged) = file_index::read(&*found.folder)?;
        let names = history::names(&*data)?;
        let mut histories = Vec::new();
        for partition in 0..identity.partitions {
            let place = usize::from(partition);
            let names = names.get(&partition).map_or(&[][..], Vec::as_slice);
            let known = sealed.partitions.get(place).map_or(&[][..], Vec::as_slice);
            let indexed = known.last().map_or(0, |file| file.last + 1);
            let earliest = sealed.earliest.get(place).copied().unwrap_or_default();
            let logged = self.index.streams.sealed((identity.id, partition));
            let expected = Expected {
                stream: &identity.name,
                partition,
                sealed: logged.max(indexed).max(earliest),
                is_read_only: false,
                has_tier: found
                    .definition
                    .as_ref()
                    .is_some_and(|known| known.tier.is_some()),
            };
            let folder = Arc::clone(&data);
            histories.push(History::open(folder, names, known, earliest, &expected)?);
        }
        Ok(SealedFiles {
            histories,
            sealed,
            is_logged,
        })
    }

    /// Whether files or consumers have offsets that the log does not: an older log was restored.
    fn is_behind(&self, identity: &StreamIdentity, files: &SealedFiles, holds: &Holds) -> bool {
        let end = |partition: usize| {
            let partition = u16::try_from(partition).unwrap_or(u16::MAX);
            self.index.streams.numbering.next((identity.id, partition))
        };
        let mut ahead = files.histories.iter().enumerate();
        let mut held = holds
            .values()
            .flat_map(|hold| hold.offsets.iter().enumerate());
        ahead.any(|(place, history)| history.end_offset() > end(place))
            || held.any(|(place, offset)| *offset > end(place))
    }

    /// Records in the log the stream, its epoch and the offsets up to which rows are in files.
    fn record(
        &mut self,
        identity: &StreamIdentity,
        known: Option<(u32, u64)>,
        histories: &[History],
    ) -> Result<(), StoreError> {
        let (stream, epoch) = (identity.id, identity.epoch);
        let mut batch = Batch::default();
        if known != Some((stream, epoch)) {
            let name = &identity.name;
            batch.push(&Record::Stream {
                stream,
                epoch,
                name,
            });
        }
        for (partition, history) in (0..).zip(histories) {
            let end = history.sealed_end();
            if end > self.index.streams.sealed((stream, partition)) {
                batch.push(&Record::Sealed {
                    stream,
                    partition,
                    end,
                });
            }
        }
        if batch.is_empty() {
            return Ok(());
        }
        (self.write)(self.index, &mut batch)
    }

    fn partitions(
        &self,
        stream: u32,
        histories: Vec<History>,
        tier: Option<&Arc<StreamTier>>,
    ) -> Vec<Mutex<Partition>> {
        let partitions = (0..).zip(histories).map(|(number, mut history)| {
            history.tier = tier.cloned();
            let sealed = self.index.streams.sealed((stream, number));
            Mutex::new(partition_of(number, history, sealed))
        });
        partitions.collect()
    }

    fn stream_of(
        &self,
        found: &Found,
        identity: StreamIdentity,
        histories: Vec<History>,
        (index, holds, tier_url, tier): Kept,
    ) -> Result<Stream, StoreError> {
        let partitions = self.partitions(identity.id, histories, tier.as_ref());
        let (key, seed) = key_and_seed(&identity)?;
        let aliases = known_aliases(&*found.folder, &partitions)?;
        let typed = Typed::of(identity.schema.as_ref());
        let typed = typed.map_err(|error| wrong(&identity.name, &error.to_string()))?;
        let definition = found.definition.as_ref();
        let old_filters = found.identity.as_ref().map(|old| old.filters.clone());
        Ok(Stream {
            is_configured: definition.is_some(),
            old_filters: old_filters.filter(|old| *old != identity.filters),
            key,
            seed,
            typed,
            retention_age: definition.and_then(|known| known.retention_age),
            retention_bytes: definition.and_then(|known| known.retention_bytes),
            hold_max: definition
                .and_then(|known| known.hold_max)
                .unwrap_or(HOLD_MAX),
            folder: Arc::clone(&found.folder),
            index,
            tier_url: tier.as_ref().map(|tier| tier.url()).or(tier_url),
            tier,
            restored_rows: found.restored_rows,
            partitions,
            aliases: Mutex::new(KnownMetrics {
                now: aliases,
                next: None,
            }),
            holds: Mutex::new(HoldTable::new(holds)),
            identity,
        })
    }
}

/// The object storage that is configured for a stream with these files.
fn tier_of(found: &Found, histories: &[History]) -> Option<Arc<StreamTier>> {
    let options = found.definition.as_ref()?.tier.clone()?;
    let ends = histories.iter().map(History::sealed_end).collect();
    Some(Arc::new(StreamTier::new(&found.name, options, ends)))
}

fn key_and_seed(identity: &StreamIdentity) -> Result<(PartitionKey, u64), StoreError> {
    let damaged = |what| wrong(&identity.name, &format!("{STREAM} has no valid {what}"));
    let key = PartitionKey::from_name(&identity.key).ok_or_else(|| damaged("key"))?;
    let seed = identity.seed.parse().map_err(|_| damaged("seed"))?;
    Ok((key, seed))
}

/// A partition with rows sealed up to `sealed`; files below its earliest offset are marked for removal.
fn partition_of(number: u16, mut history: History, sealed: u64) -> Partition {
    let earliest = history.earliest;
    let old = history.files.extract_if(.., |file| file.last < earliest);
    // No reader can have begun to read them since the start of this process.
    let to_remove = old.map(|file| (file.file, 0)).collect();
    let tail = Tail::new(number, sealed.max(history.end_offset()));
    Partition {
        tail,
        history,
        to_remove,
    }
}

/// Sparkplug aliases at the beginning of the tail: those in `aliases.json`, and those of files that it does not
/// cover.
fn known_aliases(
    folder: &dyn Files,
    partitions: &[Mutex<Partition>],
) -> Result<MetricAliases, StoreError> {
    let noted: KnownAliases = manifest::read(folder, ALIASES)?.unwrap_or_default();
    let mut aliases = MetricAliases::parse(&noted.nodes.to_string()).unwrap_or_default();
    for (place, partition) in partitions.iter().enumerate() {
        let end = noted.ends.get(place).copied().unwrap_or(0);
        let history = &crate::stream::streams::lock(partition).history;
        let files = history.files.iter();
        for file in files.filter(|file| file.base >= end && !file.is_remote) {
            // An unreadable file adds no aliases; readers of its rows get the error.
            let _ = history.follow(file, &mut aliases);
        }
    }
    Ok(aliases)
}
