//! Opens the streams of a store: identities, valid files, and the rows that only the log has.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::backup::{RESTORED, STREAMS};
use crate::error::StoreError;
use crate::files::{Files, FolderAccess};
use crate::index::Index;
use crate::record::Record;
use crate::stream::definition::{Definition, PartitionKey};
use crate::stream::file_index::{self, FileIndex};
use crate::stream::history::{self, Expected, History};
use crate::stream::holds::{HOLD_MAX, HoldTable};
use crate::stream::manifest::{
    self, ALIASES, FORMAT, HOLDS, Holds, KnownAliases, STREAM, Sealed, StreamIdentity,
};
use crate::stream::refill::{FindFrames, refill, salvaged, whole};
use crate::stream::sealing::SealRequest;
use crate::stream::streams::{KnownMetrics, Partition, Stream, StreamOptions, Streams, now_us};
use crate::stream::tail::Tail;
use crate::stream::typed::{Typed, schema_of};
use crate::wal::batch::Batch;
use crate::wal::commit::Committer;
use crate::wal::segment::{self, StoreId};
use mqttcore_columnar::Aliases;

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
    let mut opening = Opening {
        write,
        index,
        is_restored,
    };
    let mut streams = Vec::new();
    for found in &mut found {
        streams.push(opening.stream(found)?);
    }
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

/// A stream that is defined, has a folder, or both.
struct Found {
    name: String,
    folder: Arc<dyn Files>,
    definition: Option<Definition>,
    identity: Option<StreamIdentity>,
}

fn find(root: &dyn Files, options: &StreamOptions) -> Result<Vec<Found>, StoreError> {
    let mut definitions = BTreeMap::new();
    for definition in &options.definitions {
        let is_valid = is_name(&definition.name) && definition.partitions > 0;
        if !is_valid || definitions.insert(&definition.name, definition).is_some() {
            let problem = "its name is not valid or used twice, or it has no partition";
            return Err(wrong(&definition.name, problem));
        }
    }
    let listed = root.list();
    let mut names = listed.map_err(|error| StoreError::io("list", STREAMS, error))?;
    names.retain(|name| is_name(name));
    names.extend(definitions.keys().map(|name| (*name).clone()));
    names.sort_unstable();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let definition = definitions.get(&name).map(|known| (*known).clone());
        let group = definition.as_ref().and_then(|known| known.group);
        let folder = root.folder(&name, FolderAccess::Passage(group));
        let folder = folder.map_err(|error| StoreError::io("open", &name, error))?;
        // Make the names durable that the rest of opening relies on.
        let synced = folder.sync_names();
        synced.map_err(|error| StoreError::io("sync the folder", &name, error))?;
        let identity: Option<StreamIdentity> = manifest::read(&*folder, STREAM)?;
        if definition.is_some() || identity.is_some() {
            found.push(Found {
                name,
                folder,
                definition,
                identity,
            });
        }
    }
    Ok(found)
}

/// Whether a name is valid as a folder and as part of a URL on every platform.
fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let mut bytes = name.bytes();
    name.len() <= 64
        && bytes.next().is_some_and(is_plain)
        && bytes.all(|byte| is_plain(byte) || matches!(byte, b'_' | b'-'))
}

struct Opening<'o, 'w> {
    write: &'o mut Write<'w>,
    index: &'o mut Index,
    is_restored: bool,
}

/// The files of a stream and its file index.
struct SealedFiles {
    histories: Vec<History>,
    sealed: Sealed,
    /// Whether the index has a log.
    is_logged: bool,
}

impl Opening<'_, '_> {
    fn stream(&mut self, found: &mut Found) -> Result<Stream, StoreError> {
        let store = uuid(self.index.store());
        let mut identity = self.identify(found, &store)?;
        let files = self.histories(found, &identity)?;
        let holds: Holds = manifest::read(&*found.folder, HOLDS)?.unwrap_or_default();
        let is_new = found.identity.is_none();
        let known = self.index.streams.find(&identity.name);
        let known = known.map(|(id, known)| (id, known.epoch));
        let is_known = known.is_some_and(|(id, _)| id == identity.id);
        if let Some((_, epoch)) = known {
            identity.epoch = identity.epoch.max(epoch);
        }
        if !is_new && (self.is_restored || !is_known || self.is_behind(&identity, &files, &holds)) {
            identity.epoch += 1;
        }
        self.record(&identity, known, &files.histories)?;
        if found.identity.as_ref() != Some(&identity) {
            manifest::write(&*found.folder, STREAM, &identity)?;
        }
        let index = FileIndex::new(Arc::clone(&found.folder), &files.sealed);
        let stream = self.stream_of(found, identity, files.histories, (index, holds))?;
        let written: Vec<_> = files.sealed.partitions;
        let now = stream.partitions.iter().map(|partition| {
            let partition = crate::stream::streams::lock(partition);
            partition.history.files.clone()
        });
        if files.is_logged || !now.eq(written) {
            stream.write_index()?;
        }
        Ok(stream)
    }

    /// The identity of the stream with the configured changes; the caller decides about the epoch.
    fn identify(&self, found: &Found, store: &str) -> Result<StreamIdentity, StoreError> {
        let Some(old) = &found.identity else {
            // INVARIANT: a stream is found by its definition or its identity.
            let definition = found.definition.as_ref().expect("a definition");
            return Ok(self.begin(definition, store));
        };
        if old.format > FORMAT {
            return Err(StoreError::NewerFormat {
                file: format!("{STREAMS}/{}/{STREAM}", found.name),
                found: old.format,
                known: FORMAT,
            });
        }
        if old.store != store {
            let other = &old.store;
            let problem = format!(
                "its folder belongs to store {other}, this one is {store}: move the folder away"
            );
            return Err(wrong(&found.name, &problem));
        }
        let mut identity = old.clone();
        if let Some(definition) = &found.definition {
            adapt(&mut identity, definition)?;
        }
        Ok(identity)
    }

    fn begin(&self, definition: &Definition, store: &str) -> StreamIdentity {
        let mut seed = [0; 8];
        seed.copy_from_slice(&segment::new_store()[..8]);
        let known = self.index.streams.find(&definition.name);
        StreamIdentity {
            format: FORMAT,
            name: definition.name.clone(),
            id: self.index.streams.next_stream(),
            filters: definition.filters.clone(),
            partitions: definition.partitions,
            key: definition.key.name().to_owned(),
            seed: u64::from_le_bytes(seed).to_string(),
            store: store.to_owned(),
            // If a stream had this name before, a consumer may know its offsets.
            epoch: known.map_or(1, |(_, known)| known.epoch + 1),
            schema: schema_of(definition, None),
            created_us: now_us(),
        }
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
        ahead.any(|(place, history)| history.end() > end(place))
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
            let end = history.end().max(history.earliest);
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

    fn stream_of(
        &self,
        found: &Found,
        identity: StreamIdentity,
        histories: Vec<History>,
        (index, holds): (FileIndex, Holds),
    ) -> Result<Stream, StoreError> {
        let partitions = (0..).zip(histories).map(|(number, history)| {
            let sealed = self.index.streams.sealed((identity.id, number));
            Mutex::new(partition_of(number, history, sealed))
        });
        let partitions: Vec<Mutex<Partition>> = partitions.collect();
        let damaged = |what: &str| wrong(&identity.name, &format!("{STREAM} has no {what}"));
        let key = PartitionKey::from_name(&identity.key).ok_or_else(|| damaged("valid key"))?;
        let seed = identity.seed.parse();
        let seed = seed.map_err(|_| damaged("valid seed"))?;
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

/// A partition with rows sealed up to `sealed`; files below its earliest offset are marked for removal.
fn partition_of(number: u16, mut history: History, sealed: u64) -> Partition {
    let earliest = history.earliest;
    let old = history.files.extract_if(.., |file| file.last < earliest);
    // No reader can have begun to read them since the start of this process.
    let to_remove = old.map(|file| (file.file, 0)).collect();
    let tail = Tail::new(number, sealed.max(history.end()));
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
) -> Result<Aliases, StoreError> {
    let noted: KnownAliases = manifest::read(folder, ALIASES)?.unwrap_or_default();
    let mut aliases = Aliases::parse(&noted.nodes.to_string()).unwrap_or_default();
    for (place, partition) in partitions.iter().enumerate() {
        let end = noted.ends.get(place).copied().unwrap_or(0);
        let history = &crate::stream::streams::lock(partition).history;
        for file in history.files.iter().filter(|file| file.base >= end) {
            // An unreadable file adds no aliases; readers of its rows get the error.
            let _ = history.follow(file, &mut aliases);
        }
    }
    Ok(aliases)
}

/// Applies the changes that a definition may make and rejects others.
fn adapt(identity: &mut StreamIdentity, definition: &Definition) -> Result<(), StoreError> {
    let (old, new) = (identity.partitions, definition.partitions);
    if old != new {
        let problem = format!(
            "it was created with {old} partitions, which cannot change; {new} are configured"
        );
        return Err(wrong(&identity.name, &problem));
    }
    if identity.key != definition.key.name() {
        let (old, new) = (&identity.key, definition.key.name());
        let problem =
            format!("it was created with key {old}, which cannot change; {new} is configured");
        return Err(wrong(&identity.name, &problem));
    }
    identity.filters.clone_from(&definition.filters);
    let schema = schema_of(definition, identity.schema.as_ref());
    let (old, new) = (identity.schema.as_ref(), schema.as_ref());
    let kept = old.map_or(&[][..], |old| &old.columns);
    if !new.map_or(&[][..], |new| &new.columns).starts_with(kept) {
        let problem = "its columns cannot change: add new ones behind them";
        return Err(wrong(&identity.name, problem));
    }
    identity.schema = schema;
    Ok(())
}

/// The identifier of a store in the form of a UUID.
pub(crate) fn uuid(store: StoreId) -> String {
    let hex: Vec<String> = store.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16];
    parts.map(|part| hex[part].concat()).join("-")
}

pub(super) fn wrong(stream: &str, problem: &str) -> StoreError {
    StoreError::Stream {
        stream: stream.to_owned(),
        problem: problem.into(),
    }
}
