//! The sessions of one shard: by slot, by client identifier, and all of them.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hashbrown::HashTable;
use mqttcore_codec::{ReasonCode, Version};
use mqttcore_session::Cause;

use crate::clients::client::{Client, Handle};
use crate::sessions::life::close;
use crate::shard::Shard;

/// The clients of one shard, by slot and by client identifier.
#[derive(Default)]
pub(crate) struct Registry {
    clients: Vec<Option<Rc<Client>>>,
    /// Slots without a client.
    free: Vec<u32>,
    /// Slots, by the hash of their clients' identifiers.
    by_id: HashTable<u32>,
    seed: RandomState,
    generation: u32,
}

impl Registry {
    /// The client at `handle`, if its slot has not been given to another one since.
    pub(crate) fn at(&self, handle: Handle) -> Option<Rc<Client>> {
        self.in_slot(handle.slot())
            .filter(|client| client.handle == handle)
    }

    pub(crate) fn in_slot(&self, slot: u32) -> Option<Rc<Client>> {
        self.clients.get(slot as usize)?.clone()
    }

    pub(crate) fn find(&self, id: &str) -> Option<Rc<Client>> {
        let slot = self
            .by_id
            .find(self.seed.hash_one(id), |slot| self.id_of(*slot) == Some(id));
        self.in_slot(*slot?)
    }

    fn id_of(&self, slot: u32) -> Option<&str> {
        let client = self.clients[slot as usize].as_ref();
        client.map(|client| &*client.id)
    }

    pub(crate) fn insert(
        &mut self,
        shard: usize,
        make: impl FnOnce(Handle) -> Client,
    ) -> Rc<Client> {
        self.generation = self.generation.wrapping_add(1);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.clients.push(None);
            self.slots() - 1
        });
        // INVARIANT: there are far fewer shards than 2^8.
        let shard = u8::try_from(shard).expect("fewer than 2^8 shards");
        let client = Rc::new(make(Handle::new(shard, self.generation, slot)));
        self.clients[slot as usize] = Some(Rc::clone(&client));
        let Self {
            clients,
            by_id,
            seed,
            ..
        } = self;
        let hash_of = |slot: &u32| {
            let client = clients[*slot as usize].as_ref();
            client.map_or(0, |client| seed.hash_one(&*client.id))
        };
        by_id.insert_unique(hash_of(&slot), slot, hash_of);
        client
    }

    pub(crate) fn remove(&mut self, client: &Client) {
        let slot = client.handle.slot();
        let hash = self.seed.hash_one(&*client.id);
        if let Ok(entry) = self.by_id.find_entry(hash, |other| *other == slot) {
            entry.remove();
            self.clients[slot as usize] = None;
            self.free.push(slot);
        }
    }

    /// Every client's slot is below this.
    pub(crate) fn slots(&self) -> u32 {
        // INVARIANT: the number of sessions is limited far below 2^32.
        u32::try_from(self.clients.len()).expect("fewer than 2^32 sessions")
    }

    pub(crate) fn all(&self) -> Vec<Rc<Client>> {
        self.clients.iter().flatten().cloned().collect()
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

/// Cuts what the next clients have in flight out of the chunks that it came in; returns where to
/// go on. A client that reads but does not acknowledge has no other moment for it.
pub(crate) fn release_chunks(shard: &Shard, from: usize) -> usize {
    const LOOKED_AT_A_TICK: usize = 256;
    let registry = shard.registry.borrow();
    let end = registry.clients.len();
    let next = (from + LOOKED_AT_A_TICK).min(end);
    for client in registry.clients[from.min(next)..next].iter().flatten() {
        let mut session = client.session.borrow_mut();
        if session.in_flight() > 0 {
            session.release_chunks();
        }
    }
    if next == end { 0 } else { next }
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
