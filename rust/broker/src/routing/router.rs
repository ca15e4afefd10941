//! The router: matches, records and delivers the messages of one publisher.
//!
//! There is one way, [`route`]: messages are matched, recorded, answered and handed to the sessions of this shard and
//! of others. Messages of one read go together ([`MessageBatch`](crate::routing::batch::MessageBatch)); any other is a
//! batch of one.

use std::rc::Rc;

use mqttcore_session::Message;
use mqttcore_store::Durability;

use crate::clients::handle::Handle;
use crate::clients::target::Target;
use crate::routing::delivery::deliver_to_shards;
use crate::routing::matching::{Purpose, search};
use crate::routing::memory_room::lacks_memory;
use crate::routing::publication::{Publication, Retention, Unroutable, report_unroutable};
use crate::routing::{journal, memory, message_records, queue_policy, retain};
use crate::shard::Shard;

/// Delivers messages of one publisher to all matching subscribers, in order.
///
/// Records are written first. Then `answer` is called for each message, and the message is delivered. A message that
/// was published at QoS 2 is delivered when its record is safe; others are delivered at once, since a repeat does no
/// harm (docs/decisions.md, 19).
///
/// `answer` gets the number of subscribers, or the reason why the message is refused: with [`Unroutable::QueueFull`]
/// some subscribers get it, otherwise none.
pub(crate) fn route(
    shard: &Rc<Shard>,
    publications: &mut [Publication<'_>],
    mut answer: impl FnMut(&Publication<'_>, Result<usize, Unroutable>),
) {
    let mut targets = shard.targets.take();
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
        // Not `rest.by_ref().take()`: its loop is not inlined.
        let own = (0..routed.kept).map_while(|_| rest.next());
        match routed.waits_for {
            Some(durability) => {
                journal::deliver_when_safe(shard, durability, message, own.collect());
            }
            None => deliver_to_shards(shard, message, own),
        }
        let left_out = routed.found - routed.kept;
        rest.by_ref().take(left_out).for_each(drop);
    }
    drop(rest);
    shard.targets.set(targets);
}

/// Decides which targets get a message, and writes its records.
fn commit(shard: &Shard, publication: &mut Publication<'_>, targets: &mut [Target]) {
    if publication.routed.refused.is_some() && !publication.is_accepted {
        return;
    }
    let kept = leave_out_full(shard, publication, targets);
    if kept < targets.len() {
        publication.routed.refused = Some(Unroutable::QueueFull);
    }
    let targets = &mut targets[..kept];
    if !is_decided(publication)
        && let Some(why) = shortage(shard, publication, targets)
    {
        publication.routed.refused = Some(why);
        return;
    }
    publication.routed.kept = kept;
    let durability = message_records::write_published(shard, publication, targets);
    publication.routed.waits_for = durability.filter(|_| !targets.iter().all(Target::is_stream));
    // The record is written: other shards may change the retained message now.
    publication.retaining.lock = None;
}

/// Whether a message is taken without a check for room: it was accepted before, or it has changed a retained message,
/// for which [`check_retained`] has checked the room, or which frees room.
fn is_decided(publication: &Publication<'_>) -> bool {
    let outcome = publication.retaining.outcome;
    publication.is_accepted || matches!(outcome, Retention::Kept | Retention::Cleared)
}

/// The reason to refuse a message for `targets`: disk or memory has no room for its records.
fn shortage(
    shard: &Shard,
    publication: &Publication<'_>,
    targets: &[Target],
) -> Option<Unroutable> {
    if message_records::lacks_room(shard, publication, targets) {
        Some(Unroutable::NoRoom)
    } else if lacks_memory(shard, publication, targets) {
        Some(Unroutable::NoMemory)
    } else {
        None
    }
}

/// Moves the targets with a full queue to the end, if the publisher can be informed; returns the number of the
/// others. If a queue became full after other publishers were asked to wait, it is filled beyond its limit.
fn leave_out_full(shard: &Shard, publication: &Publication<'_>, targets: &mut [Target]) -> usize {
    if !may_leave_out(shard, publication) {
        return targets.len();
    }
    let mut kept = 0;
    for index in 0..targets.len() {
        if !message_records::lacks_queue_room(shard, publication, &targets[index]) {
            targets.swap(kept, index);
            kept += 1;
        }
    }
    kept
}

/// Whether the publisher can be informed that sessions with a full queue do not get the message.
fn may_leave_out(shard: &Shard, publication: &Publication<'_>) -> bool {
    let publisher = publication.publisher;
    let can_be_told = || publisher.is_some_and(|client| client.login().version.has_properties());
    queue_policy::may_be_refused(shard, publication)
        && can_be_told()
        && message_records::durability_of(shard, publication) > Durability::Memory
}

/// The predicted result of [`route`].
pub(crate) struct ForeseenRoute {
    /// Its targets.
    pub(crate) targets: Vec<Target>,
    /// The reason why no subscriber would get it.
    pub(crate) refused: Option<Unroutable>,
    /// Targets with a full queue would not get it.
    pub(crate) leaves_out_full: bool,
}

/// Predicts what [`route`] would do with a message now. Nothing changes.
pub(crate) fn foresee(shard: &Shard, publication: &Publication<'_>) -> ForeseenRoute {
    let mut targets = Vec::new();
    let (publisher, topic) = (publication.publisher, publication.topic);
    let mut asked = [Publication::new(
        publisher,
        topic,
        publication.message,
        None,
    )];
    search(shard, &mut asked, Purpose::Question, &mut targets);
    let [asked] = asked;
    let short = || shortage(shard, publication, &targets);
    let refused = asked.routed.refused;
    let refused = refused.or_else(|| short().filter(|_| !is_decided(publication)));
    ForeseenRoute {
        refused,
        leaves_out_full: may_leave_out(shard, publication),
        targets,
    }
}

/// A kept session whose queue is full and that would get the message, if that may not be dropped then.
pub(crate) fn full_queue(shard: &Shard, publication: &Publication<'_>) -> Option<Handle> {
    let is_refused = queue_policy::may_be_refused(shard, publication)
        && message_records::durability_of(shard, publication) > Durability::Memory;
    if !is_refused {
        return None;
    }
    ask_targets(shard, publication, |targets| {
        let is_full =
            |target: &&Target| message_records::lacks_queue_room(shard, publication, target);
        targets.iter().find(is_full).map(|target| target.handle)
    })
}

/// Asks `question` about the targets that a message has now; nothing is done with the message.
fn ask_targets<T>(
    shard: &Shard,
    publication: &Publication<'_>,
    question: impl FnOnce(&[Target]) -> T,
) -> T {
    let mut targets = shard.targets.take();
    let (publisher, topic) = (publication.publisher, publication.topic);
    let asked = Publication::new(publisher, topic, publication.message, None);
    // A search that was given up found no subscriber; the message is rejected later.
    search(shard, &mut [asked], Purpose::Question, &mut targets);
    let answer = question(&targets);
    targets.clear();
    shard.targets.set(targets);
    answer
}

/// Publishes a message of the broker itself that was accepted before.
pub(crate) fn publish_own(shard: &Rc<Shard>, message: &Message) {
    let mut publication = Publication::new(None, message.topic_name(), message, None);
    retain::store(shard, &mut publication);
    publish_accepted(shard, publication);
}

/// Publishes a message that was accepted before. If it cannot be matched, no subscriber gets it; that is counted and
/// logged.
pub(crate) fn publish_accepted(shard: &Rc<Shard>, mut publication: Publication<'_>) {
    publication.is_accepted = true;
    route(shard, &mut [publication], |publication, routed| {
        if let Err(why) = routed {
            report_unroutable(shard, publication, why);
        }
    });
}

/// Publishes as the broker itself; returns the number of subscribers.
///
/// # Errors
///
/// [`Unroutable`]: nothing is done.
pub(crate) fn try_publish_own(shard: &Rc<Shard>, message: &Message) -> Result<usize, Unroutable> {
    let mut publication = Publication::new(None, message.topic_name(), message, None);
    check_retained(shard, &publication)?;
    if full_queue(shard, &publication).is_some() {
        return Err(Unroutable::QueueFull);
    }
    retain::store(shard, &mut publication);
    let mut matched = Ok(0);
    route(shard, &mut [publication], |_, routed| matched = routed);
    matched
}

/// Checks a message before it is retained, which happens before matching: a refused message changes nothing. If the
/// disk has no room to retain it and its publisher cannot be informed, the message is delivered to connected
/// subscribers.
///
/// # Errors
///
/// [`Unroutable`], for one with RETAIN.
pub(crate) fn check_retained(
    shard: &Shard,
    publication: &Publication<'_>,
) -> Result<(), Unroutable> {
    let can_be_told = publication.packet_id.is_some() || publication.publisher.is_none();
    if can_be_told && message_records::lacks_room_to_retain(shard, publication) {
        return Err(Unroutable::NoRoom);
    }
    let message = publication.message;
    if message.retain() && !message.payload().is_empty() && may_lack_room(shard) {
        let why = ask_targets(shard, publication, |targets| {
            shortage(shard, publication, targets)
        });
        why.map_or(Ok(()), Err)?;
    }
    let can_match = || {
        shard
            .engine
            .directory
            .snapshot()
            .can_match(publication.topic)
    };
    if message.retain() && !can_match() {
        return Err(Unroutable::TooManyFilters);
    }
    Ok(())
}

/// Whether each message may be refused, because the disk or memory is nearly full.
pub(crate) fn may_lack_room(shard: &Shard) -> bool {
    shard.is_short_of_room() || memory::is_full(shard)
}
