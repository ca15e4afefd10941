//! Messages of a queue, read back from the store a page at a time.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{Properties, QoS};
use mqttcore_session::{ChunkAccount, Delivery, Message, QueueRoom};
use mqttcore_store::{self as stored, Store, StoreError};
use mqttcore_topics::{TopicLimits, TopicName};
use smallvec::SmallVec;

use crate::durability::clock::KeptClock;

/// Deliveries that are read of a queue at once, and bytes of their messages.
const PAGE: usize = 256;
const PAGE_BYTES: u64 = 1 << 20;

/// Deliveries that wait for one session, read back.
pub(crate) struct QueuePage {
    waiting: Vec<Waiting>,
    /// Where the next page begins.
    pub(crate) next: u64,
    /// There are no more.
    pub(crate) is_last: bool,
}

/// A delivery of a page.
pub(crate) struct Waiting {
    pub(crate) delivery: u64,
    pub(crate) message: Message,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) subscription_ids: SmallVec<[NonZeroU32; 2]>,
}

impl QueuePage {
    /// Reads the deliveries that wait for `session` from number `from` on and below `below`.
    ///
    /// # Errors
    ///
    /// Those of the store: acknowledged messages cannot be read.
    pub(crate) fn read(
        store: &dyn Store,
        clock: KeptClock,
        session: u64,
        from: u64,
        below: u64,
    ) -> Result<Self, StoreError> {
        let mut page = Self {
            waiting: Vec::new(),
            next: from,
            is_last: true,
        };
        for (delivery, message) in store.page(session, from, PAGE, PAGE_BYTES)? {
            if delivery.number >= below {
                break;
            }
            (page.next, page.is_last) = (delivery.number + 1, false);
            let message = message.and_then(|stored| message_of(&stored, clock));
            let waiting = message.map(|message| Waiting::new(&delivery, message));
            page.waiting.extend(waiting);
        }
        Ok(page)
    }

    /// Has `account` count its messages.
    pub(crate) fn charge(&mut self, account: &Arc<ChunkAccount>) {
        for waiting in &mut self.waiting {
            waiting.message.charge(account);
        }
    }

    /// Messages and deliveries; `is_held` says which of them a plugin decides about.
    pub(crate) fn deliveries(
        &self,
        is_held: impl Fn(&Message) -> bool,
    ) -> impl Iterator<Item = (Message, Delivery<'_>)> {
        let waiting = self.waiting.iter();
        waiting.map(move |waiting| (waiting.message.clone(), waiting.delivery(&is_held)))
    }
}

/// A message out of the store.
pub(crate) fn message_of(stored: &stored::StoredMessage, clock: KeptClock) -> Option<Message> {
    let kept = stored.message();
    to_message(&kept, kept.expires_at_ms.map(|at_ms| clock.instant(at_ms)))
}

impl Waiting {
    pub(crate) fn new(delivery: &stored::StoredDelivery, message: Message) -> Self {
        let ids = delivery.subscription_ids.iter();
        Self {
            delivery: delivery.number,
            message,
            qos: QoS::try_from(delivery.qos).unwrap_or_default(),
            retain: delivery.retain,
            subscription_ids: ids.filter_map(|id| NonZeroU32::new(*id)).collect(),
        }
    }

    pub(crate) fn delivery(&self, is_held: impl Fn(&Message) -> bool) -> Delivery<'_> {
        Delivery {
            qos: self.qos,
            retain: self.retain,
            subscription_ids: &self.subscription_ids,
            key: self.delivery,
            room: QueueRoom::Limits,
            is_held: is_held(&self.message),
        }
    }
}

pub(crate) fn to_message(
    kept: &stored::record::MessageRecord<'_>,
    expires_at: Option<Instant>,
) -> Option<Message> {
    Some(Message::restored(
        TopicName::parse(kept.topic, &TopicLimits::AS_IT_CAME).ok()?,
        Properties::from_checked(kept.properties),
        kept.payload,
        QoS::try_from(kept.qos).ok()?,
        kept.retain,
        expires_at,
    ))
}
