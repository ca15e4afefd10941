//! Publishers of retained messages, and what their latest CONNECT granted them (ADR 0029).
//!
//! A publisher is identified by user name and client identifier. Clients without a user name are not tracked: anybody
//! could connect with the same identifier and fewer rights, and so have their messages withheld.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mqttcore_topics::TopicName;

use crate::config::permissions::{CompiledGrant, RuleAnswer};

/// Below this number of publishers, none are removed.
const FEW: usize = 1024;

/// The client that has published a retained message.
#[derive(Clone, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct RetainedPublisher {
    /// Its client identifier.
    pub client_id: Arc<str>,
    /// Its user name.
    pub username: Arc<str>,
}

/// One publisher of retained messages; its messages refer to it.
pub(crate) struct Source {
    pub(crate) publisher: RetainedPublisher,
    /// The grant of its latest CONNECT; `None` if it has not connected since the broker started.
    access: Mutex<Option<Arc<CompiledGrant>>>,
}

impl Source {
    /// The answer of the latest grant's rules about publishing to `topic`; `None` if there was no grant.
    pub(crate) fn may_publish(&self, topic: TopicName<'_>) -> Option<RuleAnswer> {
        let access = lock(&self.access).clone();
        access.map(|access| access.permissions.publish(topic))
    }

    /// Stores the grant of the latest CONNECT.
    pub(crate) fn set(&self, access: &Arc<CompiledGrant>) {
        *lock(&self.access) = Some(Arc::clone(access));
    }
}

/// Client identifier and user name.
type Identity = (Arc<str>, Arc<str>);

/// All publishers of retained messages.
#[derive(Default)]
pub(crate) struct Sources(Mutex<SourceTable>);

#[derive(Default)]
struct SourceTable {
    sources: HashMap<Identity, Weak<Source>>,
    /// The number of publishers after the last sweep.
    left: usize,
}

impl SourceTable {
    /// Removes publishers without retained messages, once their number has doubled since the last sweep.
    fn sweep(&mut self) {
        if self.sources.len() >= FEW.max(2 * self.left) {
            self.sources.retain(|_, source| source.strong_count() > 0);
            self.left = self.sources.len();
        }
    }
}

impl Sources {
    /// Returns the publisher with this client identifier and user name.
    pub(crate) fn named(&self, client_id: &Arc<str>, username: &Arc<str>) -> Arc<Source> {
        let mut known = lock(&self.0);
        let identity = (Arc::clone(client_id), Arc::clone(username));
        if let Some(source) = known.sources.get(&identity).and_then(Weak::upgrade) {
            return source;
        }
        known.sweep();
        let source = Arc::new(Source {
            publisher: RetainedPublisher {
                client_id: Arc::clone(client_id),
                username: Arc::clone(username),
            },
            access: Mutex::default(),
        });
        known.sources.insert(identity, Arc::downgrade(&source));
        source
    }

    /// Stores the grant of a client's latest CONNECT, if it has retained messages.
    pub(crate) fn granted(
        &self,
        client_id: &Arc<str>,
        username: &Arc<str>,
        access: &Arc<CompiledGrant>,
    ) {
        let identity = (Arc::clone(client_id), Arc::clone(username));
        let source = lock(&self.0).sources.get(&identity).and_then(Weak::upgrade);
        if let Some(source) = source {
            source.set(access);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn publishers_with_nothing_retained_are_removed_and_the_others_stay_who_they_are() {
        let sources = Sources::default();
        let named = |id: usize| sources.named(&id.to_string().into(), &"user".into());
        let kept = named(0);

        for id in 1..10 * FEW {
            drop(named(id));
        }

        assert!(Arc::ptr_eq(&kept, &named(0)));
        assert!(lock(&sources.0).sources.len() <= FEW);
    }
}
