//! Replaces all retained messages of a topic filter by those of a batch.

use std::collections::HashSet;
use std::path::PathBuf;

use mqttcore_topics::TopicFilter;

use super::held_bytes::HeldBytes;
use super::stage::for_each_batch;
use super::{Sink, SinkError};

/// Clears the retained messages that match `filter`, except for those that rows of `files` set. Idempotent.
pub(super) async fn clear(
    sink: &Sink,
    filter: &TopicFilter,
    files: Vec<PathBuf>,
) -> Result<(), SinkError> {
    let held = sink.held.part();
    let read = tokio::task::spawn_blocking(move || retained_in(&files, held)).await;
    let kept = read.map_err(|_| SinkError::Stopped)??;
    Ok(sink.broker.clear_retained(filter, kept).await?)
}

/// The topics of all rows that set a retained message.
fn retained_in(files: &[PathBuf], held: HeldBytes) -> Result<HashSet<String>, SinkError> {
    let mut topics = HashSet::new();
    for_each_batch(files, held, |columns| {
        topics.extend(columns.retained_topics().map(str::to_owned));
        Ok(true)
    })?;
    Ok(topics)
}
