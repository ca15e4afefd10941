//! Invalidations: whose rights the plugins have to be asked for again.
//!
//! Answers of plugins take time. An answer to a question that was asked before an invalidation may be outdated when it
//! arrives: each question remembers the number of invalidations before it, and is compared with the later ones.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::config::measures::is_hook_of;

/// Maximum number of invalidations that are remembered; questions that are older than all of them count as outdated.
const REMEMBERED: usize = 4_096;

/// Number of clients about whose rights the plugins are asked again at the same time, so that logins do not wait behind
/// all of them.
pub(crate) const RENEWALS: usize = 16;

/// The clients whose rights are invalidated.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Invalidation {
    /// The client with this identifier.
    ClientId(Box<str>),
    /// All clients with this user name.
    Username(Box<str>),
    /// All clients whose grant is of this plugin, or of an unknown one; the name is that of its class or its module.
    Plugin(Box<str>),
    /// All clients.
    Everything,
}

impl Invalidation {
    /// Whether it may be about this client, whichever plugin will have given its next grant.
    pub(crate) fn may_cover(&self, client_id: &str, username: Option<&str>) -> bool {
        match self {
            Self::ClientId(id) => **id == *client_id,
            Self::Username(name) => username == Some(name),
            Self::Plugin(_) | Self::Everything => true,
        }
    }

    /// Whether it is about this client, whose grant is of the hook or the listener `granted_by`; `None`: not known.
    pub(crate) fn covers(
        &self,
        client_id: &str,
        username: Option<&str>,
        granted_by: Option<&str>,
    ) -> bool {
        match (self, granted_by) {
            (Self::Plugin(name), Some(hook)) => is_hook_of(hook, name),
            _ => self.may_cover(client_id, username),
        }
    }
}

/// The last invalidations, of all shards.
#[derive(Default)]
pub(crate) struct Invalidations {
    count: AtomicU64,
    recent: Mutex<VecDeque<Invalidation>>,
}

impl Invalidations {
    pub(crate) fn add(&self, invalidation: Invalidation) {
        let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if recent.len() == REMEMBERED {
            recent.pop_front();
        }
        recent.push_back(invalidation);
        self.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Their number so far; remember it before a plugin is asked.
    pub(crate) fn count(&self) -> u64 {
        self.count.load(Ordering::SeqCst)
    }

    /// Whether an answer to a question that was asked at `asked_at` is outdated for this client.
    pub(crate) fn outdate(&self, asked_at: u64, client_id: &str, username: Option<&str>) -> bool {
        if self.count() == asked_at {
            return false;
        }
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let newer = self.count().saturating_sub(asked_at);
        let newer = usize::try_from(newer).unwrap_or(usize::MAX);
        newer > recent.len()
            || recent
                .iter()
                .rev()
                .take(newer)
                .any(|invalidation| invalidation.may_cover(client_id, username))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_outdated_by_later_invalidations_of_its_client() {
        let invalidations = Invalidations::default();
        invalidations.add(Invalidation::Username("ann".into()));
        let asked_at = invalidations.count();

        assert!(!invalidations.outdate(asked_at, "c", Some("ann")));
        invalidations.add(Invalidation::Username("bob".into()));
        assert!(!invalidations.outdate(asked_at, "c", Some("ann")));
        assert!(!invalidations.outdate(asked_at, "c", None));
        assert!(invalidations.outdate(asked_at, "c", Some("bob")));
        assert!(!invalidations.outdate(invalidations.count(), "c", Some("bob")));
        invalidations.add(Invalidation::ClientId("c".into()));
        assert!(invalidations.outdate(asked_at, "c", None));
        invalidations.add(Invalidation::Everything);
        assert!(invalidations.outdate(asked_at, "d", None));
    }

    #[test]
    fn a_plugin_has_the_clients_whose_grant_is_its_own_or_of_an_unknown_plugin() {
        let invalidation = Invalidation::Plugin("rules".into());
        let covers = |granted_by| invalidation.covers("c", None, granted_by);

        assert!(covers(Some("rules.Rules.login")) && covers(None));
        assert!(!covers(Some("other.Rules.login")) && !covers(Some("listener rules")));
        let everything = Invalidation::Everything;
        assert!(everything.covers("c", None, Some("other.Rules.login")));
        let user = Invalidation::Username("ann".into());
        assert!(!user.covers("c", Some("bob"), Some("rules.Rules.login")));

        // Which plugin answers is not known yet.
        let invalidations = Invalidations::default();
        invalidations.add(invalidation);
        assert!(invalidations.outdate(0, "c", None));
    }

    #[test]
    fn an_answer_that_is_older_than_what_is_remembered_is_outdated() {
        let invalidations = Invalidations::default();
        for _ in 0..REMEMBERED {
            invalidations.add(Invalidation::ClientId("other".into()));
        }

        assert!(!invalidations.outdate(0, "c", None));
        invalidations.add(Invalidation::ClientId("other".into()));
        assert!(invalidations.outdate(0, "c", None));
        assert!(!invalidations.outdate(1, "c", None));
    }
}
