//! Panics of tasks: one in a connection's task ends that connection and nothing else (abuse H13); one in a task that the
//! broker cannot do without ends the broker. Threads have the guard of `mqttcore_panics`.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_panics::{Panicked, caught, may_panic};

use crate::runtime::log::LogCategory;
use crate::shard::{EngineState, Shard};

/// The task of a connection, as the log names it.
pub(crate) const CONNECTION: &str = "a connection's task, its connection is closed";

/// Runs `task` on `shard`; a panic is counted and logged, then `after_panic` puts things right.
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

/// Runs a task without which the broker cannot go on: a panic ends it.
pub(crate) fn critical(
    engine: Arc<EngineState>,
    place: &'static str,
    task: impl Future<Output = ()>,
) -> impl Future<Output = ()> {
    vital_or(move |panicked| engine.fail(panicked.into()), place, task)
}

/// As [`critical`]; a panic is handed to `fail`.
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

/// Does one piece of work that must not unwind into its caller; a panic ends that piece alone.
pub(crate) fn contained(shard: &Shard, what: &str, work: impl FnOnce()) {
    // Everything that it shares is in cells: borrows are given back when it unwinds.
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

/// What a thread of the broker does if it panics.
pub(crate) fn fail_on_panic(engine: &Arc<EngineState>) -> impl FnOnce(Panicked) + Send + use<> {
    let engine = Arc::clone(engine);
    move |panicked| engine.fail(panicked.into())
}
