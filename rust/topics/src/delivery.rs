//! What a subscription asks for, and what a match hands out.

use std::num::NonZeroU32;

use mqttcore_codec::QoS;

use crate::SubscriptionFilter;

/// The largest Subscription Identifier that the wire can carry.
pub const MAX_SUBSCRIPTION_ID: u32 = 268_435_455;

/// A subscriber of one [`Directory`](crate::Directory): dense, small, reused only after a grace period.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SubscriberId(pub(crate) u32);

impl SubscriberId {
    /// Returns the number, below 2^31 and usable as an index.
    pub const fn get(self) -> u32 {
        self.0
    }
}

/// What one subscription asks for beside its filter.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// The most that its messages are delivered with.
    pub qos: QoS,
    /// Leaves out what the subscriber itself published.
    pub no_local: bool,
    /// Keeps the RETAIN flag of what was published.
    pub retain_as_published: bool,
    /// The Subscription Identifier. Above [`MAX_SUBSCRIPTION_ID`] it counts as absent.
    pub id: Option<NonZeroU32>,
}

impl Options {
    /// A subscription of 3.1.1 and before: a QoS and nothing else.
    pub const fn at(qos: QoS) -> Self {
        Self {
            qos,
            no_local: false,
            retain_as_published: false,
            id: None,
        }
    }
}

/// How a shared group chooses the member that a message goes to.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum Strategy {
    /// Each member in turn.
    #[default]
    RoundRobin,
    /// Any member, by the random word that the caller gives.
    Random,
    /// The same member for everything that one publisher sends, by the key of its
    /// [`join_as`](crate::Directory::join_as); by topic when the publisher has no id.
    ClientHash,
    /// The same member for everything on one topic.
    TopicHash,
    /// The member that took the last message, until it no longer takes one.
    Sticky,
}

impl Strategy {
    /// Whether the choice depends on a hash, and so on the keys of the members.
    pub(crate) fn hashes(self) -> bool {
        matches!(self, Self::ClientHash | Self::TopicHash)
    }
}

/// One delivery: what a subscriber gets of one message, all its matching subscriptions merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Match<'a> {
    /// What the subscriber gave to [`Directory::join`](crate::Directory::join).
    pub handle: u64,
    /// Who gets the message.
    pub subscriber: SubscriberId,
    /// The maximum over the matching subscriptions; the message's own QoS is the caller's to apply.
    pub qos: QoS,
    /// Whether any of the matching subscriptions keeps the RETAIN flag.
    pub retain_as_published: bool,
    /// The Subscription Identifiers of all of them, in no particular order, repeated when given twice
    /// [MQTT-3.3.4-4].
    pub ids: &'a [NonZeroU32],
}

/// What the search for the matches of one message took, and whether it came to its end.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Search {
    /// Nodes visited, levels passed between them, and subscriptions read; 1 at least.
    pub steps: usize,
    /// `false` if the topic takes more steps than a search may: none of its matches is handed out.
    pub is_complete: bool,
}

/// Takes the matches of one message, under the snapshot's pin: it must not block.
pub trait Visitor {
    /// The search for the matches of a topic, or for one group, is over; its matches come next. Once a topic.
    fn searched(&mut self, search: Search) {
        let _ = search;
    }

    /// Whether the message takes the turn of the members that it goes to. If not, nothing is changed by asking who would
    /// get it, and the next message has the same first choice.
    fn advances_cursor(&self) -> bool {
        true
    }

    /// A subscriber with plain subscriptions; once a message and subscriber, in no particular order.
    fn plain(&mut self, found: Match<'_>);

    /// The members of this shared group are asked next; [`Snapshot::offer_again`](crate::Snapshot::offer_again) finds it
    /// by this filter.
    fn group(&mut self, group: &SubscriptionFilter) {
        let _ = group;
    }

    /// So many places of a group's ring are read to choose a member; once a group, if the strategy hashes.
    fn probed(&mut self, places: usize) {
        let _ = places;
    }

    /// A member of a shared group, best choice first and available ones only, as long as there are any. Answers whether
    /// it took the message; if not, the next member is asked, up to a bound.
    fn shared(&mut self, candidate: Match<'_>) -> bool;

    /// How well a member would do that did not take the message, if nobody does; 0 if it would refuse it.
    ///
    /// Members that are not available are asked if all available ones would refuse it.
    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        let _ = candidate;
        0
    }

    /// The first choice of a shared group in which no member took the message: the first one of those with the highest
    /// [`standby`](Self::standby).
    fn shared_offline(&mut self, first_choice: Match<'_>);

    /// Topic number `index` of [`Snapshot::match_many`](crate::Snapshot::match_many) begins.
    fn topic(&mut self, index: usize) {
        let _ = index;
    }
}
