//! Renewal of rights after an invalidation: asks the plugins again for a client's grant and about its subscriptions.

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Cause, Subscription, reauthentication_refusal};
use mqttcore_topics::{ShareName, SubscriptionFilter};
use tokio::time::{sleep, timeout};

use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::clients::invalidations::RENEWALS;
use crate::config::hooks::{Action, Login, LoginDecision, Reply, refusing};
use crate::config::permissions::{CompiledGrant, RuleAnswer};
use crate::config::plugin_event::EventKind;
use crate::connection::authorize::{
    AuthorizeArgs, AuthorizeResult, Denial, UNANSWERED, report_denied, try_ask,
};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::sessions::lifecycle::arm;
use crate::sessions::rights::{
    end_subscriptions, identify, on_monotonic_clock, replace_grant, revoke_lost_rights,
};
use crate::sessions::wills;
use crate::shard::guard::guarded;
use crate::shard::{EventDetails, Shard};

/// How often a question is asked to which no plugin gives an answer: their queues may be full, or a reload replaces them.
const TRIES: usize = 4;
/// Pause before a question is asked a second time; it doubles with each time.
const PAUSE: Duration = Duration::from_millis(250);
/// Maximum time that the answer to a control request waits for renewals. The renewal of 100,000 clients takes longer.
const SETTLED: Duration = Duration::from_secs(1);

/// Asks again for the rights of `clients`, after their cached answers were dropped. Until the plugins have answered about
/// a client, it keeps its rights; without an answer it loses them.
pub(crate) fn start(shard: &Rc<Shard>, clients: impl IntoIterator<Item = Rc<Client>>) {
    for client in clients {
        client.flags.set(Flag::Unchecked, true);
        queue(shard, client);
    }
}

/// Waits until the rights of all clients of all shards have been renewed, for at most [`SETTLED`].
pub(super) async fn settled(shard: &Shard) {
    let mut tasks = shard.engine.renewal_tasks.subscribe();
    let _ = timeout(SETTLED, tasks.wait_for(|tasks| *tasks == 0)).await;
}

/// Queues a client, unless it is queued already.
fn queue(shard: &Rc<Shard>, client: Rc<Client>) {
    if client.flags.replace(Flag::AwaitsRenewal, true) {
        return;
    }
    shard.renewals.borrow_mut().push_back(client);
    if shard.renewal_tasks.get() < RENEWALS {
        shard.renewal_tasks.update(|tasks| tasks + 1);
        let all = &shard.engine.renewal_tasks;
        all.send_modify(|tasks| *tasks += 1);
        let end = |shard: &Rc<Shard>| {
            shard.renewal_tasks.update(|tasks| tasks - 1);
            let all = &shard.engine.renewal_tasks;
            all.send_modify(|tasks| *tasks -= 1);
        };
        let own = Rc::clone(shard);
        let work = async move {
            renew_queued(&own).await;
            end(&own);
        };
        let task = guarded(Rc::clone(shard), "the renewal of rights", work, end);
        tokio::task::spawn_local(task);
    }
}

async fn renew_queued(shard: &Rc<Shard>) {
    loop {
        // The semaphore is never closed.
        let _turn = shard.engine.renewals.acquire().await;
        let next = shard.renewals.borrow_mut().pop_front();
        let Some(client) = next else { return };
        client.flags.set(Flag::AwaitsRenewal, false);
        renew(shard, &client).await;
        shard.flush_mailboxes();
    }
}

/// Asks for the rights of one client, and applies them to its session, whether it is connected or not.
async fn renew(shard: &Rc<Shard>, client: &Rc<Client>) {
    let asked_at = shard.engine.invalidations.count();
    let before = Arc::clone(&client.access());
    let present = present_grant(shard, client).await;
    if !is_current(shard, client, asked_at) {
        return;
    }
    // A login, or a new authentication, in the meantime has brought a newer grant.
    let is_newest = Arc::ptr_eq(&before, &client.access());
    let present = if is_newest { present } else { Present::Same };
    if let Present::Denied(reason) = present {
        return revoke(shard, client, reason);
    }
    let is_known = apply(shard, client, present);
    // Which subscriptions of a restored session need a plugin is known when the client has logged in.
    if client.was_here() && check_subscriptions(shard, client, asked_at).await && is_known {
        let is_due = client.flags.has(Flag::AwaitsRenewal);
        client.flags.set(Flag::Unchecked, is_due);
    }
}

/// Whether an answer counts: the session exists, and no later invalidation has outdated it; then it is asked for again.
fn is_current(shard: &Rc<Shard>, client: &Rc<Client>, asked_at: u64) -> bool {
    if shard.client_at(client.handle).is_none() {
        return false;
    }
    let is_outdated = shard.engine.is_outdated(asked_at, client);
    if is_outdated {
        start(shard, [Rc::clone(client)]);
    }
    !is_outdated
}

/// The answer to the question for the present grant of a client.
enum Present {
    /// The grant has not changed.
    Same,
    Changed(Box<CompiledGrant>),
    /// No plugin knows it without the password of the client.
    Unknown,
    Denied(ReasonCode),
}

/// Applies the present grant of a client; returns whether it is known.
fn apply(shard: &Rc<Shard>, client: &Rc<Client>, present: Present) -> bool {
    match present {
        Present::Changed(access) if client.was_here() => change_grant(shard, client, *access),
        // Only its will needs the grant until it resumes its session.
        Present::Changed(access) => replace_grant(shard, client, *access),
        Present::Unknown => {
            let access = client.access().without_publish();
            client.set_access(Arc::new(access));
            disconnect(shard, client, ReasonCode::ADMINISTRATIVE_ACTION);
            return false;
        }
        Present::Same | Present::Denied(_) => {}
    }
    true
}

/// Asks the plugins about each subscription that they have allowed; returns whether all were checked.
async fn check_subscriptions(shard: &Rc<Shard>, client: &Rc<Client>, asked_at: u64) -> bool {
    let access = Arc::clone(&client.access());
    for subscription in allowed_by_plugins(shard, client, &access) {
        let denied = is_denied(shard, client, &subscription).await;
        if !is_current(shard, client, asked_at) {
            return false;
        }
        let reason = match denied {
            Ok(None) => continue,
            Ok(Some(denial)) => {
                end_subscription(shard, client, &subscription.filter, &denial);
                continue;
            }
            Err(DisconnectCause::Refused { reason, .. }) => reason,
            Err(_) => ReasonCode::NOT_AUTHORIZED,
        };
        revoke(shard, client, reason);
        return false;
    }
    true
}

/// Asks the plugins for the present grant of a client.
async fn present_grant(shard: &Rc<Shard>, client: &Client) -> Present {
    if !shard.interests().has_logins() || is_anonymous(shard, client) {
        return Present::Same;
    }
    if !shard.interests().grant {
        return Present::Unknown;
    }
    let login = client.login();
    match answer_about(shard, &login).await {
        Some(LoginDecision::Allow {
            grant, username, ..
        }) if is_same_user(&login, username.as_deref()) => {
            let access = CompiledGrant::capped(*grant, &client.access().caps);
            access.map_or(
                Present::Denied(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR),
                |access| Present::Changed(Box::new(access)),
            )
        }
        Some(LoginDecision::Allow { .. } | LoginDecision::Pass) => {
            Present::Denied(ReasonCode::NOT_AUTHORIZED)
        }
        Some(LoginDecision::Deny { reason, .. }) => Present::Denied(refusing(reason)),
        None => Present::Denied(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR),
    }
}

/// The answer of the `grant` hooks; if there is none, they are asked again.
async fn answer_about(shard: &Rc<Shard>, login: &Arc<Login>) -> Option<LoginDecision> {
    let ask = async || {
        let (reply, answer) = Reply::new();
        shard.hooks().grant(Arc::clone(login), reply);
        answer.await.ok()
    };
    // The bindings answer with these codes if no plugin did.
    let is_unanswered = |answer: &Option<LoginDecision>| match answer {
        Some(LoginDecision::Deny { reason, .. }) => {
            [ReasonCode::SERVER_BUSY, ReasonCode::SERVER_UNAVAILABLE].contains(reason)
        }
        answer => answer.is_none(),
    };
    until_answered(ask, is_unanswered).await
}

/// Asks up to [`TRIES`] times, with growing pauses.
pub(super) async fn until_answered<T>(
    ask: impl AsyncFn() -> T,
    is_unanswered: impl Fn(&T) -> bool,
) -> T {
    let mut answer = ask().await;
    let mut pause = PAUSE;
    for _ in 1..TRIES {
        if !is_unanswered(&answer) {
            break;
        }
        sleep(pause).await;
        pause *= 2;
        answer = ask().await;
    }
    answer
}

/// Whether a plugin that names the user, if it does, names the one that the client is.
pub(super) fn is_same_user(login: &Login, named: Option<&str>) -> bool {
    named.is_none() || named == login.username.as_deref()
}

/// Whether no plugin let the client in. The store does not have this: a restored session without a user name counts as
/// anonymous if a listener admits anonymous clients.
fn is_anonymous(shard: &Shard, client: &Client) -> bool {
    if client.was_here() {
        return client.access().is_anonymous;
    }
    let policies = shard.listener_policies();
    client.is_user(None) && policies.iter().any(|policy| policy.anonymous.is_some())
}

/// Asks the plugins about a subscription that they have allowed before.
async fn is_denied(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    subscription: &Subscription,
) -> Result<Option<Denial>, DisconnectCause> {
    let filter = subscription.filter.filter();
    if client.has_cached_allow(Action::Subscribe, |covers| covers.covers(filter)) {
        return Ok(None);
    }
    let ask = async || try_ask(shard, client, about(subscription)).await;
    let answer = until_answered(ask, Option::<AuthorizeResult>::is_none).await;
    match answer {
        Some(answer) => Ok(answer?.err()),
        None => Ok(Some(Denial::new(ReasonCode::NOT_AUTHORIZED, UNANSWERED))),
    }
}

/// The question about a subscription that plugins have allowed before.
pub(super) fn about(subscription: &Subscription) -> AuthorizeArgs<'_> {
    AuthorizeArgs {
        action: Action::Subscribe,
        topic: subscription.filter.filter().clone(),
        qos: subscription.options.qos,
        retain: false,
        share: subscription.filter.share().map(ShareName::as_str),
    }
}

/// Ends a subscription that is not allowed any more, if the client still has it.
pub(super) fn end_subscription(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    filter: &SubscriptionFilter,
    denial: &Denial,
) {
    let is_held = {
        let session = client.session.borrow();
        let mut held = session.subscriptions().iter();
        held.any(|held| held.filter == *filter)
    };
    // The grant may have changed meanwhile.
    if is_held && client.access().permissions.subscribe(filter.filter()) == RuleAnswer::Silent {
        let what = "stay subscribed to";
        report_denied(shard, client, what, filter.as_str(), denial.reason);
        end_subscriptions(shard, client, std::slice::from_ref(filter));
    }
}

/// The subscriptions of `client` on which `access` is silent.
pub(super) fn allowed_by_plugins(
    shard: &Shard,
    client: &Client,
    access: &CompiledGrant,
) -> Vec<Subscription> {
    let session = client.session.borrow();
    let is_asked_about = |subscription: &&Subscription| {
        let filter = subscription.filter.filter();
        access.permissions.subscribe(filter) == RuleAnswer::Silent
            && shard
                .interests()
                .asks_about(Action::Subscribe, |about| about.covers(filter))
    };
    let subscriptions = session.subscriptions().iter();
    subscriptions.filter(is_asked_about).cloned().collect()
}

/// Takes all rights from a client and disconnects it.
fn revoke(shard: &Shard, client: &Client, reason: ReasonCode) {
    let revoked = client.access().revoked();
    replace_grant(shard, client, revoked);
    disconnect(shard, client, reason);
}

/// Discards the will of a client and disconnects it. If it comes back, its login decides about its session.
fn disconnect(shard: &Shard, client: &Client, reason: ReasonCode) {
    client.flags.set(Flag::Unchecked, true);
    wills::discard(shard, client);
    let details = EventDetails {
        topic: None,
        why: Some("its rights were invalidated"),
        reason: Some(reason),
    };
    if let Some(link) = client.link() {
        shard.send_event(EventKind::Denied, client, details);
        link.close(Cause::Administrative, reauthentication_refusal(reason));
    }
}

/// Replaces the grant of a client and revokes what the new one does not allow.
pub(super) fn change_grant(shard: &Rc<Shard>, client: &Rc<Client>, access: CompiledGrant) {
    let expires_at = access.grant.expires_at;
    let ends = expires_at.map(|at| on_monotonic_clock(shard.now(), at));
    identify(shard, client, client.login(), Arc::new(access));
    if let Some(link) = client.link() {
        link.clear_allows();
        link.set_grant_ends(ends);
    }
    revoke_lost_rights(client, shard, None);
    arm(shard, client);
}
