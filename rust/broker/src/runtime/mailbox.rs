//! The bounded queue of shard messages between two shards: one lock and one wake for each batch.
//!
//! Draining never waits for sending (docs/decisions.md, 17): while a mailbox is full, the broker reads no client of the
//! shard that sends to it.

use std::cell::{Cell, RefCell};
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
        move_all(messages, &mut inner.messages);
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
        move_all(&mut inner.messages, into);
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

/// Messages of a shard for the mailboxes of others, not sent yet.
pub(crate) struct OutgoingMessages<T> {
    /// By shard.
    messages: RefCell<Vec<Vec<T>>>,
    /// The sum of the weights of the messages.
    weight: Cell<usize>,
    /// The task that sends them.
    sender: RefCell<Waker>,
}

impl<T> OutgoingMessages<T> {
    pub(crate) fn new(shards: usize) -> Self {
        Self {
            messages: RefCell::new((0..shards).map(|_| Vec::new()).collect()),
            weight: Cell::new(0),
            sender: RefCell::new(Waker::noop().clone()),
        }
    }

    pub(crate) fn push(&self, to: usize, message: T, weight: usize) {
        self.weight.set(self.weight.get() + weight);
        self.messages.borrow_mut()[to].push(message);
    }

    /// The sum of the weights of the messages; 0 if there are none.
    pub(crate) fn weight(&self) -> usize {
        self.weight.get()
    }

    /// Calls `send` for each shard that gets messages; it takes all of them.
    pub(crate) fn send(&self, send: impl Fn(usize, &mut Vec<T>)) {
        if self.weight.take() == 0 {
            return;
        }
        for (to, messages) in self.messages.borrow_mut().iter_mut().enumerate() {
            if !messages.is_empty() {
                send(to, messages);
            }
        }
    }

    /// Stores the waker of the task that sends.
    pub(crate) fn set_sender(&self, waker: &Waker) {
        self.sender.borrow_mut().clone_from(waker);
    }

    /// Wakes the task that sends.
    pub(crate) fn wake_sender(&self) {
        self.sender.borrow().wake_by_ref();
    }
}

/// Moves all of `from` behind `to`; if that is empty, the two are swapped, so that no message is copied.
fn move_all<T>(from: &mut Vec<T>, to: &mut Vec<T>) {
    if to.is_empty() {
        std::mem::swap(from, to);
    } else {
        to.append(from);
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

    #[test]
    fn all_messages_are_sent_at_once_and_only_to_shards_that_get_some() {
        let outgoing = OutgoingMessages::new(3);
        let taken = RefCell::new(Vec::new());
        let take_all = |to: usize, messages: &mut Vec<char>| {
            let messages: String = messages.drain(..).collect();
            taken.borrow_mut().push((to, messages));
        };
        outgoing.push(2, 'a', 1);
        outgoing.push(0, 'b', 2);
        outgoing.push(2, 'c', 3);
        assert_eq!(outgoing.weight(), 6);

        outgoing.send(take_all);
        outgoing.send(take_all);

        assert_eq!(taken.take(), [(0, "b".into()), (2, "ac".into())]);
        assert_eq!(outgoing.weight(), 0);
    }

    #[test]
    fn messages_that_come_to_an_empty_box_and_to_a_full_one_are_all_taken() {
        let (mailbox, waker) = (Mailbox::default(), Notify::new());
        let mut out = vec![0];
        for batch in [[1, 2], [3, 4]] {
            let mut batch = batch.to_vec();
            mailbox.send(&mut batch, &waker);
            assert!(batch.is_empty());
        }

        mailbox.drain(&mut out);

        assert_eq!(out, [0, 1, 2, 3, 4]);
        assert_eq!(mailbox.len(), 0);
    }
}
