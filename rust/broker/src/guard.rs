//! A panic in one connection's task ends that connection and nothing else (abuse H13).

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::log::LogClass;
use crate::shard::Shard;

/// Runs `task` on `shard`; a panic is counted and logged, then `after_panic` puts things right.
pub(crate) fn guarded<F>(
    shard: Rc<Shard>,
    task: F,
    after_panic: impl FnOnce(&Rc<Shard>),
) -> impl Future<Output = ()>
where
    F: Future<Output = ()>,
{
    Guarded {
        shard,
        task: Some(Box::pin(task)),
        after_panic: Some(after_panic),
    }
}

struct Guarded<F, A: FnOnce(&Rc<Shard>)> {
    shard: Rc<Shard>,
    task: Option<Pin<Box<F>>>,
    after_panic: Option<A>,
}

impl<F, A: FnOnce(&Rc<Shard>)> Unpin for Guarded<F, A> {}

impl<F, A> Future for Guarded<F, A>
where
    F: Future<Output = ()>,
    A: FnOnce(&Rc<Shard>),
{
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(task) = &mut this.task else {
            return Poll::Ready(());
        };
        // Everything that the task shares is in cells that give back their borrow when it unwinds.
        let result = catch_unwind(AssertUnwindSafe(|| task.as_mut().poll(cx)));
        match result {
            Ok(Poll::Pending) => return Poll::Pending,
            Ok(Poll::Ready(())) => {}
            Err(panic) => this.report(&*panic),
        }
        this.task = None;
        Poll::Ready(())
    }
}

impl<F, A: FnOnce(&Rc<Shard>)> Guarded<F, A> {
    fn report(&mut self, panic: &(dyn Any + Send)) {
        report(
            &self.shard,
            "a connection's task, its connection is closed",
            panic,
        );
        if let Some(after_panic) = self.after_panic.take() {
            after_panic(&self.shard);
        }
    }
}

/// Does one piece of work that must not unwind into its caller; a panic ends that piece alone.
pub(crate) fn contained(shard: &Shard, what: &str, work: impl FnOnce()) {
    // As above: borrows are given back when it unwinds.
    if let Err(panic) = catch_unwind(AssertUnwindSafe(work)) {
        report(shard, what, &*panic);
    }
}

fn report(shard: &Shard, what: &str, panic: &(dyn Any + Send)) {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message");
    shard.metrics().panics.add(1);
    let now = shard.refresh_now();
    shard
        .log
        .warn(LogClass::Panic, now, || format!("panic in {what}: {text}"));
}
