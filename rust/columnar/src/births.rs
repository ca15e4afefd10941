//! Sparkplug B aliases at the start of a range: with them its rows can be decoded without the rows before it.
//!
//! A file stores the table in its footer, a batch of the tail in the metadata of its schema, under the same key.

use std::collections::HashMap;
use std::str::FromStr;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::{Array, RecordBatch};
use arrow_schema::Schema;

use super::ColumnarError;
use super::decode::{MetricAliases, Needed, is_sparkplug};
use super::schema::{PAYLOAD, TOPIC};
use super::topics::{Topics, column};

/// Key of the table, in footers and in metadata.
pub(crate) const ALIASES: &str = "mqttcore.aliases";

/// Topic filters of the messages that define aliases.
pub(crate) const BIRTHS: [&str; 2] = ["spBv1.0/+/NBIRTH/#", "spBv1.0/+/DBIRTH/#"];

impl FromStr for MetricAliases {
    type Err = ColumnarError;

    fn from_str(text: &str) -> Result<Self, ColumnarError> {
        Self::parse(text).ok_or_else(|| ColumnarError::Option {
            option: "aliases",
            problem: "not a valid table of aliases".to_owned(),
        })
    }
}

impl MetricAliases {
    /// Learns the aliases of the BIRTH messages in a batch.
    ///
    /// # Errors
    ///
    /// [`ColumnarError::Column`] for a batch without topics or payloads.
    pub fn follow(&mut self, batch: &RecordBatch) -> Result<(), ColumnarError> {
        self.walk(batch, |_, _| {})
    }

    /// Like [`follow`](Self::follow), and records which earlier aliases the rows need.
    pub(crate) fn follow_noting(
        &mut self,
        batch: &RecordBatch,
        needed: &mut Needed,
    ) -> Result<(), ColumnarError> {
        self.walk(batch, |topic, known| needed.add(topic, known))
    }

    fn walk(
        &mut self,
        batch: &RecordBatch,
        mut look: impl FnMut(&str, &Self),
    ) -> Result<(), ColumnarError> {
        let topics = Topics::of(column(batch, TOPIC)?)?;
        let payloads = column(batch, PAYLOAD)?.as_binary_opt::<i32>();
        let payloads = payloads.ok_or_else(|| ColumnarError::column(PAYLOAD, "is not binary"))?;
        for row in 0..payloads.len() {
            let topic = topics.get(row);
            if is_sparkplug(topic) {
                look(topic, self);
                self.learn(topic, payloads.value(row));
            }
        }
        Ok(())
    }
}

/// Adds to the metadata of the schema the earlier aliases that the rows of the batches need.
///
/// # Errors
///
/// [`ColumnarError::Column`] for a batch without topics or payloads.
pub fn telling(
    batches: Vec<RecordBatch>,
    mut known: MetricAliases,
) -> Result<Vec<RecordBatch>, ColumnarError> {
    let mut needed = Needed::default();
    for batch in &batches {
        known.follow_noting(batch, &mut needed)?;
    }
    let needed = needed.into_aliases();
    let Some(first) = batches.first().filter(|_| !needed.is_empty()) else {
        return Ok(batches);
    };
    let metadata = HashMap::from([(ALIASES.to_owned(), needed.to_json())]);
    let fields = first.schema().fields().clone();
    let schema = Arc::new(Schema::new_with_metadata(fields, metadata));
    let telling = batches
        .into_iter()
        .map(|batch| batch.with_schema(Arc::clone(&schema)));
    Ok(telling.collect::<Result<_, _>>()?)
}
