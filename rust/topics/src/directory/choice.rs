//! Shared groups: chooses the member that a message is offered to first, and the next ones.

use super::snapshot::{MatchRequest, Snapshot};
use crate::subscribers::{PackedSubscription, SharedGroup, group_of, ring, set};
use crate::sync::Relaxed;
use crate::tree::node::GroupCursor;
use crate::tree::word::Word;
use crate::{Search, Strategy, SubscriberId, SubscriptionFilter, Visitor};

/// Maximum number of members that a message is offered to: of the available ones, and of all.
const MOST_ASKED: usize = 32;

impl Snapshot<'_> {
    /// Offers a message of a group to the members that follow the last one of `tried`, in a ring; those in `tried`
    /// could not take it. Does nothing if the group no longer exists.
    pub fn offer_again(
        &self,
        group: &SubscriptionFilter,
        tried: &[SubscriberId],
        visitor: &mut impl Visitor,
    ) {
        let levels = group.as_str().split('/').count();
        visitor.searched(Search {
            steps: levels,
            is_complete: true,
        });
        let Some(name) = group.share() else {
            return;
        };
        let hasher = &self.directory.hasher;
        let found = group_of(self.version.payload(hasher, group.filter()), hasher, name);
        let may_be_asked = |member: PackedSubscription| !tried.contains(&member.subscriber());
        let behind = Start::At(SubscriberId(tried.last().map_or(0, |last| last.0 + 1)));
        if let Some(cursor) = found.cursor() {
            self.offer((found, cursor), behind, may_be_asked, visitor);
        }
    }

    /// Offers the message to the members of one group until one takes it.
    pub(super) fn choose(
        &self,
        group: SharedGroup<'_>,
        cursor: &GroupCursor,
        message: MatchRequest<'_>,
        visitor: &mut impl Visitor,
    ) {
        if self.directory.strategy.hashes() {
            visitor.probed(ring::PROBES);
        }
        visitor.group(&cursor.group);
        let start = self.first_choice(group, cursor, message, visitor.advances_cursor());
        let may_be_asked = |member| message.may_go_to(member);
        self.offer((group, cursor), start, may_be_asked, visitor);
    }

    /// Offers a message to the available members of a group, from `start` on, in a ring. If all of them would refuse
    /// it, the first other member that would keep it gets it.
    fn offer(
        &self,
        (group, cursor): (SharedGroup<'_>, &GroupCursor),
        start: Start,
        may_be_asked: impl Fn(PackedSubscription) -> bool,
        visitor: &mut impl Visitor,
    ) {
        let mut best: Option<(u8, PackedSubscription)> = None;
        let is_asked = |member: &PackedSubscription| {
            may_be_asked(*member) && !self.directory.clients.is_removed(member.subscriber())
        };
        let available = set::ring(group.available, start.rank(group.available));
        for member in available.filter(is_asked).take(MOST_ASKED) {
            let answer = self.with_match(member, |candidate| visitor.shared(candidate));
            if answer == Some(true) {
                if visitor.advances_cursor() {
                    // ORDERING: Relaxed: a preference that orders nothing.
                    cursor.sticky.store(member.subscriber().0 + 1, Relaxed);
                }
                return;
            }
            self.rate(member, &mut best, visitor);
        }
        let members = set::ring(group.members, start.rank(group.members));
        self.rate_away(group, members.filter(is_asked), &mut best, visitor);
        if let Some((_, member)) = best {
            self.with_match(member, |candidate| visitor.shared_offline(candidate));
        }
    }

    /// Rates the members that are not available, until one of them would keep the message.
    fn rate_away(
        &self,
        group: SharedGroup<'_>,
        members: impl Iterator<Item = PackedSubscription>,
        best: &mut Option<(u8, PackedSubscription)>,
        visitor: &mut impl Visitor,
    ) {
        let most_asked = if visitor.away_may_keep() {
            MOST_ASKED
        } else {
            1
        };
        for member in members.take(most_asked) {
            if best.is_some_and(|(standby, _)| standby > 0) {
                break;
            }
            if set::of(group.available, member.subscriber()).is_none() {
                self.rate(member, best, visitor);
            }
        }
    }

    /// Makes a member that did not take the message the best one, if no earlier one has an equal or higher `standby`.
    fn rate(
        &self,
        member: PackedSubscription,
        best: &mut Option<(u8, PackedSubscription)>,
        visitor: &mut impl Visitor,
    ) {
        let standby = self.with_match(member, |candidate| visitor.standby(candidate));
        let is_better = |standby: &u8| best.is_none_or(|(best, _)| *standby > best);
        if let Some(standby) = standby.filter(is_better) {
            *best = Some((standby, member));
        }
    }

    /// Chooses the first member.
    fn first_choice(
        &self,
        group: SharedGroup<'_>,
        cursor: &GroupCursor,
        message: MatchRequest<'_>,
        takes_turn: bool,
    ) -> Start {
        let hasher = &self.directory.hasher;
        let topic_hash = || hasher.hash(message.topic.as_str().as_bytes());
        let is_there = |member| {
            set::of(group.available, member).is_some() && !self.directory.clients.is_removed(member)
        };
        let by_hash = |word| {
            let member = ring::choose(group.ring, hasher, word, is_there);
            Start::At(member.unwrap_or(SubscriberId(0)))
        };
        match (self.directory.strategy, message.publisher) {
            // ORDERING: Relaxed: each message takes its own number, whatever the order.
            (Strategy::RoundRobin, _) => {
                Start::RoundRobin(cursor.next.fetch_add(u32::from(takes_turn), Relaxed))
            }
            (Strategy::Random, _) => Start::Random(message.random),
            (Strategy::ClientHash, Some(id)) => {
                let key = self.directory.clients.key(id).unwrap_or(0);
                by_hash(key)
            }
            (Strategy::ClientHash, None) | (Strategy::TopicHash, _) => by_hash(topic_hash()),
            // ORDERING: Relaxed: a preference that orders nothing.
            (Strategy::Sticky, _) => match cursor.sticky.load(Relaxed) {
                0 => Start::Random(message.random),
                last => Start::At(SubscriberId(last - 1)),
            },
        }
    }
}

/// The first choice of a group.
#[derive(Clone, Copy)]
enum Start {
    /// By the round-robin cursor.
    RoundRobin(u32),
    /// By a random word.
    Random(u64),
    /// This member, or the next one in order.
    At(SubscriberId),
}

impl Start {
    /// Its rank in a set of members.
    fn rank(self, set: Word<'_>) -> usize {
        let len = set::len(set).max(1);
        match self {
            Self::RoundRobin(number) => number as usize % len,
            Self::Random(word) => scale(word, len),
            Self::At(member) => set::rank(set, member) % len,
        }
    }
}

/// Maps a word onto `0..len`, evenly.
fn scale(word: u64, len: usize) -> usize {
    let scaled = (u128::from(word) * len as u128) >> 64;
    // INVARIANT: below `len`.
    usize::try_from(scaled).unwrap_or(0)
}
