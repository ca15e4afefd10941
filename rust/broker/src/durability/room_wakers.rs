//! Connections that wait for room in a log.

use std::cell::RefCell;
use std::task::{Context, Poll, Waker};

/// The wakers of waiting connections.
#[derive(Default)]
pub(super) struct RoomWakers(RefCell<Vec<Waker>>);

impl RoomWakers {
    /// Pending while `has_room` is false; the task is then woken by [`wake_all`](Self::wake_all).
    pub(super) fn poll_room(&self, cx: &Context<'_>, has_room: impl Fn() -> bool) -> Poll<()> {
        if has_room() {
            return Poll::Ready(());
        }
        let mut wakers = self.0.borrow_mut();
        if !wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            wakers.push(cx.waker().clone());
        }
        // Room may have become free before this waker was in the list.
        if has_room() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Wakes all waiting connections.
    pub(super) fn wake_all(&self) {
        let wakers = self.0.take();
        wakers.iter().for_each(Waker::wake_by_ref);
    }
}
