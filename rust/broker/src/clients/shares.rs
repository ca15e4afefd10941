//! Usage of shared tables by user, and by address for clients without user name.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::config::AddressLimits;
use crate::config::hooks::Login;
use crate::transport::address::AddressKey;

/// The owner of table entries, as a hash: a user, or the address of a client without user name.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub(crate) struct Owner(NonZeroU64);

/// Number of entries and of their bytes.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Share {
    pub(crate) entries: usize,
    pub(crate) bytes: usize,
}

/// The usage of one table by all owners.
#[derive(Default)]
pub(crate) struct Shares {
    /// Owners with at least one entry.
    held: Mutex<HashMap<Owner, Share>>,
}

/// Computes [`Owner`]s; the hash key is constant while the process runs.
#[derive(Default)]
pub(crate) struct Owners(RandomState);

impl Owners {
    /// The owner for a user name.
    pub(crate) fn user(&self, username: &str) -> Owner {
        self.hash((Some(username), None))
    }

    /// The owner for a login: its user name, or else its address. `None` for clients without user name at a Unix
    /// socket, or at an address that is exempt from limits.
    pub(crate) fn of(&self, login: &Login, limits: &AddressLimits) -> Option<Owner> {
        if let Some(username) = &login.username {
            return Some(self.user(username));
        }
        let address = login.peer.ip();
        let limited = address.filter(|_| limits.apply_to(address));
        limited.map(|address| self.hash((None, Some(AddressKey::of(address)))))
    }

    fn hash(&self, owner: (Option<&str>, Option<AddressKey>)) -> Owner {
        Owner(NonZeroU64::MIN.saturating_add(self.0.hash_one(owner)))
    }
}

impl Share {
    fn has_room(self, bytes: usize, most: Self) -> bool {
        self.entries < most.entries && self.bytes.saturating_add(bytes) <= most.bytes
    }

    /// Whether an entry may be added that replaces one of `own_bytes`; one that is no larger always may.
    fn takes(self, bytes: usize, own_bytes: Option<usize>, most: Self) -> bool {
        match own_bytes {
            None => self.has_room(bytes, most),
            Some(own) => bytes <= own || self.bytes.saturating_sub(own) + bytes <= most.bytes,
        }
    }

    fn add(&mut self, bytes: usize) {
        self.entries += 1;
        self.bytes += bytes;
    }
}

impl Shares {
    /// Whether `owner` may add one entry of `bytes` within its limits `most`.
    pub(crate) fn has_room(&self, owner: Owner, bytes: usize, most: Share) -> bool {
        let share = self.held().get(&owner).copied().unwrap_or_default();
        share.has_room(bytes, most)
    }

    /// Counts one more entry.
    pub(crate) fn add(&self, owner: Owner, bytes: usize) {
        self.held().entry(owner).or_default().add(bytes);
    }

    /// Counts one more entry if `owner` stays within `most`. `own_bytes` is an old entry that the new one replaces and
    /// that is not removed yet; a new entry that is no larger is always allowed.
    pub(crate) fn try_add(
        &self,
        owner: Owner,
        bytes: usize,
        own_bytes: Option<usize>,
        most: Share,
    ) -> bool {
        let mut held = self.held();
        let share = held.get(&owner).copied().unwrap_or_default();
        let is_allowed = share.takes(bytes, own_bytes, most);
        if is_allowed {
            held.entry(owner).or_default().add(bytes);
        }
        is_allowed
    }

    /// Whether [`Shares::try_add`] would count one more entry.
    pub(crate) fn would_add(
        &self,
        owner: Owner,
        bytes: usize,
        own_bytes: Option<usize>,
        most: Share,
    ) -> bool {
        let share = self.held().get(&owner).copied().unwrap_or_default();
        share.takes(bytes, own_bytes, most)
    }

    /// Counts one entry less.
    pub(crate) fn remove(&self, owner: Owner, bytes: usize) {
        if let Entry::Occupied(mut entry) = self.held().entry(owner) {
            let share = entry.get_mut();
            debug_assert!(share.entries > 0 && share.bytes >= bytes, "{share:?}");
            share.entries = share.entries.saturating_sub(1);
            share.bytes = share.bytes.saturating_sub(bytes);
            if share.entries == 0 {
                entry.remove();
            }
        }
    }

    fn held(&self) -> MutexGuard<'_, HashMap<Owner, Share>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use mqttcore_codec::ProtocolVersion;

    use super::*;
    use crate::config::Peer;

    fn login(username: Option<&str>, peer: &str) -> Login {
        Login {
            peer: Peer::parse(peer, 1).unwrap(),
            ..Login::restored("a".into(), ProtocolVersion::V5, username.map(Arc::from), 0)
        }
    }

    #[test]
    fn a_user_is_one_owner_wherever_it_is_and_clients_without_name_count_by_address() {
        let (owners, limits) = (Owners::default(), AddressLimits::default());
        let of = |username, peer| owners.of(&login(username, peer), &limits);

        assert_eq!(of(Some("u"), "192.0.2.1"), of(Some("u"), "127.0.0.1"));
        assert_eq!(of(Some("u"), "192.0.2.1"), Some(owners.user("u")));
        assert_ne!(of(Some("u"), "192.0.2.1"), of(Some("v"), "192.0.2.1"));
        assert_eq!(of(None, "2001:db8::1"), of(None, "2001:db8::2"));
        assert_ne!(of(None, "192.0.2.1"), of(None, "192.0.2.2"));
        assert_eq!(of(None, "127.0.0.1"), None);
    }

    #[test]
    fn a_share_is_what_was_added_and_not_removed() {
        let (shares, owners) = (Shares::default(), Owners::default());
        let (one, two) = (owners.user("one"), owners.user("two"));
        let most = Share {
            entries: 2,
            bytes: 10,
        };
        shares.add(one, 3);
        shares.add(one, 4);
        shares.add(two, 4);

        assert!(!shares.has_room(one, 0, most), "it has two");
        assert!(shares.has_room(two, 6, most) && !shares.has_room(two, 7, most));
        shares.remove(one, 3);
        assert!(shares.has_room(one, 6, most));
        shares.remove(one, 4);
        shares.remove(two, 4);
        assert!(shares.held().is_empty());
    }

    #[test]
    fn an_entry_is_added_if_there_is_room_or_it_replaces_one_of_the_same_owner() {
        let (shares, owner) = (Shares::default(), Owners::default().user("one"));
        let most = Share {
            entries: 1,
            bytes: 10,
        };

        assert!(!shares.try_add(owner, 11, None, most));
        assert!(shares.held().is_empty(), "nothing was counted");
        assert!(shares.would_add(owner, 5, None, most));
        assert!(shares.try_add(owner, 5, None, most));
        assert!(!shares.would_add(owner, 1, None, most));
        assert!(!shares.try_add(owner, 1, None, most));
        assert!(shares.would_add(owner, 10, Some(5), most));
        assert!(!shares.try_add(owner, 11, Some(5), most));
        assert!(shares.try_add(owner, 10, Some(5), most));
        shares.remove(owner, 5);
        let lowered = Share {
            entries: 1,
            bytes: 9,
        };
        assert!(shares.try_add(owner, 10, Some(10), lowered), "no larger");
        shares.remove(owner, 10);
        assert_eq!(
            shares.held()[&owner],
            Share {
                entries: 1,
                bytes: 10
            }
        );
    }
}
