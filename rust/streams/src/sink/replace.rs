//! Replaces all retained messages of a topic filter by those of a batch.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;

use arrow_ipc::reader::StreamReader;
use mqttcore_publisher::MessageColumns;
use mqttcore_topics::TopicFilter;

use super::held_bytes::HeldBytes;
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
fn retained_in(files: &[PathBuf], mut held: HeldBytes) -> Result<HashSet<String>, SinkError> {
    let wrong = |error: String| SinkError::Rows(format!("a stage cannot be read: {error}"));
    let mut topics = HashSet::new();
    for file in files {
        let reader = StreamReader::try_new(BufReader::new(File::open(file)?), None);
        for batch in reader.map_err(|error| wrong(error.to_string()))? {
            let batch = batch.map_err(|error| wrong(error.to_string()))?;
            held.set_batch(&batch);
            let columns = MessageColumns::of(&batch).map_err(|error| wrong(error.to_string()))?;
            topics.extend(columns.retained_topics().map(str::to_owned));
        }
    }
    Ok(topics)
}
