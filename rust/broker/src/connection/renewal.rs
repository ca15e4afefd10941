//! Renewal of rights after an invalidation: asks the plugins again for a client's grant and about its subscriptions.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Cause, Subscription, reauthentication_refusal};
use mqttcore_topics::{ShareName, SubscriptionFilter};

use crate::clients::client::Client;
use crate::config::grants::{CompiledGrant, RuleAnswer};
use crate::config::hooks::{Action, EventKind, Login, LoginDecision, Reply, refusing};
use crate::connection::authorize::{AuthorizeArgs, Denial, ask, report_denied};
use crate::connection::disconnect_cause::DisconnectCause;
use crate::sessions::lifecycle::arm;
use crate::sessions::rights::{
    end_subscriptions, identify, on_monotonic_clock, revoke_lost_rights,
};
use crate::sessions::wills;
use crate::shard::guard::guarded;
use crate::shard::{EventDetails, Shard};

/// Maximum number of clients that one invalidation asks the plugins about at the same time, so that logins do not wait
/// behind all of them.
const CONCURRENT: usize = 16;

/// Asks again for the rights of `clients`, after their cached answers were dropped. Until the plugins have answered about
/// a client, it keeps its rights; without an answer it loses them.
pub(crate) fn start(shard: &Rc<Shard>, clients: impl Into<VecDeque<Rc<Client>>>) {
    let queue = Rc::new(RefCell::new(clients.into()));
    let count = queue.borrow().len();
    for _ in 0..count.min(CONCURRENT) {
        let (own, queue) = (Rc::clone(shard), Rc::clone(&queue));
        let work = async move {
            loop {
                let next = queue.borrow_mut().pop_front();
                let Some(client) = next else { return };
                renew(&own, &client).await;
                own.flush_mailboxes();
            }
        };
        let task = guarded(Rc::clone(shard), "the renewal of rights", work, |_| {});
        tokio::task::spawn_local(task);
    }
}

/// Asks for the rights of one client. An answer is not used if another invalidation has outdated it, which asks again, or
/// if the client has connected again meanwhile.
async fn renew(shard: &Rc<Shard>, client: &Rc<Client>) {
    let (asked_at, link) = (shard.engine.invalidations.count(), client.link());
    let is_current = || {
        let is_there = shard.client_at(client.handle).is_some();
        let is_same = match &link {
            Some(link) => client.has_link(link),
            None => !client.is_online(),
        };
        is_there && is_same && !shard.engine.is_outdated(asked_at, client)
    };
    let granted = present_grant(shard, client).await;
    if !is_current() {
        return;
    }
    match granted {
        Ok(None) => {}
        Ok(Some(access)) if client.was_here() => change_grant(shard, client, access),
        // Only its will needs the grant until it resumes its session.
        Ok(Some(access)) => client.set_access(access),
        Err(reason) => return revoke(shard, client, reason),
    }
    if !client.was_here() {
        // What plugins allow it is checked when it resumes its session.
        return;
    }
    for subscription in allowed_by_plugins(shard, client) {
        let denied = is_denied(shard, client, &subscription).await;
        if !is_current() {
            return;
        }
        match denied {
            Ok(None) => {}
            Ok(Some(denial)) => end_subscription(shard, client, &subscription.filter, &denial),
            Err(DisconnectCause::Refused { reason, .. }) => return revoke(shard, client, reason),
            Err(_) => return revoke(shard, client, ReasonCode::NOT_AUTHORIZED),
        }
    }
}

/// The present grant of a client; `None`: that of its listener, which has not changed.
///
/// # Errors
///
/// The reason code for a client without rights, or whose rights no plugin knows without its password.
async fn present_grant(
    shard: &Rc<Shard>,
    client: &Client,
) -> Result<Option<CompiledGrant>, ReasonCode> {
    if !shard.interests().has_logins() || has_listener_grant(shard, client) {
        return Ok(None);
    }
    if !shard.interests().grant {
        return Err(ReasonCode::ADMINISTRATIVE_ACTION);
    }
    let login = client.login();
    let (reply, answer) = Reply::new();
    shard.hooks().grant(Arc::clone(&login), reply);
    match answer.await {
        Ok(LoginDecision::Allow {
            grant, username, ..
        }) if is_same_user(&login, username.as_deref()) => {
            let access = CompiledGrant::capped(*grant, &client.access().caps);
            access
                .map(Some)
                .map_err(|_| ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR)
        }
        Ok(LoginDecision::Allow { .. } | LoginDecision::Pass) => Err(ReasonCode::NOT_AUTHORIZED),
        Ok(LoginDecision::Deny { reason, .. }) => Err(refusing(reason)),
        Err(_) => Err(ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR),
    }
}

/// Whether a plugin that names the user, if it does, names the one that the client is.
fn is_same_user(login: &Login, named: Option<&str>) -> bool {
    named.is_none() || named == login.username.as_deref()
}

/// Whether no plugin let the client in.
fn has_listener_grant(shard: &Shard, client: &Client) -> bool {
    let (policies, access) = (shard.listener_policies(), client.access());
    let mut grants = policies
        .iter()
        .filter_map(|policy| policy.anonymous.as_ref());
    grants.any(|grant| Arc::ptr_eq(grant, &access))
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
    let question = AuthorizeArgs {
        action: Action::Subscribe,
        topic: filter.clone(),
        qos: subscription.options.qos,
        retain: false,
        share: subscription.filter.share().map(ShareName::as_str),
    };
    Ok(ask(shard, client, question).await?.err())
}

/// Ends a subscription that is not allowed any more, if the client still has it.
fn end_subscription(
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
    if is_held {
        let what = "stay subscribed to";
        report_denied(shard, client, what, filter.as_str(), denial.reason);
        end_subscriptions(shard, client, std::slice::from_ref(filter));
    }
}

/// The subscriptions on which the grant of `client` is silent.
fn allowed_by_plugins(shard: &Shard, client: &Client) -> Vec<Subscription> {
    let (session, access) = (client.session.borrow(), client.access());
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

/// Takes all rights from a client, discards its will, and disconnects it. If it comes back, its login decides about its
/// session.
fn revoke(shard: &Shard, client: &Client, reason: ReasonCode) {
    let revoked = client.access().revoked();
    client.set_access(revoked);
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
        link.grant_ends.set(ends);
    }
    revoke_lost_rights(client, shard, None);
    arm(shard, client);
}
