//! Sealed files of a partition.
//!
//! All files of a stream are in one folder, so that Spark and other readers of the whole stream need only its name.
//! The index and the footer of a file say which rows it has.
//!
//! A file gets its final name when it is complete and safe. So after a crash a name without a leading underscore is a
//! complete file; the offsets in its footer decide whether it is valid.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaDataReader;

use crate::error::StoreError;
use crate::files::Files;
use crate::stream::manifest::{SealedFile, full_or, remove_if_there};
use crate::stream::parquet_io::{FileReader, FileWriter};
use crate::stream::tier::StreamTier;
use mqttcore_columnar::{
    FileMeta, MetricAliases, Origin, contained, may_have_births, write_parquet,
};

/// The files of one partition.
#[derive(Clone, Debug)]
pub(super) struct History {
    folder: Arc<dyn Files>,
    /// Where files are that are not in `folder`.
    pub(super) tier: Option<Arc<StreamTier>>,
    partition: u16,
    /// Ordered by offset, without overlap.
    pub(super) files: Vec<SealedFile>,
    /// The earliest offset that may be read.
    pub(super) earliest: u64,
}

/// The state of the files that the log and the store require.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) stream: &'a str,
    pub(super) partition: u16,
    /// The first unsealed offset in the log.
    pub(super) sealed: u64,
    /// If set, no file is removed.
    pub(super) is_read_only: bool,
    /// Whether objects can be read: the stream has object storage.
    pub(super) has_tier: bool,
}

/// File names in the folder of a stream's rows, by partition, in row order; incomplete files of an interrupted
/// process are removed.
///
/// All names are durable when this returns: a file may be recorded as sealed only after its name is.
pub(super) fn names(folder: &dyn Files) -> Result<BTreeMap<u16, Vec<String>>, StoreError> {
    let failed = |error| StoreError::io("list", "data", error);
    for name in folder.list().map_err(failed)? {
        if name.starts_with('_') {
            remove_if_there(folder, &name).map_err(failed)?;
        }
    }
    folder.sync_names().map_err(failed)?;
    look(folder)
}

/// File names as [`names`] returns them, without changing the folder.
pub(super) fn look(folder: &dyn Files) -> Result<BTreeMap<u16, Vec<String>>, StoreError> {
    let listed = folder.list();
    let mut names: BTreeMap<u16, Vec<String>> = BTreeMap::new();
    for name in listed.map_err(|error| StoreError::io("list", "data", error))? {
        if let Some((partition, _)) = parse(&name) {
            names.entry(partition).or_default().push(name);
        }
    }
    Ok(names)
}

impl History {
    /// Decides which of `names` in `folder` are valid; the index has the `known` ones.
    ///
    /// A complete file that begins at the end of the sealed rows is adopted. Other files beyond that end are removed,
    /// as they will be written again; so are files that a merge left over.
    pub(super) fn open(
        folder: Arc<dyn Files>,
        names: &[String],
        known: &[SealedFile],
        earliest: u64,
        expected: &Expected<'_>,
    ) -> Result<Self, StoreError> {
        let mut history = Self {
            folder,
            tier: None,
            partition: expected.partition,
            files: Vec::new(),
            earliest,
        };
        let (mut next, mut removed) = (0, Vec::new());
        for (base, place) in places(names, known) {
            let (name, found) = match place {
                Place::File(name) => (name, history.look_at(name, base, known, expected)?),
                Place::Object(file) => (&file.file, Some(remote(file))),
            };
            let is_sealed = base < expected.sealed;
            match found {
                Some(_) if base < next => removed.push(name.clone()),
                Some(file) if is_sealed || base == next.max(expected.sealed) => {
                    next = file.last + 1;
                    if file.is_remote && expected.has_tier {
                        // No reader can have begun to read it since the start of this process.
                        removed.push(name.clone());
                    }
                    history.files.push(file);
                }
                // A sealed file that cannot be read now is not removed: readers get an error with the missing rows.
                None if is_sealed => {}
                _ => removed.push(name.clone()),
            }
        }
        if !removed.is_empty() && !expected.is_read_only {
            history.remove(&removed)?;
        }
        Ok(history)
    }

    /// The folder of the files.
    pub(super) fn folder(&self) -> Arc<dyn Files> {
        Arc::clone(&self.folder)
    }

    /// Opens a file for reading: here, or its object.
    fn open_file(&self, sealed: &SealedFile) -> io::Result<FileReader> {
        let file = match (&self.tier, sealed.is_remote) {
            (Some(tier), true) => tier.open(sealed)?,
            _ => self.folder.open(&sealed.file)?,
        };
        FileReader::new(file)
    }

    /// The offset after the last row in a file; 0 without files.
    pub(super) fn end_offset(&self) -> u64 {
        self.files.last().map_or(0, |file| file.last + 1)
    }

    /// The offset after the last row that is in a file or was given up by retention.
    pub(super) fn sealed_end(&self) -> u64 {
        self.end_offset().max(self.earliest)
    }

    /// Describes a file, if it belongs to this partition; one that is damaged or cannot be read and has an object, as its
    /// object. Without object storage a damaged file stays as the index has it, so that its object is not forgotten; and a
    /// file that was to be removed here, since its object is there, is read here.
    fn look_at(
        &self,
        name: &str,
        base: u64,
        known: &[SealedFile],
        expected: &Expected<'_>,
    ) -> Result<Option<SealedFile>, StoreError> {
        let whole = self.whole(name, base, known, expected);
        match (whole, object_of(known, base)) {
            (Ok(None) | Err(_), Some(file)) if expected.has_tier => Ok(Some(remote(file))),
            (Ok(None), Some(file)) => Ok(Some(file.clone())),
            (Ok(Some(file)), _) if !expected.has_tier => Ok(Some(SealedFile {
                is_remote: false,
                ..file
            })),
            (whole, _) => whole,
        }
    }

    /// Describes a file that is not damaged, if it belongs to this partition.
    fn whole(
        &self,
        name: &str,
        base: u64,
        known: &[SealedFile],
        expected: &Expected<'_>,
    ) -> Result<Option<SealedFile>, StoreError> {
        let failed = |error| StoreError::io("read", name, error);
        let file = self.folder.open(name).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        let is_same = |known: &&SealedFile| {
            known.file == name && known.bytes == bytes && known.typed.is_some()
        };
        if let Some(known) = known.iter().find(is_same) {
            return Ok(Some(known.clone()));
        }
        let reading = FileReader::new(file).map_err(failed)?;
        let meta = footer(name, &reading).map_err(failed)?.filter(|meta| {
            meta.origin.stream == expected.stream
                && meta.partition == i32::from(expected.partition)
                && u64::try_from(meta.base) == Ok(base)
        });
        Ok(meta.map(|meta| sealed_file(name, &meta, bytes)))
    }

    /// Writes rows into a file; when this returns, the file has its name and is safe.
    pub(super) fn write<B: Borrow<RecordBatch>>(
        &self,
        base: u64,
        batches: impl IntoIterator<Item = Result<B, StoreError>>,
        origin: &Origin,
        aliases: &mut MetricAliases,
    ) -> Result<SealedFile, StoreError> {
        let name = name(self.partition, base);
        let temporary = format!("_{name}");
        let failed = |error| full_or(error, &name);
        let file = remove_if_there(&*self.folder, &temporary)
            .and_then(|()| self.folder.create(&temporary, 0))
            .map_err(failed)?;
        let mut writing = FileWriter::new(file);
        let mut unread = None;
        let batches = batches.into_iter();
        let batches = batches.map_while(|batch| batch.map_err(|error| unread = Some(error)).ok());
        let written = write_parquet(&mut writing, batches, origin, aliases);
        let finished = match (unread, written) {
            (Some(error), _) => Err(error),
            (None, Ok(meta)) => writing.finish().map(|bytes| (meta, bytes)).map_err(failed),
            (None, Err(error)) => Err(failed(writing.explain(&error))),
        };
        if finished.is_err() {
            // The rows stay where they were; the incomplete file is removed.
            remove_if_there(&*self.folder, &temporary).map_err(failed)?;
        }
        let (meta, bytes) = finished?;
        self.folder
            .rename(&temporary, &name)
            .and_then(|()| self.folder.sync_names())
            .map_err(failed)?;
        Ok(sealed_file(&name, &meta, bytes))
    }

    /// Reads a file.
    pub(super) fn read(
        &self,
        sealed: &SealedFile,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, StoreError>>, StoreError> {
        self.read_by(sealed, |builder| builder)
    }

    /// Updates `aliases` with the Sparkplug aliases in the rows of a file.
    pub(super) fn follow(
        &self,
        sealed: &SealedFile,
        aliases: &mut MetricAliases,
    ) -> Result<(), StoreError> {
        let read = || self.read_births(sealed)?.collect::<Result<Vec<_>, _>>();
        let batches = contained(Path::new(&sealed.file), read);
        let batches = batches.map_err(|error| unreadable(sealed, &error))?;
        let mut batches = batches.iter();
        let followed = batches.try_for_each(|batch| aliases.follow(batch));
        followed.map_err(|error| unreadable(sealed, &error))
    }

    /// Topics and payloads of the row groups that may have Sparkplug BIRTHs.
    fn read_births(
        &self,
        sealed: &SealedFile,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, StoreError>>, StoreError> {
        self.read_by(sealed, |builder| {
            let groups = builder.metadata().row_groups().iter().enumerate();
            let groups = groups.filter(|(_, group)| may_have_births(group));
            let groups = groups.map(|(place, _)| place).collect();
            let mask = ProjectionMask::columns(builder.parquet_schema(), ["topic", "payload"]);
            builder.with_row_groups(groups).with_projection(mask)
        })
    }

    /// The Sparkplug aliases in the footer of a file; `None` if an older version wrote the file.
    pub(super) fn aliases(&self, sealed: &SealedFile) -> Result<Option<MetricAliases>, StoreError> {
        let file = self.open_file(sealed);
        let meta = file.and_then(|file| footer(&sealed.file, &file));
        let meta = meta.map_err(|error| StoreError::io("read", &sealed.file, error))?;
        let told = meta.and_then(|meta| meta.aliases);
        Ok(told.and_then(|text| MetricAliases::parse(&text)))
    }

    fn read_by(
        &self,
        sealed: &SealedFile,
        narrow: impl FnOnce(Builder) -> Builder,
    ) -> Result<impl Iterator<Item = Result<RecordBatch, StoreError>>, StoreError> {
        let file = self.open_file(sealed);
        let file = file.map_err(|error| StoreError::io("read", &sealed.file, error))?;
        let builder = Builder::try_new(file).map_err(|error| unreadable(sealed, &error))?;
        let reader = narrow(builder).build();
        let reader = reader.map_err(|error| unreadable(sealed, &error))?;
        let sealed = sealed.clone();
        Ok(reader.map(move |batch| batch.map_err(|error| unreadable(&sealed, &error))))
    }

    /// The file with the first row with a time of at least `at_us`; times never decrease.
    pub(super) fn file_at(&self, at_us: i64) -> Option<&SealedFile> {
        let found = self.files.partition_point(|file| file.max_us < at_us);
        self.files.get(found)
    }

    /// The first offset in `file` with a time of at least `at_us`.
    pub(super) fn at(&self, file: &SealedFile, at_us: i64) -> Result<u64, StoreError> {
        if file.min_us >= at_us {
            return Ok(file.base);
        }
        let times = self.read_by(file, |builder| {
            let mask = ProjectionMask::columns(builder.parquet_schema(), ["timestamp"]);
            builder.with_projection(mask)
        })?;
        let mut offset = file.base;
        for batch in times {
            let batch = batch?;
            let times = batch
                .column(0)
                .as_primitive_opt::<TimestampMicrosecondType>();
            let values = times.map_or(&[][..], |times| times.values());
            offset += values.partition_point(|time| *time < at_us) as u64;
        }
        Ok(offset)
    }

    /// The offset column of a file.
    pub(super) fn offsets(&self, file: &SealedFile) -> Result<Vec<u64>, StoreError> {
        let mut offsets = Vec::new();
        // Read all columns, so that damage in any of them is found.
        for batch in self.read(file)? {
            let batch = batch?;
            let column = batch.column_by_name("offset");
            let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
            let values = column.map_or(&[][..], |column| column.values());
            offsets.extend(values.iter().map(|offset| offset.cast_unsigned()));
        }
        Ok(offsets)
    }

    /// Removes files; their removal is durable when this returns.
    pub(super) fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        for name in names {
            let removed = remove_if_there(&*self.folder, name);
            removed.map_err(|error| StoreError::io("remove", name, error))?;
        }
        let synced = self.folder.sync_names();
        synced.map_err(|error| StoreError::io("sync the folder", "data", error))
    }
}

/// Where a file was found.
#[derive(Clone, Copy)]
enum Place<'a> {
    /// In the folder, by its name.
    File(&'a String),
    /// In object storage only.
    Object(&'a SealedFile),
}

/// The files with these names, and those of `known` that have an object and no name here, in row order.
fn places<'a>(names: &'a [String], known: &'a [SealedFile]) -> Vec<(u64, Place<'a>)> {
    let in_folder: HashSet<&str> = names.iter().map(String::as_str).collect();
    let here = names.iter().filter_map(|name| {
        let (_, base) = parse(name)?;
        Some((base, Place::File(name)))
    });
    let away = known.iter().filter(|file| file.object.is_some());
    let away = away.filter(|file| !in_folder.contains(&*file.file));
    let mut places: Vec<_> = here
        .chain(away.map(|file| (file.base, Place::Object(file))))
        .collect();
    places.sort_by_key(|(base, _)| *base);
    places
}

/// The file of `known` that begins at `base`, if it has an object.
fn object_of(known: &[SealedFile], base: u64) -> Option<&SealedFile> {
    let mut known = known.iter();
    known.find(|file| file.base == base && file.object.is_some())
}

/// A file of which only the object is left.
fn remote(file: &SealedFile) -> SealedFile {
    SealedFile {
        is_remote: true,
        ..file.clone()
    }
}

type Builder = ParquetRecordBatchReaderBuilder<FileReader>;

fn unreadable(sealed: &SealedFile, error: &dyn ToString) -> StoreError {
    let error = io::Error::other(error.to_string());
    StoreError::io("read", &sealed.file, error)
}

/// The metadata in the footer of a file; `None` if it is damaged or no file of a stream.
///
/// # Errors
///
/// Those of the file system.
fn footer(name: &str, reading: &FileReader) -> io::Result<Option<FileMeta>> {
    match ParquetMetaDataReader::new().parse_and_finish(reading) {
        Ok(footer) => Ok(FileMeta::of(Path::new(name), &footer).ok()),
        Err(ParquetError::External(error)) => match error.downcast::<io::Error>() {
            Ok(error) if error.kind() != io::ErrorKind::UnexpectedEof => Err(*error),
            _ => Ok(None),
        },
        Err(_) => Ok(None),
    }
}

fn sealed_file(name: &str, meta: &FileMeta, bytes: u64) -> SealedFile {
    SealedFile {
        file: name.to_owned(),
        base: meta.base.cast_unsigned(),
        last: meta.last.cast_unsigned(),
        min_us: meta.min_us,
        max_us: meta.max_us,
        rows: meta.rows().cast_unsigned(),
        bytes,
        typed: Some(meta.typed),
        ..SealedFile::default()
    }
}

/// File name; names sort by partition and first offset.
fn name(partition: u16, base: u64) -> String {
    format!("{partition:05}-{base:020}.parquet")
}

/// Decodes partition and first offset from a file name.
fn parse(name: &str) -> Option<(u16, u64)> {
    let (partition, base) = name.strip_suffix(".parquet")?.split_once('-')?;
    let is_number = |digits: &str, length| {
        digits.len() == length && digits.bytes().all(|digit| digit.is_ascii_digit())
    };
    if !is_number(partition, 5) || !is_number(base, 20) {
        return None;
    }
    Some((partition.parse().ok()?, base.parse().ok()?))
}
