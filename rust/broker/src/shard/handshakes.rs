//! Serializes the steps of the TLS handshakes of one shard.

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::task::yield_now;

/// The steps of TLS handshakes of one shard.
///
/// A step that signs or verifies takes up to a millisecond. It is done while no other handshake of the shard does one,
/// and other tasks run before the next (abuse C14).
pub(crate) struct HandshakeSteps(Semaphore);

impl HandshakeSteps {
    /// Runs `step` when no other one runs, then yields to other tasks if `was_long` of its result is true.
    pub(crate) async fn take<T>(
        &self,
        step: impl FnOnce() -> T,
        was_long: impl FnOnce(&T) -> bool,
    ) -> T {
        let turn: Result<SemaphorePermit<'_>, _> = self.0.acquire().await;
        let done = step();
        if was_long(&done) {
            yield_now().await;
        }
        drop(turn);
        done
    }
}

impl Default for HandshakeSteps {
    fn default() -> Self {
        Self(Semaphore::const_new(1))
    }
}
