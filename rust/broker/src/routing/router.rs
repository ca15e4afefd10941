//! The router: from one publish to the sessions that get it.
//!
//! A publish is matched ([`search`]), recorded ([`journal`]), acknowledged, and handed to the sessions of this shard and of
//! others ([`deliver_to_shards`]). Several publishes of one read are matched together by
//! [`MessageBatch`](crate::routing::batch::MessageBatch).

use std::rc::Rc;

use mqttcore_session::Message;
use mqttcore_store::Level;
use mqttcore_topics::TopicName;

use crate::clients::client::Client;
use crate::clients::handle::Handle;
use crate::clients::target::Target;
use crate::clients::topic::topic_of;
use crate::routing::delivery::deliver_to_shards;
use crate::routing::matching::{Collector, search};
use crate::routing::publication::{Publication, Unroutable, report_unroutable};
use crate::routing::{journal, queue_policy, retain};
use crate::shard::Shard;

/// Hands a message to every matching subscriber; returns how many there are.
///
/// What outlives the broker is written first. A message that was published at QoS 2 is delivered
/// once that is safe; others at once, since a repeat does them no harm (decision 19).
///
/// One that cannot be matched goes to nobody, is counted, and stands in the log.
pub(crate) fn route(shard: &Rc<Shard>, publication: Publication<'_>) -> usize {
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    if let Err(why) = find(shard, &publication, &mut targets) {
        report_unroutable(shard, publication.publisher, publication.message, why);
        targets.clear();
    }
    commit_and_deliver(shard, publication, targets, |_| {})
}

/// As [`route`]. `accepted` is called with the number of subscribers once the message is written, before any of them
/// gets it; or with [`Unroutable::QueueFull`] if some are left out.
///
/// # Errors
///
/// [`Unroutable`]: nothing is done.
pub(crate) fn try_route(
    shard: &Rc<Shard>,
    mut publication: Publication<'_>,
    accepted: impl FnOnce(Result<usize, Unroutable>),
) -> Result<usize, Unroutable> {
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    let mut found = find(shard, &publication, &mut targets);
    let is_refused = leave_out_full(shard, &publication, &mut targets);
    if is_refused {
        // Its identifier is free again.
        publication.packet_id = None;
    }
    if found.is_ok() && journal::lacks_room(shard, &publication, &targets) {
        found = Err(Unroutable::NoRoom);
    }
    if let Err(why) = found {
        targets.clear();
        *shard.targets.borrow_mut() = targets;
        return Err(why);
    }
    Ok(commit_and_deliver(shard, publication, targets, |matched| {
        accepted(if is_refused {
            Err(Unroutable::QueueFull)
        } else {
            Ok(matched)
        });
    }))
}

/// Takes those out of `targets` whose queue is full, if the publisher can be told so; whether there were any. A queue that
/// got full after other publishers were asked to wait is filled beyond its limit.
fn leave_out_full(shard: &Shard, publication: &Publication<'_>, targets: &mut Vec<Target>) -> bool {
    let publisher = publication.publisher;
    let can_be_told = publisher.is_some_and(|client| client.login().version.has_properties());
    if !(can_be_told && publication.is_refused_when_full && shard.world.durable.has_full()) {
        return false;
    }
    let count = targets.len();
    if journal::level_of(shard, publisher, publication.topic) > Level::Memory {
        let (topic, message) = (publication.topic, publication.message);
        targets.retain(|target| !journal::lacks_queue_room(shard, topic, message, target));
    }
    targets.len() < count
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
        && journal::level_of(shard, publisher, topic) > Level::Memory;
    if !is_refused {
        return None;
    }
    let mut targets = std::mem::take(&mut *shard.targets.borrow_mut());
    let mut collector = Collector::new(shard, message.retain(), message.qos(), &mut targets);
    collector.takes_turns = false;
    // A search that is given up has found nobody, and is refused later.
    let _ = search(shard, publisher, topic, message, collector);
    let mut found = targets.drain(..);
    let full = found.find(|target| journal::lacks_queue_room(shard, topic, message, target));
    let full = full.map(|target| target.handle);
    drop(found);
    *shard.targets.borrow_mut() = targets;
    full
}

/// Collects who gets a message in `targets`, which are empty.
fn find(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &mut Vec<Target>,
) -> Result<(), Unroutable> {
    let message = publication.message;
    let collector = Collector::new(shard, message.retain(), message.qos(), targets);
    search(
        shard,
        publication.publisher,
        publication.topic,
        message,
        collector,
    )
}

fn commit_and_deliver(
    shard: &Rc<Shard>,
    publication: Publication<'_>,
    mut targets: Vec<Target>,
    accepted: impl FnOnce(usize),
) -> usize {
    let message = publication.message;
    let matched = targets.len();
    let level = journal::published(shard, &publication, &mut targets);
    // It is written: others may change what is retained.
    drop(publication);
    accepted(matched);
    if let Some(level) = level.filter(|_| !targets.iter().all(Target::is_stream)) {
        journal::hold(shard, level, message, std::mem::take(&mut targets));
    }
    deliver_to_shards(shard, message, targets.drain(..));
    *shard.targets.borrow_mut() = targets;
    matched
}

/// One of the broker itself that nobody can be told of.
fn own_publication<'a>(
    shard: &'a Shard,
    topic: TopicName<'a>,
    message: &'a Message,
) -> Publication<'a> {
    Publication {
        publisher: None,
        topic,
        message,
        packet_id: None,
        retaining: retain::store(shard, None, topic, message),
        is_logged: false,
        is_refused_when_full: false,
    }
}

/// Publishes as the broker itself what has been promised already; returns how many it goes to.
pub(crate) fn publish_own(shard: &Rc<Shard>, message: &Message) -> usize {
    let own = |topic| route(shard, own_publication(shard, topic, message));
    topic_of(message).map_or(0, own)
}

/// Publishes as the broker itself.
///
/// # Errors
///
/// [`Unroutable`]: nothing is done.
pub(crate) fn try_publish_own(shard: &Rc<Shard>, message: &Message) -> Result<usize, Unroutable> {
    let Some(topic) = topic_of(message) else {
        return Ok(0);
    };
    check_retained(shard, None, topic, message)?;
    if full_queue(shard, None, topic, message).is_some() {
        return Err(Unroutable::QueueFull);
    }
    let publication = Publication {
        is_refused_when_full: queue_policy::refuses(shard, None, topic, message),
        ..own_publication(shard, topic, message)
    };
    try_route(shard, publication, |_| {})
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
    if journal::lacks_room_to_retain(shard, publisher, topic, message) {
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
