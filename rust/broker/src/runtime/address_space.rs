//! Address space that large frames of one shard reserve before their bytes arrive, and the buffers for them.
//!
//! Reserved pages take no memory, but address space may be limited (`RLIMIT_AS`, `vm.overcommit_memory = 2`), and a
//! failed allocation elsewhere would end the process.

use std::sync::Arc;

use crate::runtime::reserved_bytes::{Reservation, ReservedBytes};
use crate::runtime::spare_buffers::SpareBuffers;

/// Maximum number of bytes that are reserved at once.
const RESERVED_BYTES: usize = 16 * 1024 * 1024;

/// The reserved bytes of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSpace {
    reserved: ReservedBytes,
    spare: Arc<SpareBuffers>,
}

impl AddressSpace {
    /// Without reservations; frames get buffers of `spare`.
    pub(crate) fn new(spare: &Arc<SpareBuffers>) -> Self {
        Self {
            reserved: ReservedBytes::default(),
            spare: Arc::clone(spare),
        }
    }

    /// A buffer of an earlier message for `len` bytes.
    pub(crate) fn spare_buffer(&self, len: usize) -> Option<Vec<u8>> {
        self.spare.take(len)
    }

    /// Counts `bytes` as reserved; `None` if too many would be.
    pub(crate) fn reserve(&self, bytes: usize) -> Option<Reservation> {
        self.reserved.reserve(bytes, RESERVED_BYTES)
    }
}
