//! The acknowledgement gate: holds acknowledgements until the engine confirms their token.

use crate::control::Control;
use crate::deque::LazyDeque;

/// The number of an acknowledgement in its session's acknowledgement gate.
///
/// Tokens grow by one. The store does not know tokens and the session does not know log positions: the broker's
/// acknowledgement queue maps tokens to tickets (docs/decisions.md, 2).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AckToken(u64);

impl AckToken {
    /// The token before every issued one: always confirmed.
    pub(crate) const NONE: Self = Self(0);
}

/// The last token that was issued, and the last one that was confirmed.
#[derive(Debug, Default)]
pub(crate) struct AckGate {
    last: AckToken,
    confirmed: AckToken,
}

/// Acknowledgements that are held back, in the order of what they acknowledge [MQTT-4.6.0-2].
#[derive(Debug)]
pub(crate) struct HeldAcks(LazyDeque<(AckToken, Control)>);

impl AckGate {
    /// Issues the next token. Acknowledgements with this token are held until `confirm`.
    pub(crate) fn issue_token(&mut self) -> AckToken {
        self.last.0 += 1;
        self.last
    }

    pub(crate) fn last(&self) -> AckToken {
        self.last
    }

    pub(crate) fn is_open(&self, token: AckToken) -> bool {
        token <= self.confirmed
    }

    /// Confirms everything up to `token`. A token that was not issued yet confirms all issued ones.
    pub(crate) fn confirm(&mut self, token: AckToken) {
        self.confirmed = self.confirmed.max(token.min(self.last));
    }
}

impl HeldAcks {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.heap_bytes()
    }

    pub(crate) const NONE: Self = Self(LazyDeque::EMPTY);

    /// Holds `control` until `token` and every earlier token is confirmed.
    pub(crate) fn push(&mut self, token: AckToken, control: Control) {
        debug_assert!(self.0.back().is_none_or(|(held, _)| *held <= token));
        self.0.push_back((token, control));
    }

    /// Whether [`Self::poll`] would return an acknowledgement.
    pub(crate) fn is_due(&self, gate: &AckGate) -> bool {
        self.0
            .front()
            .is_some_and(|(token, _)| gate.is_open(*token))
    }

    #[inline]
    pub(crate) fn poll(&mut self, gate: &AckGate) -> Option<Control> {
        let (token, _) = self.0.front()?;
        if !gate.is_open(*token) {
            return None;
        }
        self.0.pop_front().map(|(_, control)| control)
    }

    /// Takes out all held acknowledgements, oldest first.
    pub(crate) fn take(&mut self) -> Vec<Control> {
        self.0.take().map(|(_, control)| control).collect()
    }

    /// The held acknowledgements, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &Control> {
        self.0.iter().map(|(_, control)| control)
    }

    pub(crate) fn shrink(&mut self) {
        self.0.shrink();
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_codec::{PacketId, ReasonCode};

    use super::*;
    use crate::control::ControlKind;

    /// Two acknowledgements that wait for two tokens.
    fn held() -> HeldAcks {
        let (mut gate, mut held) = (AckGate::default(), HeldAcks::NONE);
        for number in [1, 2] {
            let id = PacketId::new(number).unwrap();
            held.push(
                gate.issue_token(),
                Control(ControlKind::PubAck(id, ReasonCode::SUCCESS)),
            );
        }
        held
    }

    #[test]
    fn what_is_held_is_taken_out_oldest_first() {
        let mut held = held();

        let taken = held.take();

        let id = |control: &Control| match &control.0 {
            ControlKind::PubAck(id, _) => id.get(),
            other => panic!("{other:?}"),
        };
        assert_eq!(taken.iter().map(id).collect::<Vec<_>>(), [1, 2]);
        assert_eq!(held.iter().count(), 0);
    }

    #[test]
    fn memory_is_given_back_when_nothing_is_held() {
        let mut held = held();

        held.shrink();
        assert_eq!(held.iter().count(), 2);
        held.take();
        held.shrink();
        assert_eq!(held.heap_bytes(), 0);
    }
}
