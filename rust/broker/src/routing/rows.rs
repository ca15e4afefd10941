//! Rows of stored streams in the records of messages.

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_store::Pressure;
use mqttcore_store::record::{RowRefsBuf, Streamed};
use mqttcore_topics::{Change, Options};

use crate::clients::handle::{Handle, RowStream};
use crate::clients::target::Target;
use crate::durability::clock::now_us;
use crate::durability::row_log::RowLog;
use crate::routing::publication::Publication;
use crate::runtime::failure::ServiceError;
use crate::shard::{EngineState, Shard};

/// Subscribes the streams of `rows` to the topics whose messages become rows.
///
/// # Errors
///
/// A filter that is not valid.
pub(crate) fn subscribe(engine: &EngineState, rows: &dyn RowLog) -> Result<(), ServiceError> {
    let options = Options::at(QoS::ExactlyOnce);
    for subscription in rows.subscriptions()? {
        let filters = subscription.filters.iter();
        let changes = filters.map(|filter| Change::Subscribe { filter, options });
        let changes: Vec<_> = changes.collect();
        let handle = Handle::of_row_stream(subscription.stream);
        let subscriber = engine.directory.join(handle.word());
        engine.directory.commit(subscriber, &changes);
    }
    Ok(())
}

/// Lists which rows a publish is, for its record.
///
/// QoS 0 is dropped, and counted, while more waits for the disk than should: before it has an
/// offset, so that there is no gap.
pub(crate) fn list_rows(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &[Target],
    rows: &mut RowRefsBuf,
) {
    rows.clear();
    let (Some(log), Some(streams)) = (&shard.engine.log, &shard.engine.rows) else {
        return;
    };
    let message = publication.message;
    let source = publication.publisher.map_or("", |client| &*client.id);
    for target in targets {
        let Some(stream @ RowStream::Stored(number)) = target.handle.row_stream() else {
            continue;
        };
        let is_lossy = message.qos() == QoS::AtMostOnce;
        if is_lossy && !(log.store.has_room() && log.store.pressure() == Pressure::None) {
            shard.metrics().dropped_stream_overload.count(message.qos());
        } else if let Some(partition) =
            streams.partition(stream, message.topic(), source, row_bytes(message))
        {
            rows.push(number, partition);
        }
    }
}

/// The rows in a record of `message`.
pub(crate) fn streamed<'a>(message: &Message, rows: &'a RowRefsBuf) -> Option<Streamed<'a>> {
    (!rows.is_empty()).then(|| Streamed {
        dup: message.dup(),
        at_us: now_us(),
        rows: rows.as_rows(),
    })
}

fn row_bytes(message: &Message) -> usize {
    message.topic().len() + message.properties().as_bytes().len() + message.payload().len()
}
