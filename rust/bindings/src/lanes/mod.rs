//! The queues between the engine and the Python threads of `mqttcore.plugin.lanes`.
//!
//! The engine's threads push and go on; they never attach. Python threads wait here detached and
//! take whole batches. A third thread, which never attaches either, refuses what is not answered
//! in time. No thread of ours enters Python: those that run hooks are Python's own.

mod asked;
mod inbox;
mod question;
mod queue;
mod watch;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{
    Action, Ask, Conversation, Event, Hooks, Interests, LogLevel, Login, Opening, Reply, Ruling,
    Secret, Turn, Verdict,
};
use mqttcore_codec::ReasonCode;
use mqttcore_panics::Panicked;
use mqttcore_topics::TopicFilter;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

pub(crate) use self::asked::PyQuestion;
use self::inbox::{Inbox, Overflow};
use self::question::{Answer, Late, Question, Subject};
use self::queue::{Observer, Queue};
use self::watch::Watch;
use crate::answers::{AnswerClasses, SessionTerms};
use crate::error::CoreError;
use crate::plugin::{PyEvent, action_named, kind_bit};
use crate::topics::parse_filter;

const NOTES: usize = 4_096;

/// A rule of `@hook.authorize`: what is asked about, and the number of its lane.
struct Rule {
    action: Action,
    filter: TopicFilter,
    lane: usize,
}

impl Rule {
    /// A publish to a topic that the filter matches, a subscription that it covers.
    fn wants(&self, ask: &Ask) -> bool {
        self.action == ask.action && self.filter.covers(&ask.topic)
    }
}

/// Something that the watching Python thread shall know.
enum Note {
    Line(LogLevel, String),
    Late(Arc<Question>, Late),
}

struct Shared {
    /// The lanes: one for the `def` hooks of a plugin, one for its `async def` hooks.
    queues: Vec<Queue>,
    /// One for each plugin with hooks of events, so that none is held up by another.
    observers: Vec<Observer>,
    notes: Arc<Inbox<Note>>,
    watch: Watch,
    wanted: Wanted,
    sessions: HashMap<String, SessionTerms>,
}

/// What the hooks want to be asked and told.
struct Wanted {
    /// The lane of a login's first hook; `None`: no plugin authenticates.
    login_lane: Option<usize>,
    /// Methods of enhanced authentication, with the lanes of their hooks.
    methods: Vec<(Box<str>, usize)>,
    rules: Vec<Rule>,
}

impl Shared {
    /// Has a lane ask; one that does not exist, or has no room, refuses.
    fn ask(&self, question: Arc<Question>, lane: usize) {
        self.watch.add(&question, question.deadline());
        let refused = match self.queues.get(lane) {
            Some(queue) => queue.push(question).err(),
            None => Some(question),
        };
        if let Some(question) = refused {
            question.refuse(ReasonCode::SERVER_BUSY);
        }
    }

    fn close(&self) {
        for question in self.queues.iter().flat_map(Queue::close) {
            question.refuse(ReasonCode::SERVER_UNAVAILABLE);
        }
        self.watch.stop();
        for observer in &self.observers {
            observer.inbox.close();
        }
        self.notes.close();
    }
}

/// The engine's side: cheap to call from any of its threads.
pub(crate) struct LaneHooks(Arc<Shared>);

impl Hooks for LaneHooks {
    fn interests(&self) -> Interests {
        let rules = self.0.wanted.rules.iter();
        let methods = self.0.wanted.methods.iter();
        let observers = self.0.observers.iter();
        Interests {
            authenticate: self.0.wanted.login_lane.is_some(),
            methods: methods.map(|(method, _)| method.clone()).collect(),
            authorize: rules
                .map(|rule| (rule.action, rule.filter.clone()))
                .collect(),
            events: observers.fold(0, |kinds, observer| kinds | observer.kinds),
        }
    }

    fn authenticate(&self, login: Arc<Login>, reply: Reply<Verdict>) {
        if let Some(lane) = self.0.wanted.login_lane {
            let question = Question::new(Subject::Login(login), Answer::Verdict(reply));
            self.0.ask(question, lane);
        }
    }

    fn converse(&self, opening: Opening, reply: Reply<Turn>) -> Box<dyn Conversation> {
        let mut methods = self.0.wanted.methods.iter();
        let found = methods.find(|(method, _)| **method == *opening.method);
        // Without a lane it is refused: the engine asks only about methods that are offered.
        let lane = found.map_or(usize::MAX, |(_, lane)| *lane);
        let subject = Subject::Exchange(Arc::new(opening));
        let question = Question::new(subject, Answer::Turn(reply));
        self.0.ask(Arc::clone(&question), lane);
        Box::new(LaneConversation {
            shared: Arc::clone(&self.0),
            question,
            lane,
        })
    }

    fn authorize(&self, ask: Ask, reply: Reply<Ruling>) {
        let rules = self.0.wanted.rules.iter().enumerate();
        let wanted: Vec<usize> = rules
            .filter(|(_, rule)| rule.wants(&ask))
            .map(|(index, _)| index)
            .collect();
        let first = wanted
            .first()
            .and_then(|&index| self.0.wanted.rules.get(index));
        if let Some(lane) = first.map(|rule| rule.lane) {
            let subject = Subject::Ask(Arc::new(ask), wanted);
            let question = Question::new(subject, Answer::Ruling(reply));
            self.0.ask(question, lane);
        }
    }

    fn event(&self, event: Event) {
        for observer in &self.0.observers {
            observer.tell(&event);
        }
    }

    fn log(&self, level: LogLevel, text: String) {
        // Closed only after the engine stopped; nobody is left to tell then.
        let _ = self.0.notes.push(Note::Line(level, text));
    }
}

/// The engine's end of an exchange.
struct LaneConversation {
    shared: Arc<Shared>,
    question: Arc<Question>,
    lane: usize,
}

impl Conversation for LaneConversation {
    fn proceed(&mut self, data: Option<Secret>, reply: Reply<Turn>) {
        if self.question.proceed(data, reply) {
            self.shared.ask(Arc::clone(&self.question), self.lane);
        }
    }
}

impl Drop for LaneConversation {
    fn drop(&mut self) {
        self.question.leave();
    }
}

/// The queues of one set of plugins, as its Python threads see them.
#[pyclass(name = "Lanes", module = "mqttcore._core", frozen)]
pub(crate) struct PyLanes {
    shared: Arc<Shared>,
    classes: Arc<AnswerClasses>,
}

#[pymethods]
impl PyLanes {
    /// ``lanes``: of each lane, whether its hooks are `async def`. ``logins``: the lane of the first
    /// `authenticate` hook; None: there is none. ``methods``: what the `enhanced_auth` hooks offer,
    /// and their lanes. ``rules``: action, filter and lane of each `authorize` hook, in order.
    /// ``events``: of each observer the kinds that it wants. ``sessions``: each listener's default
    /// policy.
    #[new]
    #[pyo3(signature = (*, lanes, logins, methods, rules, events, sessions))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments made out of Python lists"
    )]
    fn new(
        py: Python<'_>,
        lanes: Vec<bool>,
        logins: Option<usize>,
        methods: Vec<(String, usize)>,
        rules: Vec<(String, String, usize)>,
        events: Vec<Vec<String>>,
        sessions: HashMap<String, SessionTerms>,
    ) -> PyResult<Self> {
        let rules = rules.iter().map(|(action, filter, lane)| {
            Ok(Rule {
                action: action_named(action)?,
                filter: parse_filter(filter)?,
                lane: *lane,
            })
        });
        let rules = rules.collect::<Result<_, CoreError>>()?;
        let methods = methods.into_iter();
        let wanted = Wanted {
            login_lane: logins,
            methods: methods.map(|(name, lane)| (name.into(), lane)).collect(),
            rules,
        };
        let queues = lanes.into_iter().map(Queue::new);
        let observers = events.iter().map(|kinds| {
            let mut bits = kinds.iter().map(|kind| kind_bit(kind));
            let kinds = bits.try_fold(0, |kinds, bit| bit.map(|bit| kinds | bit))?;
            Ok(Observer::new(kinds))
        });
        let shared = start(
            queues.collect::<io::Result<_>>()?,
            observers.collect::<Result<_, CoreError>>()?,
            wanted,
            sessions,
        )?;
        Ok(Self {
            shared,
            classes: Arc::new(AnswerClasses::import(py)?),
        })
    }

    /// Waits for questions of a lane of `def` hooks; None: the lanes are closed.
    #[pyo3(signature = (lane, limit, /))]
    fn take(&self, py: Python<'_>, lane: usize, limit: usize) -> PyResult<Option<Vec<PyQuestion>>> {
        let queue = self.queue(lane)?;
        let taken = py.detach(|| queue.inbox.take(limit));
        Ok(taken.map(|taken| taken.into_iter().map(|one| self.wrap(one)).collect()))
    }

    /// Puts questions back that a thread took and could not ask; they keep their order.
    #[pyo3(signature = (lane, questions, /))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument made out of a Python list"
    )]
    fn give_back(&self, lane: usize, questions: Vec<PyRef<'_, PyQuestion>>) -> PyResult<()> {
        let queue = self.queue(lane)?;
        for question in questions.iter().rev() {
            queue.inbox.push_front(Arc::clone(&question.inner));
        }
        Ok(())
    }

    /// Questions of a lane of `async def` hooks, without waiting; `wake_fd` tells when to come
    /// again.
    #[pyo3(signature = (lane, limit, /))]
    fn take_async(&self, lane: usize, limit: usize) -> PyResult<Vec<PyQuestion>> {
        let taken = self.queue(lane)?.take_now(limit);
        Ok(taken.into_iter().map(|one| self.wrap(one)).collect())
    }

    /// Becomes readable when questions of a lane of `async def` hooks wait.
    #[pyo3(signature = (lane, /))]
    fn wake_fd(&self, lane: usize) -> PyResult<i32> {
        let fd = self.queue(lane)?.wake_fd();
        fd.ok_or_else(|| PyIndexError::new_err("no lane of async def hooks"))
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

    /// Waits for what the log shall hear; None: the lanes are closed.
    fn notes(&self, py: Python<'_>) -> Option<PyNotes> {
        let taken = py.detach(|| self.shared.notes.take(NOTES))?;
        let mut notes = PyNotes {
            lines: Vec::new(),
            expired: Vec::new(),
        };
        for note in taken {
            match note {
                Note::Line(level, text) => notes.lines.push((level as u8, text)),
                Note::Late(question, late) => {
                    let seconds = late.timeout.as_secs_f64();
                    let question = Py::new(py, self.wrap(question)).ok()?;
                    notes.expired.push((question, late.hook, seconds));
                }
            }
        }
        Some(notes)
    }

    /// How many events of an observer were dropped since the last call because nobody took them.
    #[pyo3(signature = (observer, /))]
    fn take_dropped_events(&self, observer: usize) -> PyResult<u64> {
        Ok(self.observer(observer)?.inbox.take_dropped())
    }

    /// Refuses what waits and wakes every thread that waits here.
    fn close(&self, py: Python<'_>) {
        py.detach(|| self.shared.close());
    }
}

impl PyLanes {
    pub(crate) fn hooks(&self) -> Arc<dyn Hooks> {
        Arc::new(LaneHooks(Arc::clone(&self.shared)))
    }

    fn queue(&self, lane: usize) -> PyResult<&Queue> {
        let found = self.shared.queues.get(lane);
        found.ok_or_else(|| PyIndexError::new_err("no such lane"))
    }

    fn observer(&self, number: usize) -> PyResult<&Observer> {
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

fn start(
    queues: Vec<Queue>,
    observers: Vec<Observer>,
    wanted: Wanted,
    sessions: HashMap<String, SessionTerms>,
) -> io::Result<Arc<Shared>> {
    let notes = Arc::new(Inbox::new(NOTES, Overflow::DropOldest));
    let told = Arc::clone(&notes);
    let told_of_panics = Arc::clone(&notes);
    let on_late = Box::new(move |question, late| {
        // Closed only while everything stops.
        let _ = told.push(Note::Late(question, late));
    });
    let on_panic = Box::new(move |panicked: Panicked| {
        // As above.
        let _ = told_of_panics.push(Note::Line(LogLevel::Error, panicked.to_string()));
    });
    let watch = Watch::start(on_late, on_panic)?;
    Ok(Arc::new(Shared {
        queues,
        observers,
        notes,
        watch,
        wanted,
        sessions,
    }))
}

/// What `Lanes.notes` hands out.
#[pyclass(name = "Notes", module = "mqttcore._core", frozen, get_all)]
pub(crate) struct PyNotes {
    /// Level and text of the engine's log lines.
    lines: Vec<(u8, String)>,
    /// Question, hook (empty: none had begun) and timeout of what was refused for lateness.
    expired: Vec<(Py<PyQuestion>, String, f64)>,
}
