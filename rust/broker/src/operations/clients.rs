//! Lists of clients: filtered, sorted by identifier or by rank.
//!
//! A shard is asked for one range of its clients at a time, so that it can do other work in between.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_codec::ProtocolVersion;
use mqttcore_tls::ClientCertificate;

use crate::clients::client::Client;
use crate::clients::measures::{DeliveryTimes, PacketRates};
use crate::clients::registry::Registry;
use crate::config::{Peer, durability};
use crate::operations::asking::{AskError, MissingPart};
use crate::operations::client_facts::{EventCounts, WillSummary};
use crate::operations::client_filter::ClientFilter;
use crate::operations::slowness::{
    Clock, Delay, HoldingLimit, delay, holding_limits, rank_of, rates, slowness,
};
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::Shard;
use crate::transport::channel::Channel;

/// Maximum number of clients that a shard examines for one question.
const CLIENTS_A_TURN: usize = 256;
/// Bytes of their identifiers, which a filter searches, after which a question ends.
const ID_BYTES_A_TURN: usize = 64 << 10;

/// A session and its connection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ClientSummary {
    /// Client identifier.
    pub client_id: Arc<str>,
    /// User name in force.
    pub username: Option<Arc<str>>,
    /// How long it has been connected; `None`: it is offline.
    pub connected_for: Option<Duration>,
    /// How long it has been offline; `None`: it is connected.
    pub away_for: Option<Duration>,
    /// Time until its session ends, if it stays offline; `None`: it does not expire, or the client is connected.
    pub expires_in: Option<Duration>,
    /// Address of its last connection; `None`: it has not connected since the broker started.
    pub peer: Option<Peer>,
    /// Listener of its last connection; empty if it has not connected since the broker started.
    pub listener: Arc<String>,
    /// Protocol version of its last connection.
    pub version: ProtocolVersion,
    /// Requested Keep Alive in seconds.
    pub keep_alive_s: u16,
    /// Whether its last CONNECT asked for a new session.
    pub clean_start: bool,
    /// Session expiry in seconds.
    pub session_expiry_s: u32,
    /// Number of its subscriptions.
    pub subscriptions: usize,
    /// Number of queued messages.
    pub queued: usize,
    /// Bytes of the queued messages, in memory and on the disk.
    pub queued_bytes: usize,
    /// Number of queued messages that are only on the disk.
    pub queued_on_disk: usize,
    /// Maximum number of queued messages.
    pub queue_messages_max: usize,
    /// Maximum bytes of queued messages.
    pub queue_bytes_max: usize,
    /// Number of messages sent to it and not acknowledged.
    pub in_flight: usize,
    /// Maximum of `in_flight`; `None`: it is offline.
    pub in_flight_max: Option<u16>,
    /// Number of its QoS 2 publishes that are not released.
    pub receiving: usize,
    /// Bytes that its socket has not accepted yet.
    pub backlog_bytes: usize,
    /// Packets a second; `None`: it is offline.
    pub rates: Option<PacketRates>,
    /// How long deliveries to it take, if some were measured.
    pub delivery_times: Option<DeliveryTimes>,
    /// The reason why messages wait, if they wait for the client.
    pub delay: Option<Delay>,
    /// The limits because of which it is not read, or gets no retained messages, for a while.
    pub held_back_by: Vec<HoldingLimit>,
    /// How long ago its last packet was handled; `None`: it is offline.
    pub silent_for: Option<Duration>,
    /// Its will.
    pub will: Option<WillSummary>,
    /// What its connection runs over; `None`: it is offline.
    pub channel: Option<Channel>,
    /// The durability of its messages and requests: `memory`, `os` or `fsync`.
    pub durability: &'static str,
    /// The hook or the listener that gave its grant; `None`: not known, as before its first connection since the start.
    pub granted_by: Option<Arc<str>>,
    /// The certificate of its last connection.
    pub certificate: Option<Arc<ClientCertificate>>,
}

/// How to sort a list of clients.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum ClientOrder {
    /// By client identifier. Each page walks all sessions.
    #[default]
    ClientId,
    /// In the order of the slots of the shards: each page continues where the last one ended. Only this order and the
    /// one by client identifier have pages.
    Stored,
    /// Most queued messages first.
    Queued,
    /// Most messages in flight first.
    InFlight,
    /// Most bytes that the socket has not accepted first.
    Backlog,
    /// The latest connection first; offline clients last.
    ConnectedAt,
    /// The most packets a second from the client first.
    Received,
    /// The most packets a second to the client first.
    Sent,
    /// The slowest subscribers first: by the slowest measured delivery of the last ten minutes, or how long the socket has
    /// accepted no byte; then by queued messages.
    Slow,
    /// Longest offline first; connected clients last.
    Away,
    /// The session that ends first comes first; those that do not expire, and connected clients, last.
    Expires,
}

/// A request for one page of a list of clients.
#[derive(Clone, Debug, Default)]
pub struct ClientQuery {
    /// Which clients to list.
    pub filter: ClientFilter,
    /// How to sort them.
    pub order: ClientOrder,
    /// With [`ClientOrder::ClientId`]: list identifiers after this one.
    pub after: Option<Arc<str>>,
    /// With [`ClientOrder::Stored`]: begin there.
    pub from: ClientPosition,
    /// Maximum number of clients on the page.
    pub limit: usize,
}

/// A position in a list with [`ClientOrder::Stored`]; by default its begin.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct ClientPosition {
    /// Number of the shard.
    pub shard: usize,
    /// Place of the session there, which it keeps.
    pub slot: usize,
}

/// The answer to a [`ClientQuery`].
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct ClientPage {
    /// The clients in the requested order.
    pub clients: Vec<ClientSummary>,
    /// Whether more clients follow.
    pub has_more: bool,
    /// With [`ClientOrder::Stored`]: where the next page begins.
    pub next: Option<ClientPosition>,
    /// Shards whose clients are missing or incomplete.
    pub missing: Vec<MissingPart>,
}

/// Sort key of a client: its rank, the highest first, then its identifier.
type Position = (Reverse<u64>, Arc<str>);

/// A shard's answer for a range.
struct ClientPart {
    found: Vec<(Position, ClientSummary)>,
    /// Start of the next range; 0 after the last one.
    next: usize,
}

impl BrokerHandle {
    /// Lists clients. A client that exists all the time is on exactly one page of a list by client identifier, even if
    /// others connect or leave meanwhile.
    ///
    /// # Errors
    ///
    /// [`BrokerStopped`]
    pub async fn list_clients(&self, query: ClientQuery) -> Result<ClientPage, BrokerStopped> {
        if query.order == ClientOrder::Stored {
            return self.list_stored(query).await;
        }
        // One time for all parts: otherwise clients of later parts would seem to have connected earlier.
        let (query, clock) = (Arc::new(query), self.clock()?);
        let mut page = BTreeMap::new();
        let mut missing = Vec::new();
        for shard in 0..self.shards() {
            match self.list_shard(shard, &query, clock, &mut page).await {
                Ok(()) => {}
                Err(AskError::Stopped(stopped)) => return Err(stopped),
                Err(why) => missing.push(MissingPart { shard, why }),
            }
        }
        let has_more = page.len() > query.limit;
        Ok(ClientPage {
            clients: page.into_values().take(query.limit).collect(),
            has_more,
            missing,
            next: None,
        })
    }

    fn clock(&self) -> Result<Clock, BrokerStopped> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        Ok(Clock {
            started: engine.started,
            now: Instant::now(),
        })
    }

    /// Lists clients in the order of slots. A session keeps its slot, so that it is on exactly one page.
    async fn list_stored(&self, query: ClientQuery) -> Result<ClientPage, BrokerStopped> {
        let (query, clock) = (Arc::new(query), self.clock()?);
        let mut page = ClientPage::default();
        let mut at = query.from;
        while at.shard < self.shards() {
            let shard = at.shard;
            let room = query.limit - page.clients.len();
            match self.read_stored(&query, at, room, clock).await {
                Ok(((found, next), is_loaded)) => {
                    page.clients.extend(found);
                    let is_over = next == 0;
                    if is_over && !is_loaded {
                        let why = AskError::Loading;
                        page.missing.push(MissingPart { shard, why });
                    }
                    at = ClientPosition {
                        shard: shard + usize::from(is_over),
                        slot: next,
                    };
                }
                Err(AskError::Stopped(stopped)) => return Err(stopped),
                Err(why) => {
                    page.missing.push(MissingPart { shard, why });
                    at = ClientPosition {
                        shard: shard + 1,
                        slot: 0,
                    };
                }
            }
            if page.clients.len() == query.limit && at.shard < self.shards() {
                page.has_more = true;
                page.next = Some(at);
                break;
            }
        }
        Ok(page)
    }

    /// Reads clients of one shard, as [`stored_part`] does, and whether all of its clients are loaded.
    async fn read_stored(
        &self,
        query: &Arc<ClientQuery>,
        from: ClientPosition,
        room: usize,
        clock: Clock,
    ) -> Result<((Vec<ClientSummary>, usize), bool), AskError> {
        let query = Arc::clone(query);
        self.read(from.shard, move |shard| {
            let begun = Instant::now();
            let registry = shard.registry.borrow();
            let part = stored_part(&registry, clock, from.slot, (&query.filter, room));
            shard.metrics().tallies.list_parts.count(begun.elapsed());
            (part, shard.is_loaded())
        })
        .await
    }

    /// Adds the clients of one shard to `page`, which holds one more than its limit.
    async fn list_shard(
        &self,
        shard: usize,
        query: &Arc<ClientQuery>,
        clock: Clock,
        page: &mut BTreeMap<Position, ClientSummary>,
    ) -> Result<(), AskError> {
        let mut from = 0;
        loop {
            let last = page.keys().nth(query.limit).cloned();
            let own = Arc::clone(query);
            let ask = move |shard: &Rc<Shard>| {
                let begun = Instant::now();
                let registry = shard.registry.borrow();
                let part = part(&registry, clock, from, &own, last.as_ref());
                shard.metrics().tallies.list_parts.count(begun.elapsed());
                (part, shard.is_loaded())
            };
            let (part, is_loaded) = self.read(shard, ask).await?;
            page.extend(part.found);
            while page.len() > query.limit + 1 {
                page.pop_last();
            }
            from = part.next;
            if from == 0 {
                return is_loaded.then_some(()).ok_or(AskError::Loading);
            }
        }
    }

    /// Describes one client; `None` if it has no session.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn client(&self, client_id: &str) -> Result<Option<ClientSummary>, AskError> {
        let question = |shard: &Rc<Shard>, client: &Rc<Client>| {
            let (started, now) = (shard.engine.started, shard.now());
            summary(client, Clock { started, now })
        };
        self.read_client_on_shard(client_id, question).await
    }

    /// Describes one client, with what recent events tell about it; `None` if it has no session.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn client_with_events(
        &self,
        client_id: &str,
    ) -> Result<Option<(ClientSummary, EventCounts)>, AskError> {
        let question = |shard: &Rc<Shard>, client: &Rc<Client>| {
            let (started, now) = (shard.engine.started, shard.now());
            let counts = EventCounts::of(shard, client);
            (summary(client, Clock { started, now }), counts)
        };
        self.read_client_on_shard(client_id, question).await
    }

    /// Reads something of a client on its shard; `None` if it has no session.
    pub(super) async fn read_client<T: Send + 'static>(
        &self,
        client_id: &str,
        question: impl FnOnce(&Client, Instant) -> T + Send + 'static,
    ) -> Result<Option<T>, AskError> {
        self.read_client_on_shard(client_id, |shard, client| question(client, shard.now()))
            .await
    }

    /// Reads something of a client and its shard; `None` if it has no session.
    pub(super) async fn read_client_on_shard<T: Send + 'static>(
        &self,
        client_id: &str,
        question: impl FnOnce(&Rc<Shard>, &Rc<Client>) -> T + Send + 'static,
    ) -> Result<Option<T>, AskError> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let (shard, id) = (engine.shard_of(client_id), client_id.to_owned());
        drop(engine);
        let ask = move |shard: &Rc<Shard>| {
            let client = shard.find_client(&id);
            match client {
                Some(client) => Ok(Some(question(shard, &client))),
                None if shard.is_loaded() => Ok(None),
                None => Err(AskError::Loading),
            }
        };
        self.read(shard, ask).await?
    }
}

/// Examines the clients from slot `from` on. Clients that sort after `last` do not fit on the page.
fn part(
    registry: &Registry,
    clock: Clock,
    from: usize,
    query: &ClientQuery,
    last: Option<&Position>,
) -> ClientPart {
    let (clients, next) = clients_of_turn(registry, from);
    let mut found = Vec::new();
    for client in clients {
        if !query.filter.covers(&client, clock.now) {
            continue;
        }
        let position = (
            Reverse(query.order.rank(&client, clock)),
            Arc::clone(&client.id),
        );
        let is_behind = query.after.as_ref().is_none_or(|after| client.id > *after);
        if is_behind && last.is_none_or(|last| position < *last) {
            found.push((position, summary(&client, clock)));
        }
    }
    ClientPart { found, next }
}

/// The clients that a shard examines for one question, from slot `from` on; and the next slot, 0 after the last one.
fn clients_of_turn(registry: &Registry, from: usize) -> (Vec<Rc<Client>>, usize) {
    let (mut clients, next) = registry.part(from, CLIENTS_A_TURN);
    let mut bytes = 0;
    let fitting = clients.iter().take_while(|client| {
        let fits = bytes < ID_BYTES_A_TURN;
        bytes += client.id.len();
        fits
    });
    let count = fitting.count();
    let rest = clients
        .get(count)
        .map(|client| client.handle.slot() as usize);
    clients.truncate(count);
    (clients, rest.unwrap_or(next))
}

/// The clients of one question from slot `from` on that the filter covers, until there is no more room; and the slot to
/// go on with, 0 after the last one.
fn stored_part(
    registry: &Registry,
    clock: Clock,
    from: usize,
    (filter, room): (&ClientFilter, usize),
) -> (Vec<ClientSummary>, usize) {
    let (clients, next) = clients_of_turn(registry, from);
    let mut found = Vec::new();
    for client in clients {
        if found.len() == room {
            return (found, client.handle.slot() as usize);
        }
        if filter.covers(&client, clock.now) {
            found.push(summary(&client, clock));
        }
    }
    (found, next)
}

impl ClientOrder {
    fn rank(self, client: &Client, clock: Clock) -> u64 {
        match self {
            Self::ClientId | Self::Stored => 0,
            Self::Queued => client.session.borrow().queued() as u64,
            Self::InFlight => client.session.borrow().in_flight() as u64,
            Self::Backlog => backlog_bytes(client) as u64,
            Self::ConnectedAt => client.link_ref().as_ref().map_or(0, |link| {
                // A smaller age is a higher rank: the latest connection comes first.
                u64::MAX - whole_us(link.age(clock.since_start()))
            }),
            Self::Received => rates(client, clock).map_or(0, |rates| rank_of(rates.received)),
            Self::Sent => rates(client, clock).map_or(0, |rates| rank_of(rates.sent)),
            Self::Slow => slowness(client, clock.now),
            Self::Away => client.session.borrow().away_since().map_or(0, |since| {
                1 + whole_us(clock.now.saturating_duration_since(since))
            }),
            Self::Expires => client.session.borrow().expires_at().map_or(0, |at| {
                // The shortest time has the highest rank.
                u64::MAX - whole_us(at.saturating_duration_since(clock.now))
            }),
        }
    }
}

/// Whole microseconds; less than `u64::MAX`.
fn whole_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).map_or(u64::MAX - 1, |us| us.min(u64::MAX - 1))
}

fn backlog_bytes(client: &Client) -> usize {
    let link = client.link_ref();
    link.as_ref().map_or(0, |link| link.outbox().len())
}

/// Describes a client. Longer than other functions: one line for each field.
fn summary(client: &Client, clock: Clock) -> ClientSummary {
    let login = client.login();
    let session = client.session.borrow();
    let link = client.link_ref();
    let now = clock.now;
    let lasts = |at| now.saturating_duration_since(at);
    let (queue_messages_max, queue_bytes_max) = session.queue_limits();
    ClientSummary {
        client_id: Arc::clone(&client.id),
        username: login.username.clone(),
        connected_for: link.as_ref().map(|link| link.age(clock.since_start())),
        away_for: session.away_since().map(lasts),
        expires_in: session
            .expires_at()
            .map(|at| at.saturating_duration_since(now)),
        peer: client.was_here().then_some(login.peer),
        listener: Arc::clone(&login.listener),
        version: session.version(),
        keep_alive_s: login.keep_alive_s,
        clean_start: login.clean_start,
        session_expiry_s: session.expiry_interval_s(),
        subscriptions: session.subscriptions().len(),
        queued: session.queued(),
        queued_bytes: session.queued_bytes(),
        queued_on_disk: session.spilled(),
        queue_messages_max,
        queue_bytes_max,
        in_flight: session.in_flight(),
        in_flight_max: link.as_ref().map(|_| session.in_flight_max()),
        receiving: session.open_publishes(),
        backlog_bytes: backlog_bytes(client),
        rates: rates(client, clock),
        delivery_times: link
            .as_ref()
            .and_then(|link| link.measures.delivery_times(now)),
        delay: delay(client, now),
        held_back_by: link
            .as_ref()
            .map_or_else(Vec::new, |link| holding_limits(link)),
        silent_for: session.last_packet_at().map(lasts),
        will: session.will().map(WillSummary::from),
        channel: link.as_ref().map(|link| link.channel.get()),
        durability: durability::name(client.durability()),
        granted_by: client.access().grant.granted_by.text(),
        certificate: login.certificate().cloned(),
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::{Directory, Strategy};

    use super::*;
    use crate::clients::link::Link;

    fn clock(now: Instant) -> Clock {
        Clock { started: now, now }
    }

    /// The shard does nothing else meanwhile.
    #[test]
    fn a_question_to_a_shard_looks_at_256_clients() {
        let directory = Directory::new(1, Strategy::default());
        let mut registry = Registry::default();
        for number in 0..600 {
            registry.insert(0, |handle| {
                Client::offline(&directory, handle, &format!("c{number}"))
            });
        }
        let (query, now) = (ClientQuery::default(), Instant::now());
        let ask = |from| {
            let part = part(&registry, clock(now), from, &query, None);
            (part.found.len(), part.next)
        };

        assert_eq!(ask(0), (256, 256));
        assert_eq!(ask(256), (256, 512));
        assert_eq!(ask(512), (88, 0));
    }

    /// A filter searches each identifier, and a configuration may allow long ones.
    #[test]
    fn a_question_ends_after_64_kib_of_identifiers() {
        let directory = Directory::new(1, Strategy::default());
        let mut registry = Registry::default();
        for number in 0..10 {
            let id = format!("{number}{}", "x".repeat(20_000));
            registry.insert(0, |handle| Client::offline(&directory, handle, &id));
        }
        let query = ClientQuery {
            limit: 100,
            ..ClientQuery::default()
        };
        let (mut asked, mut from) = (Vec::new(), 0);
        loop {
            let ranked = part(&registry, clock(Instant::now()), from, &query, None);
            let stored = stored_part(&registry, clock(Instant::now()), from, (&query.filter, 100));
            assert_eq!(
                (ranked.found.len(), ranked.next),
                (stored.0.len(), stored.1)
            );
            asked.push(ranked.found.len());
            from = ranked.next;
            if from == 0 {
                break;
            }
        }

        assert_eq!(asked, [4, 4, 2]);
    }

    /// Clients come and go between the pages.
    #[test]
    fn a_list_goes_on_where_it_ended_and_has_each_client_that_stays_once() {
        let directory = Directory::new(1, Strategy::default());
        let mut registry = Registry::default();
        let add = |registry: &mut Registry, number: usize| {
            registry.insert(0, |handle| {
                Client::offline(&directory, handle, &format!("c{number}"))
            })
        };
        let all: Vec<_> = (0..600).map(|number| add(&mut registry, number)).collect();
        let filter = ClientFilter {
            id_contains: Some("c".into()),
            ..ClientFilter::default()
        };
        let (mut seen, mut from, mut pages) = (Vec::new(), 0, 0);
        loop {
            let (found, next) = stored_part(&registry, clock(Instant::now()), from, (&filter, 100));
            assert!(found.len() <= 100);
            seen.extend(found.into_iter().map(|client| client.client_id));
            (from, pages) = (next, pages + 1);
            registry.remove(&all[pages]);
            add(&mut registry, 1_000 + pages);
            if from == 0 {
                break;
            }
        }

        let stayed = all[pages + 1..].iter().map(|client| &client.id);
        for id in stayed.chain([&all[0].id]) {
            assert_eq!(seen.iter().filter(|other| *other == id).count(), 1, "{id}");
        }
        assert!((6..10).contains(&pages), "{pages}");
    }

    #[test]
    fn the_order_of_connections_does_not_depend_on_when_a_shard_is_asked() {
        let directory = Directory::new(1, Strategy::default());
        let (mut registry, started) = (Registry::default(), Instant::now());
        for second in 0..3 {
            let client = registry.insert(0, |handle| {
                Client::offline(&directory, handle, &format!("c{second}"))
            });
            client.set_link(Some(Rc::new(Link::new(
                ProtocolVersion::V5,
                1_000,
                (client.login(), 0),
                Duration::from_secs(second),
            ))));
        }
        let query = ClientQuery {
            order: ClientOrder::ConnectedAt,
            ..ClientQuery::default()
        };
        let now = started + Duration::from_secs(9);
        let ask = || {
            let found = part(&registry, Clock { started, now }, 0, &query, None).found;
            let mut positions: Vec<_> = found.into_iter().map(|(position, _)| position).collect();
            positions.sort();
            positions
        };

        let [first, .., last] = &ask()[..] else {
            panic!("three clients");
        };

        assert_eq!((&*first.1, &*last.1), ("c2", "c0"));
        assert_eq!(ask(), ask());
    }
}
