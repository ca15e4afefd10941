//! Row group pruning by statistics, dictionaries and footers.

use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use parquet::basic::Encoding;
use parquet::column::page::{Page, PageReader};
use parquet::errors::ParquetError;
use parquet::file::metadata::{ColumnChunkMetaData, RowGroupMetaData};
use parquet::file::serialized_reader::SerializedPageReader;
use parquet::file::statistics::Statistics;

use super::decode::NAMESPACE;
use super::schema::{TIMESTAMP, TOPIC};
use super::wanted::RowPredicate;

/// How many rows of a row group pass a test.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum RowShare {
    /// No row passes.
    None,
    /// Some rows may pass.
    Some,
    /// Each row passes.
    All,
}

/// Returns the part of the test that remains for a row group, or `None` if none of its rows is wanted.
pub(crate) fn prune(
    wanted: &RowPredicate,
    file: &Arc<File>,
    group: &RowGroupMetaData,
) -> Result<Option<RowPredicate>, ParquetError> {
    let times = wanted
        .times()
        .map(|times| share_of_times(times, column(group, TIMESTAMP)));
    if times == Some(RowShare::None) {
        return Ok(None);
    }
    let topics = match wanted.topics() {
        [] => None,
        _ => Some(share_of_topics(wanted, file, group)?),
    };
    if topics == Some(RowShare::None) {
        return Ok(None);
    }
    Ok(Some(wanted.without(
        topics == Some(RowShare::All),
        times == Some(RowShare::All),
    )))
}

/// Whether a row group may contain Sparkplug topics, by its statistics.
pub fn may_have_births(group: &RowGroupMetaData) -> bool {
    let column = column(group, TOPIC);
    !column.is_some_and(|column| is_out_of_bounds(NAMESPACE, column))
}

fn column<'a>(group: &'a RowGroupMetaData, name: &str) -> Option<&'a ColumnChunkMetaData> {
    let mut columns = group.columns().iter();
    columns.find(|column| column.column_path().parts() == [name])
}

fn share_of_times(times: &Range<i64>, column: Option<&ColumnChunkMetaData>) -> RowShare {
    let Some(Statistics::Int64(bounds)) = column.and_then(ColumnChunkMetaData::statistics) else {
        return RowShare::Some;
    };
    match (bounds.min_opt(), bounds.max_opt()) {
        (Some(min), Some(max)) if *max < times.start || *min >= times.end => RowShare::None,
        (Some(min), Some(max)) if times.contains(min) && times.contains(max) => RowShare::All,
        _ => RowShare::Some,
    }
}

fn share_of_topics(
    wanted: &RowPredicate,
    file: &Arc<File>,
    group: &RowGroupMetaData,
) -> Result<RowShare, ParquetError> {
    let Some(column) = column(group, TOPIC) else {
        return Ok(RowShare::Some);
    };
    let mut filters = wanted.topics().iter();
    if filters.all(|filter| is_out_of_bounds(literal_prefix(filter.as_str()), column)) {
        return Ok(RowShare::None);
    }
    let Some(page) = whole_dictionary(file, column, group.num_rows())? else {
        return Ok(RowShare::Some);
    };
    let (mut some, mut all) = (false, true);
    for topic in Values(&page) {
        let is_wanted = std::str::from_utf8(topic?).is_ok_and(|topic| wanted.matches_topic(topic));
        some |= is_wanted;
        all &= is_wanted;
    }
    Ok(match (some, all) {
        (false, _) => RowShare::None,
        (true, true) => RowShare::All,
        (true, false) => RowShare::Some,
    })
}

/// Returns the prefix of all topics that the filter matches.
fn literal_prefix(filter: &str) -> &str {
    let literal = filter.find(['+', '#']).map_or(filter, |end| &filter[..end]);
    if filter[literal.len()..].starts_with('#') {
        // `a/#` also matches `a` [MQTT-4.7.1-2].
        return literal.strip_suffix('/').unwrap_or(literal);
    }
    literal
}

/// Whether no topic between the bounds of the column begins with `prefix`; bounds may be truncated.
fn is_out_of_bounds(prefix: &str, column: &ColumnChunkMetaData) -> bool {
    let Some(Statistics::ByteArray(bounds)) = column.statistics() else {
        return false;
    };
    let prefix = prefix.as_bytes();
    let is_below = bounds.max_opt().is_some_and(|max| max.data() < prefix);
    let is_above = |min: &[u8]| min > prefix && !min.starts_with(prefix);
    is_below || bounds.min_opt().is_some_and(|min| is_above(min.data()))
}

/// Reads the dictionary of a column if it contains every value.
fn whole_dictionary(
    file: &Arc<File>,
    column: &ColumnChunkMetaData,
    rows: i64,
) -> Result<Option<Vec<u8>>, ParquetError> {
    let encodings = column.page_encoding_stats_mask();
    let is_whole = encodings.is_some_and(|encodings| encodings.is_only(Encoding::RLE_DICTIONARY));
    if !is_whole || column.dictionary_page_offset().is_none() {
        return Ok(None);
    }
    let rows = usize::try_from(rows).unwrap_or(0);
    let mut pages = SerializedPageReader::new(Arc::clone(file), column, rows, None)?;
    Ok(match pages.get_next_page()? {
        Some(Page::DictionaryPage { buf, .. }) => Some(buf.to_vec()),
        _ => None,
    })
}

/// Length-prefixed texts in PLAIN encoding.
struct Values<'a>(&'a [u8]);

impl<'a> Iterator for Values<'a> {
    type Item = Result<&'a [u8], ParquetError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let value = self.0.split_first_chunk::<4>().and_then(|(len, rest)| {
            let len = usize::try_from(u32::from_le_bytes(*len)).ok()?;
            rest.split_at_checked(len)
        });
        let Some((value, rest)) = value else {
            self.0 = &[];
            let problem = "a value of the topic dictionary is truncated".to_owned();
            return Some(Err(ParquetError::General(problem)));
        };
        self.0 = rest;
        Some(Ok(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_at_the_first_wildcard() {
        assert_eq!(literal_prefix("plant/7/temperature"), "plant/7/temperature");
        assert_eq!(literal_prefix("plant/+/temperature"), "plant/");
        assert_eq!(literal_prefix("plant/7/#"), "plant/7");
        assert_eq!(literal_prefix("plant/+/#"), "plant/");
        assert_eq!(literal_prefix("#"), "");
        assert_eq!(literal_prefix("/#"), "");
    }

    #[test]
    fn a_dictionary_that_is_cut_off_is_an_error() {
        let page = b"\x01\0\0\0a\x02\0\0\0bc";

        let values: Result<Vec<_>, _> = Values(page).collect();
        assert_eq!(values.expect("whole"), [&b"a"[..], b"bc"]);
        for len in [1, 4, 6, 9, 10] {
            assert!(Values(&page[..len]).any(|value| value.is_err()), "{len}");
        }
    }
}
