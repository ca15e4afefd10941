//! Changes of a client by operators: its connection, its session, its subscriptions.

use std::iter;
use std::rc::Rc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Cause, Subscription};
use mqttcore_topics::{Change, MountPoint, Options, SubscriptionFilter};

use crate::clients::client::Client;
use crate::clients::link::Closing;
use crate::config::plugin_event::EventKind;
use crate::connection::disconnect_cause::reason_text;
use crate::connection::last_packets::send_disconnect;
use crate::connection::subscribe::notify_subscription;
use crate::operations::asking::AskError;
use crate::routing::{journal, session_records};
use crate::service::{Answer, BrokerHandle};
use crate::sessions::lifecycle::SessionEnd;
use crate::sessions::{lifecycle, listing, rights, wills};
use crate::shard::Shard;

/// Outcome of adding a subscription.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub enum Subscribed {
    /// The subscription was added.
    Added,
    /// It replaced the subscription with the same filter.
    Replaced,
    /// The client has no session.
    NoSession,
    /// The client is offline, so its permissions and mount point are not known.
    NotConnected,
    /// The client's permissions do not cover the filter.
    NotCovered,
    /// The filter is outside of the client's mount point.
    Outside(MountPoint),
    /// The client has its maximum number of subscriptions.
    TooMany,
}

impl BrokerHandle {
    /// Disconnects a client with `reason`, and ends its session at once if `ends_session`. Returns false if there was
    /// no connection, or with `ends_session` no session. Returns when the change is safe.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn disconnect(
        &self,
        client_id: &str,
        reason: ReasonCode,
        ends_session: bool,
    ) -> Result<bool, AskError> {
        let disconnect = move |shard: &Rc<Shard>, id: &str, answer: Answer<bool>| {
            let is_done = if ends_session {
                end_session(shard, id, reason)
            } else {
                listing::disconnect(shard, id, reason)
            };
            when_safe(shard, answer, is_done);
        };
        self.change_client(client_id, disconnect).await
    }

    /// Adds a subscription to a connected client, as if it had sent SUBSCRIBE with the internal `filter`, but without
    /// retained messages. The client's permissions apply, but no plugin is asked. Returns when the change is safe.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn subscribe_client(
        &self,
        client_id: &str,
        filter: SubscriptionFilter,
        options: Options,
    ) -> Result<Subscribed, AskError> {
        let subscribe = move |shard: &Rc<Shard>, id: &str, answer: Answer<Subscribed>| {
            let client = shard.find_client(id);
            let done = client.map_or(Subscribed::NoSession, |client| {
                subscribe(shard, &client, &filter, options)
            });
            when_safe(shard, answer, done);
        };
        self.change_client(client_id, subscribe).await
    }

    /// Removes a subscription of a client; returns false if there is none. Returns when the change is safe.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn unsubscribe_client(
        &self,
        client_id: &str,
        filter: SubscriptionFilter,
    ) -> Result<bool, AskError> {
        let unsubscribe = move |shard: &Rc<Shard>, id: &str, answer: Answer<bool>| {
            let client = shard.find_client(id);
            let had = client.is_some_and(|client| unsubscribe(shard, &client, &filter));
            when_safe(shard, answer, had);
        };
        self.change_client(client_id, unsubscribe).await
    }
}

/// Answers once everything that was written so far is safe.
pub(super) fn when_safe<T: 'static>(shard: &Rc<Shard>, answer: Answer<T>, value: T) {
    shard.flush_mailboxes();
    journal::when_safe(shard, Box::new(move || answer(value)));
}

/// Ends a connection and its session; returns false if there is no session.
fn end_session(shard: &Rc<Shard>, id: &str, reason: ReasonCode) -> bool {
    let client = shard.find_client(id);
    let Some(client) = client else { return false };
    if let Some(link) = client.link() {
        let cause = Cause::Administrative;
        let text = reason_text(Closing { cause, reason });
        send_disconnect(shard, &client, Some((reason, text)));
        let why = (Some(reason), "an operator ended the session");
        lifecycle::detach(shard, &client, cause, why);
        link.close(cause, reason);
    }
    end_offline(shard, &client);
    true
}

/// Ends the session of a client without a connection. It may have ended with its connection.
pub(super) fn end_offline(shard: &Rc<Shard>, client: &Rc<Client>) {
    lifecycle::remove_session(shard, client, SessionEnd::Operator);
    // The session's record is removed with its will, which may be queued.
    wills::publish_queued_of(shard, &client.id);
}

fn subscribe(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    filter: &SubscriptionFilter,
    options: Options,
) -> Subscribed {
    if let Some(refusal) = refusal(shard, client, filter) {
        return refusal;
    }
    let (held, is_new) = {
        let session = client.session.borrow();
        let held = session.subscriptions();
        let is_same = |held: &Subscription| held.filter == *filter;
        (held.len(), !held.iter().any(is_same))
    };
    if is_new && held >= shard.config().limits.subscriptions {
        return Subscribed::TooMany;
    }
    let change = Change::Subscribe { filter, options };
    shard.engine.directory.commit(client.subscriber, &[change]);
    session_records::subscribed(shard, client, filter, options);
    client.session.borrow_mut().grant(filter.clone(), options);
    lifecycle::confirm(shard, client);
    notify_subscription(shard, client, EventKind::Subscribed, filter.as_str());
    if is_new {
        Subscribed::Added
    } else {
        Subscribed::Replaced
    }
}

/// Why the client may not have a subscription that it would lose when it reconnects ([`rights::revoke_lost_rights`]).
fn refusal(shard: &Shard, client: &Client, filter: &SubscriptionFilter) -> Option<Subscribed> {
    if !client.is_online() {
        return Some(Subscribed::NotConnected);
    }
    let session = client.session.borrow();
    let is_outside = |mount_point: &&MountPoint| !mount_point.holds(filter.filter());
    if let Some(mount_point) = session.mount_point().filter(is_outside) {
        return Some(Subscribed::Outside(mount_point.clone()));
    }
    let is_lost = rights::is_lost(shard, client, filter.filter());
    is_lost.then_some(Subscribed::NotCovered)
}

fn unsubscribe(shard: &Rc<Shard>, client: &Rc<Client>, filter: &SubscriptionFilter) -> bool {
    if !client.session.borrow_mut().revoke(filter) {
        return false;
    }
    let change = Change::Unsubscribe { filter };
    shard.engine.directory.commit(client.subscriber, &[change]);
    session_records::unsubscribed(shard, client, filter);
    if let Some(link) = client.link() {
        link.with_replays(|replays| replays.remove(iter::once(filter)));
    }
    lifecycle::confirm(shard, client);
    notify_subscription(shard, client, EventKind::Unsubscribed, filter.as_str());
    true
}
