//! Publishes the messages of committed stages.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use mqttcore_session::{Message, ServerLimits};
use mqttcore_topics::TopicLimits;
use tokio::sync::mpsc;

use super::held_bytes::HeldBytes;
use super::message::message;
use super::stage::{for_each_batch, unreadable};
use super::{LastCommit, NOTE, Sink, SinkError, filter, remove, replace};

/// Maximum number of messages in one chunk.
const PIECE_ROWS: usize = 512;

/// Approximate bytes of one chunk.
const PIECE_BYTES: usize = 1 << 20;

/// Pause before the next try while the disk is nearly full.
const RETRY_PAUSE: Duration = Duration::from_millis(100);

/// Writes `last` of a query to the log; returns once it is safe.
pub(super) async fn write_note(
    sink: &Sink,
    query: &str,
    last: &LastCommit,
) -> Result<(), SinkError> {
    write(sink, query, value(last)).await
}

/// Removes the stored batch of a query.
pub(super) async fn forget(sink: &Sink, query: &str) -> Result<(), SinkError> {
    write(sink, query, Vec::new()).await
}

async fn write(sink: &Sink, query: &str, value: Vec<u8>) -> Result<(), SinkError> {
    Ok(sink.broker.write_note(key(query), value).await?)
}

/// Publishes the remaining rows of the last batch of `query`, then removes its stages.
pub(super) async fn finish(sink: &Sink, query: &str) -> Result<(), SinkError> {
    let last = sink.queries().get(query).cloned();
    let Some(mut last) = last.filter(|last| !last.is_over()) else {
        return Ok(());
    };
    let files: Vec<PathBuf> = last
        .files(query)
        .map(|file| sink.folder.join(file))
        .collect();
    publish_rows(sink, query, &mut last, &files).await?;
    if let Some(text) = last.replacing.take() {
        replace::clear(
            sink,
            &filter(&text, &TopicLimits::AS_IT_CAME)?,
            files.clone(),
        )
        .await?;
    }
    last.stages.clear();
    // The log has this record after all published messages: once it is safe, they are safe too.
    write_note(sink, query, &last).await?;
    sink.queries().insert(query.to_owned(), last);
    // Files that stay because a backup copies them are removed later.
    let mut removed = Ok(());
    sink.broker.unless_copied(|| {
        removed = files.iter().try_for_each(|file| remove(file).map(drop));
    });
    removed
}

/// Publishes the rows of `files` after the first `last.rows`, and adds them to `last.rows`.
async fn publish_rows(
    sink: &Sink,
    query: &str,
    last: &mut LastCommit,
    files: &[PathBuf],
) -> Result<(), SinkError> {
    let (sender, mut pieces) = mpsc::channel(2);
    let (skipped, read, held) = (last.rows, files.to_vec(), sink.held.part());
    let reading = tokio::task::spawn_blocking(move || read_all(&read, skipped, &sender, held));
    while let Some(piece) = pieces.recv().await {
        while sink.check_room().is_err() {
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        let rows = last.rows + piece.len() as u64;
        let before = last.clone();
        let note = move |count| {
            value(&LastCommit {
                rows: before.rows + count,
                ..before.clone()
            })
        };
        sink.broker.publish_noted(piece, key(query), note).await?;
        last.rows = rows;
        sink.queries().insert(query.to_owned(), last.clone());
    }
    reading.await.map_err(|_| SinkError::Stopped)?
}

/// Reads the rows of `files` after the first `skipped`, in chunks; stops if the receiver is gone. The limits are the
/// widest ones: the rows were validated when they were staged, and the configured limits may have changed since.
fn read_all(
    files: &[PathBuf],
    mut skipped: u64,
    pieces: &mpsc::Sender<Vec<Message>>,
    held: HeldBytes,
) -> Result<(), SinkError> {
    let limits = ServerLimits {
        topic: TopicLimits::AS_IT_CAME,
        maximum_packet_size: u32::MAX,
        ..ServerLimits::default()
    };
    let (mut piece, mut bytes) = (Vec::new(), 0);
    let mut is_wanted = true;
    for_each_batch(files, held, |columns| {
        let rows = columns.rows();
        let first = usize::try_from(skipped).map_or(rows, |skipped| skipped.min(rows));
        skipped -= first as u64;
        for row in first..rows {
            let message = message(columns, row, &limits, Instant::now()).map_err(unreadable)?;
            bytes += message.heap_bytes();
            piece.push(message);
            if piece.len() >= PIECE_ROWS || bytes >= PIECE_BYTES {
                bytes = 0;
                is_wanted = pieces.blocking_send(std::mem::take(&mut piece)).is_ok();
                if !is_wanted {
                    break;
                }
            }
        }
        Ok(is_wanted)
    })?;
    if is_wanted && !piece.is_empty() {
        // The receiver may be gone.
        let _ = pieces.blocking_send(piece);
    }
    Ok(())
}

fn key(query: &str) -> String {
    format!("{NOTE}{query}")
}

fn value(last: &LastCommit) -> Vec<u8> {
    // INVARIANT: numbers and texts.
    serde_json::to_vec(last).expect("it is JSON")
}
