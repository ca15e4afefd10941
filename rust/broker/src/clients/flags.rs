//! Flags of a client: one bit each, since each session has them.

use std::cell::Cell;

/// What is true or false about a client.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
pub(crate) enum Flag {
    /// The client has lost rights: queued messages that are read from the store must be checked.
    QueueJudged = 1,
    /// Its rights were invalidated, or the broker has restarted, and the plugins have not been asked about its
    /// subscriptions since: they are asked before it resumes its session.
    Unchecked = 2,
    /// The client is in the shard's queue of renewals.
    AwaitsRenewal = 4,
    /// Its session outlives its connection, and counts against the limit of sessions.
    Kept = 8,
    /// Its availability says that it is full, or refuses.
    HasSigns = 16,
}

/// The flags of one client.
#[derive(Default)]
pub(crate) struct Flags(Cell<u8>);

impl Flags {
    #[inline]
    pub(crate) fn has(&self, flag: Flag) -> bool {
        self.0.get() & flag as u8 != 0
    }

    #[inline]
    pub(crate) fn set(&self, flag: Flag, is_set: bool) {
        let others = self.0.get() & !(flag as u8);
        self.0.set(others | if is_set { flag as u8 } else { 0 });
    }

    /// Sets a flag; returns what it was.
    pub(crate) fn replace(&self, flag: Flag, is_set: bool) -> bool {
        let before = self.has(flag);
        self.set(flag, is_set);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_changes_and_the_others_stay() {
        let flags = Flags::default();
        flags.set(Flag::Kept, true);

        assert!(!flags.replace(Flag::HasSigns, true));
        assert!(flags.replace(Flag::HasSigns, false));

        assert!(flags.has(Flag::Kept) && !flags.has(Flag::HasSigns));
        assert!(!flags.has(Flag::Unchecked));
    }
}
