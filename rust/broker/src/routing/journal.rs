//! Waiting for the store: runs continuations when their records are safe, and applies
//! backpressure.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Instant, SystemTime};

use mqttcore_session::Message;
use mqttcore_store::record::Record;
use mqttcore_store::{Durability, Pressure};
use tokio::sync::oneshot;

use crate::clients::client::Client;
use crate::clients::target::Target;
use crate::config::hooks::StoredMessage;
use crate::durability::ack_queue::Continuation;
use crate::durability::journal::ShardLogWriter;
use crate::routing::{delivery, external};
use crate::shard::Shard;
use crate::shard::guard::contained;

impl Shard {
    /// Whether the disk is too full for new messages that must be stored.
    pub(crate) fn is_short_of_room(&self) -> bool {
        let journal = self.journal.as_ref();
        journal.is_some_and(|journal| journal.log.store.pressure() > Pressure::None)
    }
}

/// Runs the continuations whose tickets are safe.
pub(crate) fn advance(shard: &Rc<Shard>) {
    let Some(journal) = &shard.journal else {
        return;
    };
    while let Some(then) = journal.ack_queues.next_safe(&journal.log) {
        // A continuation that panics must not stop the others.
        contained(shard, "a continuation that waited for the store", || {
            go_on(shard, journal, then);
        });
    }
    journal.wake_stalled();
}

fn go_on(shard: &Rc<Shard>, journal: &ShardLogWriter, then: Continuation) {
    match then {
        Continuation::Confirm(client, token, record) => {
            client.ack_order.dequeue();
            external::confirm_after(shard, &client, token, record);
            client.flush_session(shard);
        }
        Continuation::Deliver(message, targets) => {
            journal.ack_queues.delivered();
            delivery::deliver_to_shards(shard, &message, targets.into_iter());
        }
        Continuation::Call(call) => call(),
    }
}

/// Writes a note together with the other records of this turn.
pub(crate) fn write_note(shard: &Shard, key: &str, value: &[u8]) {
    if let Some(journal) = &shard.journal {
        let durability = shard.config().durability().max(Durability::Os);
        journal.write(durability, &Record::Note { key, value });
    }
}

/// Calls `then` when all records so far are as safe as required, and the records of the external
/// log are settled.
pub(crate) fn when_safe(shard: &Rc<Shard>, then: Box<dyn FnOnce()>) {
    when_stored(shard, external::when_kept(shard, then));
}

/// Calls `then` when all records are safe that acknowledgements to `client` depend on.
pub(crate) fn when_acknowledged(shard: &Rc<Shard>, client: &Client, then: Box<dyn FnOnce()>) {
    let then = external::when_kept(shard, then);
    match shard.journal.as_ref().zip(client.ack_order.durability()) {
        Some((journal, durability)) => journal.after(durability, Continuation::Call(then)),
        None => then(),
    }
}

/// Tells the plugins how long the store takes for the records of this turn, if the acknowledgement to `client` waits
/// for them.
pub(crate) fn report_stored(shard: &Rc<Shard>, client: &Client, number: u64) {
    let Some((journal, durability)) = shard.journal.as_ref().zip(client.ack_order.durability())
    else {
        return;
    };
    let (begun, since) = (SystemTime::now(), Instant::now());
    let written = Rc::new(Cell::new(None));
    let note = Rc::clone(&written);
    let note = move || note.set(Some(since.elapsed()));
    journal.after(Durability::Os, Continuation::Call(Box::new(note)));
    let own = Rc::clone(shard);
    let tell = move || {
        let safe = since.elapsed();
        own.hooks().stored(StoredMessage {
            number,
            begun,
            written: written.get().unwrap_or(safe),
            synced: (durability == Durability::Fsync).then_some(safe),
        });
    };
    let durability = durability.max(Durability::Os);
    journal.after(durability, Continuation::Call(Box::new(tell)));
}

/// [`when_safe`] without the external log.
fn when_stored(shard: &Rc<Shard>, then: Box<dyn FnOnce()>) {
    match &shard.journal {
        Some(journal) => {
            journal.ack_queues.push_last(Continuation::Call(then));
            advance(shard);
        }
        None => then(),
    }
}

/// Waits until all records so far are as safe as required.
pub(crate) async fn all_safe(shard: &Rc<Shard>) {
    let (sender, safe) = oneshot::channel();
    let tell = move || {
        // The waiting connection may have ended.
        let _ = sender.send(());
    };
    when_stored(shard, Box::new(tell));
    let _ = safe.await;
}

/// Delivers `message` when all records so far have reached `durability`.
pub(crate) fn deliver_when_safe(
    shard: &Shard,
    durability: Durability,
    message: &Message,
    targets: Vec<Target>,
) {
    let Some(journal) = &shard.journal else {
        return;
    };
    journal.ack_queues.deliver_at(durability);
    let mut message = message.clone();
    message.release_chunk();
    journal.after(durability, Continuation::Deliver(message, targets));
}
