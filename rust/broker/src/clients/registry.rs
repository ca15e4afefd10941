//! The registry of one shard's sessions: by slot and by client identifier.

use std::hash::{BuildHasher, RandomState};
use std::rc::Rc;

use hashbrown::HashTable;

use crate::clients::client::Client;
use crate::clients::handle::Handle;

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
    /// The client at `handle`; `None` if its slot has another client now.
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

    /// Number of slots, with and without client.
    pub(crate) fn slots(&self) -> u32 {
        // INVARIANT: the number of sessions is limited far below 2^32.
        u32::try_from(self.clients.len()).expect("fewer than 2^32 sessions")
    }

    /// Returns the clients of `count` slots from `from` on, and the next position.
    pub(crate) fn part(&self, from: usize, count: usize) -> (Vec<Rc<Client>>, usize) {
        let mut part = Vec::new();
        let next = self.visit(from, count, |client| part.push(Rc::clone(client)));
        (part, next)
    }

    pub(crate) fn all(&self) -> Vec<Rc<Client>> {
        self.clients.iter().flatten().cloned().collect()
    }

    /// Visits the clients of `count` slots from `from` on. Returns the next position, 0 after the last slot.
    pub(crate) fn visit(&self, from: usize, count: usize, visit: impl FnMut(&Rc<Client>)) -> usize {
        let end = self.clients.len();
        let next = (from + count).min(end);
        let part = self.clients[from.min(next)..next].iter().flatten();
        part.for_each(visit);
        if next == end { 0 } else { next }
    }
}
