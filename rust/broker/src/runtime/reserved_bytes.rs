//! Bytes that the connections of one shard reserve, up to a limit.

use std::cell::Cell;
use std::rc::Rc;

/// The sum of the reservations.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReservedBytes(Rc<Cell<usize>>);

/// A reservation; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Reservation {
    sum: ReservedBytes,
    bytes: usize,
}

impl ReservedBytes {
    /// Reserves `bytes`; `None` if the sum would be above `most`.
    pub(crate) fn reserve(&self, bytes: usize, most: usize) -> Option<Reservation> {
        let sum = self.0.get().checked_add(bytes)?;
        if sum > most {
            return None;
        }
        self.0.set(sum);
        Some(Reservation {
            sum: self.clone(),
            bytes,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let sum = &self.sum.0;
        sum.set(sum.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_reserved_at_once_and_comes_back() {
        let reserved = ReservedBytes::default();
        let half = reserved.reserve(8, 16).expect("there is room");
        let rest = reserved.reserve(8, 16).expect("there is room");

        assert!(reserved.reserve(1, 16).is_none());
        drop(half);
        assert!(reserved.reserve(16, 16).is_none());
        assert!(reserved.reserve(usize::MAX, usize::MAX).is_none());
        drop(rest);
        assert!(reserved.reserve(16, 16).is_some());
    }
}
