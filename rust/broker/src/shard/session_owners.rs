//! Owners of the sessions of a shard: the user or address that each session counts for (ADR 0039); the number of kept
//! sessions.

use std::sync::atomic::Ordering;

use crate::clients::client::Client;
use crate::clients::flags::Flag;
use crate::clients::shares::Owner;
use crate::shard::Shard;

/// By slot; most clients have a session that ends with its connection, and none.
#[derive(Default)]
pub(crate) struct SessionOwners(Vec<Option<Owner>>);

impl SessionOwners {
    fn of(&self, slot: usize) -> Option<Owner> {
        self.0.get(slot).copied().flatten()
    }

    /// Returns the owner before.
    fn replace(&mut self, slot: usize, owner: Option<Owner>) -> Option<Owner> {
        if self.0.len() <= slot {
            owner?;
            self.0.resize(slot + 1, None);
        }
        std::mem::replace(&mut self.0[slot], owner)
    }
}

impl Client {
    /// The owner that its session counts for, if there is one.
    pub(crate) fn owner(&self, shard: &Shard) -> Option<Owner> {
        shard
            .session_owners
            .borrow()
            .of(self.handle.slot() as usize)
    }

    /// Counts its session for `owner` from now on; `None`: for no owner.
    pub(crate) fn set_owner(&self, shard: &Shard, owner: Option<Owner>) {
        let slot = self.handle.slot() as usize;
        let before = shard.session_owners.borrow_mut().replace(slot, owner);
        if before == owner {
            return;
        }
        let shares = &shard.engine.session_shares;
        if let Some(before) = before {
            shares.remove(before, 0);
        }
        if let Some(owner) = owner {
            shares.add(owner, 0);
        }
    }

    /// Counts its session as one that outlives its connection, or no longer.
    pub(crate) fn set_kept(&self, shard: &Shard, is_kept: bool) {
        if self.flags.replace(Flag::Kept, is_kept) == is_kept {
            return;
        }
        let count = &shard.engine.kept_sessions;
        // ORDERING: a figure.
        if is_kept {
            count.fetch_add(1, Ordering::Relaxed);
        } else {
            count.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
