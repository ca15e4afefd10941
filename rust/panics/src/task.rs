//! A task whose panic ends nothing but itself.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Panicked;

/// Runs `task`, which is called `place`, to its end or its panic.
pub fn caught<F: Future>(
    place: &str,
    task: F,
) -> impl Future<Output = Result<F::Output, Panicked>> {
    let mut task = Box::pin(task);
    poll_fn(move |cx| poll_caught(place, task.as_mut(), cx))
}

/// Polls `task`, which is called `place`, and catches its panic; it must not be polled again after that.
pub fn poll_caught<F: Future>(
    place: &str,
    task: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Panicked>> {
    // Everything that the task shares is in cells that give back their borrow when it unwinds.
    match catch_unwind(AssertUnwindSafe(|| task.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(Panicked::new(place, &*panic))),
    }
}
