//! Sends messages to an external log, and continues when their records are settled.

use std::rc::Rc;

use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{AckToken, Cause, Message};
use tokio::sync::oneshot;

use crate::clients::client::Client;
use crate::clients::handle::RowStream;
use crate::clients::link::LOST;
use crate::clients::target::Target;
use crate::config::plugin_event::EventKind;
use crate::durability::external::{KafkaContinuation, RecordOrigin};
use crate::durability::outcomes::{LostRecord, RecordOutcome};
use crate::routing::publication::Publication;
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::guard::contained;
use crate::shard::{EventDetails, Shard};

/// Why a message that must be in the external log first is not accepted.
pub(crate) enum NotLogged {
    /// The shard ends.
    Stopped,
    /// The external log rejected the record.
    Lost,
}

fn go_on(shard: &Shard, waiting: KafkaContinuation) {
    match waiting {
        KafkaContinuation::Confirm(client, _) if client.external_record() == LOST => {}
        KafkaContinuation::Confirm(client, token) => {
            client.session.borrow_mut().confirm(token);
            client.flush_session(shard);
        }
        KafkaContinuation::Call(call) => call(),
    }
}

/// Makes records of a publish for the streams among its targets; acknowledgements to its
/// publisher wait for them.
pub(crate) fn produce(shard: &Shard, publication: &Publication<'_>, targets: &[Target]) {
    let Some(queue) = shard.external.as_ref().filter(|_| !publication.is_logged) else {
        return;
    };
    let message = publication.message;
    let is_lossy = message.qos() == QoS::AtMostOnce;
    let source = publication.publisher.map_or("", |client| &*client.id);
    for target in targets {
        let Some(RowStream::External(stream)) = target.handle.row_stream() else {
            continue;
        };
        if is_lossy && !queue.has_room() {
            shard.metrics().dropped_stream_overload.count(message.qos());
            continue;
        }
        let connected = publication.publisher.filter(|_| !is_lossy);
        let connected = connected.and_then(|client| Some((client, client.link()?)));
        let Some((client, connection)) = connected else {
            queue.push(stream, message, source, RecordOrigin::None);
            continue;
        };
        let origin = RecordOrigin::Publisher(Rc::clone(client), Rc::clone(&connection));
        let number = queue.push(stream, message, source, origin);
        if !connection.has_lost_a_record() {
            connection.set_external_record(number);
        }
    }
}

/// Whether Kafka may be asked about a message before it is accepted ([`produce_first`]).
pub(crate) fn is_asked_first(shard: &Shard, message: &Message) -> bool {
    shard.external.is_some() && message.qos() == QoS::ExactlyOnce
}

/// Sends a QoS 2 message of `client` to the external log before it is accepted; `None` where no stream wants it.
pub(crate) fn produce_first(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    publication: &Publication<'_>,
) -> Option<impl Future<Output = Result<(), NotLogged>> + use<>> {
    let (queue, message) = (shard.external.as_ref()?, publication.message);
    if !is_asked_first(shard, message) {
        return None;
    }
    let streams = queue.rows.external_streams(publication.topic).into_iter();
    let ask = |stream| {
        let (sender, answer) = oneshot::channel();
        queue.push(stream, message, &client.id, RecordOrigin::Asking(sender));
        answer
    };
    let answers: Vec<_> = streams.map(ask).collect();
    if answers.is_empty() {
        return None;
    }
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    Some(async move {
        for answer in answers {
            // The sender is dropped without a result only if the shard ends.
            let Ok(outcome) = answer.await else {
                return Err(NotLogged::Stopped);
            };
            if let Err(lost) = outcome {
                tell_lost(&shard, &client, &lost);
                return Err(NotLogged::Lost);
            }
        }
        Ok(())
    })
}

/// The reason why a message above QoS 0 is refused before it is acknowledged; `None` if it is accepted.
pub(crate) fn backpressure_reason(
    shard: &Shard,
    publication: &Publication<'_>,
) -> Option<&'static str> {
    let queue = shard.external.as_ref()?;
    queue.rows.refusal(publication.topic, publication.message)
}

/// Confirms acknowledgements of `client` up to `token` when all records up to `number` are
/// settled.
pub(crate) fn confirm_after(shard: &Shard, client: &Rc<Client>, token: AckToken, number: u64) {
    match &shard.external {
        Some(_) if client.external_record() == LOST => {}
        Some(queue) if !queue.is_settled(number) => {
            let confirm = KafkaContinuation::Confirm(Rc::clone(client), token);
            queue.wait(number, confirm);
        }
        _ => client.session.borrow_mut().confirm(token),
    }
}

/// `then`, but once all records so far above QoS 0 are settled, too.
pub(crate) fn when_kept(shard: &Rc<Shard>, then: Box<dyn FnOnce()>) -> Box<dyn FnOnce()> {
    let Some(queue) = &shard.external else {
        return then;
    };
    let (number, shard) = (queue.owed.get(), Rc::clone(shard));
    Box::new(move || match &shard.external {
        Some(queue) if !queue.is_settled(number) => {
            queue.wait(number, KafkaContinuation::Call(then));
        }
        _ => then(),
    })
}

/// Number of lost records about which no client can be informed, such as those of the broker itself.
pub(crate) fn own_lost(shard: &Shard) -> u64 {
    shard
        .external
        .as_ref()
        .map_or(0, |queue| queue.own_lost.get())
}

/// Handles outcomes of records, and runs the continuations that waited for them.
pub(crate) fn advance(shard: &Rc<Shard>) {
    let Some(queue) = &shard.external else { return };
    queue.settle_all(shard.index, |publisher, outcome| {
        settle(shard, publisher, outcome);
    });
    while let Some(waiting) = queue.next_settled() {
        // A continuation that panics must not stop the others.
        contained(shard, "a continuation that waited for Kafka", || {
            go_on(shard, waiting);
        });
    }
    queue.wake_stalled();
}

fn settle(shard: &Shard, publisher: RecordOrigin, outcome: RecordOutcome) {
    match (outcome, publisher) {
        (RecordOutcome::Kept, publisher) => {
            if let RecordOrigin::Asking(asking) = publisher {
                // The receiver may be gone.
                let _ = asking.send(Ok(()));
            }
        }
        (RecordOutcome::Lost(lost), publisher) => {
            shard.log.warn(LogCategory::Kafka, shard.now(), || {
                let (topic, why) = (Escaped(&lost.topic), &lost.why);
                format!("Kafka did not accept a message on {topic}: {why}")
            });
            tell(shard, publisher, lost);
        }
    }
}

/// Has the publisher of a lost record send it again, if it can.
fn tell(shard: &Shard, publisher: RecordOrigin, lost: LostRecord) {
    match publisher {
        RecordOrigin::None => {
            if let Some(queue) = &shard.external {
                queue.own_lost.set(queue.own_lost.get() + 1);
            }
        }
        RecordOrigin::Asking(asking) => {
            // As in `settle`.
            let _ = asking.send(Err(lost));
        }
        RecordOrigin::Publisher(client, link) => {
            tell_lost(shard, &client, &lost);
            link.set_external_record(LOST);
            if client.has_link(&link) {
                link.close(Cause::Administrative, ReasonCode::SERVER_BUSY);
            }
        }
    }
}

fn tell_lost(shard: &Shard, client: &Client, lost: &LostRecord) {
    let details = EventDetails {
        topic: Some(&lost.topic),
        reason: Some(ReasonCode::SERVER_BUSY),
        why: Some("Kafka did not accept it"),
    };
    shard.send_event(EventKind::Dropped, client, details);
}
