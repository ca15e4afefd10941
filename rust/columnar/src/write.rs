//! Writes batches of one partition to a Parquet file.

use std::borrow::Borrow;
use std::io::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, RecordBatch};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::schema::types::ColumnPath;

use super::cut::text_bytes;
use super::decode::Needed;
use super::schema::{OFFSET, PARTITION, PAYLOAD, TIMESTAMP, TOPIC, row_schema};
use super::{ColumnarError, FileMeta, MetricAliases, Origin};

/// Maximum number of rows in a row group.
const GROUP_ROWS: usize = 128 * 1024;

/// Maximum bytes of texts and blobs in a row group: a reader holds a whole column of it in memory.
const GROUP_BYTES: usize = 64 << 20;

/// Maximum size of a column's dictionary in bytes.
const DICTIONARY_BYTES: usize = 4 << 20;

const ZSTD_LEVEL: i32 = 3;

/// Writes batches to one file; returns the metadata of its footer.
///
/// The batches have the columns of [`row_schema`], optionally followed by typed columns, the same in each. Their rows
/// belong to one partition, dense and in order. `aliases` are those known before the rows; the call updates them to
/// those known after. The caller syncs and renames the file.
///
/// # Errors
///
/// [`ColumnarError::Column`] for other columns, [`ColumnarError::NotDense`] for a gap, a repeat, another partition or
/// no row at all, [`ColumnarError::Arrow`] if `out` fails. The bytes written so far are not a valid file.
pub fn write_parquet<W: Write + Send, B: Borrow<RecordBatch>>(
    out: W,
    batches: impl IntoIterator<Item = B>,
    origin: &Origin,
    aliases: &mut MetricAliases,
) -> Result<FileMeta, ColumnarError> {
    let mut needed = Needed::default();
    let batches = batches.into_iter();
    let mut batches = batches.filter(|batch| batch.borrow().num_rows() > 0);
    let first = batches.next().ok_or_else(no_row)?;
    let first = first.borrow();
    let columns = first.num_columns();
    let mut writer = ArrowWriter::try_new(out, first.schema(), Some(properties()?))?;
    let mut meta = Extent::of(first, None)?.into_meta(origin);
    aliases.follow_noting(first, &mut needed)?;
    let mut group_bytes = text_bytes(first);
    writer.write(first)?;
    for batch in batches {
        let batch = batch.borrow();
        let extent = Extent::of(batch, Some(&meta))?;
        aliases.follow_noting(batch, &mut needed)?;
        meta.last = extent.last;
        meta.min_us = meta.min_us.min(extent.min_us);
        meta.max_us = meta.max_us.max(extent.max_us);
        if group_bytes + text_bytes(batch) > GROUP_BYTES {
            writer.flush()?;
            group_bytes = 0;
        }
        group_bytes += text_bytes(batch);
        writer.write(batch)?;
    }
    meta.typed = columns.saturating_sub(row_schema().fields().len());
    meta.aliases = Some(needed.into_aliases().to_json());
    for entry in meta.entries() {
        writer.append_key_value_metadata(entry);
    }
    writer.close()?;
    Ok(meta)
}

fn no_row() -> ColumnarError {
    ColumnarError::NotDense {
        partition: 0,
        problem: "no row to write".to_owned(),
    }
}

fn properties() -> Result<WriterProperties, ColumnarError> {
    let column = |name: &str| ColumnPath::from(name);
    let mut properties = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(ZSTD_LEVEL)?))
        .set_max_row_group_row_count(Some(GROUP_ROWS))
        .set_column_encoding(column(PAYLOAD), Encoding::DELTA_LENGTH_BYTE_ARRAY);
    for name in [OFFSET, TIMESTAMP] {
        properties = properties
            .set_column_dictionary_enabled(column(name), false)
            .set_column_encoding(column(name), Encoding::DELTA_BINARY_PACKED);
    }
    for name in [TOPIC, "client_id"] {
        properties =
            properties.set_column_dictionary_page_size_limit(column(name), DICTIONARY_BYTES);
    }
    for name in [PAYLOAD, "correlation_data"] {
        properties = properties
            .set_column_dictionary_enabled(column(name), false)
            .set_column_statistics_enabled(column(name), EnabledStatistics::None);
    }
    Ok(properties.build())
}

/// Partition, offsets and times of a batch.
struct Extent {
    partition: i32,
    base: i64,
    last: i64,
    min_us: i64,
    max_us: i64,
}

impl Extent {
    /// Checks that a non-empty batch continues at the end of `before`.
    fn of(batch: &RecordBatch, before: Option<&FileMeta>) -> Result<Self, ColumnarError> {
        check_columns(batch)?;
        let column = |name: &str| batch.column_by_name(name).map(|column| &**column);
        let partitions = column(PARTITION).and_then(AsArray::as_primitive_opt::<Int32Type>);
        let offsets = column(OFFSET).and_then(AsArray::as_primitive_opt::<Int64Type>);
        let times =
            column(TIMESTAMP).and_then(AsArray::as_primitive_opt::<TimestampMicrosecondType>);
        let (Some(partitions), Some(offsets), Some(times)) = (partitions, offsets, times) else {
            return Err(ColumnarError::column(OFFSET, "is of another type"));
        };
        let partition = before.map_or_else(|| partitions.value(0), |meta| meta.partition);
        let base = before.map_or_else(|| offsets.value(0), |meta| meta.last + 1);
        let not_dense = |problem| ColumnarError::NotDense { partition, problem };
        let is_null = [
            partitions.null_count(),
            offsets.null_count(),
            times.null_count(),
        ];
        if base < 0 || is_null != [0; 3] {
            return Err(not_dense("a row without an offset or a time".to_owned()));
        }
        let mut partitions = partitions.values().iter();
        if let Some(other) = partitions.find(|other| **other != partition) {
            return Err(not_dense(format!("a row of partition {other}")));
        }
        let mut pairs = (base..).zip(offsets.values());
        if let Some((expected, found)) = pairs.find(|(expected, found)| expected != *found) {
            let problem = format!("found offset {found}, expected {expected}");
            return Err(not_dense(problem));
        }
        Ok(Self {
            partition,
            base,
            last: offsets.value(offsets.len() - 1),
            // INVARIANT: the caller skips batches without rows.
            min_us: *times.values().iter().min().expect("a row"),
            max_us: *times.values().iter().max().expect("a row"),
        })
    }

    fn into_meta(self, origin: &Origin) -> FileMeta {
        FileMeta {
            origin: origin.clone(),
            partition: self.partition,
            base: self.base,
            last: self.last,
            min_us: self.min_us,
            max_us: self.max_us,
            typed: 0,
            aliases: None,
        }
    }
}

/// Checks that the columns of [`row_schema`] come first.
fn check_columns(batch: &RecordBatch) -> Result<(), ColumnarError> {
    let schema = batch.schema();
    for (index, expected) in row_schema().fields().iter().enumerate() {
        let found = schema.fields().get(index);
        let found = found.ok_or_else(|| ColumnarError::column(expected.name(), "is missing"))?;
        if found.name() != expected.name() || found.data_type() != expected.data_type() {
            let problem = format!("is {found}, expected {expected}");
            return Err(ColumnarError::column(expected.name(), &problem));
        }
    }
    Ok(())
}
