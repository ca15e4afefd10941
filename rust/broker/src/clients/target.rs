//! Targets of a message: the sessions and streams that receive it.

use std::num::NonZeroU32;

use mqttcore_codec::QoS;
use mqttcore_store::Durability;
use mqttcore_topics::{Match, SubscriberId, SubscriptionFilter};
use smallvec::SmallVec;

use crate::clients::handle::Handle;

/// One subscriber that receives a message.
pub(crate) struct Target {
    pub(crate) handle: Handle,
    pub(crate) qos: QoS,
    pub(crate) retain: bool,
    pub(crate) subscription_ids: SmallVec<[NonZeroU32; 2]>,
    /// The store's key of the delivery; 0 if the session is not stored.
    pub(crate) key: u64,
    /// The session accepts the message even if its queue is full.
    pub(crate) may_exceed: bool,
    /// Set if the subscriber was chosen among the members of a shared group.
    pub(crate) choice: Option<GroupDelivery>,
}

/// A target of a message for many subscribers is one cache line.
const _: () = assert!(size_of::<Target>() <= 64);

impl Target {
    /// The target of a match; `retain` is the RETAIN flag of the message.
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

    /// Whether it is a stream, which reads the message from the store or an external log, not from here.
    pub(crate) fn is_stream(&self) -> bool {
        self.handle.row_stream().is_some()
    }
}

/// A message in a shared group. It takes no allocation while only one member was chosen and the store does not have it.
pub(crate) enum GroupDelivery {
    First {
        group: SubscriptionFilter,
        member: SubscriberId,
    },
    Further(Box<GroupState>),
}

/// The state of a message in a shared group.
pub(crate) struct GroupState {
    pub(crate) group: SubscriptionFilter,
    /// The members that were chosen so far; the last one is to receive the message.
    pub(crate) tried: SmallVec<[SubscriberId; 4]>,
    /// The durability with which the message is stored.
    pub(crate) durability: Durability,
    /// The store's number of the message ...
    pub(crate) message: u64,
    /// ... and of the session that it is stored for; 0 if for none.
    pub(crate) session: u64,
}

impl GroupDelivery {
    pub(crate) fn group(&self) -> &SubscriptionFilter {
        match self {
            Self::First { group, .. } => group,
            Self::Further(state) => &state.group,
        }
    }

    /// See [`GroupState::tried`].
    pub(crate) fn tried(&self) -> &[SubscriberId] {
        match self {
            Self::First { member, .. } => std::slice::from_ref(member),
            Self::Further(state) => &state.tried,
        }
    }

    pub(crate) fn state_mut(&mut self) -> &mut GroupState {
        if let Self::First { group, member } = self {
            *self = Self::Further(Box::new(GroupState {
                group: group.clone(),
                tried: SmallVec::from_slice(&[*member]),
                durability: Durability::Memory,
                message: 0,
                session: 0,
            }));
        }
        match self {
            Self::Further(state) => state,
            Self::First { .. } => unreachable!("it was changed above"),
        }
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::{Directory, Strategy, TopicLimits};

    use super::*;

    #[test]
    fn a_message_that_moves_on_keeps_its_group_and_its_first_member() {
        let directory = Directory::new(1, Strategy::default());
        let [first, second] = [1, 2].map(|handle| directory.join(handle));
        let group = SubscriptionFilter::parse("$share/team/work/#", &TopicLimits::default());
        let group = group.expect("a filter");
        let mut choice = GroupDelivery::First {
            group: group.clone(),
            member: first,
        };
        assert_eq!(choice.tried(), [first]);

        choice.state_mut().tried.push(second);
        choice.state_mut().message = 7;

        assert_eq!(
            (choice.group(), choice.tried()),
            (&group, &[first, second][..])
        );
        assert_eq!(choice.state_mut().message, 7);
    }
}
