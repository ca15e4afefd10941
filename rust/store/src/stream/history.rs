//! Sealed files of a partition.
//!
//! All files of a stream lie in one folder, so that whoever reads it whole, Spark before all, needs
//! no more than its name. Which rows a file holds is told by the index and by its footer.
//!
//! A file has its final name when it is whole and safe. So after a crash a name without an
//! underscore is a whole file, and whether it counts is told by the offsets in its footer.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMicrosecondType};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use parquet::file::metadata::ParquetMetaDataReader;

use crate::error::StoreError;
use crate::files::Files;
use crate::stream::manifest::{SealedFile, full_or, remove_if_there};
use crate::stream::parquet_io::{FileReader, FileWriter};
use mqttcore_columnar::{Aliases, FileMeta, Origin, contained, may_have_births, write_parquet};

/// Small files that lie side by side before they are merged.
const MERGE_FILES: usize = 16;

/// A file of so many bytes is not small.
const SMALL_BYTES: u64 = 16 << 20;

/// The files of one partition.
#[derive(Clone, Debug)]
pub(super) struct History {
    folder: Arc<dyn Files>,
    partition: u16,
    /// In the order of their rows, without overlap.
    pub(super) files: Vec<SealedFile>,
    /// The first offset that may be read.
    pub(super) earliest: u64,
}

/// What a history is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected<'a> {
    pub(super) stream: &'a str,
    pub(super) partition: u16,
    /// The first offset that the log does not call sealed.
    pub(super) sealed: u64,
    /// Nothing is removed.
    pub(super) is_read_only: bool,
}

/// The names in the folder of a stream's rows, by partition, in the order of their rows; what was
/// being written when the broker died is removed.
///
/// All of them are safe when this returns: nobody says of a file that it is sealed before its name
/// is.
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

/// The same names, while nothing is changed.
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
    /// Finds out which of `names` in `folder` count, of which the index has `known`.
    ///
    /// A whole file that begins where the sealed rows end is adopted; others behind that are
    /// removed, and will be written again. So are files that a merge left behind.
    pub(super) fn open(
        folder: Arc<dyn Files>,
        names: &[String],
        known: &[SealedFile],
        earliest: u64,
        expected: &Expected<'_>,
    ) -> Result<Self, StoreError> {
        let mut history = Self {
            folder,
            partition: expected.partition,
            files: Vec::new(),
            earliest,
        };
        let (mut next, mut removed) = (0, Vec::new());
        for name in names {
            let Some((_, base)) = parse(name) else {
                continue;
            };
            let is_sealed = base < expected.sealed;
            match history.look_at(name, base, known, expected)? {
                Some(_) if base < next => removed.push(name.clone()),
                Some(file) if is_sealed || base == next.max(expected.sealed) => {
                    next = file.last + 1;
                    history.files.push(file);
                }
                // What was sealed is not given up because it cannot be read now: readers are told
                // which rows are missing.
                None if is_sealed => {}
                _ => removed.push(name.clone()),
            }
        }
        if !removed.is_empty() && !expected.is_read_only {
            history.remove(&removed)?;
        }
        Ok(history)
    }

    /// Behind the last row that is in a file; 0 without files.
    pub(super) fn end(&self) -> u64 {
        self.files.last().map_or(0, |file| file.last + 1)
    }

    /// What a file holds, if it is one of this partition.
    fn look_at(
        &self,
        name: &str,
        base: u64,
        known: &[SealedFile],
        expected: &Expected<'_>,
    ) -> Result<Option<SealedFile>, StoreError> {
        let failed = |error| StoreError::io("read", name, error);
        let file = self.folder.open(name).map_err(failed)?;
        let bytes = file.bytes().map_err(failed)?;
        let mut known = known.iter();
        let is_same = |known: &&SealedFile| {
            known.file == name && known.bytes == bytes && known.typed.is_some()
        };
        if let Some(known) = known.find(is_same) {
            return Ok(Some(known.clone()));
        }
        let reading = FileReader::new(file).map_err(failed)?;
        let meta = footer(name, &reading).filter(|meta| {
            meta.origin.stream == expected.stream
                && meta.partition == i32::from(expected.partition)
                && u64::try_from(meta.base) == Ok(base)
        });
        Ok(meta.map(|meta| sealed_file(name, &meta, bytes)))
    }

    /// Writes rows into a file that has its name and is safe.
    pub(super) fn write<'a>(
        &self,
        base: u64,
        batches: impl IntoIterator<Item = &'a RecordBatch>,
        origin: &Origin,
        aliases: &mut Aliases,
    ) -> Result<SealedFile, StoreError> {
        let name = name(self.partition, base);
        let unborn = format!("_{name}");
        let failed = |error| full_or(error, &name);
        let file = remove_if_there(&*self.folder, &unborn)
            .and_then(|()| self.folder.create(&unborn, 0))
            .map_err(failed)?;
        let mut writing = FileWriter::new(file);
        let written = write_parquet(&mut writing, batches, origin, aliases);
        let bytes = match written {
            Ok(_) => writing.finish(),
            Err(ref error) => Err(writing.explain(error)),
        };
        if bytes.is_err() {
            // The rows stay where they are; what was written of them is in the way.
            remove_if_there(&*self.folder, &unborn).map_err(failed)?;
        }
        let bytes = bytes.map_err(failed)?;
        self.folder
            .rename(&unborn, &name)
            .and_then(|()| self.folder.sync_names())
            .map_err(failed)?;
        // INVARIANT: an error became one of `bytes`.
        Ok(sealed_file(&name, &written.expect("written"), bytes))
    }

    /// Neighbours that are small and many, and whose rows lie within `longest`, as a range of `files` from `first` on.
    pub(super) fn mergeable(
        &self,
        first: usize,
        longest: Option<Duration>,
    ) -> Option<Range<usize>> {
        let longest_us = longest.map_or(u128::MAX, |longest| longest.as_micros());
        let (mut begin, mut bytes) = (first, 0);
        for (place, file) in self.files.iter().enumerate().skip(first) {
            let follows = place > begin && self.files[place - 1].last + 1 == file.base;
            if file.bytes >= SMALL_BYTES || bytes >= SMALL_BYTES || !follows {
                (begin, bytes) = (place, 0);
            }
            while begin < place && duration_us(&self.files[begin..=place]) > longest_us {
                bytes -= self.files[begin].bytes;
                begin += 1;
            }
            bytes += file.bytes;
            if file.bytes >= SMALL_BYTES {
                begin = place + 1;
            } else if place + 1 - begin == MERGE_FILES {
                return Some(begin..place + 1);
            }
        }
        None
    }

    /// All rows of a file, or one column of them.
    pub(super) fn read(
        &self,
        sealed: &SealedFile,
        column: Option<&str>,
    ) -> Result<Vec<RecordBatch>, StoreError> {
        self.read_by(sealed, |builder| match column {
            Some(column) => {
                let mask = ProjectionMask::columns(builder.parquet_schema(), [column]);
                builder.with_projection(mask)
            }
            None => builder,
        })
    }

    /// What the rows of a file say of Sparkplug's aliases, on top of what is known before them.
    pub(super) fn follow(
        &self,
        sealed: &SealedFile,
        aliases: &mut Aliases,
    ) -> Result<(), StoreError> {
        let read = || self.read_births(sealed);
        let batches = contained(Path::new(&sealed.file), read);
        let batches = batches.map_err(|error| unreadable(sealed, &error))?;
        let mut batches = batches.iter();
        let followed = batches.try_for_each(|batch| aliases.follow(batch));
        followed.map_err(|error| unreadable(sealed, &error))
    }

    /// Topics and payloads of the row groups that may have BIRTHs of Sparkplug.
    fn read_births(&self, sealed: &SealedFile) -> Result<Vec<RecordBatch>, StoreError> {
        self.read_by(sealed, |builder| {
            let groups = builder.metadata().row_groups().iter().enumerate();
            let groups = groups.filter(|(_, group)| may_have_births(group));
            let groups = groups.map(|(place, _)| place).collect();
            let mask = ProjectionMask::columns(builder.parquet_schema(), ["topic", "payload"]);
            builder.with_row_groups(groups).with_projection(mask)
        })
    }

    /// What the footer of a file says of Sparkplug's aliases; `None` if a version wrote it that did not.
    pub(super) fn aliases(&self, sealed: &SealedFile) -> Result<Option<Aliases>, StoreError> {
        let file = self.folder.open(&sealed.file).and_then(FileReader::new);
        let file = file.map_err(|error| StoreError::io("read", &sealed.file, error))?;
        let told = footer(&sealed.file, &file).and_then(|meta| meta.aliases);
        Ok(told.and_then(|text| Aliases::parse(&text)))
    }

    fn read_by(
        &self,
        sealed: &SealedFile,
        narrow: impl FnOnce(Builder) -> Builder,
    ) -> Result<Vec<RecordBatch>, StoreError> {
        let file = self.folder.open(&sealed.file).and_then(FileReader::new);
        let file = file.map_err(|error| StoreError::io("read", &sealed.file, error))?;
        let broken = |error: &dyn ToString| unreadable(sealed, error);
        let builder = Builder::try_new(file).map_err(|error| broken(&error))?;
        let reader = narrow(builder).build().map_err(|error| broken(&error))?;
        let batches = reader.collect::<Result<Vec<_>, _>>();
        batches.map_err(|error| broken(&error))
    }

    /// The first offset at or behind `at_us`, if it is in a file; times never fall.
    pub(super) fn at(&self, at_us: i64) -> Result<Option<u64>, StoreError> {
        let found = self.files.partition_point(|file| file.max_us < at_us);
        let Some(file) = self.files.get(found) else {
            return Ok(None);
        };
        if file.min_us >= at_us {
            return Ok(Some(file.base));
        }
        let older = self
            .read(file, Some("timestamp"))?
            .into_iter()
            .map(|batch| {
                let times = batch
                    .column(0)
                    .as_primitive_opt::<TimestampMicrosecondType>();
                times.map_or(0, |times| {
                    times.values().partition_point(|time| *time < at_us) as u64
                })
            });
        Ok(Some(file.base + older.sum::<u64>()))
    }

    /// The offsets of a file, as its rows have them.
    pub(super) fn offsets(&self, file: &SealedFile) -> Result<Vec<u64>, StoreError> {
        let mut offsets = Vec::new();
        // All columns are read: a row is more than its offset.
        for batch in self.read(file, None)? {
            let column = batch.column_by_name("offset");
            let column = column.and_then(|column| column.as_primitive_opt::<Int64Type>());
            let values = column.map_or(&[][..], |column| column.values());
            offsets.extend(values.iter().map(|offset| offset.cast_unsigned()));
        }
        Ok(offsets)
    }

    /// Removes files, and makes that safe.
    pub(super) fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        for name in names {
            let removed = remove_if_there(&*self.folder, name);
            removed.map_err(|error| StoreError::io("remove", name, error))?;
        }
        let synced = self.folder.sync_names();
        synced.map_err(|error| StoreError::io("sync the folder", "data", error))
    }
}

type Builder = ParquetRecordBatchReaderBuilder<FileReader>;

fn unreadable(sealed: &SealedFile, error: &dyn ToString) -> StoreError {
    let error = io::Error::other(error.to_string());
    StoreError::io("read", &sealed.file, error)
}

/// What the footer of a file says, if it is one of a stream.
fn footer(name: &str, reading: &FileReader) -> Option<FileMeta> {
    let footer = ParquetMetaDataReader::new().parse_and_finish(reading);
    FileMeta::of(Path::new(name), &footer.ok()?).ok()
}

/// From the earliest row of `files` to the latest one, in microseconds.
fn duration_us(files: &[SealedFile]) -> u128 {
    let earliest = files.iter().map(|file| i128::from(file.min_us)).min();
    let latest = files.iter().map(|file| i128::from(file.max_us)).max();
    let duration = latest
        .zip(earliest)
        .map(|(latest, earliest)| latest - earliest);
    duration.map_or(0, i128::unsigned_abs)
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
        sealed_us: None,
    }
}

/// The name of a file: it sorts by partition and first offset.
fn name(partition: u16, base: u64) -> String {
    format!("{partition:05}-{base:020}.parquet")
}

/// Partition and first offset of a file, from its name.
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
