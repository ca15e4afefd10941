//! Nearly full queues: their number as a figure, and a log line for each. Publishers see the full ones.

use crate::clients::client::{Client, QueueLevel};
use crate::clients::full_sessions::Rights;
use crate::routing::memory;
use crate::runtime::log::LogCategory;
use crate::shard::Shard;

/// A queue is full from the first percentage of its limit until it is below the second one, so that waiting
/// publishers find some room.
const FULL: (usize, usize) = (100, 95);
/// Percent of its limit from which a queue is nearly full ...
const HIGH: usize = 80;
/// ... until it is below this percentage, so that a queue near the limit is logged only once.
const LOW: usize = 70;

/// Checks the queue of `client`, which has changed.
pub(crate) fn watch(shard: &Shard, client: &Client) {
    client.weigh(shard);
    let holds_much = memory::count_held(shard, client);
    let is_kept = client.number(&shard.engine).is_some();
    let durable = &shard.engine.durable;
    let session = client.session.borrow();
    let (percent, is_waiting) = (session.queue_fill_percent(is_kept), session.queued() > 0);
    let (from, until) = FULL;
    let limit = if durable.is_marked_full(client.handle) {
        until
    } else {
        from
    };
    let rights = || Rights::new(&client.access(), session.mount_point());
    let full = (percent >= limit).then(rights);
    durable.set_queue(client.handle, is_waiting, full);
    drop(session);
    let was_high = client.queue_level.get() == QueueLevel::High;
    if was_high && percent >= LOW {
        return;
    }
    forget(shard, client);
    if percent >= HIGH {
        client.queue_level.set(QueueLevel::High);
        shard.metrics().queues_nearly_full.add(1);
        shard.log.warn(LogCategory::Queue, shard.now(), || {
            let who = client.named();
            let session = client.session.borrow();
            let (messages, bytes) = (session.queued(), session.queued_bytes());
            let text = format!(
                "queue of {who} is {percent} % full: {messages} messages, {bytes} bytes; at its limit messages are dropped, or refused if queue_policy says so"
            );
            client.log_entry("queue_nearly_full", text)
        });
    } else if is_waiting || holds_much {
        client.queue_level.set(QueueLevel::Waiting);
    }
}

/// The queue is not nearly full any more, or does not exist any more.
pub(crate) fn forget(shard: &Shard, client: &Client) {
    if client.queue_level.take() == QueueLevel::High {
        shard.metrics().queues_nearly_full.sub(1);
    }
}
