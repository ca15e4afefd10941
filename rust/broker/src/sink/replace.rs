//! Batches that stand for all retained messages of their topics: what is not of them is cleared.

use std::collections::HashSet;
use std::fs::File;
use std::io::BufReader;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use arrow_ipc::reader::StreamReader;
use mqttcore_codec::{PropertiesBuf, QoS};
use mqttcore_publisher::Columns;
use mqttcore_session::Message;
use mqttcore_topics::{Cursor, TopicFilter, TopicName};
use tokio::sync::oneshot;

use crate::clients::topic::AS_IT_CAME;
use crate::routing::hub;
use crate::sessions::loading;
use crate::shard::Shard;

use super::{Sink, SinkError};

/// Nodes of the retained store that one step looks at.
const WALKED_A_STEP: usize = 256;

/// Clears the retained messages that match `filter` and are no row of `files`. It may be done again.
pub(super) async fn clear(
    sink: &Sink,
    filter: &TopicFilter,
    files: Vec<PathBuf>,
) -> Result<(), SinkError> {
    let read = tokio::task::spawn_blocking(move || retained_in(&files)).await;
    let kept = Arc::new(read.map_err(|_| SinkError::Stopped)??);
    let mut cursor = None;
    loop {
        let (sender, done) = oneshot::channel();
        let (filter, kept) = (filter.clone(), Arc::clone(&kept));
        let work = move |shard: &Rc<Shard>| {
            // Who asked may have gone.
            let _ = sender.send(step(shard, &filter, cursor, &kept));
        };
        let work = |shard: &Rc<Shard>| loading::when_over(shard, work);
        sink.world.run_on(0, Box::new(work));
        cursor = match done.await.map_err(|_| SinkError::Stopped)? {
            Some(next) => Some(next),
            None => return Ok(()),
        };
    }
}

/// Clears what a part of the store has; returns where to go on.
fn step(
    shard: &Rc<Shard>,
    filter: &TopicFilter,
    cursor: Option<Cursor>,
    kept: &HashSet<String>,
) -> Option<Cursor> {
    let mut stale = Vec::new();
    let retained = &shard.world.retained;
    let next = retained.walk(filter, cursor, WALKED_A_STEP, &mut |topic, _| {
        if !kept.contains(topic) {
            stale.push(topic.to_owned());
        }
    });
    for topic in &stale {
        if let Ok(name) = TopicName::parse(topic, &AS_IT_CAME) {
            let (properties, qos) = (PropertiesBuf::default(), QoS::AtLeastOnce);
            let now = shard.now();
            let empty = Message::copied(now, name, properties.as_properties(), &[], qos, true);
            hub::publish_own(shard, &empty);
        }
    }
    next
}

/// The topics of all rows that are retained.
fn retained_in(files: &[PathBuf]) -> Result<HashSet<String>, SinkError> {
    let wrong = |error: String| SinkError::Rows(format!("a stage cannot be read: {error}"));
    let mut topics = HashSet::new();
    for file in files {
        let reader = StreamReader::try_new(BufReader::new(File::open(file)?), None);
        for batch in reader.map_err(|error| wrong(error.to_string()))? {
            let batch = batch.map_err(|error| wrong(error.to_string()))?;
            let columns = Columns::of(&batch).map_err(|error| wrong(error.to_string()))?;
            topics.extend(columns.retained_topics().map(str::to_owned));
        }
    }
    Ok(topics)
}
