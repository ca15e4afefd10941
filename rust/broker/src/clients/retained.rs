//! Retained messages, and the progress of replaying them to a new subscription.

use std::collections::{HashSet, VecDeque};
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
    /// The store has the message.
    pub(crate) is_stored: bool,
    /// A value that the broker publishes about itself: limits do not count it.
    pub(crate) is_own: bool,
    /// The publisher, if it is known.
    pub(crate) source: Option<Arc<Source>>,
    /// The user or address that the message counts for.
    pub(crate) owner: Option<Owner>,
}

impl RetainedMessage {
    /// Makes a retained message. `is_stored`: the store has it or will have it; otherwise it is in memory only.
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

/// Subscriptions of one connection with retained messages to send; on the heap only while there are any.
#[derive(Default)]
#[expect(
    clippy::box_collection,
    reason = "nearly all connections have none, and a pointer is a quarter of an empty queue"
)]
pub(crate) struct Replays(Option<Box<VecDeque<Replay>>>);

impl Replays {
    pub(crate) fn len(&self) -> usize {
        self.0.as_ref().map_or(0, |replays| replays.len())
    }

    pub(crate) fn front(&self) -> Option<&Replay> {
        self.0.as_ref()?.front()
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut Replay> {
        self.0.as_mut()?.front_mut()
    }

    /// Removes the first replay.
    pub(crate) fn pop_front(&mut self) {
        if let Some(replays) = &mut self.0 {
            replays.pop_front();
        }
        self.free_if_empty();
    }

    /// Adds the replays of a SUBSCRIBE. Each subscription has at most one: a repeated one starts again.
    pub(crate) fn extend(&mut self, added: Vec<Replay>) {
        if added.is_empty() {
            return;
        }
        let replays = self.0.get_or_insert_default();
        let mut filters = HashSet::with_capacity(added.len());
        // The last of equal filters stays, where it is.
        let is_last: Vec<bool> = added
            .iter()
            .rev()
            .map(|replay| filters.insert(&replay.filter))
            .collect();
        replays.retain(|waiting| !filters.contains(&waiting.filter));
        let kept = added.into_iter().zip(is_last.into_iter().rev());
        replays.extend(kept.filter_map(|(replay, is_last)| is_last.then_some(replay)));
    }

    /// Removes the replays of these subscriptions; shared subscriptions have none.
    pub(crate) fn remove<'f>(&mut self, ended: impl Iterator<Item = &'f SubscriptionFilter>) {
        if let Some(replays) = &mut self.0 {
            let ended: HashSet<&TopicFilter> = ended
                .filter(|filter| !filter.is_shared())
                .map(SubscriptionFilter::filter)
                .collect();
            replays.retain(|waiting| !ended.contains(&waiting.filter));
        }
        self.free_if_empty();
    }

    fn free_if_empty(&mut self) {
        if self.0.as_ref().is_some_and(|replays| replays.is_empty()) {
            self.0 = None;
        }
    }
}

/// A subscription with retained messages to send.
pub(crate) struct Replay {
    pub(crate) filter: TopicFilter,
    pub(crate) qos: QoS,
    pub(crate) id: Option<NonZeroU32>,
    /// The token of SUBACK: the messages are sent after it is confirmed (docs/decisions.md, 14).
    pub(crate) suback: AckToken,
    pub(crate) walk: ReplayPosition,
    /// Messages that the last step of the walk found.
    pub(crate) found: VecDeque<RetainedMessage>,
}

/// The position of a walk over the retained store.
pub(crate) enum ReplayPosition {
    Next(Option<RetainedCursor>),
    Done,
}

impl Replay {
    /// A replay from the start, for the subscription of `entry`, after the SUBACK of this token.
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
}
