//! The sublist of nats-server: levels with a map of nodes and two wildcard nodes beside it, a lock around, and two
//! caches of results: one of 1024 topics behind the lock, one of 512 topics a connection, void after any change.
//!
//! Kept from the original: a match counts itself, splits the topic first, and makes a list of what it found; who
//! subscribed is a map, copied to a list once it is longer than 256, and the list is dropped by the next removal; a change
//! with a wildcard goes through the whole cache; a cache over its limit is swept to half. Kinder than the
//! original: leaves have no empty level below; without the cache, the list is one that the reader uses again, and
//! readers share the lock.

use std::sync::atomic::{AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, PoisonError, RwLock};

use mqttcore_topics::{SubscriptionFilter, TopicName};
use smallvec::SmallVec;

use super::levels::{levels, matches, split_level};
use super::subscribers::Entry;
use super::{Contender, Map, get_or_default};

/// Subscribers above which a node keeps a list beside the map.
const LIST_MIN: usize = 256;

/// Topics in the shared cache, and what a sweep leaves of them.
const CACHE_MAX: usize = 1024;
const CACHE_SWEPT: usize = 512;

/// Topics in the cache of one reader, and how many go at once when it is full.
const READER_MAX: usize = 512;
const READER_PRUNED: usize = 32;

#[derive(Default)]
struct Level {
    nodes: Map<Box<[u8]>, Box<Node>>,
    plus: Option<Box<Node>>,
    hash: Option<Box<Node>>,
}

#[derive(Default)]
struct Node {
    next: Option<Box<Level>>,
    subscribers: Map<u32, u8>,
    list: Option<Vec<Entry>>,
}

type Found = Arc<Vec<Entry>>;

#[derive(Default)]
struct Sublist {
    root: Level,
    cache: Map<Box<str>, Found>,
}

/// See the [module](self). `CACHED` says whether both caches are in use.
pub struct Nats<const CACHED: bool> {
    sublist: RwLock<Sublist>,
    /// Counts changes, so that readers notice that theirs is void.
    generation: AtomicU64,
    matches: AtomicU64,
}

/// The words of a topic.
type Words<'t> = SmallVec<[&'t [u8]; 32]>;

/// The cache of one connection.
#[derive(Default)]
pub struct ReaderCache {
    generation: u64,
    results: Map<Box<str>, Found>,
    /// Without the cache: what the last match found.
    list: Vec<Entry>,
}

impl<const CACHED: bool> Contender for Nats<CACHED> {
    const NAME: &'static str = if CACHED { "NATS, cached" } else { "NATS" };
    type Reader = ReaderCache;

    fn new() -> Self {
        Self {
            sublist: RwLock::default(),
            generation: AtomicU64::new(0),
            matches: AtomicU64::new(0),
        }
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let mut sublist = self.sublist.write().unwrap_or_else(PoisonError::into_inner);
        let is_new = sublist.root.insert(filter.filter().as_str(), client, qos);
        if CACHED {
            if is_new {
                sublist.add_to_cache(filter, Entry { client, qos });
            } else {
                sublist.drop_from_cache(filter);
            }
            // ORDERING: Release pairs with the acquire of a reader: it sees this change or keeps its cache.
            self.generation.fetch_add(1, Release);
        }
        is_new
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let mut sublist = self.sublist.write().unwrap_or_else(PoisonError::into_inner);
        let is_removed = sublist
            .root
            .remove(filter.filter().as_str().as_bytes(), client);
        if CACHED && is_removed {
            sublist.drop_from_cache(filter);
            // ORDERING: Release: as in `subscribe`.
            self.generation.fetch_add(1, Release);
        }
        is_removed
    }

    fn for_each_match(
        &self,
        reader: &mut ReaderCache,
        topic: TopicName<'_>,
        mut visit: impl FnMut(u32, u8),
    ) {
        if CACHED {
            self.for_each_cached(reader, topic, visit);
        } else {
            self.count_match();
            let words: Words<'_> = levels(topic.as_str()).collect();
            reader.list.clear();
            let sublist = self.sublist.read().unwrap_or_else(PoisonError::into_inner);
            sublist
                .root
                .search_from_start(topic, &words, &mut reader.list);
            drop(sublist);
            reader
                .list
                .iter()
                .for_each(|entry| visit(entry.client, entry.qos));
        }
    }
}

impl<const CACHED: bool> Nats<CACHED> {
    /// Asks the reader's cache, then the shared one, then the tree.
    fn for_each_cached(
        &self,
        reader: &mut ReaderCache,
        topic: TopicName<'_>,
        mut visit: impl FnMut(u32, u8),
    ) {
        // ORDERING: Acquire pairs with the release of a change.
        let generation = self.generation.load(Acquire);
        if reader.generation != generation {
            reader.results.clear();
            reader.generation = generation;
        }
        if let Some(found) = reader.results.get(topic.as_str()) {
            return found
                .iter()
                .for_each(|entry| visit(entry.client, entry.qos));
        }
        let found = self.shared(topic);
        found
            .iter()
            .for_each(|entry| visit(entry.client, entry.qos));
        if reader.results.len() >= READER_MAX {
            reader
                .results
                .extract_if(|_, _| true)
                .take(READER_PRUNED)
                .for_each(drop);
        }
        reader.results.insert(topic.as_str().into(), found);
    }

    fn count_match(&self) {
        // ORDERING: Relaxed: a count that orders nothing.
        self.matches.fetch_add(1, Relaxed);
    }

    fn shared(&self, topic: TopicName<'_>) -> Found {
        self.count_match();
        let sublist = self.sublist.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = sublist.cache.get(topic.as_str()) {
            return Arc::clone(found);
        }
        drop(sublist);
        let mut sublist = self.sublist.write().unwrap_or_else(PoisonError::into_inner);
        let words: Words<'_> = levels(topic.as_str()).collect();
        let mut entries = Vec::new();
        sublist.root.search_from_start(topic, &words, &mut entries);
        let found = Arc::new(entries);
        sublist
            .cache
            .insert(topic.as_str().into(), Arc::clone(&found));
        if sublist.cache.len() > CACHE_MAX {
            let surplus = sublist.cache.len() - CACHE_SWEPT;
            sublist
                .cache
                .extract_if(|_, _| true)
                .take(surplus)
                .for_each(drop);
        }
        found
    }
}

impl Sublist {
    fn add_to_cache(&mut self, filter: &SubscriptionFilter, entry: Entry) {
        let add = |found: &mut Found| {
            let mut entries = Vec::with_capacity(found.len() + 1);
            entries.extend_from_slice(found);
            entries.push(entry);
            *found = Arc::new(entries);
        };
        if filter.filter().has_wildcard() {
            let cached = self.cache.iter_mut();
            cached
                .filter(|(topic, _)| is_match(filter, topic))
                .for_each(|(_, found)| add(found));
        } else if let Some(found) = self.cache.get_mut(filter.filter().as_str()) {
            add(found);
        }
    }

    fn drop_from_cache(&mut self, filter: &SubscriptionFilter) {
        if filter.filter().has_wildcard() {
            self.cache.retain(|topic, _| !is_match(filter, topic));
        } else {
            self.cache.remove(filter.filter().as_str());
        }
    }
}

fn is_match(filter: &SubscriptionFilter, topic: &str) -> bool {
    matches(filter.filter().as_str(), topic)
}

impl Level {
    fn insert(&mut self, filter: &str, client: u32, qos: u8) -> bool {
        let mut level = self;
        let mut words = levels(filter).peekable();
        while let Some(word) = words.next() {
            let node = match word {
                b"+" => level.plus.get_or_insert_default(),
                b"#" => level.hash.get_or_insert_default(),
                _ => get_or_default(&mut level.nodes, word),
            };
            if words.peek().is_none() {
                return node.insert(client, qos);
            }
            level = node.next.get_or_insert_default();
        }
        false
    }

    fn remove(&mut self, filter: &[u8], client: u32) -> bool {
        let (word, rest) = split_level(filter);
        let slot = match word {
            b"+" => self.plus.as_mut(),
            b"#" => self.hash.as_mut(),
            _ => self.nodes.get_mut(word),
        };
        let Some(node) = slot else {
            return false;
        };
        let is_removed = match (rest, &mut node.next) {
            (None, _) => node.remove(client),
            (Some(rest), Some(next)) => next.remove(rest, client),
            (Some(_), None) => false,
        };
        if node.is_empty() {
            match word {
                b"+" => self.plus = None,
                b"#" => self.hash = None,
                _ => drop(self.nodes.remove(word)),
            }
        }
        is_removed
    }

    fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.plus.is_none() && self.hash.is_none()
    }

    fn search_from_start(&self, topic: TopicName<'_>, words: &[&[u8]], list: &mut Vec<Entry>) {
        if topic.is_dollar() {
            if let Some(node) = self.nodes.get(words[0]) {
                node.search(&words[1..], list);
            }
        } else {
            self.search(words, list);
        }
    }

    fn search(&self, words: &[&[u8]], list: &mut Vec<Entry>) {
        if let Some(all) = &self.hash {
            all.add_to(list);
        }
        if let Some(plus) = &self.plus {
            plus.search(&words[1..], list);
        }
        if let Some(node) = self.nodes.get(words[0]) {
            node.search(&words[1..], list);
        }
    }
}

impl Node {
    fn search(&self, words: &[&[u8]], list: &mut Vec<Entry>) {
        let next = self.next.as_deref();
        if !words.is_empty() {
            if let Some(next) = next {
                next.search(words, list);
            }
            return;
        }
        self.add_to(list);
        // `a/#` matches `a`; in NATS it would not.
        if let Some(all) = next.and_then(|next| next.hash.as_ref()) {
            all.add_to(list);
        }
    }

    fn add_to(&self, list: &mut Vec<Entry>) {
        if let Some(entries) = &self.list {
            list.extend_from_slice(entries);
        } else {
            let entries = self.subscribers.iter();
            list.extend(entries.map(|(&client, &qos)| Entry { client, qos }));
        }
    }

    fn insert(&mut self, client: u32, qos: u8) -> bool {
        let is_new = self.subscribers.insert(client, qos).is_none();
        match &mut self.list {
            Some(list) if is_new => list.push(Entry { client, qos }),
            Some(list) => {
                let entry = list.iter_mut().find(|entry| entry.client == client);
                if let Some(entry) = entry {
                    entry.qos = qos;
                }
            }
            None if self.subscribers.len() > LIST_MIN => {
                let entries = self.subscribers.iter();
                self.list = Some(
                    entries
                        .map(|(&client, &qos)| Entry { client, qos })
                        .collect(),
                );
            }
            None => {}
        }
        is_new
    }

    fn remove(&mut self, client: u32) -> bool {
        let is_removed = self.subscribers.remove(&client).is_some();
        if is_removed {
            self.list = None;
        }
        is_removed
    }

    fn is_empty(&self) -> bool {
        self.subscribers.is_empty() && self.next.as_ref().is_none_or(|next| next.is_empty())
    }
}
