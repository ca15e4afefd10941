//! Catches the panic of a task, so that other tasks of its thread continue.

use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::Panicked;

/// Runs `task`, named `place`, until it ends or panics.
pub fn caught<F: Future>(
    place: &str,
    task: F,
) -> impl Future<Output = Result<F::Output, Panicked>> {
    let mut task = Box::pin(task);
    poll_fn(move |cx| poll_caught(place, task.as_mut(), cx))
}

/// Polls `task`, named `place`, and catches its panic. After a panic it must not be polled again.
pub fn poll_caught<F: Future>(
    place: &str,
    task: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Panicked>> {
    // State that the task shares is in cells, whose borrows end when the task unwinds.
    match catch_unwind(AssertUnwindSafe(|| task.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(done)) => Poll::Ready(Ok(done)),
        Err(panic) => Poll::Ready(Err(Panicked::new(place, &*panic))),
    }
}
