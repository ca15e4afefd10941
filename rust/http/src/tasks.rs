//! Tasks of the endpoint: on its own thread, and on threads for blocking calls.
//!
//! Tasks are boxed and have one type. Tokio compiles its code for tasks anew for each type of a task, and most tasks would
//! have one of their own: that was an eighth of the generated code of this crate.

use std::any::Any;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::task::{JoinError, JoinHandle};

/// The value of a task, of any type.
type TaskValue = Box<dyn Any + Send>;

/// A running task, which returns a `T` or panics. It goes on if this is dropped.
pub(crate) struct Running<T> {
    task: JoinHandle<TaskValue>,
    returns: PhantomData<fn() -> T>,
}

/// Runs work that may wait for a disk on a thread for blocking calls.
pub(crate) fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Running<T> {
    let work: Box<dyn FnOnce() -> TaskValue + Send> = Box::new(|| Box::new(work()) as TaskValue);
    Running::new(tokio::task::spawn_blocking(work))
}

/// Runs a task on the thread of the endpoint.
pub(crate) fn spawn<T: Send + 'static>(work: impl Future<Output = T> + 'static) -> Running<T> {
    let work = async { Box::new(work.await) as TaskValue };
    let work: Pin<Box<dyn Future<Output = TaskValue>>> = Box::pin(work);
    Running::new(tokio::task::spawn_local(work))
}

impl<T> Running<T> {
    fn new(task: JoinHandle<TaskValue>) -> Self {
        Self {
            task,
            returns: PhantomData,
        }
    }
}

impl<T: 'static> Future for Running<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let done = ready!(Pin::new(&mut self.task).poll(cx));
        // INVARIANT: `blocking` and `spawn` box the `T` that their task returns.
        Poll::Ready(done.map(|value| *value.downcast().expect("a value of the task's type")))
    }
}

#[cfg(test)]
mod tests {
    use tokio::runtime::{Builder, LocalOptions};

    use super::*;

    #[test]
    fn a_task_returns_its_value_or_that_it_panicked() {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default());
        let runtime = runtime.expect("a runtime");
        let fault = |fails: bool| assert!(!fails, "on purpose");

        runtime.block_on(async {
            assert_eq!(blocking(|| "read").await.expect("done"), "read");
            assert_eq!(spawn(async { 7_u64 }).await.expect("done"), 7);
            assert!(
                blocking(move || fault(true))
                    .await
                    .expect_err("it fails")
                    .is_panic()
            );
            assert!(
                spawn(async move { fault(true) })
                    .await
                    .expect_err("it fails")
                    .is_panic()
            );
        });
    }
}
