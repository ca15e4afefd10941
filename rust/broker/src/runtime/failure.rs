//! Failures that stop the broker: a failed store, or a panic of an essential thread or task.

use std::error::Error;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqttcore_panics::Panicked;
use mqttcore_store::StoreError;

/// The reason why a service beside the shards did not start.
pub type ServiceError = Box<dyn Error + Send + Sync>;

/// Why the broker must stop.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerFailure {
    /// The store cannot write any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// An essential thread or task panicked.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

/// The first failure of a broker; threads can wait for it.
#[derive(Default)]
pub(crate) struct FailureCell {
    first: Mutex<Option<BrokerFailure>>,
    happened: Condvar,
}

impl FailureCell {
    /// Records `failure`; returns false if there was one before.
    pub(crate) fn record(&self, failure: BrokerFailure) -> bool {
        let mut first = self.lock();
        let is_first = first.is_none();
        first.get_or_insert(failure);
        drop(first);
        self.happened.notify_all();
        is_first
    }

    /// Whether the broker has failed.
    pub(crate) fn has_failed(&self) -> bool {
        self.lock().is_some()
    }

    /// Waits for a failure, at most for `limit`.
    pub(crate) fn wait(&self, limit: Duration) -> Option<BrokerFailure> {
        let waited = self
            .happened
            .wait_timeout_while(self.lock(), limit, |first| first.is_none());
        waited.unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<BrokerFailure>> {
        self.first.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
