//! Retained messages: storing, removal, expiry, and replay to new subscriptions.

use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard};

use mqttcore_codec::QoS;
use mqttcore_session::{Delivery, Message};
use mqttcore_store::Durability;
use mqttcore_topics::TopicName;

use crate::clients::client::Client;
use crate::clients::link::Link;
use crate::clients::retained::{Replay, ReplayPosition, Replays, RetainedMessage};
use crate::clients::sources::Source;
use crate::config::hooks::Action;
use crate::config::permissions::RuleAnswer;
use crate::routing::memory::{self, Shortage};
use crate::routing::publication::{Publication, Retaining, Retention};
use crate::routing::{delivery, message_records, retain_share, session_records};
use crate::runtime::log::{Escaped, LogCategory};
use crate::shard::{EngineState, Shard};

/// Retained messages that one client gets in one turn; then others have theirs (abuse E15).
const REPLAYED_A_TURN: usize = 64;
/// Nodes of the retained store that one step of a walk looks at.
const WALKED_A_STEP: usize = 64;
/// Bytes waiting for a client above which no further retained message is put behind them.
const REPLAY_BELOW_BYTES: usize = 128 * 1024;

impl<'w> Retaining<'w> {
    fn new(
        outcome: Retention,
        old: Option<&RetainedMessage>,
        turn: Option<MutexGuard<'w, ()>>,
    ) -> Self {
        Self {
            outcome,
            was_stored: old.is_some_and(|old| old.is_stored),
            // An unchanged message needs no record.
            lock: turn.filter(|_| outcome != Retention::Refused),
        }
    }
}

/// Whether its publisher may still publish it, as far as that is known (ADR 0029).
fn is_still_allowed(kept: &RetainedMessage, shard: &Shard) -> bool {
    if !shard.config().check_retain_source {
        return true;
    }
    let topic = kept.message.topic_name();
    let source = kept.source.as_ref();
    match source.and_then(|source| source.may_publish(topic)) {
        None | Some(RuleAnswer::Allowed) => true,
        Some(RuleAnswer::Denied) => false,
        // A plugin cannot be asked without the client.
        Some(RuleAnswer::Silent) => shard
            .interests()
            .asks_about(Action::Publish, |filter| filter.matches(topic)),
    }
}

/// The next retained message, after at most one step of the walk.
fn next_of(replay: &mut Replay, shard: &Shard) -> ReplayStep {
    if let Some(kept) = replay.found.pop_front() {
        return if is_current(shard, &kept.message) {
            ReplayStep::Message(kept)
        } else {
            ReplayStep::Searching
        };
    }
    let ReplayPosition::Next(cursor) = &mut replay.walk else {
        return ReplayStep::Nothing;
    };
    let (retained, found) = (&shard.engine.retained, &mut replay.found);
    let next = retained.walk(
        &replay.filter,
        cursor.take(),
        WALKED_A_STEP,
        &mut |_, kept| {
            found.push_back(RetainedMessage::clone(kept));
        },
    );
    replay.walk = next.map_or(ReplayPosition::Done, |cursor| {
        ReplayPosition::Next(Some(cursor))
    });
    ReplayStep::Searching
}

/// Whether `message` is still the retained one of its topic: a newer one has been delivered as a live message, and
/// the old value must not be sent after it.
fn is_current(shard: &Shard, message: &Message) -> bool {
    let kept = shard.engine.retained.get(message.topic_name());
    kept.is_some_and(|kept| kept.message.bytes().is_same(message.bytes()))
}

/// The result of one step of a replay.
enum ReplayStep {
    Message(RetainedMessage),
    /// A part of the store was looked at.
    Searching,
    Nothing,
}

/// Keeps a message with RETAIN as the one of its topic; an empty payload clears it
/// [MQTT-3.3.1-6].
///
/// When the store is full, a new topic is not kept; an old one may still change (abuse F01).
pub(crate) fn store<'a>(shard: &'a Shard, publication: &mut Publication<'a>) {
    let message = publication.message;
    if !message.retain() {
        return;
    }
    if is_lost_for_disk(shard, publication) {
        let why = "the disk is nearly full";
        refused(shard, publication, LogCategory::Disk, why);
        publication.retaining.outcome = Retention::Refused;
        return;
    }
    let lock = || shard.engine.lock_retained(publication.topic.as_str());
    let turn = shard.journal.is_some().then(lock);
    let (outcome, old) = change(shard, publication);
    publication.retaining = Retaining::new(outcome, old.as_ref(), turn);
}

/// Whether a message is not retained because the disk is nearly full, and its publisher cannot be told: QoS 0 has no
/// acknowledgement.
fn is_lost_for_disk(shard: &Shard, publication: &Publication<'_>) -> bool {
    let is_lossy = publication.message.qos() == QoS::AtMostOnce;
    is_lossy && message_records::lacks_room_to_retain(shard, publication)
}

/// Foresees the action of [`store`] for a message now. Nothing changes.
pub(crate) fn foresee(shard: &Shard, publication: &Publication<'_>) -> Retention {
    let (message, topic) = (publication.message, publication.topic);
    if !message.retain() {
        return Retention::None;
    }
    if message.payload().is_empty() {
        return Retention::Cleared;
    }
    let bytes = message.heap_bytes();
    let owner = publication.publisher;
    let owner = owner.and_then(|client| retain_share::owner_of(shard, client));
    let is_refused = is_lost_for_disk(shard, publication)
        || lacked_room(shard, topic, bytes).is_some()
        || owner.is_some_and(|owner| !retain_share::has_room(shard, owner, topic, bytes));
    if is_refused {
        Retention::Refused
    } else {
        Retention::Kept
    }
}

/// The limit that leaves no room for a retained message.
enum LackedRoom {
    /// The budget of memory.
    Memory,
    /// The limits of retained messages.
    Limits,
}

/// Whether a message of `bytes` is too much for `topic`. An old topic may change, as long as that does not make the
/// store larger than it may be.
fn lacked_room(shard: &Shard, topic: TopicName<'_>, bytes: usize) -> Option<LackedRoom> {
    let (config, retained) = (shard.config(), &shard.engine.retained);
    let held = retained.weight();
    let is_short = memory::is_full(shard);
    let is_full =
        count(&shard.engine) >= config.retained_messages || held + bytes > config.retained_bytes;
    if !is_full && !is_short {
        return None;
    }
    let is_refused = match retained.get(topic).map(|old| old.message.heap_bytes()) {
        Some(old) if is_short => bytes > old,
        Some(old) => bytes > old && held.saturating_sub(old) + bytes > config.retained_bytes,
        None => true,
    };
    is_refused.then_some(if is_short {
        LackedRoom::Memory
    } else {
        LackedRoom::Limits
    })
}

/// Changes the retained message of a topic; returns the message before, too.
fn change(shard: &Shard, publication: &Publication<'_>) -> (Retention, Option<RetainedMessage>) {
    let (engine, topic, message) = (&shard.engine, publication.topic, publication.message);
    if message.payload().is_empty() {
        return (
            Retention::Cleared,
            uncounted(engine, engine.retained.remove(topic)),
        );
    }
    let mut message = message.clone();
    message.release_chunk();
    let (publisher, bytes) = (publication.publisher, message.heap_bytes());
    match lacked_room(shard, topic, bytes) {
        None => {}
        Some(LackedRoom::Memory) => {
            let publisher = publisher.map(|client| &**client);
            memory::report_of(shard, Shortage::Retained, publisher);
            return (Retention::Refused, None);
        }
        Some(LackedRoom::Limits) => {
            let why = "the limit of retained messages is reached";
            refused(shard, publication, LogCategory::RetainedLimit, why);
            return (Retention::Refused, None);
        }
    }
    let owner = publisher.and_then(|client| retain_share::owner_of(shard, client));
    if owner.is_some_and(|owner| !retain_share::try_count(shard, owner, topic, bytes)) {
        retain_share::refuse(shard, publication);
        return (Retention::Refused, None);
    }
    let is_stored = message_records::durability_of(shard, publication) > Durability::Memory;
    let source = publisher
        .filter(|_| shard.config().check_retain_source)
        .and_then(|client| source_of(engine, client));
    let kept = RetainedMessage::new(message, is_stored, source, owner);
    (
        Retention::Kept,
        uncounted(engine, engine.retained.set(topic, kept)),
    )
}

/// Keeps a message as the one of its topic, also above the share of its owner: the store has it.
pub(crate) fn recover(engine: &EngineState, topic: TopicName<'_>, kept: RetainedMessage) {
    if let Some(owner) = kept.owner {
        let bytes = kept.message.heap_bytes();
        engine.retained_shares.add(owner, bytes);
    }
    uncounted(engine, engine.retained.set(topic, kept));
}

/// The publisher of what is retained, if it has a user name.
fn source_of(engine: &EngineState, client: &Client) -> Option<Arc<Source>> {
    let login = client.login();
    let source = engine
        .sources
        .named(&login.client_id, login.username.as_ref()?);
    // The grant of a restored session whose client has not connected is for its will only.
    if client.was_here() {
        source.set(&client.access());
    }
    Some(source)
}

/// Retained messages without the broker's own.
pub(crate) fn count(engine: &EngineState) -> usize {
    // ORDERING: a figure and an approximate limit; nothing is read because of it.
    let own = engine.own_retained.load(Ordering::Relaxed);
    engine.retained.len().saturating_sub(own)
}

/// Keeps a message that the broker publishes about itself; an empty one is removed. Only the first
/// shard does so.
pub(crate) fn set_own(engine: &EngineState, topic: TopicName<'_>, message: &Message) {
    let old = if message.payload().is_empty() {
        engine.retained.remove(topic)
    } else {
        // ORDERING: see `count`; what comes is counted before it can be seen.
        engine.own_retained.fetch_add(1, Ordering::Relaxed);
        let kept = RetainedMessage {
            message: message.clone(),
            is_stored: false,
            is_own: true,
            source: None,
            owner: None,
        };
        engine.retained.set(topic, kept)
    };
    uncounted(engine, old);
}

/// Counts the removal of `old`.
fn uncounted(engine: &EngineState, old: Option<RetainedMessage>) -> Option<RetainedMessage> {
    if old.as_ref().is_some_and(|old| old.is_own) {
        // ORDERING: see `count`.
        engine.own_retained.fetch_sub(1, Ordering::Relaxed);
    }
    if let Some((old, owner)) = old.as_ref().and_then(|old| Some((old, old.owner?))) {
        let bytes = old.message.heap_bytes();
        engine.retained_shares.remove(owner, bytes);
    }
    old
}

/// Counts and logs a retained message that is not stored.
fn refused(shard: &Shard, publication: &Publication<'_>, category: LogCategory, why: &str) {
    let publisher = publication.publisher;
    let listener = publisher.and_then(|client| client.listener());
    let refusals = shard.metrics().refusals(listener);
    refusals.dropped_retained_full.add(1);
    shard.log.warn(category, shard.now(), || {
        let topic = Escaped(publication.topic.as_str());
        let Some(client) = publisher else {
            return format!("retained message on {topic} not stored: {why}").into();
        };
        let who = client.named();
        let text = format!("retained message of {who} on {topic} not stored: {why}");
        client.log_entry("retained_refused", text)
    });
}

/// Removes the message of `topic` if it has expired, from the store as well.
pub(super) fn forget_expired(shard: &Shard, topic: TopicName<'_>) {
    let _turn = shard
        .journal
        .is_some()
        .then(|| shard.engine.lock_retained(topic.as_str()));
    let is_due = |kept: &RetainedMessage| kept.message.is_expired(shard.now());
    let gone = uncounted(
        &shard.engine,
        shard.engine.retained.remove_if(topic, is_due),
    );
    if gone.is_some_and(|gone| gone.is_stored) {
        session_records::expired(shard, &[topic.as_str().to_owned()]);
    }
}

/// Sends the next retained messages to `client`, as long as there is room for them; returns their bytes.
pub(crate) fn replay(shard: &Rc<Shard>, client: &Rc<Client>) -> usize {
    let (mut bytes, mut held) = (0, 0);
    let Some(link) = client.link() else {
        return bytes;
    };
    for _ in 0..REPLAYED_A_TURN {
        if !can_replay_behind(shard, client, held) {
            return bytes;
        }
        let step = link.with_replays(|replays| next_step(shard, client, replays, held));
        let Some((next, options)) = step else {
            return bytes;
        };
        if let ReplayStep::Message(kept) = next {
            let is_held = held > 0 || shard.has_deliver_hook(&kept.message);
            bytes += deliver_kept(shard, client, &kept, options, is_held);
            if is_held {
                held = client.session.borrow().queued();
            }
        }
    }
    bytes
}

/// The next step of the first replay, and the QoS and identifier of its subscription; `None` if there is none, or if its
/// message may not wait behind `held` others.
fn next_step(
    shard: &Shard,
    client: &Client,
    replays: &mut Replays,
    held: usize,
) -> Option<(ReplayStep, (QoS, Option<NonZeroU32>))> {
    let replay = replays.front_mut()?;
    let options = (replay.qos, replay.id);
    match next_of(replay, shard) {
        ReplayStep::Message(kept) if held > 0 && !may_hold(shard, client, &kept.message) => {
            replay.found.push_front(kept);
            None
        }
        ReplayStep::Nothing => {
            replays.pop_front();
            Some((ReplayStep::Nothing, options))
        }
        next => Some((next, options)),
    }
}

/// Delivers a retained message to a subscription with this QoS and identifier; returns its bytes.
fn deliver_kept(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    kept: &RetainedMessage,
    (qos, id): (QoS, Option<NonZeroU32>),
    is_held: bool,
) -> usize {
    let message = &kept.message;
    if !is_still_allowed(kept, shard) {
        shard.metrics().retained_withheld.add(1);
        return 0;
    }
    if message.is_expired(shard.now()) {
        return 0;
    }
    let delivery = Delivery {
        retain: true,
        key: message_records::write_replayed(shard, client, kept, qos, id),
        is_held,
        ..Delivery::new(qos, id.as_slice())
    };
    delivery::deliver(shard, client, message, delivery);
    message.heap_bytes()
}

/// Whether [`replay`] has something to do now.
pub(crate) fn can_replay(shard: &Shard, client: &Client) -> bool {
    can_replay_behind(shard, client, 0)
}

/// The same while `held` replayed messages are queued: deliver hooks will decide about them together.
fn can_replay_behind(shard: &Shard, client: &Client, held: usize) -> bool {
    let own = client.link_ref();
    let Some(link) = &*own else {
        return false;
    };
    let is_due = |first: &Replay| client.session.borrow().is_confirmed(first.suback);
    link.with_replays(|replays| replays.front().is_some_and(is_due))
        && has_room(shard, client, link, held)
}

/// Whether nothing is queued in the session but `held` replayed messages, and few bytes wait for the client: retained
/// messages never displace live ones.
fn has_room(shard: &Shard, client: &Client, link: &Link, held: usize) -> bool {
    let session = client.session.borrow();
    let waiting = link.outbox().len() + session.queued_bytes();
    let backlog_bytes = shard.config().limits.qos0_backlog_bytes;
    waiting < REPLAY_BELOW_BYTES.min(backlog_bytes.max(1)) && session.queued() <= held
}

/// Whether one more replayed message may wait with others for the decisions of deliver hooks: live messages keep half of
/// the queue.
fn may_hold(shard: &Shard, client: &Client, message: &Message) -> bool {
    !memory::is_short(shard) && client.session.borrow().has_spare_room(message)
}

#[cfg(test)]
mod tests {
    use std::sync::{Mutex, PoisonError};

    use super::*;

    #[test]
    fn a_topic_is_locked_only_while_its_change_has_to_be_written() {
        let turn = Mutex::new(());
        let is_locked = |outcome| {
            let guard = turn.lock().unwrap_or_else(PoisonError::into_inner);
            let _retaining = Retaining::new(outcome, None, Some(guard));
            turn.try_lock().is_err()
        };

        assert!(is_locked(Retention::Kept) && is_locked(Retention::Cleared));
        assert!(!is_locked(Retention::Refused));
    }
}
