//! Wakes tasks in batches, so that one message for thousands of clients does not delay tasks whose sockets are ready.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Number of tasks that a turn wakes at once, and that are woken between two polls of the sockets.
const BATCH: usize = 64;

/// Tasks of a shard that wait to be woken.
pub(crate) struct WakeQueue {
    waiting: RefCell<VecDeque<Waker>>,
    /// Number of tasks that this turn has woken at once.
    woken: Cell<usize>,
    /// The task that runs [`WakeQueue::run`].
    own: RefCell<Waker>,
}

impl Default for WakeQueue {
    fn default() -> Self {
        Self {
            waiting: RefCell::default(),
            woken: Cell::new(0),
            own: RefCell::new(Waker::noop().clone()),
        }
    }
}

impl WakeQueue {
    /// Starts a turn, which may wake [`BATCH`] tasks at once.
    pub(crate) fn start_turn(&self) {
        self.woken.set(0);
    }

    /// Wakes a task at once, or queues it if this turn has woken enough tasks.
    pub(crate) fn wake(&self, waker: &Waker) {
        if self.woken.get() < BATCH {
            self.woken.set(self.woken.get() + 1);
            waker.wake_by_ref();
        } else {
            self.push(waker);
        }
    }

    /// Queues a task behind all waiting ones; returns false and does nothing if none waits.
    pub(crate) fn wake_last(&self, waker: &Waker) -> bool {
        let is_waiting = !self.waiting.borrow().is_empty();
        if is_waiting {
            self.push(waker);
        }
        is_waiting
    }

    fn push(&self, waker: &Waker) {
        let mut waiting = self.waiting.borrow_mut();
        if waiting.is_empty() {
            self.own.borrow().wake_by_ref();
        }
        waiting.push_back(waker.clone());
    }

    /// Wakes the waiting tasks, one batch between two polls of the sockets. Never returns.
    pub(crate) async fn run(&self) {
        loop {
            self.poll_waiting().await;
            for _ in 0..BATCH {
                let next = self.waiting.borrow_mut().pop_front();
                let Some(waker) = next else { break };
                waker.wake();
            }
            // The runtime polls the sockets before it polls this task again.
            tokio::task::yield_now().await;
        }
    }

    /// Completes once a task waits.
    async fn poll_waiting(&self) {
        poll_fn(|cx| {
            if self.waiting.borrow().is_empty() {
                self.own.borrow_mut().clone_from(cx.waker());
                return Poll::Pending;
            }
            Poll::Ready(())
        })
        .await;
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tokio::runtime::{Builder, LocalOptions};
    use tokio::task::yield_now;

    use super::*;

    /// Spawns a task that records its number each time that it is woken, and returns its waker.
    async fn sleeper(number: usize, order: &Rc<RefCell<Vec<usize>>>) -> Waker {
        let (order, own) = (Rc::clone(order), Rc::new(RefCell::new(None)));
        let told = Rc::clone(&own);
        tokio::task::spawn_local(poll_fn(move |cx| {
            if told.borrow_mut().replace(cx.waker().clone()).is_some() {
                order.borrow_mut().push(number);
            }
            Poll::<()>::Pending
        }));
        yield_now().await;
        own.borrow().clone().expect("it was polled")
    }

    async fn run_until_woken(order: &RefCell<Vec<usize>>, count: usize) {
        for _ in 0..100_000 {
            if order.borrow().len() == count {
                return;
            }
            yield_now().await;
        }
        panic!("{} of {count} were woken", order.borrow().len());
    }

    async fn sleepers(count: usize) -> (Rc<WakeQueue>, Rc<RefCell<Vec<usize>>>, Vec<Waker>) {
        let (queue, order) = (Rc::new(WakeQueue::default()), Rc::default());
        let mut wakers = Vec::new();
        for number in 0..count {
            wakers.push(sleeper(number, &order).await);
        }
        let runs = Rc::clone(&queue);
        tokio::task::spawn_local(async move { runs.run().await });
        yield_now().await;
        (queue, order, wakers)
    }

    fn on_one_thread(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().build_local(LocalOptions::default());
        runtime.expect("a runtime").block_on(test);
    }

    #[test]
    fn all_that_wait_are_woken_once_and_in_order() {
        on_one_thread(async {
            const COUNT: usize = 10 * BATCH + 7;
            let (queue, order, wakers) = sleepers(COUNT).await;
            for _ in 0..2 {
                order.borrow_mut().clear();
                queue.start_turn();
                for waker in &wakers {
                    queue.wake(waker);
                }
                run_until_woken(&order, COUNT).await;
                assert!(order.borrow().iter().copied().eq(0..COUNT));
            }
        });
    }

    #[test]
    fn another_turn_does_not_wait_behind_thousands_and_their_publisher_does() {
        on_one_thread(async {
            const COUNT: usize = 100 * BATCH;
            const PUBLISHER: usize = COUNT;
            const OTHER: usize = COUNT + 1;
            let (queue, order, wakers) = sleepers(COUNT + 2).await;
            queue.start_turn();
            for waker in &wakers[..COUNT] {
                queue.wake(waker);
            }
            assert!(queue.wake_last(&wakers[PUBLISHER]));

            yield_now().await;
            queue.start_turn();
            queue.wake(&wakers[OTHER]);
            run_until_woken(&order, COUNT + 2).await;

            let place = |number| order.borrow().iter().position(|woken| *woken == number);
            assert!(place(OTHER) <= Some(4 * BATCH), "{:?}", place(OTHER));
            assert_eq!(place(PUBLISHER), Some(COUNT + 1));
            assert!(!queue.wake_last(&wakers[PUBLISHER]));
        });
    }
}
