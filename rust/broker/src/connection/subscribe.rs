//! SUBSCRIBE and UNSUBSCRIBE: permission, one commit for the packet, acknowledgement.

use std::collections::HashSet;
use std::rc::Rc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{
    Details, SubscribeEntry, SubscribeRequest, UnsubscribeEntry, UnsubscribeRequest,
};
use mqttcore_topics::{Change, ShareName, TopicFilter};

use crate::clients::client::Client;
use crate::clients::retained::Replay;
use crate::config::hooks::Action;
use crate::config::permissions::RuleAnswer;
use crate::config::plugin_event::EventKind;
use crate::connection::authorize::{AuthorizeArgs, Denial, PendingRequest, ask, report_denied};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::connection::{renewal, subscribe_hooks};
use crate::routing::session_records;
use crate::runtime::log::LogCategory;
use crate::sessions::lifecycle::confirm;
use crate::sessions::rights::is_lost;
use crate::shard::{EventDetails, Shard};

fn denial() -> Denial {
    let text = "not allowed to subscribe to this filter";
    Denial::new(ReasonCode::NOT_AUTHORIZED, text)
}

/// Handles a SUBSCRIBE; returns a [`PendingRequest`] if a plugin has to decide.
pub(crate) fn subscribe(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    mut request: SubscribeRequest,
) -> Option<PendingRequest> {
    report_limited(shard, client, &request);
    let mut why = Details::none();
    let open: Vec<usize> = (0..request.entries.len())
        .filter(|&index| judge_entry(shard, client, &mut request.entries[index], &mut why))
        .collect();
    if open.is_empty() && !subscribe_hooks::are_asked(shard, &request) {
        complete_subscribe(shard, client, request, why);
        return None;
    }
    let (shard, client) = (Rc::clone(shard), Rc::clone(client));
    let asked_at = shard.engine.invalidations.count();
    Some(Box::pin(async move {
        ask_plugins(&shard, &client, &mut request, &open, &mut why).await?;
        refuse_lost(&shard, &client, &mut request, &mut why);
        complete_subscribe(&shard, &client, request, why);
        confirm(&shard, &client);
        if shard.engine.is_outdated(asked_at, &client) {
            renewal::start(&shard, [client]);
        }
        Ok(())
    }))
}

/// Counts and logs the entries that the session has refused because of a limit.
fn report_limited(shard: &Shard, client: &Client, request: &SubscribeRequest) {
    let is_limited = |entry: &&SubscribeEntry| entry.refused == Some(ReasonCode::QUOTA_EXCEEDED);
    let limited = request.entries.iter().filter(is_limited).count();
    if limited == 0 {
        return;
    }
    let refusals = shard.metrics().refusals(client.listener());
    refusals.refused_subscriptions.add(limited as u64);
    shard.log.warn(LogCategory::Subscriptions, shard.now(), || {
        let who = client.named();
        let text = format!("{limited} subscriptions of {who} refused: it has too many");
        client.log_entry("subscription_refused", text)
    });
}

/// Rejects the entries that a plugin denies: the `authorize` hooks decide about those of `open`, the `subscribe` hooks
/// about all that are left.
async fn ask_plugins(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: &mut SubscribeRequest,
    open: &[usize],
    why: &mut Details,
) -> Result<(), DisconnectCause> {
    for &index in open {
        let entry = &mut request.entries[index];
        let filter = entry.filter.filter();
        if client.has_cached_allow(Action::Subscribe, |covers| covers.covers(filter)) {
            continue;
        }
        if let Err(refusal) = ask(shard, client, question(entry)).await? {
            refuse_entry(shard, client, entry, refusal, why);
        }
    }
    for (index, refusal) in subscribe_hooks::ask(shard, client, request).await {
        refuse_entry(shard, client, &mut request.entries[index], refusal, why);
    }
    Ok(())
}

/// Rejects the entries that a grant which changed meanwhile does not allow.
fn refuse_lost(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: &mut SubscribeRequest,
    why: &mut Details,
) {
    let is_lost = |entry: &&mut SubscribeEntry| {
        entry.refused.is_none() && is_lost(shard, client, entry.filter.filter())
    };
    for entry in request.entries.iter_mut().filter(is_lost) {
        refuse_entry(shard, client, entry, denial(), why);
    }
}

fn question(entry: &SubscribeEntry) -> AuthorizeArgs<'_> {
    AuthorizeArgs {
        action: Action::Subscribe,
        topic: entry.filter.filter().clone(),
        qos: entry.options.qos,
        retain: false,
        share: entry.filter.share().map(ShareName::as_str),
    }
}

/// Rejects an entry that the rules do not allow; returns true if a plugin has to decide.
fn judge_entry(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    entry: &mut SubscribeEntry,
    why: &mut Details,
) -> bool {
    if entry.refused.is_some() {
        return false;
    }
    let answer = may_subscribe(shard, client, entry.filter.filter());
    if answer == RuleAnswer::Denied {
        refuse_entry(shard, client, entry, denial(), why);
    }
    answer == RuleAnswer::Silent
}

/// Whether `client` may subscribe to `filter`; `Silent` if a plugin has to decide.
pub(crate) fn may_subscribe(shard: &Shard, client: &Client, filter: &TopicFilter) -> RuleAnswer {
    let answer = client.access().permissions.subscribe(filter);
    let is_about = |about: &TopicFilter| about.covers(filter);
    if answer != RuleAnswer::Silent {
        answer
    } else if client.has_cached_allow(Action::Subscribe, is_about) {
        RuleAnswer::Allowed
    } else if shard.interests().asks_about(Action::Subscribe, is_about) {
        RuleAnswer::Silent
    } else {
        RuleAnswer::Denied
    }
}

/// Rejects an entry. SUBACK has one reason string: the first that there is.
fn refuse_entry(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    entry: &mut SubscribeEntry,
    refusal: Denial,
    why: &mut Details,
) {
    let reason = refusal.reason;
    report_denied(shard, client, "subscribe to", entry.filter.as_str(), reason);
    entry.refused = Some(reason);
    why.reason_string = why.reason_string.take().or(refusal.text);
}

/// One commit for the packet, then SUBACK, then the retained messages (docs/decisions.md, 14).
fn complete_subscribe(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: SubscribeRequest,
    why: Details,
) {
    let granted = || {
        request
            .entries
            .iter()
            .filter(|entry| entry.refused.is_none())
    };
    let changes: Vec<Change<'_>> = granted()
        .map(|entry| Change::Subscribe {
            filter: &entry.filter,
            options: entry.options,
        })
        .collect();
    if !changes.is_empty() {
        shard.engine.directory.commit(client.subscriber, &changes);
    }
    let wanted = |entry: &&SubscribeEntry| entry.wants_retained();
    let wanted: Vec<SubscribeEntry> = request.entries.iter().filter(wanted).cloned().collect();
    for entry in granted() {
        session_records::subscribed(shard, client, &entry.filter, entry.options);
        notify_subscription(shard, client, EventKind::Subscribed, entry.filter.as_str());
    }
    let mut session = client.session.borrow_mut();
    let suback = session.complete_subscribe(request, why);
    let Some(link) = client.link() else { return };
    let wanted = wanted.iter().map(|entry| Replay::new(entry, suback));
    link.with_replays(|replays| replays.extend(wanted.collect()));
}

/// One commit for the packet, then UNSUBACK.
pub(crate) fn unsubscribe(shard: &Rc<Shard>, client: &Rc<Client>, mut request: UnsubscribeRequest) {
    let why = refuse_unsubscribes(shard, client, &mut request);
    ignore_repeated(&mut request);
    let ended = || request.entries.iter().filter(|entry| entry.exists);
    let changes: Vec<Change<'_>> = ended()
        .map(|entry| Change::Unsubscribe {
            filter: &entry.filter,
        })
        .collect();
    if !changes.is_empty() {
        shard.engine.directory.commit(client.subscriber, &changes);
    }
    if let Some(link) = client.link() {
        let filters = ended().map(|entry| &entry.filter);
        link.with_replays(|replays| replays.remove(filters));
    }
    for entry in ended() {
        session_records::unsubscribed(shard, client, &entry.filter);
        notify_subscription(
            shard,
            client,
            EventKind::Unsubscribed,
            entry.filter.as_str(),
        );
    }
    client
        .session
        .borrow_mut()
        .complete_unsubscribe(request, why);
}

/// Rejects the entries that the rules of the client do not let it end; the subscriptions stay.
fn refuse_unsubscribes(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    request: &mut UnsubscribeRequest,
) -> Details {
    let access = client.access();
    let is_denied = |entry: &&mut UnsubscribeEntry| {
        let filter = entry.filter.filter();
        !access.permissions.unsubscribe(filter)
    };
    let mut why = Details::none();
    for entry in request.entries.iter_mut().filter(is_denied) {
        let denial = Denial::new(
            ReasonCode::NOT_AUTHORIZED,
            "not allowed to unsubscribe from this filter",
        );
        let filter = entry.filter.as_str();
        report_denied(shard, client, "unsubscribe from", filter, denial.reason);
        entry.refused = Some(denial.reason);
        entry.exists = false;
        why = denial.details();
    }
    why
}

/// Lets only the first of equal filters end a subscription: a packet may have one of them 10,000 times (abuse E12).
fn ignore_repeated(request: &mut UnsubscribeRequest) {
    let mut seen = HashSet::new();
    let entries = &mut request.entries;
    if entries.len() > 1 {
        for entry in entries.iter_mut().filter(|entry| entry.exists) {
            entry.exists = seen.insert(entry.filter.clone());
        }
    }
}

/// Tells plugins that a subscription began or ended.
pub(crate) fn notify_subscription(shard: &Shard, client: &Client, kind: EventKind, filter: &str) {
    let details = EventDetails {
        topic: Some(filter),
        reason: None,
        why: None,
    };
    shard.send_event(kind, client, details);
}
