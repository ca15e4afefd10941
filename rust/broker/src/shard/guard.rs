//! Panics of tasks: a panic in the task of a connection ends only that connection (abuse H13); a panic in an
//! essential task stops the broker. Threads have the guard of `mqttcore_panics`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_panics::{Panicked, caught, may_panic};

use crate::runtime::log::LogCategory;
use crate::shard::{EngineState, Shard};

/// The task of a connection, as the log names it.
pub(crate) const CONNECTION: &str = "a connection's task, its connection is closed";

/// Runs `task` on `shard`. A panic is counted and logged, then `after_panic` runs.
pub(crate) fn guarded(
    shard: Rc<Shard>,
    place: &'static str,
    task: impl Future<Output = ()>,
    after_panic: impl FnOnce(&Rc<Shard>),
) -> impl Future<Output = ()> {
    let task = caught(place, task);
    async move {
        if let Err(panicked) = task.await {
            report(&shard, &panicked);
            after_panic(&shard);
        }
    }
}

/// Runs a task that the broker depends on: a panic stops the broker.
pub(crate) fn critical(
    engine: Arc<EngineState>,
    place: &'static str,
    task: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    vital_or(move |panicked| engine.fail(panicked.into()), place, task)
}

/// As [`critical`]; a panic is passed to `fail`.
pub(crate) fn vital_or(
    fail: impl FnOnce(Panicked),
    place: &'static str,
    task: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    let task = caught(place, async move {
        may_panic(place);
        task.await;
    });
    async move {
        if let Err(panicked) = task.await {
            fail(panicked);
        }
    }
}

/// Runs work that must not unwind into its caller; a panic is counted and logged.
pub(crate) fn contained(shard: &Shard, what: &str, work: impl FnOnce()) {
    // Shared state is in cells; their borrows end when the stack unwinds.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        report(shard, &Panicked::new(what, &*panic));
    }
}

/// Counts and logs a panic.
pub(crate) fn report(shard: &Shard, panicked: &Panicked) {
    shard.metrics().panics.add(1);
    let now = shard.refresh_now();
    let Panicked { place, text } = panicked;
    shard.log.warn(LogCategory::Panic, now, || {
        format!("panic in {place}: {text}")
    });
}

/// Returns the panic handler of a thread of the broker: it stops the broker.
pub(crate) fn fail_on_panic(engine: &Arc<EngineState>) -> impl FnOnce(Panicked) + Send + use<> {
    let engine = Arc::clone(engine);
    move |panicked| engine.fail(panicked.into())
}
