//! The sessions of one shard: who has which, who takes over, what ends when.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant, SystemTime};

use mqttcore_codec::{QoS, ReasonCode, Version};
use mqttcore_session::{
    Cause, ConnectRequest, Details, Event as SessionEvent, Expiry, Message, ServerLimits, Session,
    Terms,
};
use mqttcore_topics::{Change, SubscriptionFilter, TopicFilter, TopicLimits, TopicName};
use slab::Slab;
use tokio::net::TcpStream;

use crate::client::{Client, Closing, Handle, Link};
use crate::grants::{Access, Grant, GrantLimits, RuleAnswer, Takeover};
use crate::handshake::{self, Arrival};
use crate::hooks::{Action, EventKind, Login};
use crate::log::{Escaped, LogClass};
use crate::shard::{EventDetails, Shard};
use crate::{connection, hub, requests, retain};

/// The clients of one shard, by slot and by client identifier.
#[derive(Default)]
pub(crate) struct Registry {
    clients: Slab<Rc<Client>>,
    by_id: HashMap<Arc<str>, u32>,
    generation: u32,
}

impl Registry {
    /// The client at `handle`, if its slot has not been given to another one since.
    pub(crate) fn at(&self, handle: Handle) -> Option<Rc<Client>> {
        let client = self.clients.get(handle.slot as usize)?;
        (client.handle == handle).then(|| Rc::clone(client))
    }

    fn in_slot(&self, slot: u32) -> Option<Rc<Client>> {
        self.clients.get(slot as usize).cloned()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Rc<Client>> {
        self.in_slot(*self.by_id.get(id)?)
    }

    fn insert(&mut self, shard: usize, make: impl FnOnce(Handle) -> Client) -> Rc<Client> {
        self.generation = self.generation.wrapping_add(1) & 0xFF_FFFF;
        let entry = self.clients.vacant_entry();
        let handle = Handle {
            shard,
            // INVARIANT: the number of sessions is limited far below 2^32.
            slot: u32::try_from(entry.key()).expect("fewer than 2^32 sessions"),
            generation: self.generation,
        };
        let client = Rc::new(make(handle));
        entry.insert(Rc::clone(&client));
        self.by_id.insert(Arc::clone(&client.id), handle.slot);
        client
    }

    fn remove(&mut self, client: &Client) {
        let slot = client.handle.slot;
        if self.by_id.get(&client.id) == Some(&slot) {
            self.by_id.remove(&client.id);
        }
        self.clients.try_remove(slot as usize);
    }

    fn all(&self) -> Vec<Rc<Client>> {
        self.clients
            .iter()
            .map(|(_, client)| Rc::clone(client))
            .collect()
    }
}

/// One session, as [`crate::Broker::clients`] lists it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientInfo {
    /// Client identifier.
    pub client_id: Arc<str>,
    /// User name in force.
    pub username: Option<Arc<str>>,
    /// Whether it has a connection now.
    pub connected: bool,
    /// Where it connected from last.
    pub peer: SocketAddr,
    /// Name of the listener that it came through last.
    pub listener: Arc<str>,
    /// Protocol version of its last connection.
    pub version: Version,
    /// Keep-alive that it asked for, in seconds.
    pub keep_alive_s: u16,
    /// How long this connection has lasted; zero without one.
    pub connected_for: Duration,
    /// Filters that it subscribed to, as it wrote them.
    pub subscriptions: Vec<String>,
    /// Messages that wait for it.
    pub queued: usize,
    /// Messages sent to it and not acknowledged.
    pub in_flight: usize,
}

/// Lists the sessions of `shard`.
pub(crate) fn list(shard: &Rc<Shard>) -> Vec<ClientInfo> {
    let now = shard.now();
    let clients = shard.registry.borrow().all();
    clients.iter().map(|client| info(client, now)).collect()
}

fn info(client: &Client, now: Instant) -> ClientInfo {
    let login = client.login();
    let session = client.session.borrow();
    let link = client.link();
    ClientInfo {
        client_id: Arc::clone(&client.id),
        username: login.username.clone(),
        connected: link.is_some(),
        peer: login.peer,
        listener: Arc::clone(&login.listener),
        version: login.version,
        keep_alive_s: login.keep_alive_s,
        connected_for: link.map_or(Duration::ZERO, |link| {
            now.saturating_duration_since(link.connected_at)
        }),
        subscriptions: session
            .subscriptions()
            .iter()
            .map(|subscription| subscription.filter.as_str().to_owned())
            .collect(),
        queued: session.queued(),
        in_flight: session.in_flight(),
    }
}

/// Lets an admitted client in: takes over, resumes or creates its session, and starts its task.
pub(crate) fn arrive(shard: &Rc<Shard>, arrival: Arrival) {
    let existing = shard.registry.borrow().find(&arrival.login.client_id);
    if let Some(reason) = refusal(shard, existing.as_ref(), &arrival) {
        handshake::turn_away(shard, arrival.socket, &arrival.login, reason);
        return;
    }
    let Ok(stream) = TcpStream::from_std(arrival.socket) else {
        shard.world.connections.fetch_sub(1, Ordering::Relaxed);
        return;
    };
    let resumed =
        existing.and_then(|old| make_way(shard, &old, &arrival.request, &arrival.access.grant));
    let session_present = resumed.is_some();
    let (request, login, access) = (arrival.request, arrival.login, arrival.access);
    let terms = terms(shard, &request, &access.grant, session_present);
    let expires_at = access.grant.expires_at;
    let ends = expires_at.map(|at| on_monotonic_clock(shard.now(), at));
    let client = match resumed {
        Some(client) => client,
        None => create(shard, &login, &access),
    };
    client.identify(login, access, ends);
    let link = Rc::new(Link::new(
        request.version,
        request.maximum_packet_size,
        client.login().peer,
        shard.now(),
    ));
    client.set_link(Some(Rc::clone(&link)));
    shard
        .world
        .online
        .set(shard.index, client.handle.slot, true);
    shard.metrics().clients_connected.add(1);
    if session_present {
        drop_lost_rights(&client, shard);
    }
    client
        .session
        .borrow_mut()
        .connect(shard.now(), &request, terms);
    confirm(&client);
    client.flush_session(shard);
    arm(shard, &client);
    let kind = if session_present {
        EventKind::SessionResumed
    } else {
        EventKind::SessionCreated
    };
    shard.tell(kind, &client, EventDetails::default());
    shard.tell(EventKind::Connected, &client, EventDetails::default());
    connection::spawn(shard, &client, &link, stream, arrival.unread);
}

/// Why a client that plugins let in may not have this session.
fn refusal(shard: &Shard, existing: Option<&Rc<Client>>, arrival: &Arrival) -> Option<ReasonCode> {
    if shard.world.is_stopping() {
        return Some(ReasonCode::SERVER_SHUTTING_DOWN);
    }
    let Some(old) = existing else {
        let sessions: u64 = shard.world.metrics.iter().map(|m| m.sessions.value()).sum();
        let full = sessions >= shard.config().sessions as u64;
        // The new session is refused; existing ones are never evicted (abuse F12).
        return full.then_some(ReasonCode::QUOTA_EXCEEDED);
    };
    let same_user = old.login().username == arrival.login.username;
    let allowed = match arrival.access.grant.session.takeover {
        Takeover::Anyone => true,
        Takeover::SameUser => same_user,
        Takeover::Never => same_user && !old.is_online(),
    };
    (!allowed).then_some(ReasonCode::CLIENT_IDENTIFIER_NOT_VALID)
}

/// Ends the old connection, and the old session too unless it is to be resumed.
fn make_way(
    shard: &Rc<Shard>,
    old: &Rc<Client>,
    request: &ConnectRequest,
    grant: &Grant,
) -> Option<Rc<Client>> {
    let resume = !request.clean_start && grant.session.resume;
    if let Some(link) = old.link() {
        shard.metrics().takeovers.add(1);
        say_goodbye(shard, old, ReasonCode::SESSION_TAKEN_OVER);
        detach(shard, old, Cause::TakenOver);
        shard.tell(EventKind::SessionTakenOver, old, EventDetails::default());
        link.close(Closing {
            cause: Cause::TakenOver,
            reason: ReasonCode::SESSION_TAKEN_OVER,
        });
    }
    let alive = shard.registry.borrow().at(old.handle).is_some();
    if alive && !resume {
        end(shard, old);
    }
    (alive && resume).then(|| Rc::clone(old))
}

fn create(shard: &Rc<Shard>, login: &Arc<Login>, access: &Arc<Access>) -> Rc<Client> {
    shard.metrics().sessions.add(1);
    shard.registry.borrow_mut().insert(shard.index, |handle| {
        Client::new(
            handle,
            shard.world.directory.join(handle.pack()),
            Session::new(
                Arc::clone(&login.client_id),
                Arc::clone(&shard.config().limits),
            ),
            Arc::clone(login),
            Arc::clone(access),
        )
    })
}

fn terms(shard: &Shard, request: &ConnectRequest, grant: &Grant, session_present: bool) -> Terms {
    let expiry_max = grant.session.expiry_max;
    Terms {
        session_present,
        assigned_client_id: request.client_id.is_none(),
        session_expiry_max_s: expiry_max
            .map(|longest| u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)),
        ..Terms::new(limits(shard, grant))
    }
}

/// The broker's limits, or a copy with the grant's own; most clients share one.
fn limits(shard: &Shard, grant: &Grant) -> Arc<ServerLimits> {
    let config = shard.config();
    if grant.limits == GrantLimits::default() {
        return Arc::clone(&config.limits);
    }
    let mut limits = ServerLimits::clone(&config.limits);
    let caps = grant.limits;
    limits.maximum_qos = limits
        .maximum_qos
        .min(caps.max_qos.unwrap_or(QoS::ExactlyOnce));
    lower(&mut limits.subscriptions, caps.subscriptions);
    lower(&mut limits.queue_messages, caps.queue_messages);
    lower(&mut limits.queue_bytes, caps.queue_bytes);
    Arc::new(limits)
}

fn lower(limit: &mut usize, cap: Option<usize>) {
    *limit = (*limit).min(cap.unwrap_or(usize::MAX));
}

/// Subscriptions that a reduced grant no longer covers end at resume, and what they have queued
/// is dropped (abuse F16). Where a plugin is asked about the filter, its old answer stays.
fn drop_lost_rights(client: &Rc<Client>, shard: &Rc<Shard>) {
    let access = client.access();
    let is_lost = |filter: &TopicFilter| match access.permissions.subscribe(filter) {
        RuleAnswer::Allowed => false,
        RuleAnswer::Denied => true,
        RuleAnswer::Silent => {
            !requests::is_asked_about(shard, Action::Subscribe, |about| about.covers(filter))
        }
    };
    let lost: Vec<SubscriptionFilter> = client
        .session
        .borrow()
        .subscriptions()
        .iter()
        .map(|subscription| &subscription.filter)
        .filter(|filter| is_lost(filter.filter()))
        .cloned()
        .collect();
    if lost.is_empty() && !access.permissions.checks_deliveries() {
        return;
    }
    let changes: Vec<Change<'_>> = lost
        .iter()
        .map(|filter| Change::Unsubscribe { filter })
        .collect();
    shard.world.directory.commit(client.subscriber, &changes);
    for filter in &lost {
        client.session.borrow_mut().revoke(filter);
    }
    let held: Vec<TopicFilter> = client
        .session
        .borrow()
        .subscriptions()
        .iter()
        .map(|subscription| subscription.filter.filter().clone())
        .collect();
    let may_have = |message: &Message| {
        TopicName::parse(message.topic(), &TopicLimits::default()).is_ok_and(|topic| {
            access.permissions.receives(topic) && held.iter().any(|filter| filter.matches(topic))
        })
    };
    client.session.borrow_mut().keep_queued(may_have);
    handle_events(shard, client);
}

/// Says that every promise so far is kept: with sessions in memory it is, at once (decision 2).
pub(crate) fn confirm(client: &Client) {
    let mut session = client.session.borrow_mut();
    let token = session.last_token();
    session.confirm(token);
}

/// Puts a DISCONNECT with `reason` behind what waits, where the client's version has one.
pub(crate) fn say_goodbye(shard: &Shard, client: &Client, reason: ReasonCode) {
    let Some(link) = client.link() else { return };
    let session = client.session.borrow();
    if let Some(farewell) = session.disconnect_packet(reason, None, Details::none()) {
        link.push_control(shard, &farewell);
    }
}

/// Separates `client` from its connection; its will and its session go their ways.
pub(crate) fn detach(shard: &Rc<Shard>, client: &Rc<Client>, cause: Cause) {
    let departure = client.session.borrow_mut().detach(shard.now(), cause);
    client.set_link(None);
    client.replays.borrow_mut().clear();
    shard
        .world
        .online
        .set(shard.index, client.handle.slot, false);
    shard.metrics().clients_connected.sub(1);
    shard.tell(EventKind::Disconnected, client, EventDetails::default());
    if let Some(will) = departure.will {
        publish_will(shard, client, &will);
    }
    handle_events(shard, client);
    if departure.expiry == Expiry::Now {
        end(shard, client);
    } else {
        arm(shard, client);
    }
}

/// Cuts what the next clients have in flight out of the chunks that it came in; returns where to
/// go on. A client that reads but does not acknowledge has no other moment for it.
pub(crate) fn release_chunks(shard: &Shard, from: usize) -> usize {
    const LOOKED_AT_A_TICK: usize = 256;
    let registry = shard.registry.borrow();
    let end = registry.clients.capacity();
    let next = (from + LOOKED_AT_A_TICK).min(end);
    for slot in from..next {
        if let Some(client) = registry.clients.get(slot) {
            let mut session = client.session.borrow_mut();
            if session.in_flight() > 0 {
                session.release_chunks();
            }
        }
    }
    if next == end { 0 } else { next }
}

/// Does what the session says has come due.
pub(crate) fn handle_events(shard: &Rc<Shard>, client: &Rc<Client>) {
    loop {
        let event = client.session.borrow_mut().poll_event();
        match event {
            None => return,
            Some(SessionEvent::WillDue(message)) => publish_will(shard, client, &message),
            Some(SessionEvent::Expired) => {
                if !client.is_online() {
                    shard.metrics().sessions_expired.add(1);
                    shard.tell(EventKind::SessionExpired, client, EventDetails::default());
                    end(shard, client);
                }
            }
            Some(SessionEvent::Dropped {
                reason, message, ..
            }) => {
                hub::book_drop(shard, client, &message, reason);
            }
            Some(SessionEvent::Overflowed) => {
                if let Some(link) = client.link() {
                    close(&link, Cause::Administrative, ReasonCode::QUOTA_EXCEEDED);
                }
            }
            // Sessions in memory have nothing to write.
            Some(SessionEvent::Record { .. }) => {}
        }
    }
}

fn publish_will(shard: &Rc<Shard>, client: &Rc<Client>, will: &Message) {
    let allowed = TopicName::parse(will.topic(), &TopicLimits::default())
        .ok()
        .filter(|topic| client.access().permissions.publish(*topic) == RuleAnswer::Allowed);
    let Some(topic) = allowed else {
        shard.metrics().dropped_will.add(1);
        shard.log.warn(LogClass::Will, shard.now(), || {
            format!(
                "will of client {} not published: not allowed",
                Escaped(&client.id)
            )
        });
        return;
    };
    if will.retain() {
        retain::store(shard, topic, will);
    }
    hub::route(shard, Some(client), topic, will);
}

/// Ends a session: no message reaches it any more, and its slot is free.
fn end(shard: &Rc<Shard>, client: &Rc<Client>) {
    if shard.registry.borrow().at(client.handle).is_none() {
        return;
    }
    // A will whose delay is still running is published when its session ends [MQTT-3.1.3-9].
    let will = client.session.borrow_mut().end(shard.now());
    shard.world.directory.leave(client.subscriber);
    shard.registry.borrow_mut().remove(client);
    shard.wheel.borrow_mut().cancel(client.handle.slot);
    shard.metrics().sessions.sub(1);
    if let Some(will) = will {
        publish_will(shard, client, &will);
    }
}

/// Makes the wheel call [`handle_timeout`] at the client's next deadline.
pub(crate) fn arm(shard: &Shard, client: &Client) {
    if shard.registry.borrow().at(client.handle).is_none() {
        return;
    }
    let stall = client
        .link()
        .and_then(|link| link.blocked_since.get())
        .map(|since| since + shard.config().stall_deadline);
    let ends = client.grant_ends().filter(|_| client.is_online());
    let session = client.session.borrow().poll_timeout();
    if let Some(at) = [stall, ends, session].into_iter().flatten().min() {
        shard.wheel.borrow_mut().arm(client.handle.slot, at);
    }
}

/// A deadline of the client in `slot` may have come.
pub(crate) fn handle_timeout(shard: &Rc<Shard>, slot: u32) {
    let client = shard.registry.borrow().in_slot(slot);
    let Some(client) = client else { return };
    let now = shard.now();
    let violation = {
        let mut session = client.session.borrow_mut();
        session.release_chunks();
        if client.link().is_some_and(|link| link.is_unread.get()) {
            session.excuse_silence(now);
        }
        session.handle_timeout(now).err()
    };
    if let Some(link) = client.link() {
        let stalled = link
            .blocked_since
            .get()
            .is_some_and(|since| now >= since + shard.config().stall_deadline);
        if let Some(violation) = violation {
            shard.metrics().keep_alive_timeouts.add(1);
            close(&link, Cause::KeepAliveTimeout, violation.reason);
        } else if stalled {
            shard.metrics().stalled.add(1);
            shard.log.warn(LogClass::Stalled, now, || {
                format!(
                    "client {} takes no bytes, disconnected",
                    Escaped(&client.id)
                )
            });
            close(&link, Cause::ConnectionLost, ReasonCode::QUOTA_EXCEEDED);
        } else if client.grant_ends().is_some_and(|at| now >= at) {
            close(
                &link,
                Cause::Administrative,
                ReasonCode::MAXIMUM_CONNECT_TIME,
            );
        }
    }
    handle_events(shard, &client);
    client.flush_session(shard);
    arm(shard, &client);
}

fn close(link: &Link, cause: Cause, reason: ReasonCode) {
    link.close(Closing { cause, reason });
}

/// Disconnects the client with this id; false when it has no connection.
pub(crate) fn disconnect(shard: &Rc<Shard>, id: &str, reason: ReasonCode) -> bool {
    let client = shard.registry.borrow().find(id);
    let Some(link) = client.and_then(|client| client.link()) else {
        return false;
    };
    close(&link, Cause::Administrative, reason);
    true
}

/// Ends every connection of this shard; those that cannot be told in time are cut off.
pub(crate) fn stop(shard: &Rc<Shard>, deadline: Duration) {
    let draining = Rc::clone(shard);
    tokio::task::spawn_local(async move {
        drain().await;
        for client in draining.registry.borrow().all() {
            if let Some(link) = client.link() {
                close(&link, Cause::ServerStop, ReasonCode::SERVER_SHUTTING_DOWN);
            }
        }
        if draining.tasks.get() == 0 {
            draining.give_up();
        }
    });
    let own = Rc::clone(shard);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(deadline).await;
        own.give_up();
    });
}

/// Lets every connection handle what its socket already holds, and what comes of it leave: a
/// turn of the scheduler each to read, to carry mail between shards, and to write.
async fn drain() {
    const TURNS: usize = 3;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}

/// A wall-clock time as the monotonic clock will show it.
fn on_monotonic_clock(now: Instant, at: SystemTime) -> Instant {
    now + at.duration_since(SystemTime::now()).unwrap_or_default()
}
