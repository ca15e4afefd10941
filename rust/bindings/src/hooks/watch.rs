//! The deadline thread: refuses questions that are not answered in time. It never attaches to Python.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use mqttcore_panics::Panicked;

use super::question::{Alarm, Question, TimedOut};

/// Called on the deadline thread with each question that it has refused.
pub(super) type OnLate = Box<dyn Fn(Arc<Question>, TimedOut) + Send>;

/// Called on the deadline thread after a question has caused a panic; the thread continues.
pub(super) type OnPanic = Box<dyn Fn(Panicked) + Send>;

const NAME: &str = "mqttcore-watch";

/// The deadlines of all open questions, and the deadline thread.
pub(super) struct DeadlineWatch {
    shared: Arc<Shared>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    alarms: BinaryHeap<Reverse<Entry>>,
    stopped: bool,
}

struct Entry(Alarm);

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.0.at == other.0.at
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.at.cmp(&other.0.at)
    }
}

impl DeadlineWatch {
    pub(super) fn start(on_late: OnLate, on_panic: OnPanic) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        // A panic loses one alarm, but must not end the thread: otherwise no question would time out.
        let run = move || {
            while let Err(panic) = catch_unwind(AssertUnwindSafe(|| own.run(&on_late))) {
                on_panic(Panicked::new(NAME, &*panic));
            }
        };
        let thread = std::thread::Builder::new().name(NAME.into()).spawn(run)?;
        Ok(Self {
            shared,
            thread: Mutex::new(Some(thread)),
        })
    }

    /// Adds the deadline `at` of a question. If the question has a later deadline by then, that one counts.
    pub(super) fn add(&self, question: &Arc<Question>, at: Instant) {
        let mut state = self.shared.lock();
        let is_next = state
            .alarms
            .peek()
            .is_none_or(|Reverse(first)| at < first.0.at);
        state.alarms.push(Reverse(Entry(Alarm {
            at,
            question: Arc::downgrade(question),
        })));
        drop(state);
        if is_next {
            self.shared.changed.notify_one();
        }
    }

    /// Ends the thread and waits for it.
    pub(super) fn stop(&self) {
        self.shared.lock().stopped = true;
        self.shared.changed.notify_one();
        let thread = self
            .thread
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(thread) = thread {
            // The thread catches its panics.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self, on_late: &OnLate) {
        let mut state = self.lock();
        while !state.stopped {
            let now = Instant::now();
            let next = state.alarms.peek().map(|Reverse(first)| first.0.at);
            match next {
                Some(at) if at <= now => {
                    let due = state.alarms.pop();
                    drop(state);
                    let moved = due.and_then(|Reverse(entry)| expire(&entry.0, now, on_late));
                    state = self.lock();
                    state
                        .alarms
                        .extend(moved.map(|alarm| Reverse(Entry(alarm))));
                }
                _ => {
                    let wait = next.map_or(Duration::from_secs(3600), |at| at - now);
                    state = self
                        .changed
                        .wait_timeout(state, wait)
                        .unwrap_or_else(PoisonError::into_inner)
                        .0;
                }
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Refuses the question if its deadline has passed; otherwise returns an alarm for the later deadline.
fn expire(alarm: &Alarm, now: Instant, on_late: &OnLate) -> Option<Alarm> {
    let question = alarm.question.upgrade()?;
    match question.expire(now) {
        Ok(late) => {
            if let Some(late) = late {
                on_late(question, late);
            }
            None
        }
        Err(at) => Some(Alarm {
            at,
            question: alarm.question.clone(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::question::tests::login;
    use super::*;

    fn question() -> (Arc<Question>, impl Sized) {
        let (question, wanted) = login();
        question
            .start("hook", Duration::ZERO)
            .expect("it is wanted");
        (question, wanted)
    }

    #[test]
    fn a_panic_about_one_question_is_reported_and_the_next_one_still_ends_in_time() {
        let (sender, told) = channel();
        let late = |_, _| panic!("on purpose");
        let watch = DeadlineWatch::start(
            Box::new(late),
            Box::new(move |panicked| sender.send(panicked).expect("the test waits")),
        )
        .expect("a thread");

        for _ in 0..2 {
            let (question, _wanted) = question();
            watch.add(&question, question.deadline());
            let panicked = told
                .recv_timeout(Duration::from_secs(20))
                .expect("it is told");
            assert_eq!(&*panicked.place, "mqttcore-watch");
        }
        watch.stop();
    }
}
