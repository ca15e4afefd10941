//! The locks of chunks across `fork`: they are free in the child, which has only the thread that forked. Python forks
//! (`multiprocessing`, workers of Spark), and malloc does the same for its own locks.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::chunks::Chunks;

/// Waits for the lock, and keeps it from being held in a forked child by a thread that the child does not have.
pub(crate) fn lock(chunks: &'static Mutex<Chunks>) -> MutexGuard<'static, Chunks> {
    #[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
    handlers::register();
    wait_for(chunks)
}

fn wait_for(chunks: &'static Mutex<Chunks>) -> MutexGuard<'static, Chunks> {
    chunks.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(miri)))]
mod handlers {
    use std::cell::UnsafeCell;
    use std::sync::{Mutex, MutexGuard, Once};

    use super::wait_for;
    use crate::chunks::Chunks;
    use crate::{aligned, pool};

    static LOCKS: [&Mutex<Chunks>; 2] = [&aligned::CHUNKS, &pool::CHUNKS];

    /// The locks that a thread holds while it forks.
    struct Held(UnsafeCell<Option<[MutexGuard<'static, Chunks>; 2]>>);

    // SAFETY: only a thread that holds the locks looks into it.
    unsafe impl Sync for Held {}

    static HELD: Held = Held(UnsafeCell::new(None));

    pub(super) fn register() {
        static REGISTERED: Once = Once::new();
        // SAFETY: the handlers take no arguments, and stay as long as the process: nothing unloads this code.
        REGISTERED.call_once(|| unsafe {
            // An error means that there is no memory for three pointers; the locks work without the handlers.
            libc::pthread_atfork(Some(before), Some(after), Some(after));
        });
    }

    extern "C" fn before() {
        let guards = LOCKS.map(wait_for);
        // SAFETY: this thread holds the locks.
        unsafe { *HELD.0.get() = Some(guards) };
    }

    /// In the parent, and in the child.
    extern "C" fn after() {
        // SAFETY: this thread took the locks in `before`; the child has a copy of it.
        drop(unsafe { (*HELD.0.get()).take() });
    }
}
