//! What one builds from crates: a trie whose nodes hold persistent maps of children (a HAMT with counted
//! references), one root that a writer replaces by compare-and-set, and readers that walk what they found.

use std::sync::Arc;

use imbl::GenericHashMap;
use imbl::shared_ptr::DefaultSharedPtr;
use mqttcore_topics::{SubscriptionFilter, TopicName};
use rpds::HashTrieMapSync;

use super::levels::split_level;
use super::pointer::{Slot, collect, pin};
use super::subscribers::Entry;
use super::{Contender, client};

type State = foldhash::fast::RandomState;
type ImblMap<K, V> = GenericHashMap<K, V, State, DefaultSharedPtr>;
type RpdsMap<K, V> = HashTrieMapSync<K, V, State>;

/// Up to here the subscribers of a filter are one array, copied with every change.
const FEW: usize = 32;

/// A persistent map of a crate.
pub trait Persistent<K, V>: Clone + Default + Send + Sync + 'static {
    /// Finds a value.
    fn find<Q>(&self, key: &Q) -> Option<&V>
    where
        Q: ?Sized + std::hash::Hash + Eq,
        K: std::borrow::Borrow<Q>;

    /// Finds a value to change, in a copy of what other maps share.
    fn find_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
    where
        Q: ?Sized + std::hash::Hash + Eq,
        K: std::borrow::Borrow<Q>;

    /// Adds or replaces.
    fn put(&mut self, key: K, value: V);

    /// Removes; answers whether the key was there.
    fn delete<Q>(&mut self, key: &Q) -> bool
    where
        Q: ?Sized + std::hash::Hash + Eq,
        K: std::borrow::Borrow<Q>;

    /// How many keys there are.
    fn count(&self) -> usize;

    /// Visits all pairs.
    fn each(&self, visit: impl FnMut(&K, &V));
}

/// Which crate the maps are from.
pub trait Library: Send + Sync + Sized + 'static {
    /// What tables call it.
    const NAME: &'static str;
    /// Children by word.
    type Children: Persistent<Arc<[u8]>, Arc<Node<Self>>>;
    /// QoS by client.
    type Clients: Persistent<u32, u8>;
}

/// The crate `imbl`.
pub struct Imbl;

/// The crate `rpds`.
pub struct Rpds;

impl Library for Imbl {
    const NAME: &'static str = "imbl HAMT";
    type Children = ImblMap<Arc<[u8]>, Arc<Node<Self>>>;
    type Clients = ImblMap<u32, u8>;
}

impl Library for Rpds {
    const NAME: &'static str = "rpds HAMT";
    type Children = RpdsMap<Arc<[u8]>, Arc<Node<Self>>>;
    type Clients = RpdsMap<u32, u8>;
}

/// One level of a version.
pub struct Node<L: Library> {
    children: L::Children,
    plus: Option<Arc<Self>>,
    hash: Set<L>,
    here: Set<L>,
}

/// The subscribers of one filter in a version.
enum Set<L: Library> {
    Empty,
    One(Entry),
    Few(Arc<[Entry]>),
    Many(Arc<L::Clients>),
}

/// See the [module](self).
pub struct Hamt<L: Library>(Slot<Arc<Node<L>>>);

impl<L: Library> Contender for Hamt<L> {
    const NAME: &'static str = L::NAME;
    type Reader = ();

    fn new() -> Self {
        Self(Slot::new(Arc::default()))
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let text = filter.filter().as_str().as_bytes();
        self.commit(|root| Node::insert(root, Some(text), Entry { client, qos }))
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let text = filter.filter().as_str().as_bytes();
        self.commit(|root| Node::remove(root, Some(text), client))
    }

    fn for_each_match(&self, (): &mut (), topic: TopicName<'_>, mut visit: impl FnMut(u32, u8)) {
        let guard = pin();
        let root = self.0.load(&guard);
        let text = topic.as_str().as_bytes();
        if topic.is_dollar() {
            let (word, rest) = split_level(text);
            if let Some(child) = root.children.find(word) {
                child.search(rest, &mut visit);
            }
        } else {
            root.search(Some(text), &mut visit);
        }
    }

    fn load(filters: &[SubscriptionFilter]) -> Self {
        // A root that nobody shares is changed in place by the same operations.
        let mut root = Arc::default();
        for (number, filter) in filters.iter().enumerate() {
            let entry = Entry {
                client: client(number),
                qos: 1,
            };
            Node::<L>::insert(&mut root, Some(filter.filter().as_str().as_bytes()), entry);
        }
        Self(Slot::new(root))
    }

    fn collect_garbage(&self) {
        collect();
    }
}

impl<L: Library> Hamt<L> {
    fn commit(&self, change: impl Fn(&mut Arc<Node<L>>) -> bool) -> bool {
        loop {
            let guard = pin();
            let current = self.0.load(&guard);
            let mut next = Arc::clone(current);
            let is_changed = change(&mut next);
            if Arc::ptr_eq(current, &next) || self.0.replace(current, next, &guard).is_ok() {
                return is_changed;
            }
        }
    }
}

impl<L: Library> Node<L> {
    /// Adds in a copy of what other versions share; answers whether the client is new there.
    fn insert(node: &mut Arc<Self>, rest: Option<&[u8]>, entry: Entry) -> bool {
        let node = Arc::make_mut(node);
        let Some(text) = rest else {
            return node.here.insert(entry);
        };
        match split_level(text) {
            (b"#", _) => node.hash.insert(entry),
            (b"+", rest) => Self::insert(node.plus.get_or_insert_default(), rest, entry),
            (word, rest) => {
                if let Some(child) = node.children.find_mut(word) {
                    return Self::insert(child, rest, entry);
                }
                let mut child = Arc::default();
                let is_new = Self::insert(&mut child, rest, entry);
                node.children.put(word.into(), child);
                is_new
            }
        }
    }

    /// Removes in a copy of what other versions share, and the nodes that this leaves without content.
    fn remove(node: &mut Arc<Self>, rest: Option<&[u8]>, client: u32) -> bool {
        let node = Arc::make_mut(node);
        let Some(text) = rest else {
            return node.here.remove(client);
        };
        let (word, rest) = split_level(text);
        let child = match word {
            b"#" => return node.hash.remove(client),
            b"+" => node.plus.as_mut(),
            _ => node.children.find_mut(word),
        };
        let Some(child) = child else {
            return false;
        };
        let is_removed = Self::remove(child, rest, client);
        if child.is_empty() {
            match word {
                b"+" => node.plus = None,
                _ => drop(node.children.delete(word)),
            }
        }
        is_removed
    }

    fn is_empty(&self) -> bool {
        let is_leaf = self.plus.is_none() && self.children.count() == 0;
        is_leaf && matches!((&self.hash, &self.here), (Set::Empty, Set::Empty))
    }

    fn search(&self, rest: Option<&[u8]>, visit: &mut impl FnMut(u32, u8)) {
        self.hash.visit(visit);
        let Some(text) = rest else {
            return self.here.visit(visit);
        };
        let (word, rest) = split_level(text);
        if let Some(plus) = &self.plus {
            plus.search(rest, visit);
        }
        if let Some(child) = self.children.find(word) {
            child.search(rest, visit);
        }
    }
}

impl<L: Library> Set<L> {
    fn insert(&mut self, entry: Entry) -> bool {
        let mut entries: Vec<Entry>;
        match self {
            Self::Many(clients) => {
                let clients = Arc::make_mut(clients);
                let is_new = clients.find(&entry.client).is_none();
                clients.put(entry.client, entry.qos);
                return is_new;
            }
            Self::Empty => entries = Vec::new(),
            Self::One(one) => entries = vec![*one],
            Self::Few(few) => entries = few.to_vec(),
        }
        let place = entries.binary_search_by_key(&entry.client, |other| other.client);
        match place {
            Ok(place) => entries[place] = entry,
            Err(place) => entries.insert(place, entry),
        }
        *self = Self::of(entries);
        place.is_err()
    }

    fn remove(&mut self, client: u32) -> bool {
        let mut entries = match self {
            Self::Empty => return false,
            Self::One(one) => vec![*one],
            Self::Few(few) => few.to_vec(),
            Self::Many(clients) => {
                let clients = Arc::make_mut(clients);
                let is_removed = clients.delete(&client);
                if clients.count() <= FEW / 2 {
                    let mut entries = Vec::new();
                    clients.each(|&client, &qos| entries.push(Entry { client, qos }));
                    entries.sort_unstable_by_key(|entry| entry.client);
                    *self = Self::of(entries);
                }
                return is_removed;
            }
        };
        let place = entries.binary_search_by_key(&client, |entry| entry.client);
        if let Ok(place) = place {
            entries.remove(place);
            *self = Self::of(entries);
        }
        place.is_ok()
    }

    fn of(entries: Vec<Entry>) -> Self {
        match entries.as_slice() {
            [] => Self::Empty,
            [one] => Self::One(*one),
            few if few.len() <= FEW => Self::Few(entries.into()),
            many => {
                let mut clients = L::Clients::default();
                for entry in many {
                    clients.put(entry.client, entry.qos);
                }
                Self::Many(Arc::new(clients))
            }
        }
    }

    fn visit(&self, visit: &mut impl FnMut(u32, u8)) {
        match self {
            Self::Empty => {}
            Self::One(one) => visit(one.client, one.qos),
            Self::Few(few) => few.iter().for_each(|entry| visit(entry.client, entry.qos)),
            Self::Many(clients) => clients.each(|&client, &qos| visit(client, qos)),
        }
    }
}

impl<L: Library> Default for Node<L> {
    fn default() -> Self {
        Self {
            children: L::Children::default(),
            plus: None,
            hash: Set::Empty,
            here: Set::Empty,
        }
    }
}

impl<L: Library> Clone for Node<L> {
    fn clone(&self) -> Self {
        Self {
            children: self.children.clone(),
            plus: self.plus.clone(),
            hash: self.hash.clone(),
            here: self.here.clone(),
        }
    }
}

impl<L: Library> Clone for Set<L> {
    fn clone(&self) -> Self {
        match self {
            Self::Empty => Self::Empty,
            Self::One(one) => Self::One(*one),
            Self::Few(few) => Self::Few(Arc::clone(few)),
            Self::Many(clients) => Self::Many(Arc::clone(clients)),
        }
    }
}

/// The same methods under the names that both crates give them.
macro_rules! persistent {
    ($map:ident, $insert:ident, $len:ident, |$self:ident, $key:ident| $remove:expr) => {
        impl<K, V> Persistent<K, V> for $map<K, V>
        where
            K: Clone + Eq + std::hash::Hash + Send + Sync + 'static,
            V: Clone + Send + Sync + 'static,
        {
            fn find<Q>(&self, key: &Q) -> Option<&V>
            where
                Q: ?Sized + std::hash::Hash + Eq,
                K: std::borrow::Borrow<Q>,
            {
                self.get(key)
            }

            fn find_mut<Q>(&mut self, key: &Q) -> Option<&mut V>
            where
                Q: ?Sized + std::hash::Hash + Eq,
                K: std::borrow::Borrow<Q>,
            {
                self.get_mut(key)
            }

            fn put(&mut self, key: K, value: V) {
                self.$insert(key, value);
            }

            fn delete<Q>(&mut $self, $key: &Q) -> bool
            where
                Q: ?Sized + std::hash::Hash + Eq,
                K: std::borrow::Borrow<Q>,
            {
                $remove
            }

            fn count(&self) -> usize {
                self.$len()
            }

            fn each(&self, mut visit: impl FnMut(&K, &V)) {
                self.iter().for_each(|(key, value)| visit(key, value));
            }
        }
    };
}

persistent!(ImblMap, insert, len, |self, key| self.remove(key).is_some());
persistent!(RpdsMap, insert_mut, size, |self, key| self.remove_mut(key));
