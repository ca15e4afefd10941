//! Metadata of a stream's file, stored in its Parquet footer.

use std::collections::HashMap;
use std::fs::File;
use std::path::Path;
use std::str::FromStr;

use parquet::file::metadata::{KeyValue, ParquetMetaData, ParquetMetaDataReader};

use super::ColumnarError;
use super::births::ALIASES;
use super::file::contained;
use super::schema::row_schema;

/// The stream that wrote a file.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Origin {
    /// Its name.
    pub stream: String,
    /// The stream's epoch, which offsets of the Spark source contain.
    pub epoch: String,
    /// Version of its typed columns; 0 if it has none.
    pub schema: u32,
}

/// The rows of a file: those of one partition with offsets `base..=last`, without a gap.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct FileMeta {
    /// The stream that wrote the file.
    pub origin: Origin,
    /// The partition.
    pub partition: i32,
    /// The first offset.
    pub base: i64,
    /// The last offset.
    pub last: i64,
    /// The earliest timestamp, in Unix microseconds.
    pub min_us: i64,
    /// The latest timestamp, in Unix microseconds.
    pub max_us: i64,
    /// Number of typed columns, after those of every row.
    pub typed: usize,
    /// The earlier Sparkplug aliases that the rows need, in the format of
    /// [`MetricAliases::to_json`](super::MetricAliases::to_json); `None` in files of versions that did not store them.
    pub aliases: Option<String>,
}

impl FileMeta {
    /// Returns the number of rows.
    pub fn rows(&self) -> i64 {
        self.last - self.base + 1
    }

    /// Reads the footer of a file.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Io`], [`ColumnarError::Unreadable`] for a file that is not Parquet, and
    /// [`ColumnarError::OtherFile`] for one that no stream wrote, or whose number of rows differs from its offsets.
    pub fn read(path: &Path) -> Result<Self, ColumnarError> {
        let file = File::open(path).map_err(|error| ColumnarError::io(path, error))?;
        let footer = contained(path, || {
            ParquetMetaDataReader::new().parse_and_finish(&file)
        })?;
        Self::of(path, &footer)
    }

    /// Parses a footer that was read already.
    ///
    /// # Errors
    ///
    /// [`ColumnarError`]: mqttcore did not write the file.
    pub fn of(path: &Path, footer: &ParquetMetaData) -> Result<Self, ColumnarError> {
        let entries = Entries::of(path, footer);
        let columns = footer.file_metadata().schema().get_fields().len();
        let meta = Self {
            origin: Origin {
                stream: entries.text(STREAM)?.to_owned(),
                epoch: entries.text(EPOCH)?.to_owned(),
                schema: entries.number(SCHEMA)?,
            },
            partition: entries.number(PARTITION)?,
            base: entries.number(BASE)?,
            last: entries.number(LAST)?,
            min_us: entries.number(MIN_US)?,
            max_us: entries.number(MAX_US)?,
            typed: columns.saturating_sub(row_schema().fields().len()),
            aliases: entries.values.get(ALIASES).map(|text| (*text).to_owned()),
        };
        let rows = footer.file_metadata().num_rows();
        let expected = meta
            .last
            .checked_sub(meta.base)
            .and_then(|span| span.checked_add(1));
        if meta.base < 0 || expected != Some(rows) {
            let (base, last) = (meta.base, meta.last);
            let problem = format!("{rows} rows for offsets {base} to {last}");
            return Err(ColumnarError::other_file(path, problem));
        }
        Ok(meta)
    }

    pub(crate) fn entries(&self) -> Vec<KeyValue> {
        let entry = |key: &str, value: String| KeyValue::new(key.to_owned(), value);
        let aliases = self.aliases.iter().map(|text| entry(ALIASES, text.clone()));
        let entries = [
            entry(STREAM, self.origin.stream.clone()),
            entry(EPOCH, self.origin.epoch.clone()),
            entry(SCHEMA, self.origin.schema.to_string()),
            entry(PARTITION, self.partition.to_string()),
            entry(BASE, self.base.to_string()),
            entry(LAST, self.last.to_string()),
            entry(MIN_US, self.min_us.to_string()),
            entry(MAX_US, self.max_us.to_string()),
        ];
        entries.into_iter().chain(aliases).collect()
    }
}

const STREAM: &str = "mqttcore.stream";
const EPOCH: &str = "mqttcore.epoch";
const SCHEMA: &str = "mqttcore.schema";
const PARTITION: &str = "mqttcore.partition";
const BASE: &str = "mqttcore.base";
const LAST: &str = "mqttcore.last";
const MIN_US: &str = "mqttcore.min_us";
const MAX_US: &str = "mqttcore.max_us";

/// Keys and values of a footer.
struct Entries<'a> {
    path: &'a Path,
    values: HashMap<&'a str, &'a str>,
}

impl<'a> Entries<'a> {
    fn of(path: &'a Path, footer: &'a ParquetMetaData) -> Self {
        let entries = footer.file_metadata().key_value_metadata();
        let entries = entries.into_iter().flatten();
        let values =
            entries.filter_map(|entry| Some((entry.key.as_str(), entry.value.as_deref()?)));
        Self {
            path,
            values: values.collect(),
        }
    }

    fn text(&self, key: &str) -> Result<&'a str, ColumnarError> {
        self.values
            .get(key)
            .copied()
            .ok_or_else(|| ColumnarError::other_file(self.path, format!("no {key} in the footer")))
    }

    fn number<T: FromStr>(&self, key: &str) -> Result<T, ColumnarError> {
        let text = self.text(key)?;
        text.parse().map_err(|_| {
            ColumnarError::other_file(
                self.path,
                format!("{key} is {text:?}, which is not a number"),
            )
        })
    }
}
