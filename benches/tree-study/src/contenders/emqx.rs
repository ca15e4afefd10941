//! The topic index of EMQX 5 (`emqx_trie_search`): all filters are keys of one ordered set. Those with wildcards are compared
//! word by word, `#` and `+` before all other words; those without come behind them, as whole texts. A match takes
//! the next key at or behind a position, compares it with the topic, and learns from the comparison where the next
//! match can be at the earliest, so that it skips what lies between; at last it looks the topic itself up.
//!
//! A key is one text whose bytes compare as the words do: words are separated by 0, `#` is 1, `+` is 2, and a word
//! that is empty or begins with a byte below 4 gets a 3 in front. Kinder than the original: a B-tree and no
//! copies of keys, where ETS has an AVL tree and copies each key it steps on.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound::{self, Excluded, Included, Unbounded};
use std::sync::{PoisonError, RwLock};

use mqttcore_topics::{SubscriptionFilter, TopicName};

use super::Contender;
use super::levels::levels;
use super::subscribers::Subscribers;

const SEPARATOR: u8 = 0;
const HASH: u8 = 1;
const PLUS: u8 = 2;
const ESCAPE: u8 = 3;

/// In front of filters without wildcards: no text begins with it.
const EXACT: u8 = 0xFF;

type Keys = BTreeMap<Box<[u8]>, Subscribers>;

/// See the [module](self).
pub struct Emqx(RwLock<Keys>);

/// The buffers of one match.
#[derive(Default)]
pub struct Scratch {
    topic: Vec<u8>,
    /// Where each word of the topic begins, and behind the last, one past its end.
    words: Vec<usize>,
    seek: Vec<u8>,
}

impl Contender for Emqx {
    const NAME: &'static str = "EMQX";
    type Reader = Scratch;

    fn new() -> Self {
        Self(RwLock::default())
    }

    fn subscribe(&self, filter: &SubscriptionFilter, client: u32, qos: u8) -> bool {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        keys.entry(key(filter)).or_default().insert(client, qos)
    }

    fn unsubscribe(&self, filter: &SubscriptionFilter, client: u32) -> bool {
        let mut keys = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let Entry::Occupied(mut entry) = keys.entry(key(filter)) else {
            return false;
        };
        let is_removed = entry.get_mut().remove(client);
        if entry.get().is_empty() {
            entry.remove();
        }
        is_removed
    }

    fn for_each_match(
        &self,
        scratch: &mut Scratch,
        topic: TopicName<'_>,
        mut visit: impl FnMut(u32, u8),
    ) {
        let keys = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut visit_all = |subscribers: &Subscribers| {
            for entry in subscribers.list() {
                visit(entry.client, entry.qos);
            }
        };
        scratch.prepare(topic);
        scratch.search(&keys, &mut visit_all);
        scratch.seek.clear();
        scratch.seek.push(EXACT);
        scratch.seek.extend_from_slice(topic.as_str().as_bytes());
        if let Some(subscribers) = keys.get(&*scratch.seek) {
            visit_all(subscribers);
        }
    }
}

/// What a comparison of a filter with the topic says about where to go on.
enum Next {
    /// The filter matches; the next key may as well.
    Match,
    /// The filter is a prefix of the topic; the next key may match.
    Prefix,
    /// No key from here on matches.
    End,
    /// No key matches before the first `kept` bytes of this one, followed by this word of the topic.
    Seek { kept: usize, word: usize },
}

impl Scratch {
    fn prepare(&mut self, topic: TopicName<'_>) {
        self.topic.clear();
        self.words.clear();
        for word in levels(topic.as_str()) {
            self.words.push(self.topic.len());
            push_literal(&mut self.topic, word);
            self.topic.push(SEPARATOR);
        }
        self.words.push(self.topic.len());
    }

    /// The word as keys have it, without the separator behind it.
    fn word(&self, number: usize) -> &[u8] {
        &self.topic[self.words[number]..self.words[number + 1] - 1]
    }

    fn search(&mut self, keys: &Keys, visit: &mut impl FnMut(&Subscribers)) {
        self.seek.clear();
        if self.topic.first() == Some(&b'$') {
            // Wildcards come before all words, so this begins behind those that must not match.
            self.seek
                .extend_from_slice(&self.topic[..self.words[1] - 1]);
        }
        let mut entry = after(keys, Included(&self.seek));
        while let Some((key, subscribers)) = entry {
            entry = match self.compare(key) {
                Next::End => return,
                Next::Match => {
                    visit(subscribers);
                    after(keys, Excluded(key))
                }
                Next::Prefix => after(keys, Excluded(key)),
                Next::Seek { kept, word } => {
                    self.seek.clear();
                    self.seek.extend_from_slice(&key[..kept]);
                    let word = self.words[word]..self.words[word + 1] - 1;
                    self.seek.extend_from_slice(&self.topic[word]);
                    after(keys, Included(&self.seek))
                }
            };
        }
    }

    /// Walks both word by word. Behind a `+`, a filter that is too high can still be followed by one that has the
    /// topic's word in its place.
    fn compare(&self, key: &[u8]) -> Next {
        if key.first() == Some(&EXACT) {
            return Next::End;
        }
        let mut last_plus = Next::End;
        let mut start = 0;
        for number in 0..self.words.len() - 1 {
            let Some(rest) = key.get(start..) else {
                return Next::Prefix;
            };
            let len = rest
                .iter()
                .position(|&byte| byte == SEPARATOR)
                .unwrap_or(rest.len());
            let (theirs, ours) = (&rest[..len], self.word(number));
            match theirs {
                [HASH] => return Next::Match,
                [PLUS] => {
                    last_plus = Next::Seek {
                        kept: start,
                        word: number,
                    };
                }
                _ if theirs == ours => {}
                _ if theirs > ours => return last_plus,
                _ => {
                    return Next::Seek {
                        kept: start,
                        word: number,
                    };
                }
            }
            start += len + 1;
        }
        match key.get(start..) {
            None | Some([HASH]) => Next::Match,
            Some(_) => last_plus,
        }
    }
}

fn after<'k>(keys: &'k Keys, start: Bound<&[u8]>) -> Option<(&'k [u8], &'k Subscribers)> {
    let mut range = keys.range::<[u8], _>((start, Unbounded));
    range.next().map(|(key, subscribers)| (&**key, subscribers))
}

/// The filter as its place in the order.
fn key(filter: &SubscriptionFilter) -> Box<[u8]> {
    let filter = filter.filter();
    let mut key = Vec::with_capacity(filter.as_str().len() + 2);
    if !filter.has_wildcard() {
        key.push(EXACT);
        key.extend_from_slice(filter.as_str().as_bytes());
        return key.into();
    }
    for (number, word) in levels(filter.as_str()).enumerate() {
        if number > 0 {
            key.push(SEPARATOR);
        }
        match word {
            b"#" => key.push(HASH),
            b"+" => key.push(PLUS),
            _ => push_literal(&mut key, word),
        }
    }
    key.into()
}

fn push_literal(key: &mut Vec<u8>, word: &[u8]) {
    if word.first().is_none_or(|&byte| byte <= ESCAPE) {
        key.push(ESCAPE);
    }
    key.extend_from_slice(word);
}
