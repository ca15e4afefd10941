//! Address space that large frames of one shard reserve before their bytes arrive, and the buffers for them.
//!
//! Reserved pages take no memory, but address space may be limited (`RLIMIT_AS`, `vm.overcommit_memory = 2`), and a
//! failed allocation elsewhere would end the process.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use crate::runtime::spare_buffers::SpareBuffers;

/// Maximum number of bytes that are reserved at once.
const RESERVED_BYTES: usize = 16 * 1024 * 1024;

/// The reserved bytes of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSpace {
    reserved: Rc<Cell<usize>>,
    spare: Arc<SpareBuffers>,
}

/// A reservation; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Reservation {
    space: AddressSpace,
    bytes: usize,
}

impl AddressSpace {
    /// Without reservations; frames get buffers of `spare`.
    pub(crate) fn new(spare: &Arc<SpareBuffers>) -> Self {
        Self {
            reserved: Rc::default(),
            spare: Arc::clone(spare),
        }
    }

    /// A buffer of an earlier message for `len` bytes.
    pub(crate) fn spare_buffer(&self, len: usize) -> Option<Vec<u8>> {
        self.spare.take(len)
    }

    /// Counts `bytes` as reserved; `None` if too many would be.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        let sum = self.reserved.get().checked_add(bytes)?;
        if sum > RESERVED_BYTES {
            return None;
        }
        self.reserved.set(sum);
        Some(Reservation {
            space: self.clone(),
            bytes,
        })
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let sum = &self.space.reserved;
        sum.set(sum.get() - self.bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_mib_are_reserved_at_once_and_come_back() {
        let space = AddressSpace::default();
        let half = space.reserve(RESERVED_BYTES / 2).expect("there is room");
        let rest = space.reserve(RESERVED_BYTES / 2).expect("there is room");

        assert!(space.reserve(1).is_none());
        drop(half);
        assert!(space.reserve(RESERVED_BYTES).is_none());
        assert!(space.reserve(usize::MAX).is_none());
        drop(rest);
        assert!(space.reserve(RESERVED_BYTES).is_some());
    }
}
