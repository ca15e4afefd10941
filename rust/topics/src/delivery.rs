//! Subscription options, shared-group strategies, and the results of a match.

use std::num::NonZeroU32;

use mqttcore_codec::QoS;

use crate::SubscriptionFilter;

/// The largest Subscription Identifier of MQTT.
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

/// Options of a subscription.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Options {
    /// Maximum QoS of its deliveries.
    pub qos: QoS,
    /// Excludes messages that the subscriber itself published.
    pub no_local: bool,
    /// Keeps the RETAIN flag of the message.
    pub retain_as_published: bool,
    /// The Subscription Identifier. Above [`MAX_SUBSCRIPTION_ID`] it counts as absent.
    pub id: Option<NonZeroU32>,
}

impl Options {
    /// A subscription of 3.x: only a QoS.
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
    /// A random member, by the caller's random word.
    Random,
    /// The same member for all messages of a publisher, by the key of its
    /// [`join_as`](crate::Directory::join_as); by topic if the publisher has no id.
    ClientHash,
    /// The same member for all messages of a topic.
    TopicHash,
    /// The member that took the last message, until it is unavailable or refuses.
    Sticky,
}

impl Strategy {
    /// Whether the choice depends on a hash, and so on the keys of the members.
    pub(crate) fn hashes(self) -> bool {
        matches!(self, Self::ClientHash | Self::TopicHash)
    }
}

/// One delivery of a message to a subscriber: all its matching subscriptions, merged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Match<'a> {
    /// The handle that was passed to [`Directory::join`](crate::Directory::join).
    pub handle: u64,
    /// The recipient.
    pub subscriber: SubscriberId,
    /// The maximum QoS of the matching subscriptions; the caller applies the QoS of the message.
    pub qos: QoS,
    /// Whether any matching subscription keeps the RETAIN flag.
    pub retain_as_published: bool,
    /// The Subscription Identifiers of all matching subscriptions, in no particular order, with repetitions
    /// [MQTT-3.3.4-4].
    pub ids: &'a [NonZeroU32],
}

/// Cost of the search for the matches of a message, and whether it was complete.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Search {
    /// Number of visited nodes, levels passed between them, and subscriptions read; at least 1.
    pub steps: usize,
    /// `false` if the topic takes more steps than allowed; then no match is returned.
    pub is_complete: bool,
}

/// Receives the matches of one message. Runs under the snapshot's pin, so it must not block.
pub trait Visitor {
    /// The search for the matches of a topic, or of one group, has ended; its matches follow. Called once for
    /// each topic.
    fn searched(&mut self, search: Search) {
        let _ = search;
    }

    /// Whether the message advances the round-robin cursor of its groups. If not, the match changes nothing,
    /// and the next message has the same first choice.
    fn advances_cursor(&self) -> bool {
        true
    }

    /// A subscriber with plain subscriptions; called once for each message and subscriber, in no particular
    /// order.
    fn plain(&mut self, found: Match<'_>);

    /// The members of this shared group are asked next; [`Snapshot::offer_again`](crate::Snapshot::offer_again) finds it
    /// by this filter.
    fn group(&mut self, group: &SubscriptionFilter) {
        let _ = group;
    }

    /// Number of places of a group's ring that were read to choose a member; called once for each group, if
    /// the strategy hashes.
    fn probed(&mut self, places: usize) {
        let _ = places;
    }

    /// Offers the message to a member of a shared group: the best choice first, available members only if
    /// there are any. Returns whether the member took it; if not, the next member is asked, up to a limit.
    fn shared(&mut self, candidate: Match<'_>) -> bool;

    /// Rates a member for the case that no available member takes the message; 0 if it would refuse. Members
    /// that are not available are rated if all available ones would refuse, until one would not.
    fn standby(&mut self, candidate: Match<'_>) -> u8 {
        let _ = candidate;
        0
    }

    /// Whether a member that is not available may keep the message. If none does, they are not searched for
    /// one that does.
    fn away_may_keep(&self) -> bool {
        true
    }

    /// The first choice of a shared group in which no member took the message: the first one of those with the highest
    /// [`standby`](Self::standby).
    fn shared_offline(&mut self, first_choice: Match<'_>);

    /// Topic number `index` of [`Snapshot::match_many`](crate::Snapshot::match_many) begins.
    fn topic(&mut self, index: usize) {
        let _ = index;
    }
}
