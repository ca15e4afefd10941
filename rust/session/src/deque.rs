//! A queue that is one pointer while it has no memory.

use std::collections::VecDeque;

/// A queue for state that most sessions do not use most of the time: a pointer is a quarter of an empty `VecDeque`.
#[derive(Debug)]
#[expect(
    clippy::box_collection,
    reason = "an idle connection has three of them, and none has memory"
)]
pub(crate) struct LazyDeque<T>(Option<Box<VecDeque<T>>>);

impl<T> LazyDeque<T> {
    /// An empty queue without memory.
    pub(crate) const EMPTY: Self = Self(None);

    pub(crate) fn is_empty(&self) -> bool {
        self.0.as_ref().is_none_or(|queue| queue.is_empty())
    }

    pub(crate) fn front(&self) -> Option<&T> {
        self.0.as_ref()?.front()
    }

    pub(crate) fn back(&self) -> Option<&T> {
        self.0.as_ref()?.back()
    }

    pub(crate) fn push_back(&mut self, item: T) {
        self.0.get_or_insert_default().push_back(item);
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        self.0.as_mut()?.pop_front()
    }

    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = &T> {
        self.0.iter().flat_map(|queue| queue.iter())
    }

    /// Takes out all items, the oldest first.
    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> {
        self.0.take().into_iter().flat_map(|queue| *queue)
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.0.as_ref().map_or(0, |queue| {
            size_of::<VecDeque<T>>() + queue.capacity() * size_of::<T>()
        })
    }

    /// Frees the memory if the queue is empty.
    pub(crate) fn shrink(&mut self) {
        if self.is_empty() {
            self.0 = None;
        }
    }
}

impl<T> Extend<T> for LazyDeque<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, items: I) {
        for item in items {
            self.push_back(item);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_their_order() {
        let mut queue = LazyDeque::EMPTY;
        queue.extend([1, 2, 3]);

        assert_eq!((queue.front(), queue.back()), (Some(&1), Some(&3)));
        assert_eq!(queue.pop_front(), Some(1));
        assert_eq!(queue.iter().rev().collect::<Vec<_>>(), [&3, &2]);
        assert_eq!(queue.take().collect::<Vec<_>>(), [2, 3]);
        assert!(queue.is_empty());
    }

    #[test]
    fn only_an_empty_queue_gives_its_memory_back() {
        let mut queue = LazyDeque::EMPTY;
        assert_eq!((queue.heap_bytes(), size_of_val(&queue)), (0, 8));
        queue.push_back(1_u64);

        queue.shrink();
        assert!(queue.heap_bytes() > 32);
        queue.pop_front();
        queue.shrink();

        assert_eq!(queue.heap_bytes(), 0);
    }
}
