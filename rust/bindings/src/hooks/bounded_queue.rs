//! A bounded queue from threads of the engine to a Python thread, which takes items in batches.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How a push to a full queue is handled.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Overflow {
    /// Returns the new item.
    Refuse,
    /// Drops the oldest item and counts it.
    DropOldest,
}

/// The queue. Pushing blocks only on the lock.
pub(super) struct BoundedQueue<T> {
    state: Mutex<State<T>>,
    ready: Condvar,
    capacity: usize,
    overflow: Overflow,
}

struct State<T> {
    items: VecDeque<T>,
    closed: bool,
    dropped: u64,
    /// Number of threads that wait: without one, a push needs no system call.
    waiting: usize,
}

impl<T> BoundedQueue<T> {
    pub(super) fn new(capacity: usize, overflow: Overflow) -> Self {
        Self {
            state: Mutex::new(State {
                items: VecDeque::new(),
                closed: false,
                dropped: 0,
                waiting: 0,
            }),
            ready: Condvar::new(),
            capacity,
            overflow,
        }
    }

    /// Adds an item; returns true if the queue was empty, so that its consumer has to be woken.
    ///
    /// # Errors
    ///
    /// Returns the item if the queue is full or closed.
    pub(super) fn push(&self, item: T) -> Result<bool, T> {
        let mut state = self.lock();
        if state.closed {
            return Err(item);
        }
        if state.items.len() >= self.capacity {
            if self.overflow == Overflow::Refuse {
                return Err(item);
            }
            state.items.pop_front();
            state.dropped += 1;
        }
        let was_empty = state.items.is_empty();
        state.items.push_back(item);
        self.wake_one(state);
        Ok(was_empty)
    }

    /// Returns an item to the front, whatever the capacity: it was taken from the queue just before.
    pub(super) fn push_front(&self, item: T) {
        let mut state = self.lock();
        if !state.closed {
            state.items.push_front(item);
            self.wake_one(state);
        }
    }

    /// Waits for items and takes up to `limit`; returns `None` if the queue is empty and closed.
    pub(super) fn take(&self, limit: usize) -> Option<Vec<T>> {
        let mut state = self.lock();
        while state.items.is_empty() {
            if state.closed {
                return None;
            }
            state.waiting += 1;
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        Some(state.drain(limit))
    }

    /// Like [`Self::take`], but after the first item waits up to `wait` for a batch of `limit`.
    pub(super) fn take_batch(&self, limit: usize, wait: Duration) -> Option<Vec<T>> {
        let mut state = self.lock();
        let mut deadline = None;
        loop {
            if state.closed {
                return None;
            }
            let now = Instant::now();
            if !state.items.is_empty() {
                let end = *deadline.get_or_insert(now + wait);
                if state.items.len() >= limit || now >= end {
                    return Some(state.drain(limit));
                }
            }
            let patience = deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            state.waiting += 1;
            state = self
                .ready
                .wait_timeout(state, patience.min(Duration::from_secs(3600)))
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            state.waiting -= 1;
        }
    }

    /// Number of items.
    pub(super) fn len(&self) -> usize {
        self.lock().items.len()
    }

    /// Takes up to `limit` items without waiting.
    pub(super) fn take_now(&self, limit: usize) -> Vec<T> {
        self.lock().drain(limit)
    }

    /// Returns the number of items dropped since the last call.
    pub(super) fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Closes the queue, wakes all waiting threads, and returns the queued items.
    pub(super) fn close(&self) -> VecDeque<T> {
        let mut state = self.lock();
        let left = std::mem::take(&mut state.items);
        self.refuse_more(state);
        left
    }

    /// Closes the queue and wakes all waiting threads, which take the queued items still.
    pub(super) fn finish(&self) {
        self.refuse_more(self.lock());
    }

    /// Wakes a thread that waits, if there is one.
    fn wake_one(&self, state: MutexGuard<'_, State<T>>) {
        let is_awaited = state.waiting > 0;
        drop(state);
        if is_awaited {
            self.ready.notify_one();
        }
    }

    fn refuse_more(&self, mut state: MutexGuard<'_, State<T>>) {
        state.closed = true;
        drop(state);
        self.ready.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // The queue is consistent after each statement, so that it is usable after a panic.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn drain(&mut self, limit: usize) -> Vec<T> {
        let count = limit.min(self.items.len());
        self.items.drain(..count).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses() {
        let inbox = BoundedQueue::new(1, Overflow::Refuse);

        assert_eq!(inbox.push(1), Ok(true));
        assert_eq!(inbox.push(2), Err(2));
        assert_eq!(inbox.take(9), Some(vec![1]));
    }

    #[test]
    fn a_full_queue_of_events_drops_the_oldest_and_counts() {
        let inbox = BoundedQueue::new(2, Overflow::DropOldest);
        for item in 0..5 {
            inbox.push(item).unwrap();
        }

        assert_eq!(inbox.take_now(9), [3, 4]);
        assert_eq!(inbox.take_dropped(), 3);
        assert_eq!(inbox.take_dropped(), 0);
    }

    #[test]
    fn a_closed_queue_wakes_its_taker_and_returns_its_entries() {
        let inbox = BoundedQueue::new(9, Overflow::Refuse);
        std::thread::scope(|scope| {
            let taker = scope.spawn(|| inbox.take(9));
            assert!(inbox.close().is_empty());
            assert_eq!(taker.join().unwrap(), None);
        });

        assert_eq!(inbox.push(1), Err(1));
    }

    #[test]
    fn a_taker_that_waits_is_woken_each_time() {
        let inbox = BoundedQueue::new(9, Overflow::Refuse);
        let taken = BoundedQueue::new(9, Overflow::Refuse);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while let Some(items) = inbox.take(9) {
                    for item in items {
                        taken.push(item).unwrap();
                    }
                }
            });
            for item in 0..100 {
                inbox.push(item).unwrap();
                assert_eq!(taken.take(9), Some(vec![item]));
            }
            inbox.close();
        });
        assert_eq!(inbox.lock().waiting, 0);
    }

    #[test]
    fn a_finished_queue_is_emptied_before_its_taker_ends() {
        let inbox = BoundedQueue::new(9, Overflow::DropOldest);
        inbox.push(1).unwrap();
        inbox.push(2).unwrap();
        inbox.finish();

        assert_eq!(inbox.push(3), Err(3));
        assert_eq!(inbox.take(1), Some(vec![1]));
        assert_eq!(inbox.take(1), Some(vec![2]));
        assert_eq!(inbox.take(1), None);
    }

    #[test]
    fn a_batch_is_taken_when_it_is_full_or_its_time_is_over() {
        let inbox = BoundedQueue::new(9, Overflow::Refuse);
        for item in 0..3 {
            inbox.push(item).unwrap();
        }

        assert_eq!(
            inbox.take_batch(2, Duration::from_secs(60)),
            Some(vec![0, 1])
        );
        assert_eq!(inbox.take_batch(2, Duration::ZERO), Some(vec![2]));
    }
}
