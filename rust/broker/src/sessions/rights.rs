//! Changes of a client's identity or grant: revokes subscriptions and queued messages.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use mqttcore_session::Message;
use mqttcore_topics::{Change, MountPoint, SubscriptionFilter, TopicFilter};

use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::config::hooks::{Action, Login};
use crate::config::permissions::{CompiledGrant, RuleAnswer};
use crate::routing::session_records;
use crate::sessions::lifecycle::handle_events;
use crate::shard::Shard;

/// Sets identity and grant of a client.
pub(crate) fn identify(
    shard: &Shard,
    client: &Client,
    login: Arc<Login>,
    access: Arc<CompiledGrant>,
) {
    tell_sources(shard, &login, &access);
    client.identify(login, access);
}

/// Replaces the grant of a client.
pub(crate) fn replace_grant(shard: &Shard, client: &Client, access: CompiledGrant) {
    let access = Arc::new(access);
    tell_sources(shard, &client.login(), &access);
    client.set_access(access);
}

/// Retained messages of the client are checked against this grant (ADR 0029).
fn tell_sources(shard: &Shard, login: &Login, access: &Arc<CompiledGrant>) {
    if let Some(username) = &login.username {
        let sources = &shard.engine.sources;
        sources.granted(&login.client_id, username, access);
    }
}

/// Ends, at resume, subscriptions that a reduced grant no longer covers, or that a client behind `mount_point` cannot
/// have, and drops their queued messages (abuse F16).
pub(crate) fn revoke_lost_rights(
    client: &Rc<Client>,
    shard: &Rc<Shard>,
    mount_point: Option<&MountPoint>,
) {
    let lost = lost_subscriptions(client, shard, mount_point);
    end_subscriptions(shard, client, &lost);
}

/// Ends subscriptions of `client` that it has lost the right to, and drops queued messages of these subscriptions and
/// of topics that its grant denies.
pub(crate) fn end_subscriptions(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    lost: &[SubscriptionFilter],
) {
    let access = Arc::clone(&client.access());
    if lost.is_empty() && !access.permissions.checks_deliveries() {
        return;
    }
    let changes: Vec<Change<'_>> = lost
        .iter()
        .map(|filter| Change::Unsubscribe { filter })
        .collect();
    shard.engine.directory.commit(client.subscriber, &changes);
    for filter in lost {
        session_records::unsubscribed(shard, client, filter);
        client.session.borrow_mut().revoke(filter);
    }
    if let Some(link) = client.link() {
        link.with_replays(|replays| replays.remove(lost.iter()));
    }
    let may_have = (!lost.is_empty()).then(|| may_receive(client));
    client.session.borrow_mut().keep_queued(|message| {
        let topic = message.topic_name();
        match &may_have {
            Some(may_have) if lost.iter().any(|filter| filter.filter().matches(topic)) => {
                may_have(message)
            }
            // No lost subscription matches it.
            _ => access.permissions.receives(topic),
        }
    });
    // Spilled messages are checked when they are read back.
    let is_spilled = client.session.borrow().spilled() > 0;
    client.flags.set(Flag::QueueJudged, is_spilled);
    handle_events(shard, client);
}

/// The subscriptions of `client` that its grant does not cover, or that are outside of `mount_point`.
fn lost_subscriptions(
    client: &Client,
    shard: &Shard,
    mount_point: Option<&MountPoint>,
) -> Vec<SubscriptionFilter> {
    let session = client.session.borrow();
    let subscriptions = session.subscriptions().iter();
    let filters = subscriptions.map(|subscription| &subscription.filter);
    let is_lost = |filter: &&SubscriptionFilter| {
        let filter = filter.filter();
        mount_point.is_some_and(|mount_point| !mount_point.holds(filter))
            || is_lost(shard, client, filter)
    };
    filters.filter(is_lost).cloned().collect()
}

/// Whether a subscription that was allowed once is not any more. Where a plugin is asked about the
/// filter, its old answer stays.
pub(crate) fn is_lost(shard: &Shard, client: &Client, filter: &TopicFilter) -> bool {
    let answer = client.access().permissions.subscribe(filter);
    match answer {
        RuleAnswer::Allowed => false,
        RuleAnswer::Denied => true,
        RuleAnswer::Silent => !shard
            .interests()
            .asks_about(Action::Subscribe, |about| about.covers(filter)),
    }
}

/// Whether `client` may receive a queued message with its present rights.
pub(crate) fn may_receive(client: &Client) -> impl Fn(&Message) -> bool + use<> {
    let access = Arc::clone(&client.access());
    let held: Vec<TopicFilter> = client
        .session
        .borrow()
        .subscriptions()
        .iter()
        .map(|subscription| subscription.filter.filter().clone())
        .collect();
    move |message: &Message| {
        let topic = message.topic_name();
        access.permissions.receives(topic) && held.iter().any(|filter| filter.matches(topic))
    }
}

/// A wall-clock time as the monotonic clock will show it.
pub(crate) fn on_monotonic_clock(now: Instant, at: SystemTime) -> Instant {
    now + at.duration_since(SystemTime::now()).unwrap_or_default()
}
