//! Work that a shard does in batches, so that one message for thousands of clients does not delay tasks whose sockets are
//! ready.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Amount of work between two polls of the sockets.
const BATCH: usize = 64;

/// Work of a shard that is due.
pub(crate) struct DueQueue<T> {
    queued: RefCell<VecDeque<T>>,
    /// The task that does the work.
    worker: RefCell<Waker>,
}

impl<T> Default for DueQueue<T> {
    fn default() -> Self {
        Self {
            queued: RefCell::default(),
            worker: RefCell::new(Waker::noop().clone()),
        }
    }
}

impl<T> DueQueue<T> {
    /// Queues work. It is done in order, after the tasks that are ready to run.
    pub(crate) fn push(&self, work: T) {
        let mut queued = self.queued.borrow_mut();
        if queued.is_empty() {
            self.worker.borrow().wake_by_ref();
        }
        queued.push_back(work);
    }

    /// Whether no work is queued.
    pub(crate) fn is_empty(&self) -> bool {
        self.queued.borrow().is_empty()
    }

    /// Whether at least as much work is queued as is done between two polls of the sockets.
    pub(crate) fn is_long(&self) -> bool {
        self.queued.borrow().len() >= BATCH
    }

    /// Takes the next work.
    pub(crate) fn pop(&self) -> Option<T> {
        self.queued.borrow_mut().pop_front()
    }

    /// Waits for work. Returns how much of it to do until the sockets are polled.
    pub(crate) async fn batch(&self) -> usize {
        poll_fn(|cx| {
            let count = self.queued.borrow().len();
            if count == 0 {
                self.worker.borrow_mut().clone_from(cx.waker());
                return Poll::Pending;
            }
            Poll::Ready(count.min(BATCH))
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::yield_now;

    use super::*;

    /// Starts a task that does the work of a queue: it records its numbers.
    async fn recorded() -> (Rc<DueQueue<usize>>, Rc<RefCell<Vec<usize>>>) {
        let (queue, done) = (
            Rc::new(DueQueue::default()),
            Rc::new(RefCell::new(Vec::new())),
        );
        let (own, record) = (Rc::clone(&queue), Rc::clone(&done));
        tokio::task::spawn_local(async move {
            loop {
                for _ in 0..own.batch().await {
                    record.borrow_mut().extend(own.pop());
                }
                yield_now().await;
            }
        });
        yield_now().await;
        (queue, done)
    }

    fn on_one_thread(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn all_work_is_done_once_and_in_order() {
        on_one_thread(async {
            const COUNT: usize = 10 * BATCH + 7;
            let (queue, done) = recorded().await;
            for _ in 0..2 {
                done.borrow_mut().clear();
                (0..COUNT).for_each(|number| queue.push(number));
                for _ in 0..1_000 {
                    yield_now().await;
                }
                assert!(done.borrow().iter().copied().eq(0..COUNT));
            }
        });
    }

    #[test]
    fn another_task_waits_for_a_batch_and_not_for_thousands() {
        on_one_thread(async {
            let (queue, done) = recorded().await;
            (0..100 * BATCH).for_each(|number| queue.push(number));
            assert!(queue.is_long());

            yield_now().await;

            let count = done.borrow().len();
            assert!((1..=2 * BATCH).contains(&count), "{count}");
        });
    }
}
