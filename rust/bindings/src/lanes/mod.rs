//! The queues between the engine and the Python threads of `mqttcore.plugin.lanes`.
//!
//! The engine's threads push and go on; they never attach. Python threads wait here detached and
//! take whole batches. A third thread, which never attaches either, refuses what is not answered
//! in time. No thread of ours enters Python: those that run hooks are Python's own.

mod asked;
mod inbox;
mod question;
mod watch;

use std::collections::HashMap;
use std::io::{self, Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{
    Action, Ask, Conversation, Event, Hooks, Interests, LogLevel, Login, Opening, Reply, Ruling,
    Secret, Turn, Verdict,
};
use mqttcore_codec::ReasonCode;
use mqttcore_topics::TopicFilter;
use pyo3::prelude::*;

pub(crate) use self::asked::PyQuestion;
use self::inbox::{Inbox, Overflow};
use self::question::{Answer, Late, Question, Subject};
use self::watch::Watch;
use crate::answers::{AnswerClasses, SessionTerms};
use crate::error::CoreError;
use crate::plugin::{PyEvent, action_named, kind_bit};
use crate::topics::parse_filter;

/// Questions that wait for one lane; more are refused with "server busy".
const QUESTIONS: usize = 1_024;
const EVENTS: usize = 65_536;
const NOTES: usize = 4_096;
/// The longest that a question waits for its first hook.
const QUEUE_DEADLINE: Duration = Duration::from_secs(5);

/// A rule of `@hook.authorize`: what is asked about, and on which lane.
struct Rule {
    action: Action,
    filter: TopicFilter,
    is_async: bool,
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
    sync: Inbox<Arc<Question>>,
    asynchronous: Inbox<Arc<Question>>,
    events: Inbox<Event>,
    notes: Arc<Inbox<Note>>,
    watch: Watch,
    /// One byte tells the event loop that questions wait.
    wake: (UnixStream, UnixStream),
    wanted: Wanted,
    sessions: HashMap<String, SessionTerms>,
}

/// What the hooks want to be asked and told.
struct Wanted {
    /// Whether the first hook of a login is `async def`; `None`: no plugin authenticates.
    login_lane: Option<bool>,
    /// Methods of enhanced authentication; their hooks are all `async def`.
    methods: Vec<Box<str>>,
    rules: Vec<Rule>,
    event_kinds: u32,
}

impl Shared {
    fn ask(&self, question: Arc<Question>, is_async: bool) {
        self.watch.add(&question, question.deadline());
        let lane = if is_async {
            &self.asynchronous
        } else {
            &self.sync
        };
        match lane.push(question) {
            Ok(_) if is_async => self.wake(),
            Ok(_) => {}
            Err(question) => {
                question.refuse(ReasonCode::SERVER_BUSY);
            }
        }
    }

    /// The pipe holds thousands of bytes: when it is full, a wake is on its way already.
    fn wake(&self) {
        let _ = (&self.wake.1).write(&[1]);
    }

    fn close(&self) {
        for question in self
            .sync
            .close()
            .into_iter()
            .chain(self.asynchronous.close())
        {
            question.refuse(ReasonCode::SERVER_UNAVAILABLE);
        }
        self.watch.stop();
        self.events.close();
        self.notes.close();
    }
}

/// The engine's side: cheap to call from any of its threads.
pub(crate) struct LaneHooks(Arc<Shared>);

impl Hooks for LaneHooks {
    fn interests(&self) -> Interests {
        let rules = self.0.wanted.rules.iter();
        Interests {
            authenticate: self.0.wanted.login_lane.is_some(),
            methods: self.0.wanted.methods.clone(),
            authorize: rules
                .map(|rule| (rule.action, rule.filter.clone()))
                .collect(),
            events: self.0.wanted.event_kinds,
        }
    }

    fn authenticate(&self, login: Arc<Login>, reply: Reply<Verdict>) {
        if let Some(is_async) = self.0.wanted.login_lane {
            let subject = Subject::Login(login);
            let question = Question::new(subject, Answer::Verdict(reply), QUEUE_DEADLINE);
            self.0.ask(question, is_async);
        }
    }

    fn converse(&self, opening: Opening, reply: Reply<Turn>) -> Box<dyn Conversation> {
        let subject = Subject::Exchange(Arc::new(opening));
        let question = Question::new(subject, Answer::Turn(reply), QUEUE_DEADLINE);
        self.0.ask(Arc::clone(&question), true);
        Box::new(LaneConversation {
            shared: Arc::clone(&self.0),
            question,
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
        if let Some(is_async) = first.map(|rule| rule.is_async) {
            let subject = Subject::Ask(Arc::new(ask), wanted);
            let question = Question::new(subject, Answer::Ruling(reply), QUEUE_DEADLINE);
            self.0.ask(question, is_async);
        }
    }

    fn event(&self, event: Event) {
        // Closed only after the engine stopped; nobody is left to tell then.
        let _ = self.0.events.push(event);
    }

    fn log(&self, level: LogLevel, text: String) {
        // As above.
        let _ = self.0.notes.push(Note::Line(level, text));
    }
}

/// The engine's end of an exchange.
struct LaneConversation {
    shared: Arc<Shared>,
    question: Arc<Question>,
}

impl Conversation for LaneConversation {
    fn proceed(&mut self, data: Option<Secret>, reply: Reply<Turn>) {
        if self.question.proceed(data, reply) {
            self.shared.ask(Arc::clone(&self.question), true);
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
    /// ``logins_async``: whether the first `authenticate` hook is `async def`; None: there is none.
    /// ``methods``: what the `enhanced_auth` hooks offer.
    /// ``rules``: action, filter and whether it is `async def` of each `authorize` hook, in order.
    /// ``events``: the kinds that are wanted. ``sessions``: each listener's default policy.
    #[new]
    #[pyo3(signature = (*, logins_async, methods, rules, events, sessions))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "arguments made out of Python lists"
    )]
    fn new(
        py: Python<'_>,
        logins_async: Option<bool>,
        methods: Vec<String>,
        rules: Vec<(String, String, bool)>,
        events: Vec<String>,
        sessions: HashMap<String, SessionTerms>,
    ) -> PyResult<Self> {
        let rules = rules.iter().map(|(action, filter, is_async)| {
            Ok(Rule {
                action: action_named(action)?,
                filter: parse_filter(filter)?,
                is_async: *is_async,
            })
        });
        let mut kinds = events.iter().map(|kind| kind_bit(kind));
        let event_kinds = kinds.try_fold(0, |bits, bit| bit.map(|bit| bits | bit))?;
        let rules = rules.collect::<Result<_, CoreError>>()?;
        let wanted = Wanted {
            login_lane: logins_async,
            methods: methods.into_iter().map(Into::into).collect(),
            rules,
            event_kinds,
        };
        let shared = start(wanted, sessions)?;
        Ok(Self {
            shared,
            classes: Arc::new(AnswerClasses::import(py)?),
        })
    }

    /// Waits for questions of `def` hooks; None: the lanes are closed.
    #[pyo3(signature = (limit, /))]
    fn take(&self, py: Python<'_>, limit: usize) -> Option<Vec<PyQuestion>> {
        let taken = py.detach(|| self.shared.sync.take(limit))?;
        Some(taken.into_iter().map(|one| self.wrap(one)).collect())
    }

    /// Puts questions back that a thread took and could not ask; they keep their order.
    #[pyo3(signature = (questions, /))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "an argument made out of a Python list"
    )]
    fn give_back(&self, questions: Vec<PyRef<'_, PyQuestion>>) {
        for question in questions.iter().rev() {
            self.shared.sync.push_front(Arc::clone(&question.inner));
        }
    }

    /// Questions of `async def` hooks, without waiting; `wake_fd` tells when to come again.
    #[pyo3(signature = (limit, /))]
    fn take_async(&self, limit: usize) -> Vec<PyQuestion> {
        let mut bytes = [0; 64];
        while matches!((&self.shared.wake.0).read(&mut bytes), Ok(count) if count > 0) {}
        let taken = self.shared.asynchronous.take_now(limit);
        taken.into_iter().map(|one| self.wrap(one)).collect()
    }

    /// Becomes readable when questions of `async def` hooks wait.
    #[getter]
    fn wake_fd(&self) -> i32 {
        self.shared.wake.0.as_raw_fd()
    }

    /// Waits for events, up to ``wait`` seconds longer for a batch of ``limit``; None: closed.
    #[pyo3(signature = (limit, wait, /))]
    fn events(&self, py: Python<'_>, limit: usize, wait: f64) -> PyResult<Option<Vec<PyEvent>>> {
        let wait = Duration::try_from_secs_f64(wait)?;
        let taken = py.detach(|| self.shared.events.take_batch(limit, wait));
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

    /// How many events were dropped since the last call because nobody took them.
    fn take_dropped_events(&self) -> u64 {
        self.shared.events.take_dropped()
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

    fn wrap(&self, inner: Arc<Question>) -> PyQuestion {
        PyQuestion {
            inner,
            shared: Arc::clone(&self.shared),
            classes: Arc::clone(&self.classes),
        }
    }
}

fn start(wanted: Wanted, sessions: HashMap<String, SessionTerms>) -> io::Result<Arc<Shared>> {
    let wake = UnixStream::pair()?;
    wake.0.set_nonblocking(true)?;
    wake.1.set_nonblocking(true)?;
    let notes = Arc::new(Inbox::new(NOTES, Overflow::DropOldest));
    let told = Arc::clone(&notes);
    let watch = Watch::start(Box::new(move |question, late| {
        // Closed only while everything stops.
        let _ = told.push(Note::Late(question, late));
    }))?;
    Ok(Arc::new(Shared {
        sync: Inbox::new(QUESTIONS, Overflow::Refuse),
        asynchronous: Inbox::new(QUESTIONS, Overflow::Refuse),
        events: Inbox::new(EVENTS, Overflow::DropOldest),
        notes,
        watch,
        wake,
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
