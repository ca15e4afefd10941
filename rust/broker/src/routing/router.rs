//! The router: from messages of one publisher to the sessions that get them.
//!
//! There is one way, [`route`]: messages are matched, recorded, answered and handed to the sessions of this shard and of
//! others. Messages of one read go together ([`MessageBatch`](crate::routing::batch::MessageBatch)); any other is a batch
//! of one.

use std::rc::Rc;

use mqttcore_session::Message;
use mqttcore_store::Level;
use mqttcore_topics::TopicName;

use crate::clients::client::Client;
use crate::clients::handle::Handle;
use crate::clients::target::Target;
use crate::routing::delivery::deliver_to_shards;
use crate::routing::matching::{Purpose, search};
use crate::routing::publication::{Publication, Retaining, Unroutable, report_unroutable};
use crate::routing::{journal, message_records, queue_policy, retain};
use crate::shard::Shard;

/// Hands messages of one publisher to every matching subscriber, in their order.
///
/// What outlives the broker is written first. Then `answer` is called for each message, and the message is delivered. One
/// that was published at QoS 2 is delivered once its record is safe; others at once, since a repeat does them no harm
/// (decision 19).
///
/// `answer` gets the number of subscribers, or why the message does not go to all of them: with
/// [`Unroutable::QueueFull`] to some, with others to nobody.
pub(crate) fn route(
    shard: &Rc<Shard>,
    publications: &mut [Publication<'_>],
    mut answer: impl FnMut(&Publication<'_>, Result<usize, Unroutable>),
) {
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    search(shard, publications, Purpose::Delivery, &mut targets);
    let mut rest = &mut targets[..];
    for publication in &mut *publications {
        let (own, behind) = rest.split_at_mut(publication.routed.found);
        commit(shard, publication, own);
        rest = behind;
    }
    let mut rest = targets.drain(..);
    for publication in &*publications {
        let (message, routed) = (publication.message, &publication.routed);
        answer(publication, routed.refused.map_or(Ok(routed.kept), Err));
        let own = rest.by_ref().take(routed.kept);
        match routed.waits_for {
            Some(level) => journal::hold(shard, level, message, own.collect()),
            None => deliver_to_shards(shard, message, own),
        }
        let left_out = routed.found - routed.kept;
        rest.by_ref().take(left_out).for_each(drop);
    }
    drop(rest);
    *shard.targets.borrow_mut() = targets;
}

/// Decides which of its targets get a message, and writes what it leaves behind.
fn commit(shard: &Shard, publication: &mut Publication<'_>, targets: &mut [Target]) {
    if publication.routed.refused.is_some() && !publication.is_promised {
        return;
    }
    let kept = leave_out_full(shard, publication, targets);
    if kept < targets.len() {
        publication.routed.refused = Some(Unroutable::QueueFull);
    }
    let targets = &mut targets[..kept];
    if !publication.is_promised && message_records::lacks_room(shard, publication, targets) {
        publication.routed.refused = Some(Unroutable::NoRoom);
        return;
    }
    publication.routed.kept = kept;
    let level = message_records::published(shard, publication, targets);
    publication.routed.waits_for = level.filter(|_| !targets.iter().all(Target::is_stream));
    // It is written: others may change what is retained.
    publication.retaining.turn = None;
}

/// Puts those behind the others whose queue is full, if the publisher can be told so; returns how many the others are. A
/// queue that got full after other publishers were asked to wait is filled beyond its limit.
fn leave_out_full(shard: &Shard, publication: &Publication<'_>, targets: &mut [Target]) -> usize {
    let publisher = publication.publisher;
    let can_be_told = publisher.is_some_and(|client| client.login().version.has_properties());
    let may_leave_out =
        can_be_told && publication.is_refused_when_full && shard.world.durable.has_full();
    let (topic, message) = (publication.topic, publication.message);
    if !may_leave_out || message_records::level_of(shard, publisher, topic) == Level::Memory {
        return targets.len();
    }
    let mut kept = 0;
    for index in 0..targets.len() {
        if !message_records::lacks_queue_room(shard, topic, message, &targets[index]) {
            targets.swap(kept, index);
            kept += 1;
        }
    }
    kept
}

/// A kept session whose queue is full and that would get `message`, if that may not be dropped then.
pub(crate) fn full_queue(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
) -> Option<Handle> {
    let own = publisher.map(|client| &**client);
    let is_refused = queue_policy::may_refuse(shard, own, topic, message)
        && message_records::level_of(shard, publisher, topic) > Level::Memory;
    if !is_refused {
        return None;
    }
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    let publication = Publication::new(publisher, topic, message);
    // A search that is given up has found nobody, and is refused later.
    search(shard, &mut [publication], Purpose::Question, &mut targets);
    let mut found = targets.drain(..);
    let full =
        found.find(|target| message_records::lacks_queue_room(shard, topic, message, target));
    let full = full.map(|target| target.handle);
    drop(found);
    *shard.targets.borrow_mut() = targets;
    full
}

/// Publishes as the broker itself what has been promised already.
pub(crate) fn publish_own(shard: &Rc<Shard>, message: &Message) {
    let retaining = retain::store(shard, None, message.topic_name(), message);
    publish_promised(shard, None, message, retaining);
}

/// Publishes what has been promised already; one that cannot be matched goes to nobody, is counted, and stands in the log.
pub(crate) fn publish_promised(
    shard: &Rc<Shard>,
    publisher: Option<&Rc<Client>>,
    message: &Message,
    retaining: Retaining<'_>,
) {
    let publication = Publication {
        retaining,
        is_promised: true,
        ..Publication::new(publisher, message.topic_name(), message)
    };
    route(shard, &mut [publication], |_, routed| {
        if let Err(why) = routed {
            report_unroutable(shard, publisher, message, why);
        }
    });
}

/// Publishes as the broker itself; returns how many it goes to.
///
/// # Errors
///
/// [`Unroutable`]: nothing is done.
pub(crate) fn try_publish_own(shard: &Rc<Shard>, message: &Message) -> Result<usize, Unroutable> {
    let topic = message.topic_name();
    check_retained(shard, None, topic, message)?;
    if full_queue(shard, None, topic, message).is_some() {
        return Err(Unroutable::QueueFull);
    }
    let publication = Publication {
        retaining: retain::store(shard, None, topic, message),
        is_refused_when_full: queue_policy::refuses(shard, None, topic, message),
        ..Publication::new(None, topic, message)
    };
    let mut matched = Ok(0);
    route(shard, &mut [publication], |_, routed| matched = routed);
    matched
}

/// Checks a message before it is retained, which comes before it is matched.
///
/// # Errors
///
/// [`Unroutable`], for one with RETAIN.
pub(crate) fn check_retained(
    shard: &Shard,
    publisher: Option<&Rc<Client>>,
    topic: TopicName<'_>,
    message: &Message,
) -> Result<(), Unroutable> {
    if message_records::lacks_room_to_retain(shard, publisher, topic, message) {
        return Err(Unroutable::NoRoom);
    }
    check_filters(shard, topic, message)
}

/// As [`check_retained`], whatever room there is.
pub(crate) fn check_filters(
    shard: &Shard,
    topic: TopicName<'_>,
    message: &Message,
) -> Result<(), Unroutable> {
    if message.retain() && !shard.world.directory.snapshot().can_match(topic) {
        return Err(Unroutable::TooManyFilters);
    }
    Ok(())
}
