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

/// One subscription that still has retained messages to come.
pub(crate) struct Replay {
    pub(crate) filter: TopicFilter,
    pub(crate) qos: QoS,
    pub(crate) id: Option<NonZeroU32>,
    /// SUBACK leaves when this is confirmed, and the messages behind it (decision 14).
    pub(crate) suback: AckToken,
    pub(crate) walk: Walk,
    /// What the last step of the walk found.
    pub(crate) found: VecDeque<RetainedMessage>,
}

/// How far a walk over the retained store has come.
pub(crate) enum Walk {
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
            walk: Walk::Next(None),
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
