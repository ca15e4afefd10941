//! Publishes wills: at once, or at a bounded rate if many clients are lost together (abuse F09).

use std::rc::Rc;

use mqttcore_codec::QoS;
use mqttcore_session::Message;

use crate::clients::client::{Client, KeptWill};
use crate::clients::due_wills::{BURST, DueWill, DueWills, WAITING_BYTES, WaitingMax};
use crate::config::permissions::RuleAnswer;
use crate::routing::publication::Publication;
use crate::routing::{retain, router, session_records};
use crate::runtime::log::LogCategory;
use crate::runtime::token_bucket::Rate;
use crate::shard::Shard;

/// Publishes a will that has come due, or queues it if too many have.
pub(crate) fn publish_or_queue(shard: &Rc<Shard>, client: &Rc<Client>, message: Message) {
    let will = due(shard, client, message);
    let (rate, now) = (rate(shard), shard.now());
    // At a stop, all that waited was published already.
    if shard.engine.is_stopping() || shard.due_wills.borrow_mut().is_next(rate, now) {
        publish(shard, &will);
        return;
    }
    shard.due_wills.borrow_mut().push(will);
    shard.memory().sessions.add(WAITING_BYTES as u64);
    shard.count_growth(WAITING_BYTES);
    shard.metrics().wills_delayed.add(1);
    shard.log.warn(LogCategory::DelayedWill, now, || {
        let per_second = shard.config().wills_per_second;
        format!("wills are delayed: more than {per_second} a second are due (wills_per_second)")
    });
    let most = WaitingMax::of_one_of(shard.engine.shards());
    publish_each(shard, |wills| wills.pop_excess(most));
}

/// Publishes queued wills as the rate allows.
pub(crate) fn publish_queued(shard: &Rc<Shard>) {
    let (rate, now) = (rate(shard), shard.now());
    publish_each(shard, |wills| wills.pop(rate, now));
}

/// Publishes the queued will of a client that connects again, before the next messages of the client.
pub(crate) fn publish_queued_of(shard: &Rc<Shard>, client_id: &str) {
    let (rate, now) = (rate(shard), shard.now());
    let will = take_out(shard, |wills| wills.take(client_id, rate, now));
    if let Some(will) = will {
        publish(shard, &will);
    }
}

/// Publishes all queued wills: the broker stops.
pub(crate) fn publish_all_queued(shard: &Rc<Shard>) {
    publish_each(shard, DueWills::pop_early);
}

/// Publishes the wills that `next` takes from the queue, until it returns none.
fn publish_each(shard: &Rc<Shard>, mut next: impl FnMut(&mut DueWills) -> Option<DueWill>) {
    while let Some(will) = take_out(shard, &mut next) {
        publish(shard, &will);
    }
}

/// Removes a will from the queue and from the count of its bytes.
fn take_out(shard: &Shard, next: impl FnOnce(&mut DueWills) -> Option<DueWill>) -> Option<DueWill> {
    let will = next(&mut shard.due_wills.borrow_mut())?;
    shard.memory().sessions.sub(WAITING_BYTES as u64);
    Some(will)
}

/// Publishes the will of a client that is about to be disconnected because the broker stops.
pub(crate) fn publish_before_stop(shard: &Rc<Shard>, client: &Rc<Client>) {
    let will = client.session.borrow_mut().take_due_will(shard.now());
    if let Some(will) = will {
        publish(shard, &due(shard, client, will));
    }
}

fn due(shard: &Shard, client: &Rc<Client>, message: Message) -> DueWill {
    DueWill::of(client, message, shard.engine.invalidations.count())
}

/// Records that the session of `client` has ended; if its will is queued, that only the will remains.
pub(crate) fn write_session_end(shard: &Shard, client: &Rc<Client>) {
    match shard.due_wills.borrow_mut().of(client) {
        Some(will) => will.record = session_records::take_number(shard, client),
        None => session_records::write_session_end(shard, client),
    }
}

/// The rate of one shard.
fn rate(shard: &Shard) -> Option<Rate> {
    // INVARIANT: there are few shards.
    let shards = u32::try_from(shard.engine.shards()).expect("fewer than 2^8 shards");
    Rate::new(shard.config().wills_per_second.div_ceil(shards), BURST)
}

fn publish(shard: &Rc<Shard>, will: &DueWill) {
    let DueWill {
        client,
        message,
        record,
        due_at,
    } = will;
    let is_kept = record.is_some() || client.kept_will.get() != KeptWill::None;
    if is_kept && shard.has_lost_its_store() {
        // The store still has the will, so the broker would publish it again after its next start.
        return;
    }
    match record {
        Some(session) => session_records::write_end_of(shard, client, *session),
        None => session_records::will_ended(shard, client),
    }
    let topic = message.topic_name();
    let answer = client.access().permissions.publish(topic);
    let bans = &shard.engine.bans;
    let why_not = if bans.covers_for_good(&client.login(), shard.now()) {
        Some("banned")
    } else if has_outdated_rights(shard, client, *due_at) {
        Some("its rights were invalidated")
    } else if answer != RuleAnswer::Allowed {
        Some("not allowed")
    } else {
        None
    };
    if let Some(why) = why_not {
        return report_dropped(shard, client, message.qos(), why);
    }
    let mut publication = Publication::new(Some(client), topic, message, None);
    retain::store(shard, &mut publication);
    router::publish_accepted(shard, publication);
}

/// Whether the rights of a client were invalidated after its will came due. No plugin is asked about a client without a
/// session, so that its grant is the old one.
fn has_outdated_rights(shard: &Shard, client: &Client, due_at: u64) -> bool {
    shard.engine.is_outdated(due_at, client) && shard.client_at(client.handle).is_none()
}

/// Discards the will of a client that has lost its rights, in the store, too (abuse F08).
pub(crate) fn discard(shard: &Shard, client: &Client) {
    let qos = client
        .session
        .borrow()
        .will()
        .map(|will| will.message.qos());
    let Some(qos) = qos else { return };
    client.session.borrow_mut().discard_will();
    session_records::will_ended(shard, client);
    report_dropped(shard, client, qos, "its rights were revoked");
}

/// Counts and logs a will that is not published.
fn report_dropped(shard: &Shard, client: &Client, qos: QoS, why: &str) {
    shard.metrics().dropped_will.count(qos);
    shard.log.warn(LogCategory::Will, shard.now(), || {
        let text = format!("will of {} not published: {why}", client.named());
        client.log_entry("will_dropped", text)
    });
}
