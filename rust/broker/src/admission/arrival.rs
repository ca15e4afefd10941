//! Binds an authenticated connection to its session on the session's shard: takeover, resume or create.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::ReasonCode;
use mqttcore_session::{Cause, ConnectRequest, Session, Subscription, Terms};
use mqttcore_store::Durability;

use crate::admission::admitted::{AdmittedConnection, resumes, terms};
use crate::admission::denial::{denied, takeover_denied};
use crate::admission::rejection::{RejectedClient, reject_on_shard};
use crate::admission::session_share;
use crate::clients::client::{Client, ClientIdentity, KnownLogin};
use crate::clients::link::{Closing, Link};
use crate::config::grants::Grant;
use crate::config::hooks::Login;
use crate::config::permissions::CompiledGrant;
use crate::config::plugin_event::EventKind;
use crate::connection;
use crate::connection::disconnect_cause::reason_text;
use crate::connection::last_packets::send_disconnect;
use crate::connection::resumption::{ResumeAnswers, ResumeRefusal};
use crate::routing::{fill, group, session_records};
use crate::sessions::lifecycle::{SessionEnd, arm, confirm, detach, handle_events, remove_session};
use crate::sessions::rights::{identify, on_monotonic_clock, revoke_lost_rights};
use crate::sessions::{paging, wills};
use crate::shard::guard::{CONNECTION, guarded};
use crate::shard::{EventDetails, Shard};

/// Binds an authenticated connection to its session. If plugins have to be asked about subscriptions of the session,
/// it is bound after their answers, or rejected if there are none, so that nothing is sent that they might deny now.
pub(crate) fn bind_when_checked(shard: &Rc<Shard>, arrival: AdmittedConnection) {
    let answers = ResumeAnswers::default();
    if unchecked(shard, &arrival, &answers).is_empty() {
        return bind_session(shard, arrival, answers);
    }
    let own = Rc::clone(shard);
    let work = async move {
        let checked = check(&own, &arrival, answers).await;
        own.refresh_now();
        match checked {
            Ok(answers) => bind_session(&own, arrival, answers),
            Err((reason, text)) => {
                let to = arrival.request.recipient();
                let denied =
                    RejectedClient::new(&arrival.login, to, reason).with_reason_string(text);
                reject_on_shard(&own, (arrival.transport, arrival.slot), denied);
            }
        }
        own.flush_mailboxes();
    };
    tokio::task::spawn_local(guarded(Rc::clone(shard), CONNECTION, work, |_| {}));
}

/// The subscriptions of the resumed session about which the plugins have to be asked.
fn unchecked(
    shard: &Shard,
    arrival: &AdmittedConnection,
    answers: &ResumeAnswers,
) -> Vec<Subscription> {
    let existing = shard.find_client(&arrival.login.client_id);
    let comes_back = |old: &Rc<Client>| {
        resumes(&arrival.request, &arrival.access.grant) && takeover_denied(old, arrival).is_none()
    };
    let session = existing.filter(comes_back);
    session.map_or_else(Vec::new, |client| {
        answers.left(shard, &client, &arrival.access)
    })
}

/// Asks the plugins about the subscriptions of the session that `arrival` resumes. Its client may be connected, and
/// subscribe meanwhile.
async fn check(
    shard: &Shard,
    arrival: &AdmittedConnection,
    mut answers: ResumeAnswers,
) -> Result<ResumeAnswers, ResumeRefusal> {
    loop {
        let left = unchecked(shard, arrival, &answers);
        if left.is_empty() {
            return Ok(answers);
        }
        for subscription in left {
            answers.ask(shard, &arrival.login, subscription).await?;
        }
    }
}

/// Takes over, resumes or creates the session of an admitted client, and starts the task of its connection.
///
/// Longer than other functions: each step uses what the steps before it found.
fn bind_session(shard: &Rc<Shard>, arrival: AdmittedConnection, answers: ResumeAnswers) {
    let existing = shard.find_client(&arrival.login.client_id);
    if let Some(denied) = denied(shard, existing.as_ref(), &arrival) {
        reject_on_shard(shard, (arrival.transport, arrival.slot), denied);
        return;
    }
    let mut terms = terms(shard, &arrival, false);
    let Ok(transport) = arrival.transport.arrive() else {
        return;
    };
    let (mut request, login, access) = (arrival.request, arrival.login, arrival.access);
    let stored = |old: &&Rc<Client>| old.number(&shard.engine).is_some();
    let stored_at = existing.as_ref().filter(stored).map(|old| old.kept_at());
    let resumed = existing.and_then(|old| end_old_connection(shard, &old, &request, &access.grant));
    wills::publish_queued_of(shard, &login.client_id);
    let is_resumed = resumed.is_some();
    let expiry_s = terms.session_expiry_s(&request);
    terms.session_present = is_resumed;
    terms.durable = is_durable(shard, resumed.as_ref(), arrival.durability, expiry_s);
    let owner = session_share::owner(shard, &login, expiry_s);
    let changes = StoreChanges {
        // A session that the client is told has ended must not be restored.
        ended_at: stored_at.filter(|_| !terms.durable),
        keeps_will: !terms.durable
            && session_records::keeps_will(shard, arrival.durability, &access, &request),
    };
    terms.changes_kept = changes.ended_at.is_some() || changes.keeps_will;
    let client = resumed.unwrap_or_else(|| create(shard, &login, &access));
    client.set_owner(shard, owner);
    client.set_kept(shard, expiry_s > 0);
    client.ack_order.of_client.set(arrival.durability);
    let listener = arrival.slot.listener();
    let link = attach(shard, &client, listener, &mut request, (login, access));
    link.set_queue_policy(arrival.queue_policy);
    if is_resumed {
        revoke_lost_rights(&client, shard, request.mount_point.as_ref());
        answers.apply(shard, &client, &link);
    }
    open_session(shard, &client, (&request, terms), &changes);
    announce(shard, &client, is_resumed);
    let socket = (transport, arrival.slot);
    connection::spawn(shard, &client, &link, socket, &arrival.unread);
}

/// Changes in the store by a connection whose session is not stored.
struct StoreChanges {
    /// The durability of the stored session that ends.
    ended_at: Option<Durability>,
    keeps_will: bool,
}

/// Opens the session for its client, and writes its records.
fn open_session(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    (request, terms): (&ConnectRequest, Terms),
    changes: &StoreChanges,
) {
    let is_resumed = terms.session_present;
    let is_new = session_records::keep(shard, client, terms.durable);
    let mut session = client.session.borrow_mut();
    session.connect(shard.now(), request, terms);
    drop(session);
    handle_events(shard, client);
    wills::publish_queued_of(shard, &client.id);
    session_records::opened(shard, client, request, changes.keeps_will);
    if is_new && is_resumed {
        session_records::write_adopted_session(shard, client);
    }
    if let Some((durability, journal)) = changes.ended_at.zip(shard.journal.as_ref()) {
        journal.hold_acknowledgement(client, durability);
    }
}

/// Whether the store keeps the session. A stored session stays stored until it ends: its durability must not become
/// weaker, and queued messages that are in the store alone must not be removed before they are read.
fn is_durable(
    shard: &Shard,
    resumed: Option<&Rc<Client>>,
    level: Durability,
    expiry_s: u32,
) -> bool {
    let is_stored = resumed.is_some_and(|old| old.number(&shard.engine).is_some());
    let is_spilled = resumed.is_some_and(|old| old.session.borrow().spilled() > 0);
    (is_stored || level > Durability::Memory) && expiry_s > 0 || is_spilled
}

/// Sets identity and link of `client`.
fn attach(
    shard: &Rc<Shard>,
    client: &Rc<Client>,
    listener: u16,
    request: &mut ConnectRequest,
    (login, access): (Arc<Login>, Arc<CompiledGrant>),
) -> Rc<Link> {
    let packet_bytes = request.maximum_packet_size;
    let own_login = Arc::clone(&login);
    let link = Link::new(
        request.version,
        packet_bytes,
        (own_login, listener),
        shard.since_start(),
    );
    let expires_at = access.grant.expires_at;
    link.set_grant_ends(expires_at.map(|at| on_monotonic_clock(shard.now(), at)));
    identify(shard, client, login, access);
    let link = Rc::new(link);
    client.set_link(Some(Rc::clone(&link)));
    group::set_online(shard, client, true);
    if let Some(will) = &mut request.will {
        will.message.charge(shard.account_of(&link));
    }
    let metrics = shard.metrics();
    metrics.clients(link.listener).add(link.version);
    metrics.tallies.connects.count(ReasonCode::SUCCESS);
    link
}

/// Sends CONNACK and queued messages, and notifies the plugins.
fn announce(shard: &Rc<Shard>, client: &Rc<Client>, is_resumed: bool) {
    fill::watch(shard, client);
    paging::resume(shard, client);
    confirm(shard, client);
    client.flush_session(shard);
    arm(shard, client);
    let kind = if is_resumed {
        EventKind::SessionResumed
    } else {
        EventKind::SessionCreated
    };
    shard.send_event(kind, client, EventDetails::default());
    shard.send_event(EventKind::Connected, client, EventDetails::default());
}

/// Ends the old connection, and the old session unless it is resumed.
fn end_old_connection(
    shard: &Rc<Shard>,
    old: &Rc<Client>,
    request: &ConnectRequest,
    grant: &Grant,
) -> Option<Rc<Client>> {
    let resume = resumes(request, grant);
    if let Some(link) = old.link() {
        shard.metrics().takeovers.add(1);
        let closing = Closing {
            cause: Cause::TakenOver,
            reason: ReasonCode::SESSION_TAKEN_OVER,
        };
        send_disconnect(shard, old, Some((closing.reason, reason_text(closing))));
        let why = (Some(closing.reason), reason_text(closing));
        detach(shard, old, Cause::TakenOver, why);
        shard.send_event(EventKind::SessionTakenOver, old, EventDetails::default());
        link.close(closing.cause, closing.reason);
    }
    let alive = shard.client_at(old.handle).is_some();
    if alive && !resume {
        remove_session(shard, old, SessionEnd::Replaced);
    }
    (alive && resume).then(|| Rc::clone(old))
}

fn create(shard: &Rc<Shard>, login: &Arc<Login>, access: &Arc<CompiledGrant>) -> Rc<Client> {
    shard.metrics().sessions.add(1);
    let directory = &shard.engine.directory;
    shard.registry.borrow_mut().insert(shard.index, |handle| {
        Client::new(
            handle,
            directory.join_as(handle.word(), directory.key_of(&login.client_id)),
            Arc::clone(&login.client_id),
            ClientIdentity {
                who: KnownLogin::Known(Arc::clone(login)),
                access: Arc::clone(access),
            },
            Session::new(Arc::clone(&shard.config().limits)),
        )
    })
}
