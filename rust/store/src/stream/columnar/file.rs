//! One file of a stream, opened for reading.

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};

use parquet::arrow::ProjectionMask;
use parquet::arrow::arrow_reader::{
    ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReader,
    ParquetRecordBatchReaderBuilder, RowSelection, RowSelector,
};
use parquet::file::metadata::RowGroupMetaData;

use super::columns::Columns;
use super::part::Part;
use super::{ColumnarError, FileMeta, ReadOptions};

/// A file whose footer is what the index says.
pub(crate) struct SealedFile {
    path: PathBuf,
    file: File,
    metadata: ArrowReaderMetadata,
    mask: ProjectionMask,
    base: i64,
}

impl SealedFile {
    /// Opens a file and holds its footer against the index.
    pub(crate) fn open(
        part: Part,
        partition: i32,
        columns: &Columns,
    ) -> Result<Self, ColumnarError> {
        let path = part.path;
        let file = File::open(&path).map_err(|error| ColumnarError::io(&path, error))?;
        let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new())
            .map_err(|error| ColumnarError::unreadable(&path, &error))?;
        let meta = FileMeta::of(&path, metadata.metadata())?;
        if (meta.partition, meta.base, meta.last) != (partition, part.base, part.last) {
            let problem = format!(
                "it holds offsets {} to {} of partition {}",
                meta.base, meta.last, meta.partition
            );
            return Err(ColumnarError::other_file(&path, problem));
        }
        let places = columns.places(&path, metadata.schema())?;
        let mask = ProjectionMask::roots(metadata.parquet_schema(), places);
        Ok(Self {
            path,
            file,
            metadata,
            mask,
            base: meta.base,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the offsets of each row group.
    pub(crate) fn groups(&self) -> Vec<Range<i64>> {
        let mut next = self.base;
        let groups = self.metadata.metadata().row_groups().iter();
        let groups = groups.map(|group| {
            let start = next;
            next += group.num_rows();
            start..next
        });
        groups.collect()
    }

    /// Begins to read `wanted`, offsets of row group `index`, which holds `group`.
    pub(crate) fn read(
        &self,
        index: usize,
        group: &Range<i64>,
        wanted: &Range<i64>,
        options: &ReadOptions,
    ) -> Result<ParquetRecordBatchReader, ColumnarError> {
        let file = self
            .file
            .try_clone()
            .map_err(|error| ColumnarError::io(&self.path, error))?;
        let metadata = self.metadata.metadata().row_group(index);
        let mut builder =
            ParquetRecordBatchReaderBuilder::new_with_metadata(file, self.metadata.clone())
                .with_projection(self.mask.clone())
                .with_row_groups(vec![index])
                .with_batch_size(batch_rows(metadata, options));
        if wanted != group {
            let skipped = count(&(group.start..wanted.start));
            let selectors = vec![
                RowSelector::skip(skipped),
                RowSelector::select(count(wanted)),
            ];
            builder = builder.with_row_selection(RowSelection::from(selectors));
        }
        builder
            .build()
            .map_err(|error| ColumnarError::unreadable(&self.path, &error))
    }
}

/// Returns how many offsets there are; none if they are the wrong way round.
pub(crate) fn count(range: &Range<i64>) -> usize {
    usize::try_from(range.end - range.start).unwrap_or(0)
}

/// Rows of a batch, so that batches of average rows keep to the limit of bytes.
fn batch_rows(group: &RowGroupMetaData, options: &ReadOptions) -> usize {
    let rows = usize::try_from(group.num_rows()).unwrap_or(0).max(1);
    let bytes = usize::try_from(group.total_byte_size()).unwrap_or(0);
    let average = (bytes / rows).max(1);
    (options.batch_bytes / average).clamp(1, options.batch_rows.max(1))
}
