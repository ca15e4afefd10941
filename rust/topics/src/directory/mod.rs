//! The subscription directory: the only public door to who subscribed to what.

mod change;

use std::cell::Cell;
use std::marker::PhantomData;
use std::num::NonZeroU32;

use crate::sync::{Mutex, MutexGuard};
use crate::{Match, Options, Strategy, SubscriberId, SubscriptionFilter, TopicName, Visitor};

pub use change::{Change, DirectoryStats, Outcome};

/// Who subscribed to what. Shared by reference; readers and writers may be on any thread.
pub struct Directory {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    handles: Vec<(u64, bool)>,
    subscriptions: Vec<(SubscriberId, SubscriptionFilter, Options)>,
    turn: u64,
    version: u64,
}

impl Directory {
    /// Makes an empty directory. `seed` keys its hashes and must not be known to publishers.
    pub fn new(seed: u64, strategy: Strategy) -> Self {
        let _ = (seed, strategy);
        Self {
            state: Mutex::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Gives a subscriber an id. `handle` is the caller's, and comes back with every match.
    pub fn join(&self, handle: u64) -> SubscriberId {
        let mut state = self.lock();
        state.handles.push((handle, true));
        SubscriberId(u32::try_from(state.handles.len() - 1).unwrap_or(u32::MAX))
    }

    /// Tombstones a subscriber in O(1): no match that starts afterwards delivers to it.
    ///
    /// Its subscriptions are removed by [`clean`](Self::clean); its id must not be used any more.
    pub fn leave(&self, id: SubscriberId) {
        if let Some(slot) = self.lock().handles.get_mut(id.0 as usize) {
            slot.1 = false;
        }
    }

    /// Removes up to `limit` subscriptions of subscribers that left; returns how many are left to do.
    pub fn clean(&self, limit: usize) -> usize {
        let mut state = self.lock();
        let mut dead = 0;
        let State {
            handles,
            subscriptions,
            ..
        } = &mut *state;
        subscriptions.retain(|(id, _, _)| {
            let is_alive = handles[id.0 as usize].1;
            dead += usize::from(!is_alive);
            is_alive || dead > limit
        });
        dead.saturating_sub(limit)
    }

    /// Applies a batch at once: every match sees all of it or nothing. One outcome a change.
    ///
    /// Changes of a subscriber that left do nothing.
    pub fn commit(&self, id: SubscriberId, changes: &[Change<'_>]) -> Vec<Outcome> {
        let mut state = self.lock();
        state.version += 1;
        changes
            .iter()
            .map(|change| state.apply(id, *change))
            .collect()
    }

    /// Pins the current version. For short use: it holds back the reclamation of what writers replace.
    pub fn snapshot(&self) -> Snapshot<'_> {
        Snapshot {
            directory: self,
            not_send: PhantomData,
        }
    }

    /// Counts of the current version.
    pub fn stats(&self) -> DirectoryStats {
        let state = self.lock();
        DirectoryStats {
            subscriptions: state.subscriptions.len(),
            version: state.version,
            ..DirectoryStats::default()
        }
    }
}

impl State {
    fn apply(&mut self, id: SubscriberId, change: Change<'_>) -> Outcome {
        let filter = change.filter();
        let position = self
            .subscriptions
            .iter()
            .position(|(i, f, _)| *i == id && f == filter);
        if let Some(position) = position {
            self.subscriptions.swap_remove(position);
        }
        let first_or_last = !self
            .subscriptions
            .iter()
            .any(|(_, f, _)| f.filter() == filter.filter());
        if let Change::Subscribe { options, .. } = change {
            self.subscriptions.push((id, filter.clone(), options));
        }
        Outcome {
            existed: position.is_some(),
            first_or_last,
        }
    }
}

/// One version of the directory, pinned while this value lives. It stays on its thread.
pub struct Snapshot<'d> {
    directory: &'d Directory,
    not_send: PhantomData<Cell<*const ()>>,
}

impl Snapshot<'_> {
    /// Hands every subscriber of `topic` to `visitor`.
    ///
    /// A subscriber with several plain matches is visited once: No Local is applied to each subscription first,
    /// then QoS is the maximum, Retain As Published is any, and all Subscription Identifiers are kept. Each shared
    /// group chooses for itself. `publisher` is for No Local; `random` is a fresh random word.
    pub fn match_one(
        &self,
        topic: TopicName<'_>,
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) {
        let _ = random;
        let mut state = self.directory.lock();
        state.turn += 1;
        let mut found: Vec<_> = state
            .subscriptions
            .iter()
            .filter(|(id, filter, options)| {
                state.handles[id.0 as usize].1
                    && filter.filter().matches(topic)
                    && !(options.no_local && publisher == Some(*id))
            })
            .cloned()
            .collect();
        let handle = |id: SubscriberId| state.handles[id.0 as usize].0;
        found.sort_by_key(|(id, _, _)| *id);
        for same in found.chunk_by(|a, b| a.0 == b.0) {
            let plain = same.iter().filter(|(_, filter, _)| !filter.is_shared());
            let ids: Vec<NonZeroU32> = plain.clone().filter_map(|(_, _, o)| o.id).collect();
            if let Some(qos) = plain.clone().map(|(_, _, o)| o.qos).max() {
                visitor.plain(Match {
                    handle: handle(same[0].0),
                    subscriber: same[0].0,
                    qos,
                    retain_as_published: plain.clone().any(|(_, _, o)| o.retain_as_published),
                    ids: &ids,
                });
            }
        }
        found.retain(|(_, filter, _)| filter.is_shared());
        found.sort_by(|a, b| a.1.as_str().cmp(b.1.as_str()));
        for group in found.chunk_by(|a, b| a.1 == b.1) {
            let start = usize::try_from(state.turn).unwrap_or(0);
            let mut took = false;
            for step in 0..=group.len() {
                let (id, _, options) = &group[(start + step) % group.len()];
                let ids: Vec<NonZeroU32> = options.id.into_iter().collect();
                let candidate = Match {
                    handle: handle(*id),
                    subscriber: *id,
                    qos: options.qos,
                    retain_as_published: options.retain_as_published,
                    ids: &ids,
                };
                if step == group.len() {
                    visitor.shared_offline(candidate);
                } else if visitor.shared(candidate) {
                    took = true;
                }
                if took {
                    break;
                }
            }
        }
    }

    /// Matches several topics of one publisher in one go; see [`Visitor::topic`].
    pub fn match_many(
        &self,
        topics: &[TopicName<'_>],
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) {
        for (index, topic) in topics.iter().enumerate() {
            visitor.topic(index);
            self.match_one(*topic, publisher, random, visitor);
        }
    }
}
