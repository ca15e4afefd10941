//! Retained messages: what a publish leaves behind, and what a new subscription gets of it.

use std::num::NonZeroU32;
use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::{Delivery, Message, SubscribeEntry};
use mqttcore_topics::{Cursor, TopicFilter, TopicLimits, TopicName};

use crate::client::Client;
use crate::hub;
use crate::log::{Escaped, LogClass};
use crate::shard::Shard;

/// Retained messages that one client gets in one turn; then others have theirs (abuse E15).
const REPLAYED_A_TURN: usize = 64;
/// Bytes waiting for a client above which no further retained message is put behind them.
const REPLAY_BELOW_BYTES: usize = 128 * 1024;

/// One subscription that still has retained messages to come.
pub(crate) struct Replay {
    pub(crate) filter: TopicFilter,
    pub(crate) qos: QoS,
    pub(crate) id: Option<NonZeroU32>,
    pub(crate) cursor: Option<Cursor>,
}

impl Replay {
    /// From the beginning, for what `entry` subscribed to.
    pub(crate) fn new(entry: &SubscribeEntry) -> Self {
        Self {
            filter: entry.filter.filter().clone(),
            qos: entry.options.qos,
            id: entry.options.id,
            cursor: None,
        }
    }
}

/// Keeps `message` as the retained one of its topic; an empty payload clears it [MQTT-3.3.1-6].
///
/// False when the store is full: a new topic is not kept, an old one may still change (abuse F01).
pub(crate) fn store(shard: &Shard, topic: TopicName<'_>, message: &Message) -> bool {
    let world = &shard.world;
    if message.payload().is_empty() {
        world.retained.remove(topic);
        return true;
    }
    let mut message = message.clone();
    message.release_chunk();
    let config = shard.config();
    let full = world.retained.len() >= config.retained_messages
        || world.retained.weight() + message.heap_bytes() > config.retained_bytes;
    if full && world.retained.get(topic).is_none() {
        shard.metrics().dropped_retained_full.add(1);
        shard.log.warn(LogClass::Dropped, shard.now(), || {
            let topic = Escaped(message.topic());
            format!("retained message on {topic} not kept: the store is full")
        });
        return false;
    }
    world.retained.set(topic, message);
    true
}

/// Looks at the next retained messages and removes those that expired (abuse F06); returns
/// where to go on at the next call.
pub(crate) fn sweep(shard: &Shard, cursor: Option<Cursor>) -> Option<Cursor> {
    const LOOKED_AT_A_TICK: usize = 256;
    let now = shard.now();
    let mut expired = Vec::new();
    let limits = TopicLimits::default();
    // INVARIANT: `#` is a topic filter.
    let all = TopicFilter::parse("#", &limits).expect("# is a filter");
    let world = &shard.world;
    let next = world.retained.walk(
        &all,
        cursor,
        LOOKED_AT_A_TICK,
        &mut |_, message: &Message| {
            if message.is_expired(now) {
                expired.push(message.clone());
            }
        },
    );
    for message in expired {
        if let Ok(topic) = TopicName::parse(message.topic(), &limits) {
            world
                .retained
                .remove_if(topic, |value| value.is_expired(now));
        }
    }
    next
}

/// Sends the next retained messages to `client`. True when there are more, and room for them.
pub(crate) fn replay(shard: &Rc<Shard>, client: &Rc<Client>) -> bool {
    let Some(mut replay) = client.replays.borrow_mut().pop_front() else {
        return false;
    };
    if !has_room(client) {
        client.replays.borrow_mut().push_front(replay);
        return false;
    }
    let now = shard.now();
    let mut due = Vec::new();
    replay.cursor = shard.world.retained.walk(
        &replay.filter,
        replay.cursor.take(),
        REPLAYED_A_TURN,
        &mut |_, message: &Message| due.push(message.clone()),
    );
    for message in due {
        if message.is_expired(now) {
            continue;
        }
        let delivery = Delivery {
            qos: replay.qos,
            retain: true,
            subscription_ids: replay.id.as_slice(),
            key: 0,
        };
        hub::deliver(shard, client, &message, delivery);
    }
    let mut replays = client.replays.borrow_mut();
    if replay.cursor.is_some() {
        replays.push_front(replay);
    }
    !replays.is_empty()
}

/// Nothing queued in the session, and not much in the outbox: retained messages never push
/// live ones out of a queue.
fn has_room(client: &Client) -> bool {
    let Some(link) = client.link() else {
        return false;
    };
    let waiting = link.outbox.borrow().len();
    waiting < REPLAY_BELOW_BYTES && client.session.borrow().queued() == 0
}
