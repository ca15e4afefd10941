//! Binds an authenticated connection to its session on the session's shard: takeover, resume or create.

use std::rc::Rc;
use std::sync::Arc;

use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{
    Authentication, Cause, ConnAckFormat, ConnectRequest, Details, Secret, ServerLimits, Session,
    Subscription, Terms,
};
use mqttcore_store::Durability;

use crate::admission::rejection::{RejectedClient, reject_banned, reject_on_shard};
use crate::admission::session_share;
use crate::clients::bans::BanTarget;
use crate::clients::client::{Client, ClientIdentity, KnownLogin};
use crate::clients::connections::ConnectionSlot;
use crate::clients::link::{Closing, Link};
use crate::config::grants::{CompiledGrant, Grant, GrantLimits, Takeover};
use crate::config::hooks::{EventKind, Login};
use crate::config::queue_policy::FullQueuePolicy;
use crate::connection;
use crate::connection::disconnect_cause::reason_text;
use crate::connection::last_packets::send_disconnect;
use crate::connection::resumption::{ResumeAnswers, ResumeRefusal};
use crate::connection::transport::DetachedTransport;
use crate::routing::memory::{self, Shortage};
use crate::routing::{fill, group, session_records};
use crate::runtime::log::{Escaped, LogCategory};
use crate::sessions::lifecycle::{arm, confirm, detach, handle_events, remove_session};
use crate::sessions::rights::{identify, on_monotonic_clock, revoke_lost_rights};
use crate::sessions::{paging, wills};
use crate::shard::guard::{CONNECTION, guarded};
use crate::shard::{EventDetails, Shard};

/// An authenticated connection that moves to the shard of its session.
pub(crate) struct AdmittedConnection {
    pub(crate) transport: DetachedTransport,
    pub(crate) slot: ConnectionSlot,
    /// Bytes received after CONNECT.
    pub(crate) unread: Vec<u8>,
    pub(crate) request: ConnectRequest,
    pub(crate) login: Arc<Login>,
    pub(crate) access: Arc<CompiledGrant>,
    /// Durability of its messages and its session.
    pub(crate) durability: Durability,
    /// The policy of its grant or its listener for publishes to sessions whose queue is full.
    pub(crate) queue_policy: Option<FullQueuePolicy>,
    pub(crate) greeting: ConnAckFields,
    /// Number of invalidations before the plugins were asked.
    pub(crate) asked_at: u64,
}

/// Fields of CONNACK that a plugin sets.
#[derive(Default)]
pub(crate) struct ConnAckFields {
    pub(crate) user_properties: Vec<(Box<str>, Box<str>)>,
    /// Server Keep Alive in seconds.
    pub(crate) keep_alive_s: Option<u16>,
    /// The completed exchange of an enhanced authentication, and its last data.
    pub(crate) authentication: Option<Authentication>,
    pub(crate) authentication_data: Option<Secret>,
}

/// Binds an admitted connection to its session. If plugins have to be asked about subscriptions of the session, it is
/// bound after their answers, and rejected if there are none: nothing is sent that they might not allow any more.
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

/// The subscriptions of the session that `arrival` resumes about which the plugins have to be asked.
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
fn bind_session(shard: &Rc<Shard>, arrival: AdmittedConnection, answers: ResumeAnswers) {
    let existing = shard.find_client(&arrival.login.client_id);
    if let Some(denied) = denied(shard, existing.as_ref(), &arrival) {
        reject_on_shard(shard, (arrival.transport, arrival.slot), denied);
        return;
    }
    let mut terms = terms(shard, &arrival, false);
    let Ok(transport) = arrival.transport.unpark() else {
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
    client.durability.set(arrival.durability);
    let link = attach(shard, &client, &mut request, login, access);
    link.queue_policy.set(arrival.queue_policy);
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

/// Checks whether an authenticated client is rejected; returns the rejection.
fn denied(
    shard: &Shard,
    existing: Option<&Rc<Client>>,
    arrival: &AdmittedConnection,
) -> Option<RejectedClient> {
    let (login, to) = (&arrival.login, arrival.request.recipient());
    let refused = || {
        let (reason, text) = session_denied(shard, existing, arrival)?;
        Some(RejectedClient::new(login, to, reason).with_reason_string(text))
    };
    // Checked again: the client may have been banned since, and a plugin may have changed its user name.
    reject_banned(shard, login, to)
        .or_else(|| refuse_outdated(shard, login, arrival))
        .or_else(refused)
        .or_else(|| {
            let expiry_s = terms(shard, arrival, false).session_expiry_s(&arrival.request);
            session_share::refuse_above_share(shard, existing, arrival, expiry_s)
        })
        // Rejected clients do not count: they may be strangers that know the client identifier.
        .or_else(|| ban_if_flapping(shard, login, to))
}

/// Rejects a client whose rights were invalidated after its login was decided: it tries again.
fn refuse_outdated(
    shard: &Shard,
    login: &Arc<Login>,
    arrival: &AdmittedConnection,
) -> Option<RejectedClient> {
    let (asked_at, username) = (arrival.asked_at, login.username.as_deref());
    let invalidations = &shard.engine.invalidations;
    let is_outdated = invalidations.outdate(asked_at, &login.client_id, username);
    is_outdated.then(|| {
        let to = arrival.request.recipient();
        RejectedClient::new(login, to, ReasonCode::SERVER_BUSY)
            .with_reason_string("permissions changed: connect again")
    })
}

/// Counts a connection of the client; if it connects too often, bans its identifier and returns the rejection.
fn ban_if_flapping(shard: &Shard, login: &Arc<Login>, to: ConnAckFormat) -> Option<RejectedClient> {
    let (config, now) = (shard.config(), shard.now());
    if !config.address_limits.apply_to(login.peer.ip()) {
        return None;
    }
    let key = shard.engine.key_of(&login.client_id);
    let mut flapping = shard.flapping.borrow_mut();
    if !flapping.is_flapping(key, config.flapping, now) {
        return None;
    }
    let target = BanTarget::ClientId(login.client_id.as_ref().into());
    let reason = format!(
        "more than {} connections a minute",
        config.flapping.connects_per_minute
    );
    let bans = &shard.engine.bans;
    bans.add_automatic(target, reason, config.flapping.ban, now);
    shard.metrics().flapping_bans.add(1);
    shard.log.warn(LogCategory::Flapping, now, || {
        let (id, peer, seconds) = (Escaped(&login.client_id), login.peer, config.flapping.ban.as_secs());
        format!("client {id} at {peer} connects too often: its client identifier is banned for {seconds} s")
    });
    Some(RejectedClient::new(login, to, ReasonCode::BANNED))
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
    request: &mut ConnectRequest,
    login: Arc<Login>,
    access: Arc<CompiledGrant>,
) -> Rc<Link> {
    let (packet_bytes, peer) = (request.maximum_packet_size, login.peer);
    let link = Link::new(request.version, packet_bytes, peer, shard.now());
    let expires_at = access.grant.expires_at;
    link.grant_ends
        .set(expires_at.map(|at| on_monotonic_clock(shard.now(), at)));
    identify(shard, client, login, access);
    let link = Rc::new(link);
    client.set_link(Some(Rc::clone(&link)));
    group::set_online(shard, client, true);
    if let Some(will) = &mut request.will {
        will.message.charge(shard.account_of(&link));
    }
    let tallies = &shard.metrics().tallies;
    tallies.clients.add(link.version);
    tallies.connects.count(ReasonCode::SUCCESS);
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

/// Reason code and reason string of a denied session.
type SessionDenial = (ReasonCode, &'static str);

/// The reason why an authenticated client is denied this session; `None` if it is not.
fn session_denied(
    shard: &Shard,
    existing: Option<&Rc<Client>>,
    arrival: &AdmittedConnection,
) -> Option<SessionDenial> {
    if shard.engine.is_stopping() {
        return Some((ReasonCode::SERVER_UNAVAILABLE, "the broker is stopping"));
    }
    let request = &arrival.request;
    let terms = terms(shard, arrival, existing.is_some());
    if !request.takes_connack(shard.now(), &terms) {
        return Some((ReasonCode::PACKET_TOO_LARGE, "CONNACK is too large"));
    }
    if let Some(shortage) = lacks_memory(shard, existing.is_none(), request) {
        let login = &arrival.login;
        memory::report(shard, shortage, &login.client_id, login.peer);
        return Some((ReasonCode::QUOTA_EXCEEDED, shortage.text()));
    }
    match existing {
        None => new_session_denied(shard, arrival),
        Some(old) => takeover_denied(old, arrival),
    }
}

/// The reason why a new session is denied: disk or limit of sessions.
fn new_session_denied(shard: &Shard, arrival: &AdmittedConnection) -> Option<SessionDenial> {
    let is_to_be_kept =
        arrival.durability > Durability::Memory && arrival.request.session_expiry_interval_s > 0;
    if is_to_be_kept && shard.is_short_of_room() {
        return Some((ReasonCode::QUOTA_EXCEEDED, "the disk is nearly full"));
    }
    let metrics = shard.engine.metrics.iter();
    let held: u64 = metrics.map(|metrics| metrics.sessions.value()).sum();
    let sessions = held + shard.engine.loading.remaining().unwrap_or(0);
    let full = sessions >= shard.config().sessions as u64;
    // The new session is refused; existing ones are never evicted (abuse F12).
    full.then_some((
        ReasonCode::QUOTA_EXCEEDED,
        "the limit of sessions is reached",
    ))
}

/// The reason why the client may not take over the session of `old`.
fn takeover_denied(old: &Client, arrival: &AdmittedConnection) -> Option<SessionDenial> {
    let same_user = old.is_user(arrival.login.username.as_deref());
    let allowed = match arrival.access.grant.session.takeover {
        Takeover::Anyone => true,
        Takeover::SameUser => same_user,
        Takeover::Never => same_user && !old.is_online(),
    };
    (!allowed).then_some((
        ReasonCode::CLIENT_IDENTIFIER_NOT_VALID,
        "another client uses this client identifier",
    ))
}

/// What the memory budget has no room for: a new kept session, or a large will (abuse F11).
fn lacks_memory(shard: &Shard, is_new: bool, request: &ConnectRequest) -> Option<Shortage> {
    let will = request.will.as_ref();
    let shortage = if is_new && request.session_expiry_interval_s > 0 {
        Shortage::Session
    } else if will.is_some_and(|will| will.message.heap_bytes() > SMALL_WILL_BYTES) {
        Shortage::Will
    } else {
        return None;
    };
    memory::is_full(shard).then_some(shortage)
}

/// Wills up to this size are accepted while memory is short.
const SMALL_WILL_BYTES: usize = 1024;

/// Whether the client resumes an existing session.
pub(crate) fn resumes(request: &ConnectRequest, grant: &Grant) -> bool {
    !request.clean_start && grant.session.resume
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
        remove_session(shard, old);
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

fn terms(shard: &Shard, arrival: &AdmittedConnection, session_present: bool) -> Terms {
    let (grant, greeting) = (&arrival.access.grant, &arrival.greeting);
    let expiry_max = grant.session.expiry_max;
    Terms {
        session_present,
        assigned_client_id: arrival
            .request
            .client_id
            .is_none()
            .then(|| Arc::clone(&arrival.login.client_id)),
        server_keep_alive_s: greeting.keep_alive_s,
        authentication: greeting.authentication.clone(),
        authentication_data: greeting.authentication_data.clone(),
        details: Details {
            reason_string: None,
            user_properties: greeting.user_properties.clone(),
        },
        session_expiry_max_s: expiry_max
            .map(|longest| u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)),
        ..Terms::new(limits(shard, &arrival.access))
    }
}

/// The broker's limits, or a copy with the limits of the grant and the listener; most clients share one.
fn limits(shard: &Shard, access: &CompiledGrant) -> Arc<ServerLimits> {
    let config = shard.config();
    let (grant, listener) = (&access.grant, &access.caps);
    let is_capped = listener.maximum_packet_size.is_some() || listener.receive_maximum.is_some();
    if grant.limits == GrantLimits::default() && !is_capped {
        return Arc::clone(&config.limits);
    }
    let mut limits = ServerLimits::clone(&config.limits);
    lower(
        &mut limits.maximum_packet_size,
        listener.maximum_packet_size,
    );
    lower(&mut limits.receive_maximum, listener.receive_maximum);
    let caps = grant.limits;
    limits.maximum_qos = limits
        .maximum_qos
        .min(caps.max_qos.unwrap_or(QoS::ExactlyOnce));
    lower(&mut limits.subscriptions, caps.subscriptions);
    lower(&mut limits.queue_messages, caps.queue_messages);
    lower(&mut limits.queue_bytes, caps.queue_bytes);
    lower(&mut limits.queue_disk_messages, caps.queue_messages);
    lower(&mut limits.queue_disk_bytes, caps.queue_bytes);
    Arc::new(limits)
}

fn lower<T: Copy + Ord>(limit: &mut T, cap: Option<T>) {
    *limit = cap.map_or(*limit, |cap| cap.min(*limit));
}
