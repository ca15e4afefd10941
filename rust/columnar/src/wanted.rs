//! Row predicates: topic filter and time range.

use std::ops::Range;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::TimestampMicrosecondType;
use arrow_array::{Array, ArrayRef, BooleanArray, RecordBatch, StringArray};
use arrow_buffer::BooleanBuffer;
use mqttcore_topics::{TopicFilter, TopicLimits, TopicName};

use super::births::BIRTHS;
use super::schema::{TIMESTAMP, TOPIC};
use super::topics::{Topics, column};
use super::{ColumnarError, ReadOptions};

/// No limits: topics of stored rows were checked when they were published.
pub(crate) const ANY_TOPIC: TopicLimits = TopicLimits {
    bytes: usize::MAX,
    levels: usize::MAX,
    refuse_control_characters: false,
};

/// A predicate of rows. Caches its results for the last dictionary.
#[derive(Clone, Debug, Default)]
pub(crate) struct RowPredicate {
    /// Topic filters: one of them has to match; empty for all topics.
    topics: Vec<TopicFilter>,
    times: Option<Range<i64>>,
    known: Option<(ArrayRef, BooleanBuffer)>,
}

impl RowPredicate {
    pub(crate) fn of(options: &ReadOptions) -> Self {
        let (start, end) = (options.start_us, options.end_us);
        let times = start.unwrap_or(i64::MIN)..end.unwrap_or(i64::MAX);
        Self {
            topics: options.filter.iter().cloned().collect(),
            times: (start.is_some() || end.is_some()).then_some(times),
            known: None,
        }
    }

    /// A predicate of the rows that define Sparkplug aliases.
    pub(crate) fn births() -> Result<Self, ColumnarError> {
        let filters = BIRTHS.into_iter().map(ReadOptions::parse_filter);
        Ok(Self {
            topics: filters.collect::<Result<_, _>>()?,
            ..Self::default()
        })
    }

    /// Whether every row passes.
    pub(crate) fn is_everything(&self) -> bool {
        self.topics.is_empty() && self.times.is_none()
    }

    /// Returns the columns that the predicate needs.
    pub(crate) fn columns(&self) -> Vec<&'static str> {
        let topic = (!self.topics.is_empty()).then_some(TOPIC);
        let time = self.times.is_some().then_some(TIMESTAMP);
        topic.into_iter().chain(time).collect()
    }

    pub(crate) fn topics(&self) -> &[TopicFilter] {
        &self.topics
    }

    pub(crate) fn times(&self) -> Option<&Range<i64>> {
        self.times.as_ref()
    }

    /// Returns the predicate without the parts that all rows of a row group pass.
    pub(crate) fn without(&self, topics: bool, times: bool) -> Self {
        let left = if topics { &[][..] } else { &self.topics };
        Self {
            topics: left.to_vec(),
            times: self.times.clone().filter(|_| !times),
            known: None,
        }
    }

    /// Returns for each row whether it passes.
    pub(crate) fn mask(&mut self, batch: &RecordBatch) -> Result<BooleanArray, ColumnarError> {
        let mut mask = BooleanBuffer::new_set(batch.num_rows());
        if let Some(times) = &self.times {
            let column = column(batch, TIMESTAMP)?;
            let column = column.as_primitive_opt::<TimestampMicrosecondType>();
            let column =
                column.ok_or_else(|| ColumnarError::column(TIMESTAMP, "is not a timestamp"))?;
            let wanted = |row| times.contains(&column.value(row)) && column.is_valid(row);
            mask = &mask & &BooleanBuffer::collect_bool(column.len(), wanted);
        }
        if !self.topics.is_empty() {
            mask = &mask & &self.topic_mask(column(batch, TOPIC)?)?;
        }
        Ok(BooleanArray::new(mask, None))
    }

    fn topic_mask(&mut self, column: &ArrayRef) -> Result<BooleanBuffer, ColumnarError> {
        Ok(match Topics::of(column)? {
            Topics::Plain(texts) => self.matches(texts),
            Topics::Dictionary(keys, texts) => {
                let known = self.known_matches(keys.values(), texts);
                let wanted = |row| keys.key(row).is_some_and(|key| known.value(key));
                BooleanBuffer::collect_bool(keys.len(), wanted)
            }
        })
    }

    fn known_matches(&mut self, values: &ArrayRef, texts: &StringArray) -> BooleanBuffer {
        if let Some((known, matches)) = &self.known
            && Arc::ptr_eq(known, values)
        {
            return matches.clone();
        }
        let matches = self.matches(texts);
        self.known = Some((values.clone(), matches.clone()));
        matches
    }

    fn matches(&self, texts: &StringArray) -> BooleanBuffer {
        let wanted = |row| texts.is_valid(row) && self.matches_topic(texts.value(row));
        BooleanBuffer::collect_bool(texts.len(), wanted)
    }

    /// Whether a filter matches the topic, or there are no filters; an empty text is not a topic.
    pub(crate) fn matches_topic(&self, topic: &str) -> bool {
        if self.topics.is_empty() {
            return true;
        }
        let mut filters = self.topics.iter();
        TopicName::parse(topic, &ANY_TOPIC)
            .is_ok_and(|topic| filters.any(|filter| filter.matches(topic)))
    }
}
