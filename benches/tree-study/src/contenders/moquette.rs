//! The directory of Moquette 0.10: one tree of nodes with lists of children. A writer copies the nodes on the path of
//! its filter, list and all, counts the subscriptions of the whole new tree again, and swaps the root; the loser of a
//! race starts again. Nothing is pruned.
//!
//! Kept from the original: children are searched from end to end, by writers and by matches; a copied child goes
//! to the end of its list; the count walks the whole tree. Kinder than the original: no token queue is copied a
//! level, and the places where its matches differ from the standard are put right.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crossbeam_epoch::Guard;
use mqttcore_topics::{SubscriptionFilter, TopicName};

use super::levels::{levels, split_level};
use super::pointer::{Link, Slot, collect, pin, retired};
use super::{Contender, Map, client};

#[derive(Default)]
struct Node {
    token: Box<[u8]>,
    children: Vec<Link<Node>>,
    subscribers: Map<u32, u8>,
    /// Subscriptions here and below, as of the last count.
    count: AtomicUsize,
}

/// See the [module](self).
pub struct Moquette(Slot<Link<Node>>);

/// A new tree that shares all but one path with the current one.
struct Draft {
    root: Link<Node>,
    /// The new nodes, from the root to the node of the filter.
    fresh: Vec<Link<Node>>,
    /// The nodes that they replace.
    replaced: Vec<Link<Node>>,
}

impl Contender for Moquette {
    const NAME: &'static str = "Moquette 0.10";
    type Reader = ();

    fn new() -> Self {
        Self(Slot::new(Link::new(Node::default())))
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let path = filter.filter().as_str();
        self.commit(path, |subscribers| {
            subscribers.insert(client, qos).is_none()
        })
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let path = filter.filter().as_str();
        self.commit(path, |subscribers| subscribers.remove(&client).is_some())
    }

    fn for_each_match(&self, (): &mut (), topic: TopicName<'_>, mut visit: impl FnMut(u32, u8)) {
        let guard = pin();
        let root = read(*self.0.load(&guard), &guard);
        let text = topic.as_str().as_bytes();
        root.search(Some(text), !topic.is_dollar(), &guard, &mut visit);
    }

    fn load(filters: &[SubscriptionFilter]) -> Self {
        let mut root = Loading::default();
        for (number, filter) in filters.iter().enumerate() {
            root.insert(Some(filter.filter().as_str().as_bytes()), client(number));
        }
        let guard = pin();
        let root = root.freeze(b"");
        read(root, &guard).recount(&guard);
        Self(Slot::new(root))
    }

    fn collect_garbage(&self) {
        collect();
    }
}

/// Reads a link of the tree that was loaded under this guard.
fn read(link: Link<Node>, guard: &Guard) -> &Node {
    // SAFETY: every caller found the link in a tree that it loaded, or made, under this guard.
    unsafe { link.read(guard) }
}

impl Moquette {
    /// Copies the path, changes the subscribers at its end, counts, and swaps the root, until nobody was quicker.
    fn commit(&self, path: &str, change: impl Fn(&mut Map<u32, u8>) -> bool) -> bool {
        loop {
            let guard = pin();
            let current = self.0.load(&guard);
            let (draft, is_changed) = Draft::new(*current, path, &change, &guard);
            read(draft.root, &guard).recount(&guard);
            let bytes = draft
                .replaced
                .iter()
                .map(|node| read(*node, &guard).bytes())
                .sum();
            if self.0.replace(current, draft.root, &guard).is_ok() {
                // SAFETY: the new tree, which everybody finds from now on, has other nodes in their places.
                draft
                    .replaced
                    .iter()
                    .for_each(|node| unsafe { node.retire(&guard) });
                drop(guard);
                retired(bytes);
                return is_changed;
            }
            // SAFETY: never published, so only this thread knows the fresh nodes.
            draft
                .fresh
                .iter()
                .for_each(|node| drop(unsafe { node.take() }));
        }
    }
}

impl Draft {
    fn new(
        root: Link<Node>,
        path: &str,
        change: impl Fn(&mut Map<u32, u8>) -> bool,
        guard: &Guard,
    ) -> (Self, bool) {
        let (mut nodes, mut replaced) = (vec![read(root, guard).copy()], vec![root]);
        for word in levels(path) {
            let parent = nodes.last_mut();
            let found = parent.and_then(|parent| parent.take_child(word, guard));
            nodes.push(found.map_or_else(|| Node::new(word), |child| read(child, guard).copy()));
            replaced.extend(found);
        }
        let is_changed = nodes
            .last_mut()
            .is_some_and(|end| change(&mut end.subscribers));
        let mut fresh = Vec::with_capacity(nodes.len());
        let mut below: Option<Link<Node>> = None;
        for mut node in nodes.into_iter().rev() {
            node.children.extend(below);
            let link = Link::new(node);
            below = Some(link);
            fresh.push(link);
        }
        let draft = Self {
            root: below.unwrap_or(root),
            fresh,
            replaced,
        };
        (draft, is_changed)
    }
}

impl Node {
    fn new(token: &[u8]) -> Self {
        Self {
            token: token.into(),
            ..Self::default()
        }
    }

    /// A copy with room for one more child.
    fn copy(&self) -> Self {
        let mut children = Vec::with_capacity(self.children.len() + 1);
        children.extend_from_slice(&self.children);
        Self {
            token: self.token.clone(),
            children,
            subscribers: self.subscribers.clone(),
            count: AtomicUsize::new(0),
        }
    }

    fn bytes(&self) -> usize {
        size_of_val(&*self.children) + self.subscribers.allocation_size()
    }

    /// Takes the child of this token out of the list.
    fn take_child(&mut self, word: &[u8], guard: &Guard) -> Option<Link<Self>> {
        let place = self
            .children
            .iter()
            .position(|child| &*read(*child, guard).token == word)?;
        Some(self.children.remove(place))
    }

    /// Counts the subscriptions here and below, node by node.
    fn recount(&self, guard: &Guard) -> usize {
        let below = self
            .children
            .iter()
            .map(|child| read(*child, guard).recount(guard));
        let count = self.subscribers.len() + below.sum::<usize>();
        // ORDERING: Relaxed: a count that orders nothing.
        self.count.store(count, Relaxed);
        count
    }

    /// Whatever matches `rest` below this node. `is_wild` says whether wildcards may match its first level.
    fn search(
        &self,
        rest: Option<&[u8]>,
        is_wild: bool,
        guard: &Guard,
        visit: &mut impl FnMut(u32, u8),
    ) {
        let split = rest.map(split_level);
        if rest.is_none() {
            self.visit(visit);
        }
        for child in &self.children {
            let child = read(*child, guard);
            match (&*child.token, split) {
                (b"#", _) if is_wild => child.visit(visit),
                (b"+", Some((_, rest))) if is_wild => child.search(rest, true, guard, visit),
                (token, Some((word, rest))) if token == word => {
                    child.search(rest, true, guard, visit);
                }
                _ => {}
            }
        }
    }

    fn visit(&self, visit: &mut impl FnMut(u32, u8)) {
        self.subscribers
            .iter()
            .for_each(|(&client, &qos)| visit(client, qos));
    }
}

impl Drop for Moquette {
    fn drop(&mut self) {
        let guard = pin();
        let mut doomed = vec![*self.0.load(&guard)];
        while let Some(node) = doomed.pop() {
            // SAFETY: exclusive access; every node is in one list, and each list is walked once.
            let node = unsafe { node.take() };
            doomed.extend_from_slice(&node.children);
        }
    }
}

/// A tree under construction, so that a wide level is not copied once a filter.
#[derive(Default)]
struct Loading<'f> {
    children: Map<&'f [u8], Loading<'f>>,
    subscribers: Map<u32, u8>,
}

impl<'f> Loading<'f> {
    fn insert(&mut self, rest: Option<&'f [u8]>, client: u32) {
        match rest.map(split_level) {
            Some((word, rest)) => self.children.entry(word).or_default().insert(rest, client),
            None => drop(self.subscribers.insert(client, 1)),
        }
    }

    fn freeze(self, token: &[u8]) -> Link<Node> {
        let children = self
            .children
            .into_iter()
            .map(|(word, child)| child.freeze(word));
        Link::new(Node {
            children: children.collect(),
            subscribers: self.subscribers,
            ..Node::new(token)
        })
    }
}
