//! Streams as subscribers: the directory finds them as it finds clients (decision 15), and what
//! they get becomes rows in the record of the message.

use std::time::{SystemTime, UNIX_EPOCH};

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_store::Pressure;
use mqttcore_store::record::{RowsBuf, Streamed};
use mqttcore_store::stream::{Bounds, Definition};
use mqttcore_topics::{Change, Options, SubscriptionFilter, TopicLimits};

use crate::broker::StartError;
use crate::clients::handle::Handle;
use crate::clients::target::Target;
use crate::durability::store::Rows;
use crate::routing::publication::Publication;
use crate::runtime::metrics::Stats;
use crate::shard::{Shard, World};

/// Where no shard is: a subscriber there is a stream, and its slot the stream's number.
const NOWHERE: u8 = 255;

impl Handle {
    /// The subscriber that the stream with this number is.
    fn of_stream(number: u32) -> Self {
        Self::new(NOWHERE, 0, number)
    }

    /// The number of the stream that it is, if it is one.
    pub(crate) fn stream(self) -> Option<u32> {
        (self.shard() == usize::from(NOWHERE)).then_some(self.slot())
    }
}

/// Subscribes `streams` to what becomes their rows.
///
/// # Errors
///
/// A filter that is none.
pub(crate) fn subscribe(world: &World, streams: &[Definition]) -> Result<(), StartError> {
    let Some(rows) = world.log.as_ref().and_then(|log| log.rows.as_ref()) else {
        return Ok(());
    };
    let options = Options::at(QoS::ExactlyOnce);
    for stream in streams {
        // INVARIANT: the store was opened with these streams.
        let number = rows
            .streams
            .find(&stream.name)
            .expect("a stream of the store");
        let filters = stream.filters.iter().map(|filter| parse(stream, filter));
        let filters: Vec<_> = filters.collect::<Result<_, _>>()?;
        let changes = filters
            .iter()
            .map(|filter| Change::Subscribe { filter, options });
        let changes: Vec<_> = changes.collect();
        let subscriber = world.directory.join(Handle::of_stream(number).word());
        world.directory.commit(subscriber, &changes);
    }
    Ok(())
}

fn parse(stream: &Definition, filter: &str) -> Result<SubscriptionFilter, StartError> {
    let parsed = SubscriptionFilter::parse(filter, &TopicLimits::WIDEST);
    parsed.map_err(|error| StartError::Stream {
        name: stream.name.clone(),
        filter: filter.to_owned(),
        error,
    })
}

/// Lists which rows a publish is, for its record.
///
/// QoS 0 is dropped, and counted, while more waits for the disk than should: before it has an
/// offset, so that there is no gap.
pub(crate) fn list_rows(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &[Target],
    rows: &mut RowsBuf,
) {
    rows.clear();
    let log = shard.world.log.as_ref();
    let Some((log, streams)) = log.and_then(|log| Some((log, &log.rows.as_ref()?.streams))) else {
        return;
    };
    let message = publication.message;
    let source = publication.publisher.map_or("", |client| &*client.id);
    for number in targets.iter().filter_map(|target| target.handle.stream()) {
        let is_lossy = message.qos() == QoS::AtMostOnce;
        if is_lossy && !(log.store.has_room() && log.store.pressure() == Pressure::None) {
            shard.metrics().dropped_stream_overload.add(1);
        } else if let Some(partition) =
            streams.route(number, message.topic(), source, row_bytes(message))
        {
            rows.push(number, partition);
        }
    }
}

/// The rows in a record of `message`.
pub(crate) fn streamed<'a>(message: &Message, rows: &'a RowsBuf) -> Option<Streamed<'a>> {
    (!rows.is_empty()).then(|| Streamed {
        dup: message.dup(),
        at_us: now_us(),
        rows: rows.as_rows(),
    })
}

/// Adds what streams hold.
pub(crate) fn count(world: &World, stats: &mut Stats) {
    let Some(rows) = world.log.as_ref().and_then(|log| log.rows.as_ref()) else {
        return;
    };
    for name in rows.streams.names() {
        let (all, unsealed) = rows_of(rows, name);
        stats.stream_rows += all;
        stats.stream_rows_unsealed += unsealed;
    }
    let figures = rows.streams.figures();
    stats.stream_tail_bytes = figures.tail_bytes;
    stats.stream_rows_refused = figures.refused_rows;
}

/// What `$SYS/broker/streams/...` says: of each stream, and of all of them.
pub(crate) fn sys_topics(world: &World, stats: &Stats) -> Vec<(String, u64)> {
    let Some(rows) = world.log.as_ref().and_then(|log| log.rows.as_ref()) else {
        return Vec::new();
    };
    let lost = stats.dropped_stream_overload + stats.stream_rows_refused;
    let mut topics = vec![
        ("streams/tail/bytes".to_owned(), stats.stream_tail_bytes),
        ("streams/rows/dropped".to_owned(), lost),
    ];
    for name in rows.streams.names() {
        let (all, unsealed) = rows_of(rows, name);
        topics.push((format!("streams/{name}/rows"), all));
        topics.push((format!("streams/{name}/unsealed"), unsealed));
    }
    topics
}

/// Rows that can be read, and those of them that are in no file.
fn rows_of(rows: &Rows, name: &str) -> (u64, u64) {
    let bounds = rows.streams.bounds(name).unwrap_or_default();
    let sum = |count: fn(&Bounds) -> u64| bounds.iter().map(count).sum();
    (
        sum(|bounds| bounds.end - bounds.earliest),
        sum(|bounds| bounds.end - bounds.sealed_end),
    )
}

fn row_bytes(message: &Message) -> usize {
    message.topic().len() + message.properties().as_bytes().len() + message.payload().len()
}

pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
    })
}
