//! The processor time of this thread: what others do on the machine counts only through shared caches.

use std::time::Duration;

/// The processor time that this thread has used.
///
/// # Panics
///
/// Where the system has no such clock, which no supported one does.
#[must_use]
pub fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the call writes into the one struct that it is given.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(answer, 0, "the system has a clock for every thread");
    // INVARIANT: a clock that runs since the start of the thread is not negative.
    let seconds = u64::try_from(time.tv_sec).expect("processor time is positive");
    let nanos = u32::try_from(time.tv_nsec).expect("a part of a second");
    Duration::new(seconds, nanos)
}

/// Nanoseconds of processor time that `work` takes.
pub fn measure<R>(work: impl FnOnce() -> R) -> (f64, R) {
    let start = thread_time();
    let result = work();
    (nanos_since(start), result)
}

/// Does blocks of work, each twice as long as the last, until they took `budget`; answers nanoseconds a unit.
///
/// `block` does up to as many units as it is asked for and answers how many; 0 ends the measurement.
pub fn nanos_a_unit(budget: Duration, mut block: impl FnMut(usize) -> usize) -> f64 {
    let (mut units, mut ask) = (0, 1);
    let start = thread_time();
    loop {
        let done = block(ask);
        units += done;
        let spent = thread_time().saturating_sub(start);
        if done == 0 || spent >= budget {
            return nanos(spent) / count(units.max(1));
        }
        ask = (ask * 2).min(16_384);
    }
}

fn nanos_since(start: Duration) -> f64 {
    nanos(thread_time().saturating_sub(start))
}

#[expect(clippy::cast_precision_loss, reason = "times of less than a month")]
fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

/// A count as a number to divide by.
#[expect(clippy::cast_precision_loss, reason = "counts below 2^52")]
#[must_use]
pub fn count(units: usize) -> f64 {
    units as f64
}
