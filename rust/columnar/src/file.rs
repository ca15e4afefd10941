//! A Parquet file of a stream, opened for reading.

use std::fmt::Display;
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_schema::{ArrowError, DataType, Schema};
use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowPredicateFn, ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowFilter, RowSelection, RowSelector,
};
use parquet::errors::ParquetError;
use parquet::file::metadata::RowGroupMetaData;

use super::part::FilePart;
use super::pruning::prune;
use super::schema::{PAYLOAD, TOPIC};
use super::shape::BatchShaper;
use super::wanted::RowPredicate;
use super::{ColumnarError, FileMeta, ReadOptions};

/// An open file whose footer matches the index.
pub(crate) struct ParquetFile {
    path: PathBuf,
    file: Arc<File>,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    meta: FileMeta,
}

/// A row group, and the offsets to read from it.
pub(crate) struct RowGroup {
    pub(crate) index: usize,
    pub(crate) all: Range<i64>,
    pub(crate) wanted: Range<i64>,
}

/// A reader of a row group, with an optional filter.
pub(crate) struct FileRows {
    pub(crate) batches: ParquetRecordBatchReader,
    /// Number of rows that the filter has tested since the last count.
    seen: Option<Arc<AtomicUsize>>,
}

impl FileRows {
    /// Returns how many rows were read for `batch`, before any filter.
    pub(crate) fn read(&self, batch: Option<&RecordBatch>) -> usize {
        match &self.seen {
            // ORDERING: one thread at a time has the reader, and the filter within it.
            Some(seen) => seen.swap(0, Ordering::Relaxed),
            None => batch.map_or(0, RecordBatch::num_rows),
        }
    }
}

impl ParquetFile {
    /// Opens a file and compares its footer with the index.
    pub(crate) fn open(
        part: FilePart,
        partition: i32,
        shape: &mut BatchShaper,
    ) -> Result<Self, ColumnarError> {
        let path = part.path;
        let file = File::open(&path).map_err(|error| ColumnarError::io(&path, error))?;
        let load = || ArrowReaderMetadata::load(&file, ArrowReaderOptions::new());
        let metadata = contained(&path, load)?;
        let meta = FileMeta::of(&path, metadata.metadata())?;
        if (meta.partition, meta.base, meta.last) != (partition, part.base, part.last) {
            let problem = format!(
                "it holds offsets {} to {} of partition {}",
                meta.base, meta.last, meta.partition
            );
            return Err(ColumnarError::other_file(&path, problem));
        }
        shape.fit(metadata.schema());
        let places = shape.places(&path, metadata.schema())?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), places);
        Ok(Self {
            path,
            file: Arc::new(file),
            metadata,
            mask,
            meta,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offsets of each row group.
    pub(crate) fn groups(&self) -> Vec<Range<i64>> {
        let mut next = self.meta.base;
        let groups = self.metadata.metadata().row_groups().iter();
        let groups = groups.map(|group| {
            let start = next;
            next += group.num_rows();
            start..next
        });
        groups.collect()
    }

    /// Opens a reader of the wanted rows of a row group; `None` if it has none of them.
    pub(crate) fn read(
        &self,
        group: &RowGroup,
        wanted: &RowPredicate,
        options: &ReadOptions,
    ) -> Result<Option<FileRows>, ColumnarError> {
        contained(&self.path, || {
            self.try_read(group, wanted, options, &self.mask)
        })
    }

    /// Gives the decoder the Sparkplug aliases that it would know if it had read all rows before `from`.
    pub(crate) fn begin(&self, shape: &mut BatchShaper, from: i64) -> Result<(), ColumnarError> {
        if let Some(text) = &self.meta.aliases {
            shape.begin(&self.path, text)?;
        }
        let (births, options) = (RowPredicate::births()?, ReadOptions::default());
        let columns = ProjectionMask::columns(self.metadata.parquet_schema(), [TOPIC, PAYLOAD]);
        for (index, all) in self.groups().into_iter().enumerate() {
            let wanted = all.start..all.end.min(from);
            if wanted.is_empty() {
                break;
            }
            let group = RowGroup { index, all, wanted };
            let read = || self.try_read(&group, &births, &options, &columns);
            let rows = contained(&self.path, read)?.into_iter();
            for batch in rows.flat_map(|rows| rows.batches) {
                shape.follow(&contained(&self.path, || batch)?)?;
            }
        }
        Ok(())
    }

    fn try_read(
        &self,
        group: &RowGroup,
        wanted: &RowPredicate,
        options: &ReadOptions,
        columns: &ProjectionMask,
    ) -> Result<Option<FileRows>, ParquetError> {
        let row_group = self.metadata.metadata().row_group(group.index);
        let Some(wanted) = prune(wanted, &self.file, row_group)? else {
            return Ok(None);
        };
        let metadata = match wanted.topics() {
            [] => self.metadata.clone(),
            _ => self.with_topic_dictionary()?,
        };
        let file = self.file.try_clone()?;
        let mut builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
            .with_projection(columns.clone())
            .with_row_groups(vec![group.index])
            .with_batch_size(batch_rows(row_group, options));
        if group.wanted != group.all {
            let skipped = count(&(group.all.start..group.wanted.start));
            let selectors = [
                RowSelector::skip(skipped),
                RowSelector::select(count(&group.wanted)),
            ];
            builder = builder.with_row_selection(RowSelection::from(selectors.to_vec()));
        }
        let seen = (!wanted.is_everything()).then(|| Arc::new(AtomicUsize::new(0)));
        if let Some(seen) = &seen {
            builder = builder.with_row_filter(self.filter(wanted, Arc::clone(seen)));
        }
        let batches = builder.build()?;
        Ok(Some(FileRows { batches, seen }))
    }

    /// Reads the topics as a dictionary, so that a filter tests each distinct topic once.
    fn with_topic_dictionary(&self) -> Result<ArrowReaderMetadata, ParquetError> {
        let fields = self.metadata.schema().fields().iter().map(|field| {
            if field.name() != TOPIC {
                return field.clone();
            }
            let texts = DataType::Dictionary(DataType::Int32.into(), DataType::Utf8.into());
            Arc::new(field.as_ref().clone().with_data_type(texts))
        });
        let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
        let options = ArrowReaderOptions::new().with_schema(schema);
        ArrowReaderMetadata::try_new(self.metadata.metadata().clone(), options)
    }

    fn filter(&self, mut wanted: RowPredicate, seen: Arc<AtomicUsize>) -> RowFilter {
        let names = wanted.columns();
        let mask = ProjectionMask::columns(self.metadata.parquet_schema(), names);
        let predicate = ArrowPredicateFn::new(mask, move |batch: RecordBatch| {
            // ORDERING: one thread at a time has the reader, and this filter within it.
            seen.fetch_add(batch.num_rows(), Ordering::Relaxed);
            let mask = wanted.mask(&batch);
            mask.map_err(|error| ArrowError::ComputeError(error.to_string()))
        });
        RowFilter::new(vec![Box::new(predicate)])
    }
}

/// Calls the Parquet library to read `path`. The library panics on some damaged files; the panic becomes an error, and
/// the reader must not be used afterwards.
///
/// # Errors
///
/// [`ColumnarError`]: the file cannot be read or is damaged.
pub fn contained<T, E: Display>(
    path: &Path,
    read: impl FnOnce() -> Result<T, E>,
) -> Result<T, ColumnarError> {
    match mqttcore_panics::contained(read) {
        Ok(done) => done.map_err(|error| ColumnarError::unreadable(path, &error)),
        Err(_) => Err(ColumnarError::unreadable(path, "it is damaged")),
    }
}

/// Returns the number of offsets; 0 if the range is reversed.
pub(crate) fn count(range: &Range<i64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(0)
}

/// The number of rows of a batch, so that batches of average rows stay within the limit of bytes.
fn batch_rows(group: &RowGroupMetaData, options: &ReadOptions) -> usize {
    let rows = usize::try_from(group.num_rows()).unwrap_or(0).max(1);
    let bytes = usize::try_from(group.total_byte_size()).unwrap_or(0);
    let average = (bytes / rows).max(1);
    (options.batch_bytes / average).clamp(1, options.batch_rows.max(1))
}
