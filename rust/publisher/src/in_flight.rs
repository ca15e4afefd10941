//! Messages in flight, by packet identifier.

use std::collections::VecDeque;

use mqttcore_codec::{PacketId, PacketType, QoS, ReasonCode};

/// Allocates packet identifiers. The identifier that has been free for longest comes first, so that a late
/// acknowledgement rarely meets a newer message with the same identifier.
#[derive(Debug)]
pub(crate) struct RowsInFlight {
    free: VecDeque<PacketId>,
    /// The slots of the identifiers from 1 on.
    slots: Vec<Option<Slot>>,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    row: u64,
    awaited: PacketType,
}

/// The outcome of an acknowledgement.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AckOutcome {
    /// The message is delivered.
    Delivered,
    /// A PUBREL has to be sent.
    Release(PacketId),
    /// The server refused this row.
    Refused(u64),
}

impl RowsInFlight {
    pub(crate) fn new(size: u16) -> Self {
        Self {
            free: (1..=size).filter_map(PacketId::new).collect(),
            slots: vec![None; size.into()],
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Allocates an identifier for a row; `None` if none is free.
    pub(crate) fn take(&mut self, row: u64, qos: QoS) -> Option<PacketId> {
        let id = self.free.pop_front()?;
        let awaited = match qos {
            QoS::ExactlyOnce => PacketType::PubRec,
            _ => PacketType::PubAck,
        };
        *self.slot(id)? = Some(Slot { row, awaited });
        Some(id)
    }

    /// Handles an acknowledgement; returns `None` if no message waits for it.
    pub(crate) fn acknowledge(
        &mut self,
        packet_type: PacketType,
        id: PacketId,
        reason: ReasonCode,
    ) -> Option<AckOutcome> {
        let slot = self.slot(id)?;
        let waiting = (*slot).filter(|waiting| waiting.awaited == packet_type)?;
        if packet_type == PacketType::PubRec && !reason.is_error() {
            let awaited = PacketType::PubComp;
            *slot = Some(Slot { awaited, ..waiting });
            return Some(AckOutcome::Release(id));
        }
        *slot = None;
        self.free.push_back(id);
        Some(if reason.is_error() {
            AckOutcome::Refused(waiting.row)
        } else {
            AckOutcome::Delivered
        })
    }

    fn slot(&mut self, id: PacketId) -> Option<&mut Option<Slot>> {
        self.slots.get_mut(usize::from(id.get()) - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OK: ReasonCode = ReasonCode::SUCCESS;

    fn ids(in_flight: &mut RowsInFlight, qos: QoS) -> Vec<u16> {
        std::iter::from_fn(|| in_flight.take(0, qos))
            .map(PacketId::get)
            .collect()
    }

    fn id(value: u16) -> PacketId {
        PacketId::new(value).unwrap()
    }

    #[test]
    fn an_identifier_is_used_again_when_it_is_acknowledged_and_not_before() {
        let mut in_flight = RowsInFlight::new(3);
        assert_eq!(ids(&mut in_flight, QoS::AtLeastOnce), [1, 2, 3]);
        assert_eq!(in_flight.in_flight(), 3);

        for acknowledged in [2, 1] {
            let outcome = in_flight.acknowledge(PacketType::PubAck, id(acknowledged), OK);
            assert_eq!(outcome, Some(AckOutcome::Delivered));
        }

        assert_eq!(in_flight.in_flight(), 1);
        assert_eq!(ids(&mut in_flight, QoS::AtLeastOnce), [2, 1]);
    }

    #[test]
    fn a_message_of_qos_2_is_over_with_pubcomp() {
        let mut in_flight = RowsInFlight::new(1);
        let taken = in_flight.take(9, QoS::ExactlyOnce).unwrap();

        assert_eq!(in_flight.acknowledge(PacketType::PubAck, taken, OK), None);
        assert_eq!(in_flight.acknowledge(PacketType::PubComp, taken, OK), None);
        let outcome = in_flight.acknowledge(PacketType::PubRec, taken, OK);
        assert_eq!(outcome, Some(AckOutcome::Release(taken)));
        assert_eq!(in_flight.acknowledge(PacketType::PubRec, taken, OK), None);
        assert!(in_flight.take(0, QoS::AtLeastOnce).is_none());
        let outcome = in_flight.acknowledge(PacketType::PubComp, taken, OK);
        assert_eq!(outcome, Some(AckOutcome::Delivered));
        assert_eq!(in_flight.in_flight(), 0);
    }

    #[test]
    fn a_refused_message_is_named_and_over() {
        for (qos, packet_type) in [
            (QoS::AtLeastOnce, PacketType::PubAck),
            (QoS::ExactlyOnce, PacketType::PubRec),
        ] {
            let mut in_flight = RowsInFlight::new(1);
            let taken = in_flight.take(9, qos).unwrap();

            let refused = in_flight.acknowledge(packet_type, taken, ReasonCode::NOT_AUTHORIZED);

            assert_eq!(refused, Some(AckOutcome::Refused(9)));
            assert_eq!(in_flight.in_flight(), 0);
        }
    }

    #[test]
    fn the_largest_window_has_every_identifier() {
        let mut in_flight = RowsInFlight::new(u16::MAX);

        let taken = ids(&mut in_flight, QoS::AtLeastOnce);

        assert_eq!((taken.len(), taken.last()), (65_535, Some(&65_535)));
        assert_eq!(in_flight.acknowledge(PacketType::PubComp, id(1), OK), None);
    }
}
