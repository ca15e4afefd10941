//! Queues between the engine and the hook workers of `mqttcore.plugin.workers`.
//!
//! Threads of the engine push questions and never attach to Python. Python threads wait for questions while detached
//! and take them in batches. The deadline thread, which never attaches either, refuses questions that are not answered
//! in time. Hooks run on threads that Python started.

mod asked;
mod bounded_queue;
mod bridge;
mod counters;
mod log_line;
mod messages;
mod packets;
mod question;
mod question_reply;
mod queue;
mod watch;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use mqttcore_broker::{DecidingHook, Hooks, StoredMessage};
use mqttcore_topics::TopicFilter;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

pub(crate) use self::asked::PyQuestion;
use self::bridge::{HookBridge, NOTIFICATIONS, Notification, Rule, Shared, Wanted};
pub(crate) use self::counters::PyHookCounters;
use self::question::Question;
use self::queue::{EventQueue, QuestionQueue};
use crate::answers::AnswerClasses;
use crate::error::CoreError;
use crate::grants::SessionTerms;
use crate::plugin::{PyEvent, action_named, kind_bit};
use crate::topics::parse_filter;

/// The question and event queues of one plugin host.
#[pyclass(name = "HookQueues", module = "mqttcore._core", frozen)]
pub(crate) struct PyHookQueues {
    shared: Arc<Shared>,
    classes: Arc<AnswerClasses>,
}

/// An `authorize` hook: action, filter, worker, name, file and line, and whether it may be tried.
type RuleArgs = (String, String, usize, String, Option<String>, bool);

fn rule((action, filter, worker, title, place, may_be_tried): RuleArgs) -> Result<Rule, CoreError> {
    Ok(Rule {
        hook: DecidingHook {
            title: title.into(),
            place: place.map(Into::into),
            may_be_tried,
        },
        action: action_named(&action)?,
        filter: parse_filter(&filter)?,
        worker,
    })
}

/// Filter and worker of each hook.
fn filters(hooks: &[(String, usize)]) -> Result<Vec<(TopicFilter, usize)>, CoreError> {
    let hooks = hooks.iter();
    hooks
        .map(|(filter, worker)| Ok((parse_filter(filter)?, *worker)))
        .collect()
}

/// The queues of observers, of each of which `events` has the kinds that it wants.
fn observers(events: &[Vec<String>]) -> Result<Vec<EventQueue>, CoreError> {
    let queue = |kinds: &Vec<String>| {
        let mut bits = kinds.iter().map(|kind| kind_bit(kind));
        let kinds = bits.try_fold(0, |kinds, bit| bit.map(|bit| kinds | bit))?;
        Ok(EventQueue::new(kinds))
    };
    events.iter().map(queue).collect()
}

#[pymethods]
impl PyHookQueues {
    /// ``workers``: of each worker, whether its hooks are `async def`. ``logins``: the worker of the first
    /// `authenticate` hook, ``grants``: of the first `grant` hook; None: there is none. ``methods``: what the `enhanced_auth` hooks offer,
    /// and their workers. ``rules``: action, filter, worker, name, file and line of each `authorize` hook, and whether it
    /// may be tried, in order.
    /// ``connects``, ``subscribes``: the workers of the first hooks of these points.
    /// ``publishes``, ``delivers``, ``wills``: filter and worker of each `publish`, `deliver` and `will` hook, in order.
    /// ``controls``: topic and worker of each `control` hook, in order.
    /// ``events``: of each observer the kinds that it wants. ``counters``: those of all hooks.
    /// ``sessions``: each listener's default policy.
    #[new]
    #[pyo3(signature = (
        *, workers, logins, grants, methods, rules, connects, subscribes, publishes, delivers, wills,
        controls, events, counters, sessions
    ))]
    #[expect(
        clippy::too_many_arguments,
        reason = "one keyword for each kind of hook"
    )]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments made out of Python lists"
    )]
    fn new(
        workers: Vec<bool>,
        logins: Option<usize>,
        grants: Option<usize>,
        methods: Vec<(String, usize)>,
        rules: Vec<RuleArgs>,
        connects: Option<usize>,
        subscribes: Option<usize>,
        publishes: Vec<(String, usize)>,
        delivers: Vec<(String, usize)>,
        wills: Vec<(String, usize)>,
        controls: Vec<(String, usize)>,
        events: Vec<Vec<String>>,
        counters: Vec<PyRef<'_, PyHookCounters>>,
        sessions: HashMap<String, SessionTerms>,
    ) -> PyResult<Self> {
        let wanted = Wanted {
            login_worker: logins,
            grant_worker: grants,
            methods,
            rules: rules.into_iter().map(rule).collect::<Result<_, _>>()?,
            connect_worker: connects,
            subscribe_worker: subscribes,
            publishes: filters(&publishes)?,
            delivers: filters(&delivers)?,
            wills: filters(&wills)?,
            controls,
        };
        let queues = workers.into_iter().map(QuestionQueue::new);
        let shared = Shared::start(
            queues.collect::<io::Result<_>>()?,
            observers(&events)?,
            counters.iter().map(|one| Arc::clone(&one.0)).collect(),
            wanted,
            sessions,
        )?;
        let classes = Arc::new(AnswerClasses::new());
        Ok(Self { shared, classes })
    }

    /// Waits for questions of a worker of `def` hooks; None: the workers are closed.
    #[pyo3(signature = (worker, limit, /))]
    fn take(
        &self,
        py: Python<'_>,
        worker: usize,
        limit: usize,
    ) -> PyResult<Option<Vec<PyQuestion>>> {
        let queue = self.queue(worker)?;
        let taken = py.detach(|| queue.inbox.take(limit));
        Ok(taken.map(|taken| taken.into_iter().map(|one| self.wrap(one)).collect()))
    }

    /// Puts questions back that a thread took and could not ask; they keep their order.
    #[pyo3(signature = (worker, questions, /))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument made out of a Python list"
    )]
    fn give_back(&self, worker: usize, questions: Vec<PyRef<'_, PyQuestion>>) -> PyResult<()> {
        let queue = self.queue(worker)?;
        for question in questions.iter().rev() {
            queue.give_back(Arc::clone(&question.inner));
        }
        Ok(())
    }

    /// Questions of a worker of `async def` hooks, without waiting; `wake_fd` tells when to come
    /// again.
    #[pyo3(signature = (worker, limit, /))]
    fn take_async(&self, worker: usize, limit: usize) -> PyResult<Vec<PyQuestion>> {
        let taken = self.queue(worker)?.take_now(limit);
        Ok(taken.into_iter().map(|one| self.wrap(one)).collect())
    }

    /// Becomes readable when questions of a worker of `async def` hooks wait.
    #[pyo3(signature = (worker, /))]
    fn wake_fd(&self, worker: usize) -> PyResult<i32> {
        let fd = self.queue(worker)?.wake_fd();
        fd.ok_or_else(|| PyIndexError::new_err("no worker of async def hooks"))
    }

    /// Waits for an observer's events, up to ``wait`` seconds longer for a batch of ``limit``;
    /// None: closed.
    #[pyo3(signature = (observer, limit, wait, /))]
    fn events(
        &self,
        py: Python<'_>,
        observer: usize,
        limit: usize,
        wait: f64,
    ) -> PyResult<Option<Vec<PyEvent>>> {
        let wait = Duration::try_from_secs_f64(wait)?;
        let observer = self.observer(observer)?;
        let taken = py.detach(|| observer.inbox.take_batch(limit, wait));
        Ok(taken.map(|events| events.into_iter().map(PyEvent).collect()))
    }

    /// Waits for log lines, expired questions and times of the store; None: the workers are closed.
    fn notifications(&self, py: Python<'_>) -> Option<PyNotifications> {
        let taken = py.detach(|| self.shared.notifications.take(NOTIFICATIONS))?;
        let mut notifications = PyNotifications {
            lines: Vec::new(),
            expired: Vec::new(),
            stored: Vec::new(),
        };
        for notification in taken {
            match notification {
                Notification::Line(line) => notifications.lines.push(log_line::parts(&line)),
                Notification::TimedOut(question, late) => {
                    let seconds = late.timeout.as_secs_f64();
                    let question = Py::new(py, self.wrap(question)).ok()?;
                    notifications.expired.push((question, late.hook, seconds));
                }
                Notification::Stored(message) => notifications.stored.push(stored_times(&message)),
            }
        }
        Some(notifications)
    }

    /// Number of events of an observer that were dropped since the last call, since its queue was full.
    #[pyo3(signature = (observer, /))]
    fn take_dropped_events(&self, observer: usize) -> PyResult<u64> {
        Ok(self.observer(observer)?.inbox.take_dropped())
    }

    /// Refuses all queued questions and wakes all waiting threads.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.shared.close());
    }
}

impl PyHookQueues {
    pub(crate) fn hooks(&self) -> Arc<dyn Hooks> {
        Arc::new(HookBridge(Arc::clone(&self.shared)))
    }

    fn queue(&self, worker: usize) -> PyResult<&QuestionQueue> {
        let found = self.shared.queues.get(worker);
        found.ok_or_else(|| PyIndexError::new_err("no such worker"))
    }

    fn observer(&self, number: usize) -> PyResult<&EventQueue> {
        let found = self.shared.observers.get(number);
        found.ok_or_else(|| PyIndexError::new_err("no such observer"))
    }

    fn wrap(&self, inner: Arc<Question>) -> PyQuestion {
        PyQuestion {
            inner,
            shared: Arc::clone(&self.shared),
            classes: Arc::clone(&self.classes),
        }
    }
}

/// Log lines, expired questions and times of the store, returned by `HookQueues.notifications`.
#[pyclass(name = "Notifications", module = "mqttcore._core", frozen, get_all)]
pub(crate) struct PyNotifications {
    /// The engine's log lines: level, text, and the keys of machine-readable logs.
    lines: Vec<log_line::Parts>,
    /// Question, hook (empty if none had started) and timeout of each expired question.
    expired: Vec<(Py<PyQuestion>, String, f64)>,
    /// How long the store took for messages.
    stored: Vec<StoredTimes>,
}

/// The number of a message, and when its records were made, written and, if that was waited for, synced: in Unix
/// nanoseconds.
type StoredTimes = (u64, u64, u64, Option<u64>);

fn stored_times(message: &StoredMessage) -> StoredTimes {
    let at = |after: Duration| {
        let since = (message.begun + after).duration_since(UNIX_EPOCH);
        u64::try_from(since.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
    };
    (
        message.number,
        at(Duration::ZERO),
        at(message.written),
        message.synced.map(at),
    )
}
