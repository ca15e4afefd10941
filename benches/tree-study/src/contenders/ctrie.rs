//! The directory of Moquette from 0.11 on: every level is an indirection node (INode) with a content node (CNode) that
//! is swapped as a whole; a leaf that loses its last subscriber becomes a tomb (TNode), which is then unlinked from
//! its parent. Children and subscribers are sorted lists, copied with every change; inner nodes stay for ever.
//!
//! Kept from the original: the search by halves for `#`, `+` and the level, the two steps of a removal, and with them
//! that a subscription is lost when it comes back to a tomb between both. Kinder than the original: a search makes
//! no node to compare with, and a match no list a level; a parent is read once, not twice, before a tomb is
//! unlinked, which closes another window and is needed where no collector finds what two writers both unlink.

use std::sync::Arc;

use crossbeam_epoch::Guard;
use mqttcore_topics::{SubscriptionFilter, TopicName};

use super::levels::split_level;
use super::pointer::{Link, Slot, collect, pin, retired};
use super::subscribers::Entry;
use super::{Contender, Map, client};

struct INode(Slot<CNode>);

#[derive(Clone, Default)]
struct CNode {
    /// Shared by all contents that the INode has over time.
    token: Arc<[u8]>,
    is_tomb: bool,
    children: Vec<Link<INode>>,
    subscribers: Vec<Entry>,
}

/// See the [module](self).
pub struct CTrie(INode);

/// What the last match of a reader found; its room is used again.
#[derive(Default)]
pub struct Found(Vec<Entry>);

/// What came of one attempt.
enum Action {
    Done(bool),
    Repeat,
}

impl Contender for CTrie {
    const NAME: &'static str = "Moquette CTrie";
    type Reader = Found;

    fn new() -> Self {
        Self(INode::new(CNode::default()))
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let text = filter.filter().as_str().as_bytes();
        let entry = Entry { client, qos };
        loop {
            if let Action::Done(is_new) = self.0.insert(Some(text), entry, &pin()) {
                return is_new;
            }
        }
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let text = filter.filter().as_str().as_bytes();
        loop {
            if let Action::Done(is_removed) = self.0.remove(Some(text), client, None, &pin()) {
                return is_removed;
            }
        }
    }

    fn for_each_match(
        &self,
        Found(list): &mut Found,
        topic: TopicName<'_>,
        mut visit: impl FnMut(u32, u8),
    ) {
        let guard = pin();
        let text = topic.as_str().as_bytes();
        let root = self.0.0.load(&guard);
        list.clear();
        if topic.is_dollar() {
            let (word, rest) = split_level(text);
            root.search_child(word, rest, &guard, list);
        } else {
            root.search(Some(text), &guard, list);
        }
        drop(guard);
        for entry in list {
            visit(entry.client, entry.qos);
        }
    }

    fn load(filters: &[SubscriptionFilter]) -> Self {
        let mut root = Draft::default();
        for (number, filter) in filters.iter().enumerate() {
            let entry = Entry {
                client: client(number),
                qos: 1,
            };
            root.insert(Some(filter.filter().as_str().as_bytes()), entry);
        }
        Self(root.freeze(b""))
    }

    fn collect_garbage(&self) {
        collect();
    }
}

impl INode {
    fn new(content: CNode) -> Self {
        Self(Slot::new(content))
    }

    /// Swaps the content; gives the loser its copy back.
    fn swap(&self, current: &CNode, next: CNode, guard: &Guard) -> Result<(), CNode> {
        let bytes = current.bytes();
        self.0.replace(current, next, guard)?;
        retired(bytes);
        Ok(())
    }

    fn insert(&self, rest: Option<&[u8]>, entry: Entry, guard: &Guard) -> Action {
        let content = self.0.load(guard);
        let Some(text) = rest else {
            return self.insert_here(content, entry, guard);
        };
        let (word, rest) = split_level(text);
        let place = match content.place_of(word, guard) {
            Ok(place) => return content.child(place, guard).insert(rest, entry, guard),
            Err(place) => place,
        };
        let mut next = content.revived_copy();
        let place = place.min(next.children.len());
        next.children
            .insert(place, Link::new(Self::path(word, rest, entry)));
        match self.swap(content, next, guard) {
            Ok(()) => Action::Done(true),
            Err(lost) => {
                // SAFETY: the copy was not published, so only this thread knows its new branch.
                unsafe { free(lost.children[place]) };
                Action::Repeat
            }
        }
    }

    fn insert_here(&self, content: &CNode, entry: Entry, guard: &Guard) -> Action {
        let mut next = content.revived_copy();
        let place = next.place_of_client(entry.client);
        match place {
            Ok(place) => next.subscribers[place] = entry,
            Err(place) => next.subscribers.insert(place, entry),
        }
        match self.swap(content, next, guard) {
            Ok(()) => Action::Done(place.is_err()),
            Err(_) => Action::Repeat,
        }
    }

    /// A new branch down to one subscription.
    fn path(word: &[u8], rest: Option<&[u8]>, entry: Entry) -> Self {
        let mut content = CNode::new(word.into());
        match rest.map(split_level) {
            Some((next, rest)) => content
                .children
                .push(Link::new(Self::path(next, rest, entry))),
            None => content.subscribers.push(entry),
        }
        Self::new(content)
    }

    fn remove(
        &self,
        rest: Option<&[u8]>,
        client: u32,
        parent: Option<&Self>,
        guard: &Guard,
    ) -> Action {
        let content = self.0.load(guard);
        if let Some(text) = rest {
            let (word, rest) = split_level(text);
            return match content.place_of(word, guard) {
                Ok(place) => content
                    .child(place, guard)
                    .remove(rest, client, Some(self), guard),
                Err(_) => Action::Done(false),
            };
        }
        // The original searches from end to end; its list is sorted as well.
        let Ok(place) = content.place_of_client(client) else {
            return Action::Done(false);
        };
        let is_last = content.subscribers.len() == 1 && content.children.is_empty();
        let (next, tomb_of) = match parent {
            Some(parent) if is_last => (content.tomb(), Some(parent)),
            _ => (content.copy_without(place), None),
        };
        if self.swap(content, next, guard).is_err() {
            return Action::Repeat;
        }
        if let Some(parent) = tomb_of {
            while !Self::clean_tomb(&content.token, parent, guard) {}
        }
        Action::Done(true)
    }

    /// Unlinks the child of this token, tomb or not any more: the window in which a subscription is lost.
    fn clean_tomb(token: &[u8], parent: &Self, guard: &Guard) -> bool {
        let content = parent.0.load(guard);
        let Ok(place) = content.place_of(token, guard) else {
            return true;
        };
        let mut next = content.clone();
        let unlinked = next.children.remove(place);
        let is_done = parent.swap(content, next, guard).is_ok();
        if is_done {
            // SAFETY: taken out of the only list that held it, by the one swap that did so.
            unsafe { unlinked.retire(guard) };
        }
        is_done
    }
}

impl CNode {
    fn bytes(&self) -> usize {
        size_of_val(&*self.children) + size_of_val(&*self.subscribers)
    }

    fn new(token: Arc<[u8]>) -> Self {
        Self {
            token,
            ..Self::default()
        }
    }

    fn tomb(&self) -> Self {
        Self {
            is_tomb: true,
            ..Self::new(Arc::clone(&self.token))
        }
    }

    fn copy_without(&self, place: usize) -> Self {
        let mut copy = self.clone();
        copy.subscribers.remove(place);
        copy
    }

    fn place_of_client(&self, client: u32) -> Result<usize, usize> {
        self.subscribers
            .binary_search_by_key(&client, |entry| entry.client)
    }

    /// A writer that meets a tomb begins with an empty node.
    fn revived_copy(&self) -> Self {
        if self.is_tomb {
            return Self::new(Arc::clone(&self.token));
        }
        let mut copy = Self {
            token: Arc::clone(&self.token),
            is_tomb: false,
            children: Vec::with_capacity(self.children.len() + 1),
            subscribers: Vec::with_capacity(self.subscribers.len() + 1),
        };
        copy.children.extend_from_slice(&self.children);
        copy.subscribers.extend_from_slice(&self.subscribers);
        copy
    }

    fn child<'g>(&self, place: usize, guard: &'g Guard) -> &'g INode {
        // SAFETY: found in a node that was loaded under this guard.
        unsafe { self.children[place].read(guard) }
    }

    fn place_of(&self, word: &[u8], guard: &Guard) -> Result<usize, usize> {
        self.children.binary_search_by(|child| {
            // SAFETY: found in a node that was loaded under this guard.
            let child = unsafe { child.read(guard) };
            child.0.load(guard).token.as_ref().cmp(word)
        })
    }

    fn search(&self, rest: Option<&[u8]>, guard: &Guard, list: &mut Vec<Entry>) {
        if let Ok(place) = self.place_of(b"#", guard) {
            self.child(place, guard).0.load(guard).add_to(list);
        }
        let Some(text) = rest else {
            return self.add_to(list);
        };
        let (word, rest) = split_level(text);
        self.search_child(b"+", rest, guard, list);
        self.search_child(word, rest, guard, list);
    }

    fn search_child(&self, word: &[u8], rest: Option<&[u8]>, guard: &Guard, list: &mut Vec<Entry>) {
        if let Ok(place) = self.place_of(word, guard) {
            self.child(place, guard)
                .0
                .load(guard)
                .search(rest, guard, list);
        }
    }

    fn add_to(&self, list: &mut Vec<Entry>) {
        list.extend_from_slice(&self.subscribers);
    }
}

impl Drop for CTrie {
    fn drop(&mut self) {
        let children = self.0.0.load(&pin()).children.clone();
        // SAFETY: exclusive access; every child is in one list.
        children
            .into_iter()
            .for_each(|child| unsafe { free(child) });
    }
}

/// Frees a branch.
///
/// # Safety
///
/// Nobody else uses or frees anything in it, now or later.
unsafe fn free(branch: Link<INode>) {
    let guard = pin();
    let mut doomed = vec![branch];
    while let Some(next) = doomed.pop() {
        // SAFETY: the caller's contract; every node is in one list, and each list is walked once.
        let node = unsafe { next.take() };
        doomed.extend_from_slice(&node.0.load(&guard).children);
    }
}

/// A tree under construction, so that a wide level is not copied once a filter.
#[derive(Default)]
struct Draft<'f> {
    children: Map<&'f [u8], Draft<'f>>,
    subscribers: Vec<Entry>,
}

impl<'f> Draft<'f> {
    fn insert(&mut self, rest: Option<&'f [u8]>, entry: Entry) {
        match rest.map(split_level) {
            Some((word, rest)) => self.children.entry(word).or_default().insert(rest, entry),
            None => self.subscribers.push(entry),
        }
    }

    fn freeze(self, token: &[u8]) -> INode {
        let mut drafts: Vec<_> = self.children.into_iter().collect();
        drafts.sort_unstable_by_key(|(word, _)| *word);
        // Not collected: that would take over the larger list with all its room.
        let mut children = Vec::with_capacity(drafts.len());
        children.extend(
            drafts
                .into_iter()
                .map(|(word, draft)| Link::new(draft.freeze(word))),
        );
        let content = CNode {
            token: token.into(),
            is_tomb: false,
            children,
            subscribers: self.subscribers.into_boxed_slice().into_vec(),
        };
        INode::new(content)
    }
}
