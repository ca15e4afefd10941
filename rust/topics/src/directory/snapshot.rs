//! Snapshots: finds the subscribers of a message in one version.

use std::slice;

use smallvec::SmallVec;

use super::Directory;
use super::cache::MOST_CACHED;
use super::merge::{Merged, merge};
use super::version::DirectoryVersion;
use super::walk::{
    INTERLEAVED_TOPICS, LEVELS_FOR_SURE, MatchedFilter, TopicWalk, collect, collect_interleaved,
};
use crate::subscribers::{self, PackedSubscription, for_each_group, set};
use crate::sync::Pinned;
use crate::tree::word::{View, Word};
use crate::{Match, SubscriberId, TopicName, Visitor};

/// Minimum number of topics for which interleaving pays.
const FEW: usize = 2;

/// Larger sets are merged without the check of [`are_apart`].
const FEW_SUBSCRIBERS: usize = set::FEW;

/// Words of 64 bits that [`are_apart`] uses.
const GLANCE: usize = 4;

/// One version of the directory, pinned while this value lives. It stays on its thread.
///
/// It delays the reclamation of replaced memory. Keep it no longer than one read of a socket takes; never keep it
/// across an `.await` or a call of foreign code that blocks.
pub struct Snapshot<'d> {
    pub(super) directory: &'d Directory,
    pub(super) version: Pinned<'d, DirectoryVersion>,
}

/// One message that is delivered to the matching subscriptions.
#[derive(Clone, Copy)]
pub(crate) struct MatchRequest<'m> {
    pub(crate) topic: TopicName<'m>,
    pub(crate) publisher: Option<SubscriberId>,
    pub(crate) random: u64,
}

impl<'d> Snapshot<'d> {
    pub(crate) fn new(directory: &'d Directory) -> Self {
        Self {
            directory,
            version: directory.root.pinned(),
        }
    }

    /// Calls `visitor` with each subscriber of `topic`.
    ///
    /// A subscriber with several plain matches is visited once: No Local is applied to each subscription first; then
    /// QoS is the maximum, Retain As Published is true if any subscription has it, and all Subscription Identifiers
    /// are kept. Each shared group chooses separately, so a subscriber may also get the message from groups.
    /// `publisher` is for No Local and [`Strategy::ClientHash`](crate::Strategy::ClientHash); `random` is a new
    /// random word. Removed subscribers are skipped.
    pub fn match_one(
        &self,
        topic: TopicName<'_>,
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) {
        let message = MatchRequest {
            topic,
            publisher,
            random,
        };
        let topic_walk = self.search(topic);
        self.deliver(&topic_walk, message, visitor);
    }

    /// Finds the filters that match a topic.
    #[inline]
    pub(crate) fn search<'t>(&self, topic: TopicName<'t>) -> TopicWalk<'t, '_> {
        let hasher = &self.directory.hasher;
        let mut topic_walk = TopicWalk::new(topic.as_str().as_bytes());
        if self.version.is_large() {
            let topic_walks = slice::from_mut(&mut topic_walk);
            collect_interleaved(&self.version, hasher, topic_walks);
            self.prefetch_receivers(topic_walks);
        } else {
            collect(&self.version, hasher, &mut topic_walk);
        }
        topic_walk
    }

    /// Finds the filters that match each of several topics; in a large tree their reads overlap.
    pub(crate) fn search_many<'t>(
        &self,
        topics: &[TopicName<'t>],
    ) -> SmallVec<[TopicWalk<'t, '_>; INTERLEAVED_TOPICS]> {
        if topics.len() < FEW || !self.version.is_worth_interleaving() {
            return topics.iter().map(|topic| self.search(*topic)).collect();
        }
        self.search_interleaved(topics)
    }

    fn search_interleaved<'t>(
        &self,
        topics: &[TopicName<'t>],
    ) -> SmallVec<[TopicWalk<'t, '_>; INTERLEAVED_TOPICS]> {
        let texts = topics.iter().map(|topic| topic.as_str().as_bytes());
        let mut topic_walks: SmallVec<[_; INTERLEAVED_TOPICS]> =
            texts.map(TopicWalk::new).collect();
        collect_interleaved(&self.version, &self.directory.hasher, &mut topic_walks);
        self.prefetch_receivers(&topic_walks);
        topic_walks
    }

    /// Whether the search for the matches of `topic` is complete; see [`Search`](crate::Search).
    pub fn can_match(&self, topic: TopicName<'_>) -> bool {
        let is_short = topic.levels().nth(LEVELS_FOR_SURE).is_none();
        is_short || !self.search(topic).is_given_up()
    }

    /// Matches several topics of one publisher in one call; [`Visitor::topic`] announces each topic.
    ///
    /// `random` is one new random word for all of them. In a large tree the reads of several topics overlap, so this
    /// is several times as fast as a call of [`match_one`](Self::match_one) for each.
    pub fn match_many(
        &self,
        topics: &[TopicName<'_>],
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) {
        if topics.len() >= FEW && self.version.is_worth_interleaving() {
            self.match_interleaved(topics, publisher, random, visitor);
            return;
        }
        for (index, topic) in topics.iter().enumerate() {
            visitor.topic(index);
            let random = self.directory.hasher.scramble(random ^ index as u64);
            self.match_one(*topic, publisher, random, visitor);
        }
    }

    /// Like [`match_many`](Self::match_many) in a large tree, for a tree of any size: for tests.
    #[doc(hidden)]
    pub fn match_interleaved(
        &self,
        topics: &[TopicName<'_>],
        publisher: Option<SubscriberId>,
        random: u64,
        visitor: &mut impl Visitor,
    ) {
        let hasher = &self.directory.hasher;
        for (group, topics) in topics.chunks(INTERLEAVED_TOPICS).enumerate() {
            let topic_walks = self.search_interleaved(topics);
            for ((place, topic), topic_walk) in topics.iter().enumerate().zip(&topic_walks) {
                let index = group * INTERLEAVED_TOPICS + place;
                visitor.topic(index);
                let message = MatchRequest {
                    topic: *topic,
                    publisher,
                    random: hasher.scramble(random ^ index as u64),
                };
                self.deliver(topic_walk, message, visitor);
            }
        }
    }

    /// Prefetches the data of small sets that [`deliver`](Self::deliver) will read.
    fn prefetch_receivers(&self, topic_walks: &[TopicWalk<'_, '_>]) {
        let clients = &self.directory.clients;
        let sets = || {
            topic_walks
                .iter()
                .flat_map(|topic_walk| topic_walk.found.iter())
        };
        sets().for_each(|found| found.payload.prefetch(0));
        for found in sets().filter(|found| found.handle.is_empty()) {
            set::first_few(found.payload)
                .for_each(|subscription| clients.prefetch(subscription.subscriber()));
        }
    }

    #[inline]
    pub(crate) fn deliver(
        &self,
        topic_walk: &TopicWalk<'_, '_>,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        visitor.searched(topic_walk.search());
        if topic_walk.is_given_up() {
            return;
        }
        let found = &topic_walk.found[..];
        if let [only] = found
            && let View::Inline(lone) = only.payload.view()
        {
            self.visit_one(
                PackedSubscription::from_bits(lone),
                only.handle,
                message,
                visitor,
            );
        } else if found
            .iter()
            .any(|found| subscribers::is_extended(found.payload))
        {
            self.visit_extended(found, message, visitor);
        } else {
            self.visit_sets(found, message, visitor);
        }
    }

    fn visit_extended(
        &self,
        found: &[MatchedFilter<'_>],
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        let (mut plain, mut groups): (SmallVec<[_; 16]>, SmallVec<[_; 4]>) = Default::default();
        for found in found {
            let (payload, group) = subscribers::parts(found.payload);
            plain.extend((!payload.is_empty()).then_some(MatchedFilter { payload, ..*found }));
            groups.extend((!group.is_empty()).then_some(group));
        }
        self.visit_sets(&plain, message, visitor);
        for map in groups {
            for_each_group(map, |group, cursor| {
                self.choose(group, cursor, message, visitor);
            });
        }
    }

    #[inline]
    fn visit_sets(
        &self,
        plain: &[MatchedFilter<'_>],
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        if plain.len() < 2 || are_apart(plain) {
            for found in plain {
                self.visit_one_set(*found, message, visitor);
            }
        } else {
            merge(
                plain,
                |subscription| message.may_go_to(subscription),
                |run| self.visit_run(run, visitor),
            );
        }
    }

    #[inline]
    fn visit_one_set(
        &self,
        found: MatchedFilter<'_>,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        set::for_each(found.payload, |subscription| {
            self.visit_one(subscription, found.handle, message, visitor);
        });
    }

    #[inline]
    fn visit_one(
        &self,
        subscription: PackedSubscription,
        kept: Word<'_>,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        if message.may_go_to(subscription) {
            self.with_kept(subscription, kept, |found| visitor.plain(found));
        }
    }

    /// Visits the subscriber of a run, once for all of its subscriptions.
    #[inline]
    fn visit_run(&self, run: &[PackedSubscription], visitor: &mut impl Visitor) {
        if let [only] = run {
            self.with_match(*only, |found| visitor.plain(found));
            return;
        }
        let Some(merged) = Merged::of(run) else {
            return;
        };
        if let Some(handle) = self.directory.clients.handle(merged.subscriber) {
            visitor.plain(Match {
                handle,
                subscriber: merged.subscriber,
                qos: merged.qos,
                retain_as_published: merged.retain_as_published,
                ids: &merged.ids,
            });
        }
    }

    /// Calls `visit` with the match of a single subscription, if its subscriber is not removed.
    #[inline]
    pub(super) fn with_match<R>(
        &self,
        subscription: PackedSubscription,
        visit: impl FnOnce(Match<'_>) -> R,
    ) -> Option<R> {
        self.with_kept(subscription, Word::EMPTY, visit)
    }

    /// Like [`with_match`](Self::with_match), with the handle that a leaf stores.
    #[inline]
    fn with_kept<R>(
        &self,
        subscription: PackedSubscription,
        kept: Word<'_>,
        visit: impl FnOnce(Match<'_>) -> R,
    ) -> Option<R> {
        let subscriber = subscription.subscriber();
        let handle = self.directory.clients.handle_kept(subscriber, kept)?;
        Some(visit(Match {
            handle,
            subscriber,
            qos: subscription.qos(),
            retain_as_published: subscription.retain_as_published(),
            ids: subscription.id().as_slice(),
        }))
    }
}

/// Merges a small result of a search for a cache; `false` if it is not small, or depends on more than the topic.
pub(crate) fn summarize(
    topic_walk: &TopicWalk<'_, '_>,
    summary: &mut SmallVec<[u64; MOST_CACHED]>,
) -> bool {
    let total: usize = topic_walk
        .found
        .iter()
        .map(|found| set::len(found.payload))
        .sum();
    let is_simple = |found: &MatchedFilter<'_>| {
        !subscribers::is_extended(found.payload)
            && set::first_few(found.payload).all(|one| !one.no_local())
    };
    if topic_walk.is_given_up() || total > MOST_CACHED || !topic_walk.found.iter().all(is_simple) {
        return false;
    }
    let mut is_summed_up = true;
    merge(
        &topic_walk.found,
        |_| true,
        |run| {
            let Some(merged) = Merged::of(run) else {
                return;
            };
            is_summed_up &= merged.ids.len() < 2;
            let (qos, retain) = (merged.qos, merged.retain_as_published);
            let sum = PackedSubscription::merged(
                merged.subscriber,
                qos,
                retain,
                merged.ids.first().copied(),
            );
            summary.push(sum.bits());
        },
    );
    is_summed_up
}

impl MatchRequest<'_> {
    /// [MQTT-3.8.3-3] No Local keeps a message from its own publisher.
    pub(super) fn may_go_to(self, subscription: PackedSubscription) -> bool {
        !(subscription.no_local() && self.publisher == Some(subscription.subscriber()))
    }
}

/// Whether all subscribers differ, judged by the low bits of their numbers; `false` if unsure.
fn are_apart(found: &[MatchedFilter<'_>]) -> bool {
    let mut seen = [0_u64; GLANCE];
    found.iter().all(|found| {
        set::len(found.payload) <= FEW_SUBSCRIBERS
            && set::first_few(found.payload).all(|subscription| {
                let number = subscription.subscriber().0;
                let (word, bit) = (number / u64::BITS, 1 << (number % u64::BITS));
                let seen = &mut seen[word as usize % GLANCE];
                let is_new = *seen & bit == 0;
                *seen |= bit;
                is_new
            })
    })
}
