//! What the allocator has handed out, its own overhead included, and so the directory from its chunks.

use mqttcore_topics::Directory;

use crate::contenders::ours::Ours;

/// Pins between two looks at the heap, and how many looks at most.
const SETTLE_PINS: usize = 4096;
const SETTLE_TURNS: usize = 256;

/// Bytes of all pieces in use: headers and rounding included, free ones not. `None` without glibc.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[must_use]
pub fn bytes_in_use() -> Option<usize> {
    // SAFETY: the call takes nothing and reads counters of the allocator.
    let info = unsafe { libc::mallinfo2() };
    Some(info.uordblks + info.hblkhd + Directory::heap_bytes())
}

/// Bytes of all pieces in use. `None` without glibc.
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
#[must_use]
pub fn bytes_in_use() -> Option<usize> {
    None
}

/// Frees what directories of before left to later epochs, so that it does not count as shrinking of the next.
pub fn settle() {
    let mut ours = Ours::new();
    ours.admit(1);
    for _ in 0..SETTLE_TURNS {
        let before = bytes_in_use();
        for _ in 0..SETTLE_PINS {
            ours.directory().commit(ours.id(0), &[]);
        }
        Directory::trim();
        if bytes_in_use() == before {
            break;
        }
    }
}

/// Runs `work` and answers how many more bytes are in use afterwards; NaN where nobody can say.
#[expect(clippy::cast_precision_loss, reason = "heaps below 2^52 bytes")]
pub fn growth<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let before = bytes_in_use();
    let result = work();
    let growth = before
        .zip(bytes_in_use())
        .map(|(before, after)| after as f64 - before as f64);
    (growth.unwrap_or(f64::NAN), result)
}
