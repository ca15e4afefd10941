//! Targets of a message: the sessions and streams that receive it.

use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use mqttcore_store::Durability;
use mqttcore_topics::{Match, SubscriberId, SubscriptionFilter};
use smallvec::SmallVec;

use crate::clients::handle::Handle;

/// One subscriber that a message goes to.
pub(crate) struct Target {
    pub(crate) handle: Handle,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) subscription_ids: SmallVec<[NonZeroU32; 2]>,
    /// The store's number of the delivery; 0 if its session is not kept.
    pub(crate) key: u64,
    /// Its session takes it whatever the limits of its queue.
    pub(crate) may_exceed: bool,
    /// It was chosen among the members of a group.
    pub(crate) choice: Option<Box<GroupDelivery>>,
}

impl Target {
    /// Whoever a message matched, which is `retain`.
    pub(crate) fn of(matched: &Match<'_>, retain: bool) -> Self {
        Self {
            handle: Handle::of_word(matched.handle),
            qos: matched.qos,
            // [MQTT-3.3.1-12, -13]
            retain: retain && matched.retain_as_published,
            subscription_ids: SmallVec::from_slice(matched.ids),
            key: 0,
            may_exceed: false,
            choice: None,
        }
    }

    /// Whether it takes the message out of the store, or from an external log, not from here.
    pub(crate) fn is_stream(&self) -> bool {
        self.handle.row_stream().is_some()
    }
}

/// How a message goes through a shared group.
pub(crate) struct GroupDelivery {
    pub(crate) group: SubscriptionFilter,
    /// Who was chosen so far; the last one is to have it.
    pub(crate) tried: SmallVec<[SubscriberId; 4]>,
    /// How safe the message is kept, for whom it has to be.
    pub(crate) durability: Durability,
    /// The store's number of the message ...
    pub(crate) message: u64,
    /// ... and of the session that it keeps it for; 0 if for none.
    pub(crate) session: u64,
}

impl GroupDelivery {
    pub(crate) fn new(group: SubscriptionFilter, member: SubscriberId) -> Self {
        Self {
            group,
            tried: SmallVec::from_slice(&[member]),
            durability: Durability::Memory,
            message: 0,
            session: 0,
        }
    }
}
