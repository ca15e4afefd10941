//! Promises that wait until what they promise is safe.

use std::collections::VecDeque;

use crate::control::Control;

/// A place in a session's line of promises.
///
/// Tokens grow by one. The store never sees them, the session never sees a log position: the
/// broker keeps a line of (token, ticket) pairs between the two (decision 2).
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AckToken(u64);

/// Holds acknowledgements back, in the order of what they acknowledge [MQTT-4.6.0-2].
#[derive(Debug, Default)]
pub(crate) struct Gate {
    last: AckToken,
    confirmed: AckToken,
    held: VecDeque<(AckToken, Control)>,
}

impl Gate {
    /// Gives the next token; whatever carries it waits for `confirm`.
    pub(crate) fn promise(&mut self) -> AckToken {
        self.last.0 += 1;
        self.last
    }

    pub(crate) fn last(&self) -> AckToken {
        self.last
    }

    pub(crate) fn is_open(&self, token: AckToken) -> bool {
        token <= self.confirmed
    }

    /// Opens the gate for everything up to `token`; a token never given opens nothing more.
    pub(crate) fn confirm(&mut self, token: AckToken) {
        self.confirmed = self.confirmed.max(token.min(self.last));
    }

    /// Lets `control` leave once `token` and everything before it is confirmed.
    pub(crate) fn hold(&mut self, token: AckToken, control: Control) {
        debug_assert!(self.held.back().is_none_or(|(held, _)| *held <= token));
        self.held.push_back((token, control));
    }

    pub(crate) fn poll(&mut self) -> Option<Control> {
        let (token, _) = self.held.front()?;
        if !self.is_open(*token) {
            return None;
        }
        self.held.pop_front().map(|(_, control)| control)
    }

    /// What is held, oldest first.
    pub(crate) fn held(&self) -> impl DoubleEndedIterator<Item = &Control> {
        self.held.iter().map(|(_, control)| control)
    }

    /// Drops what is held for a connection that ended; the tokens stay promised.
    pub(crate) fn clear(&mut self) {
        self.held = VecDeque::new();
    }

    pub(crate) fn shrink(&mut self) {
        if self.held.is_empty() {
            self.held = VecDeque::new();
        }
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.capacity() * size_of::<(AckToken, Control)>()
    }
}
