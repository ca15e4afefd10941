//! The trie of Mosquitto: a node a level, each with a hash of its children, wildcards among them like any other word.
//!
//! Mosquitto is one thread; here a lock stands around the tree, as brokers with threads do it. Nodes lie in the
//! table of their parent, which saves a step where Mosquitto follows a chain, and weighs less than its tables of 32
//! buckets a node.

use std::sync::{PoisonError, RwLock};

use mqttcore_topics::{SubscriptionFilter, TopicName};

use super::levels::{levels, split_level};
use super::subscribers::Subscribers;
use super::{Contender, Map, get_or_default};

#[derive(Default)]
struct Node {
    children: Map<Box<[u8]>, Node>,
    subscribers: Subscribers,
}

/// See the [module](self).
pub struct RwLockTrie(RwLock<Node>);

impl Contender for RwLockTrie {
    const NAME: &'static str = "RwLock trie";
    type Reader = ();

    fn new() -> Self {
        Self(RwLock::default())
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let mut root = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let mut node: &mut Node = &mut root;
        for level in levels(filter.filter().as_str()) {
            node = get_or_default(&mut node.children, level);
        }
        node.subscribers.insert(client, qos)
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let mut root = self.0.write().unwrap_or_else(PoisonError::into_inner);
        root.remove(Some(filter.filter().as_str().as_bytes()), client)
    }

    fn for_each_match(&self, (): &mut (), topic: TopicName<'_>, mut visit: impl FnMut(u32, u8)) {
        let root = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let text = topic.as_str().as_bytes();
        if topic.is_dollar() {
            let (level, rest) = split_level(text);
            if let Some(child) = root.children.get(level) {
                child.search(rest, &mut visit);
            }
        } else {
            root.search(Some(text), &mut visit);
        }
    }
}

impl Node {
    fn search(&self, rest: Option<&[u8]>, visit: &mut impl FnMut(u32, u8)) {
        if let Some(all) = self.children.get(&b"#"[..]) {
            all.visit(visit);
        }
        let Some(text) = rest else {
            return self.visit(visit);
        };
        let (level, rest) = split_level(text);
        for word in [level, b"+"] {
            if let Some(child) = self.children.get(word) {
                child.search(rest, visit);
            }
        }
    }

    fn visit(&self, visit: &mut impl FnMut(u32, u8)) {
        for entry in self.subscribers.list() {
            visit(entry.client, entry.qos);
        }
    }

    /// Removes the subscription below, and the nodes that this leaves without content.
    fn remove(&mut self, rest: Option<&[u8]>, client: u32) -> bool {
        let Some(text) = rest else {
            return self.subscribers.remove(client);
        };
        let (level, rest) = split_level(text);
        let Some(child) = self.children.get_mut(level) else {
            return false;
        };
        let is_removed = child.remove(rest, client);
        if child.subscribers.is_empty() && child.children.is_empty() {
            self.children.remove(level);
        }
        is_removed
    }
}
