//! Failures that stop the broker: its store, or a panic of a thread or task that it needs.

use std::error::Error;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mqttcore_panics::Panicked;
use mqttcore_store::StoreError;

/// Why something that runs beside the shards does not start.
pub type ServiceError = Box<dyn Error + Send + Sync>;

/// The reason why a broker must stop.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BrokerFailure {
    /// What must be kept cannot be kept any more.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A thread or task panicked that the broker cannot do without.
    #[error(transparent)]
    Panicked(#[from] Panicked),
}

/// The first failure of a broker, with a wait for it.
#[derive(Default)]
pub(crate) struct FailureCell {
    first: Mutex<Option<BrokerFailure>>,
    happened: Condvar,
}

impl FailureCell {
    /// Notes `failure`; false if there was one before.
    pub(crate) fn note(&self, failure: BrokerFailure) -> bool {
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

    /// Waits for a failure, for so long at most.
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
