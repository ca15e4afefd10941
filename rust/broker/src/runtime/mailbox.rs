//! The bounded queue of shard messages between two shards: one lock and one wake for each batch.
//!
//! Draining never waits for sending (docs/decisions.md, 17): while a mailbox is full, the broker reads no client of the
//! shard that sends to it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::sync::Notify;

/// Number of messages in a mailbox at which its senders pause.
const CAPACITY: usize = 8_192;

/// The queue of messages from one shard to another.
pub(crate) struct Mailbox<T> {
    inner: Mutex<Inner<T>>,
    len: AtomicUsize,
}

struct Inner<T> {
    messages: Vec<T>,
    waiting: Vec<Waker>,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                messages: Vec::new(),
                waiting: Vec::new(),
            }),
            len: AtomicUsize::new(0),
        }
    }
}

impl<T> Mailbox<T> {
    /// Moves all of `messages` into the mailbox and wakes its owner if it was empty.
    pub(crate) fn send(&self, messages: &mut Vec<T>, waker: &Notify) {
        let mut inner = self.lock();
        let was_empty = inner.messages.is_empty();
        inner.messages.append(messages);
        // ORDERING: only a hint for `has_room`; the messages themselves are under the lock.
        self.len.store(inner.messages.len(), Ordering::Relaxed);
        drop(inner);
        if was_empty {
            waker.notify_one();
        }
    }

    /// Takes all queued messages and resumes paused senders.
    pub(crate) fn drain(&self, into: &mut Vec<T>) {
        // ORDERING: if a new message is missed, its sender wakes the owner afterwards.
        if self.len.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut inner = self.lock();
        into.append(&mut inner.messages);
        self.len.store(0, Ordering::Relaxed);
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        for waker in waiting {
            waker.wake();
        }
    }

    /// Number of queued messages.
    pub(crate) fn len(&self) -> usize {
        // ORDERING: a figure.
        self.len.load(Ordering::Relaxed)
    }

    /// Whether the mailbox has room, so that a publisher may be read.
    pub(crate) fn has_room(&self) -> bool {
        // ORDERING: the limit may be exceeded by the messages of one read.
        self.len.load(Ordering::Relaxed) < CAPACITY
    }

    /// Wakes `waker` once the mailbox is drained; returns false if it has room already.
    pub(crate) fn wait_for_room(&self, waker: &Waker) -> bool {
        let mut inner = self.lock();
        if inner.messages.len() < CAPACITY {
            return false;
        }
        inner.waiting.push(waker.clone());
        true
    }

    fn lock(&self) -> MutexGuard<'_, Inner<T>> {
        // No code under the lock can panic in the middle of a change.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_come_out_in_the_order_they_went_in() {
        let (mailbox, waker) = (Mailbox::default(), Notify::new());
        mailbox.send(&mut vec![1, 2], &waker);
        mailbox.send(&mut vec![3], &waker);
        let mut out = Vec::new();
        mailbox.drain(&mut out);

        assert_eq!(out, [1, 2, 3]);
    }

    #[test]
    fn a_full_box_has_no_room_until_it_is_drained() {
        let (mailbox, waker) = (Mailbox::default(), Notify::new());
        mailbox.send(&mut vec![0; CAPACITY], &waker);

        assert!(!mailbox.has_room());
        assert_eq!(mailbox.len(), CAPACITY);
        assert!(mailbox.wait_for_room(Waker::noop()));
        mailbox.drain(&mut Vec::new());
        assert!(mailbox.has_room());
        assert_eq!(mailbox.len(), 0);
        assert!(!mailbox.wait_for_room(Waker::noop()));
    }
}
