//! One subscription in 64 bits.

use std::num::NonZeroU32;

use mqttcore_codec::QoS;

use crate::tree::word::Word;
use crate::{MAX_SUBSCRIPTION_ID, Options, SubscriberId};

const SUBSCRIBER_SHIFT: u32 = 33;
const ID_SHIFT: u32 = 5;
const QOS_SHIFT: u32 = 3;
const NO_LOCAL: u64 = 1 << 2;
const RETAIN_AS_PUBLISHED: u64 = 1 << 1;
const INLINE: u64 = 1;
const SEATED_SHIFT: u32 = 1;

/// From the highest bit: subscriber 31 bits, Subscription Identifier 28 (0: none), QoS 2, No Local 1, Retain As
/// Published 1, and a set bit that distinguishes it from a pointer. So subscriptions are ordered by subscriber.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) struct PackedSubscription(u64);

impl PackedSubscription {
    pub(crate) fn new(subscriber: SubscriberId, options: Options) -> Self {
        let id = options.id.map_or(0, NonZeroU32::get);
        let id = if id > MAX_SUBSCRIPTION_ID { 0 } else { id };
        let no_local = if options.no_local { NO_LOCAL } else { 0 };
        let retain = if options.retain_as_published {
            RETAIN_AS_PUBLISHED
        } else {
            0
        };
        Self(
            u64::from(subscriber.0) << SUBSCRIBER_SHIFT
                | u64::from(id) << ID_SHIFT
                | u64::from(u8::from(options.qos)) << QOS_SHIFT
                | no_local
                | retain
                | INLINE,
        )
    }

    /// Merges several subscriptions of one subscriber that have at most one identifier.
    pub(crate) fn merged(
        subscriber: SubscriberId,
        qos: QoS,
        retain_as_published: bool,
        id: Option<NonZeroU32>,
    ) -> Self {
        let options = Options {
            qos,
            no_local: false,
            retain_as_published,
            id,
        };
        Self::new(subscriber, options)
    }

    /// The options of the subscription.
    pub(crate) const fn options(self) -> Options {
        Options {
            qos: self.qos(),
            no_local: self.no_local(),
            retain_as_published: self.retain_as_published(),
            id: self.id(),
        }
    }

    /// A seat on the ring of a group: ordered by its place; the subscriber is in the bits of the options.
    pub(crate) const fn seat(place: SubscriberId, subscriber: SubscriberId) -> Self {
        Self((place.0 as u64) << SUBSCRIBER_SHIFT | (subscriber.0 as u64) << SEATED_SHIFT | INLINE)
    }

    /// The subscriber of the seat.
    #[expect(clippy::cast_possible_truncation, reason = "masked to 31 bits")]
    pub(crate) const fn seated(self) -> SubscriberId {
        SubscriberId((self.0 >> SEATED_SHIFT & (u32::MAX >> 1) as u64) as u32)
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }

    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn word<'g>(self) -> Word<'g> {
        Word::inline(self.0)
    }

    #[inline]
    pub(crate) const fn subscriber(self) -> SubscriberId {
        // INVARIANT: 31 bits are left.
        SubscriberId((self.0 >> SUBSCRIBER_SHIFT) as u32)
    }

    #[inline]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 28 bits")]
    pub(crate) const fn id(self) -> Option<NonZeroU32> {
        NonZeroU32::new((self.0 >> ID_SHIFT & MAX_SUBSCRIPTION_ID as u64) as u32)
    }

    #[inline]
    pub(crate) const fn qos(self) -> QoS {
        match (self.0 >> QOS_SHIFT) & 3 {
            0 => QoS::AtMostOnce,
            1 => QoS::AtLeastOnce,
            _ => QoS::ExactlyOnce,
        }
    }

    #[inline]
    pub(crate) const fn no_local(self) -> bool {
        self.0 & NO_LOCAL != 0
    }

    #[inline]
    pub(crate) const fn retain_as_published(self) -> bool {
        self.0 & RETAIN_AS_PUBLISHED != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_comes_back_as_it_went_in() {
        for subscriber in [0, 1, (1 << 31) - 1] {
            for id in [
                None,
                NonZeroU32::new(1),
                NonZeroU32::new(MAX_SUBSCRIPTION_ID),
            ] {
                for qos in [QoS::AtMostOnce, QoS::AtLeastOnce, QoS::ExactlyOnce] {
                    for (no_local, retain_as_published) in [(false, true), (true, false)] {
                        let options = Options {
                            qos,
                            no_local,
                            retain_as_published,
                            id,
                        };
                        let subscription =
                            PackedSubscription::new(SubscriberId(subscriber), options);
                        assert_eq!(subscription.subscriber(), SubscriberId(subscriber));
                        assert_eq!(subscription.id(), id);
                        assert_eq!(subscription.qos(), qos);
                        assert_eq!(subscription.no_local(), no_local);
                        assert_eq!(subscription.retain_as_published(), retain_as_published);
                    }
                }
            }
        }
    }

    #[test]
    fn an_identifier_that_the_wire_cannot_carry_counts_as_absent() {
        let id = NonZeroU32::new(MAX_SUBSCRIPTION_ID + 1);
        let options = Options {
            id,
            ..Options::at(QoS::AtMostOnce)
        };

        assert_eq!(PackedSubscription::new(SubscriberId(1), options).id(), None);
    }
}
