//! Publishers of retained messages, and what their latest CONNECT granted them (ADR 0029).
//!
//! A publisher is known by its user name and its client identifier together. Clients without a user name are not
//! known: anybody could connect in their place with fewer rights, and have their messages withheld.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use mqttcore_topics::TopicName;

use crate::config::grants::{CompiledGrant, RuleAnswer};

/// Publishers below which those that have nothing retained any more are not removed.
const FEW: usize = 1024;

/// One publisher of retained messages; each of them refers to it.
#[derive(Default)]
pub(crate) struct Source {
    /// What its latest CONNECT was granted; `None` if it did not connect in this life of the broker.
    access: Mutex<Option<Arc<CompiledGrant>>>,
}

impl Source {
    /// What the rules of its latest grant say about publishing to `topic`; `None` if there was no grant.
    pub(crate) fn may_publish(&self, topic: TopicName<'_>) -> Option<RuleAnswer> {
        let access = lock(&self.access).clone();
        access.map(|access| access.permissions.publish(topic))
    }

    /// Notes what it was granted at its latest CONNECT.
    pub(crate) fn set(&self, access: &Arc<CompiledGrant>) {
        *lock(&self.access) = Some(Arc::clone(access));
    }
}

/// Client identifier and user name.
type Identity = (Arc<str>, Arc<str>);

/// All publishers of what is retained.
#[derive(Default)]
pub(crate) struct Sources(Mutex<Known>);

#[derive(Default)]
struct Known {
    sources: HashMap<Identity, Weak<Source>>,
    /// As many were left when those with nothing retained were last removed.
    left: usize,
}

impl Known {
    /// Removes publishers that have nothing retained any more, once there are twice as many as were left last time.
    fn sweep(&mut self) {
        if self.sources.len() >= FEW.max(2 * self.left) {
            self.sources.retain(|_, source| source.strong_count() > 0);
            self.left = self.sources.len();
        }
    }
}

impl Sources {
    /// The publisher with this client identifier and this user name.
    pub(crate) fn named(&self, client_id: &Arc<str>, username: &Arc<str>) -> Arc<Source> {
        let mut known = lock(&self.0);
        let identity = (Arc::clone(client_id), Arc::clone(username));
        if let Some(source) = known.sources.get(&identity).and_then(Weak::upgrade) {
            return source;
        }
        known.sweep();
        let source = Arc::new(Source::default());
        known.sources.insert(identity, Arc::downgrade(&source));
        source
    }

    /// Notes what a client was granted at its latest CONNECT, if something is retained that it published.
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
