//! Retained messages, and the progress of replaying them to a new subscription.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;

use mqttcore_codec::QoS;
use mqttcore_session::{AckToken, Message, SubscribeEntry};
use mqttcore_topics::{RetainedCursor, SubscriptionFilter, TopicFilter};

use crate::clients::shares::Owner;
use crate::clients::sources::Source;

/// The retained message of a topic.
#[derive(Clone)]
pub(crate) struct RetainedMessage {
    pub(crate) message: Message,
    /// The store has it.
    pub(crate) is_stored: bool,
    /// A figure that the broker publishes about itself: no limit counts it.
    pub(crate) is_own: bool,
    /// Who published it, if that is known.
    pub(crate) source: Option<Arc<Source>>,
    /// Whom it counts for.
    pub(crate) owner: Option<Owner>,
}

impl RetainedMessage {
    /// One that the store has, or is about to have, if `is_stored`; else it lives in memory alone.
    pub(crate) fn new(
        message: Message,
        is_stored: bool,
        source: Option<Arc<Source>>,
        owner: Option<Owner>,
    ) -> Self {
        Self {
            message,
            is_stored,
            is_own: false,
            source,
            owner,
        }
    }
}

/// Subscriptions of one connection that still have retained messages to come; on the heap while there are any.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "nearly all connections have none, and a pointer is a quarter of an empty queue"
)]
pub(crate) struct Replays(Option<Box<VecDeque<Replay>>>);

impl Replays {
    pub(crate) fn front(&self) -> Option<&Replay> {
        self.0.as_ref()?.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Replay> {
        self.0.as_mut()?.front_mut()
    }

    /// Ends the first one.
    pub(crate) fn pop_front(&mut self) {
        if let Some(replays) = &mut self.0 {
            replays.pop_front();
        }
        self.free_if_empty();
    }

    /// Adds `replay`; at most one for each subscription: a repeated SUBSCRIBE starts it again.
    pub(crate) fn push(&mut self, replay: Replay) {
        let replays = self.0.get_or_insert_default();
        replays.retain(|other| !other.is_same_as(&replay));
        replays.push_back(replay);
    }

    /// Ends the replay of this subscription.
    pub(crate) fn remove(&mut self, filter: &SubscriptionFilter) {
        if let Some(replays) = &mut self.0 {
            replays.retain(|replay| !replay.is_of(filter));
        }
        self.free_if_empty();
    }

    fn free_if_empty(&mut self) {
        if self.0.as_ref().is_some_and(|replays| replays.is_empty()) {
            self.0 = None;
        }
    }
}

/// One subscription that still has retained messages to come.
pub(crate) struct Replay {
    pub(crate) filter: TopicFilter,
    pub(crate) qos: QoS,
    pub(crate) id: Option<NonZeroU32>,
    /// SUBACK leaves when this is confirmed, and the messages behind it (decision 14).
    pub(crate) suback: AckToken,
    pub(crate) walk: ReplayPosition,
    /// What the last step of the walk found.
    pub(crate) found: VecDeque<RetainedMessage>,
}

/// How far a walk over the retained store has come.
pub(crate) enum ReplayPosition {
    Next(Option<RetainedCursor>),
    Done,
}

impl Replay {
    /// From the beginning, for what `entry` subscribed to, behind the SUBACK of this token.
    pub(crate) fn new(entry: &SubscribeEntry, suback: AckToken) -> Self {
        Self {
            filter: entry.filter.filter().clone(),
            qos: entry.options.qos,
            id: entry.options.id,
            suback,
            walk: ReplayPosition::Next(None),
            found: VecDeque::new(),
        }
    }

    /// Whether it is the replay of this subscription; a shared one never has any.
    pub(crate) fn is_of(&self, filter: &SubscriptionFilter) -> bool {
        !filter.is_shared() && self.filter == *filter.filter()
    }

    /// Whether `other` is a replay of the same subscription.
    pub(crate) fn is_same_as(&self, other: &Self) -> bool {
        self.filter == other.filter
    }
}
