//! Directories of other brokers, written from their published algorithms, as peers of ours in the benches.
//!
//! They hold plain subscriptions: a filter, a client, a QoS. Shared groups, subscription identifiers, merging of
//! overlaps and the liveness of clients are left out of all of them, which is to their advantage. Every one hashes
//! with the same keyed folded multiply, searches separators a word at a time, visits its matches where they lie
//! instead of copying them to a list unless its algorithm is about such lists, and checks `$` topics once.
//!
//! | module | after | shape |
//! | --- | --- | --- |
//! | [`rwlock_trie`] | Mosquitto | a node a level, a hash of children in it, wildcards among them; one lock around |
//! | [`nats`] | nats-server's sublist | levels with a map, `+` and `#` beside it; with or without its two caches |
//! | [`moquette`] | Moquette 0.10 | lists of children, the path copied from the root, recounted, swapped |
//! | [`ctrie`] | Moquette from 0.11 on | an indirection node a level, swapped alone; tombs |
//! | [`emqx`] | EMQX 5 | filters as keys of an ordered set, searched with skips; a table of exact filters beside it |
//! | [`hamt`] | the crates `imbl` and `rpds` | persistent maps of children, one root swapped |

pub mod ctrie;
pub mod emqx;
pub mod hamt;
mod levels;
pub mod moquette;
pub mod nats;
pub mod ours;
mod pointer;
pub mod rwlock_trie;
mod subscribers;

use std::borrow::Borrow;
use std::hash::Hash;

pub use crate::numbered::client;
use mqttcore_topics::{SubscriptionFilter, TopicName};

/// A hash map as fast as the standard one gets, keyed with a secret drawn at start, as ours is.
type Map<K, V> = hashbrown::HashMap<K, V, foldhash::fast::RandomState>;

/// Finds the value of a key, or puts the default there; the key is copied only then.
fn get_or_default<'m, K, Q, V>(map: &'m mut Map<K, V>, key: &Q) -> &'m mut V
where
    K: Borrow<Q> + Hash + for<'q> From<&'q Q>,
    Q: ?Sized + Hash + Eq,
    V: Default,
{
    let entry = map.raw_entry_mut().from_key(key);
    entry.or_insert_with(|| (key.into(), V::default())).1
}

/// A directory of plain subscriptions that threads share.
pub trait Contender: Send + Sync + Sized + 'static {
    /// What tables call it.
    const NAME: &'static str;

    /// What a thread that matches keeps for itself from one match to the next.
    type Reader: Default;

    /// Makes an empty directory.
    fn new() -> Self;

    /// Makes clients up to `clients`, which then may subscribe; not part of what is timed.
    fn admit(&mut self, clients: u32) {
        let _ = clients;
    }

    /// Adds a subscription or replaces its QoS; answers whether it is new.
    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool;

    /// Removes a subscription; answers whether it was there.
    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool;

    /// Hands the client and the QoS of every matching subscription to `visit`.
    fn for_each_match(
        &self,
        reader: &mut Self::Reader,
        topic: TopicName<'_>,
        visit: impl FnMut(u32, u8),
    );

    /// Makes a directory in which client number `n` has subscribed to filter number `n`, the quickest way there is.
    fn load(filters: &[SubscriptionFilter]) -> Self {
        let mut contender = Self::new();
        contender.admit(client(filters.len()));
        for (number, filter) in filters.iter().enumerate() {
            contender.subscribe(filter, client(number), 1);
        }
        contender
    }

    /// Frees what was replaced and waits for nobody any more.
    fn collect_garbage(&self) {}
}
