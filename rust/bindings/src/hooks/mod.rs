//! Queues between the engine and the hook workers of `mqttcore.plugin.workers`.
//!
//! Threads of the engine push questions and never attach to Python. Python threads wait for questions while detached
//! and take them in batches. The deadline thread, which never attaches either, refuses questions that are not answered
//! in time. Hooks run on threads that Python started.

mod asked;
mod bounded_queue;
mod log_line;
mod messages;
mod packets;
mod question;
mod queue;
mod watch;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use mqttcore_broker::{
    Action, AuthExchange, AuthorizeDecision, AuthorizeRequest, ConnectDecision, ExchangeReply,
    ExchangeStart, HookInterests, Hooks, LogLevel, LogLine, Login, LoginDecision, PluginEvent,
    PublishBatch, PublishDecision, Reply, Secret, SubscribeBatch, SubscribeDecision,
};
use mqttcore_codec::ReasonCode;
use mqttcore_panics::Panicked;
use mqttcore_session::Message;
use mqttcore_topics::TopicFilter;
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

pub(crate) use self::asked::PyQuestion;
use self::bounded_queue::{BoundedQueue, Overflow};
use self::messages::Messages;
use self::packets::{Connecting, Subscriptions};
use self::question::{Question, QuestionReply, Subject, TimedOut};
use self::queue::{EventQueue, QuestionQueue};
use self::watch::DeadlineWatch;
use crate::answers::{AnswerClasses, SessionTerms};
use crate::error::CoreError;
use crate::plugin::{PyEvent, action_named, kind_bit};
use crate::topics::parse_filter;

const NOTIFICATIONS: usize = 4_096;

/// An `authorize` hook: the requests that it decides, and the index of its worker.
struct Rule {
    action: Action,
    filter: TopicFilter,
    worker: usize,
}

impl Rule {
    /// Whether the hook decides a request: the filter matches the topic of a publish, or covers that of a subscription.
    fn wants(&self, ask: &AuthorizeRequest) -> bool {
        self.action == ask.action && self.filter.covers(&ask.topic)
    }
}

/// A notification for the plugin host's thread.
enum Notification {
    Line(LogLine),
    TimedOut(Arc<Question>, TimedOut),
}

struct Shared {
    /// The queues: of a plugin one for `def` hooks, one for `async def` hooks, and two more for those of publishes.
    queues: Vec<QuestionQueue>,
    /// One queue for each plugin with event hooks, so that plugins do not delay each other.
    observers: Vec<EventQueue>,
    notifications: Arc<BoundedQueue<Notification>>,
    watch: DeadlineWatch,
    wanted: Wanted,
    sessions: HashMap<String, SessionTerms>,
}

/// The hooks of all plugins: which questions and events they need.
struct Wanted {
    /// The worker of a login's first hook; `None`: no plugin authenticates.
    login_worker: Option<usize>,
    /// The worker of the first hook that knows the present grant of a client.
    grant_worker: Option<usize>,
    /// Methods of enhanced authentication, with the workers of their hooks.
    methods: Vec<(Box<str>, usize)>,
    rules: Vec<Rule>,
    /// The workers of the first hooks for CONNECT and SUBSCRIBE.
    connect_worker: Option<usize>,
    subscribe_worker: Option<usize>,
    /// Filter and worker of each publish hook.
    publishes: Vec<(TopicFilter, usize)>,
    /// Filter and worker of each will hook.
    wills: Vec<(TopicFilter, usize)>,
}

/// The first hook whose filter matches a message, with its position.
fn first_of<'w>(
    hooks: &'w [(TopicFilter, usize)],
    messages: &[Message],
) -> Option<(usize, &'w (TopicFilter, usize))> {
    let mut hooks = hooks.iter().enumerate();
    hooks.find(|(_, (filter, _))| {
        let mut topics = messages.iter().map(Message::topic_name);
        topics.any(|topic| filter.matches(topic))
    })
}

impl Shared {
    /// Queues a question for a worker; refuses it if the worker does not exist or its queue is full.
    fn ask(&self, question: Arc<Question>, worker: usize) {
        self.watch.add(&question, question.deadline());
        let refused = match self.queues.get(worker) {
            Some(queue) => queue.push(question).err(),
            None => Some(question),
        };
        if let Some(question) = refused {
            question.refuse(ReasonCode::SERVER_BUSY);
        }
    }

    fn close(&self) {
        for question in self.queues.iter().flat_map(QuestionQueue::close) {
            question.refuse(ReasonCode::SERVER_UNAVAILABLE);
        }
        self.watch.stop();
        for observer in &self.observers {
            observer.inbox.close();
        }
        self.notifications.close();
    }
}

/// Implements [`Hooks`] with queues: cheap to call from any thread of the engine.
pub(crate) struct HookBridge(Arc<Shared>);

impl Hooks for HookBridge {
    fn interests(&self) -> HookInterests {
        let rules = self.0.wanted.rules.iter();
        let methods = self.0.wanted.methods.iter();
        let publishes = self.0.wanted.publishes.iter();
        let wills = self.0.wanted.wills.iter();
        let observers = self.0.observers.iter();
        HookInterests {
            authenticate: self.0.wanted.login_worker.is_some(),
            grant: self.0.wanted.grant_worker.is_some(),
            methods: methods.map(|(method, _)| method.clone()).collect(),
            authorize: rules
                .map(|rule| (rule.action, rule.filter.clone()))
                .collect(),
            connect: self.0.wanted.connect_worker.is_some(),
            subscribe: self.0.wanted.subscribe_worker.is_some(),
            publish: publishes.map(|(filter, _)| filter.clone()).collect(),
            will: wills.map(|(filter, _)| filter.clone()).collect(),
            events: observers.fold(0, |kinds, observer| kinds | observer.kinds),
        }
    }

    fn authenticate(&self, login: Arc<Login>, reply: Reply<LoginDecision>) {
        if let Some(worker) = self.0.wanted.login_worker {
            let question =
                Question::new(Subject::Login(login), QuestionReply::LoginDecision(reply));
            self.0.ask(question, worker);
        }
    }

    fn grant(&self, login: Arc<Login>, reply: Reply<LoginDecision>) {
        if let Some(worker) = self.0.wanted.grant_worker {
            let subject = Subject::Grant(login);
            let question = Question::new(subject, QuestionReply::LoginDecision(reply));
            self.0.ask(question, worker);
        }
    }

    fn converse(
        &self,
        opening: ExchangeStart,
        reply: Reply<ExchangeReply>,
    ) -> Box<dyn AuthExchange> {
        let mut methods = self.0.wanted.methods.iter();
        let found = methods.find(|(method, _)| **method == *opening.method);
        // The engine asks only about offered methods; without a worker the question is refused.
        let worker = found.map_or(usize::MAX, |(_, worker)| *worker);
        let subject = Subject::Exchange(Arc::new(opening));
        let question = Question::new(subject, QuestionReply::Exchange(reply));
        self.0.ask(Arc::clone(&question), worker);
        Box::new(HookExchange {
            shared: Arc::clone(&self.0),
            question,
            worker,
        })
    }

    fn authorize(&self, ask: AuthorizeRequest, reply: Reply<AuthorizeDecision>) {
        let rules = self.0.wanted.rules.iter().enumerate();
        let wanted: Vec<usize> = rules
            .filter(|(_, rule)| rule.wants(&ask))
            .map(|(index, _)| index)
            .collect();
        let first = wanted
            .first()
            .and_then(|&index| self.0.wanted.rules.get(index));
        if let Some(worker) = first.map(|rule| rule.worker) {
            let subject = Subject::Ask(Arc::new(ask), wanted);
            let question = Question::new(subject, QuestionReply::AuthorizeDecision(reply));
            self.0.ask(question, worker);
        }
    }

    fn publish(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        let first = first_of(&self.0.wanted.publishes, &batch.messages);
        if let Some((index, &(_, worker))) = first {
            let subject = Subject::Publish(Messages::new(batch));
            let question = Question::new(subject, QuestionReply::PublishDecisions(reply));
            question.position.store(index, Ordering::SeqCst);
            self.0.ask(question, worker);
        }
    }

    fn will(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        let first = first_of(&self.0.wanted.wills, &batch.messages);
        if let Some((index, &(_, worker))) = first {
            let subject = Subject::Will(Messages::new(batch));
            let question = Question::new(subject, QuestionReply::PublishDecisions(reply));
            question.position.store(index, Ordering::SeqCst);
            self.0.ask(question, worker);
        }
    }

    fn connect(&self, login: Arc<Login>, reply: Reply<ConnectDecision>) {
        if let Some(worker) = self.0.wanted.connect_worker {
            let subject = Subject::Connect(Connecting::new(login));
            let question = Question::new(subject, QuestionReply::ConnectDecision(reply));
            self.0.ask(question, worker);
        }
    }

    fn subscribe(&self, batch: SubscribeBatch, reply: Reply<Vec<SubscribeDecision>>) {
        if let Some(worker) = self.0.wanted.subscribe_worker {
            let subject = Subject::Subscribe(Subscriptions::new(batch));
            let question = Question::new(subject, QuestionReply::SubscribeDecisions(reply));
            self.0.ask(question, worker);
        }
    }

    fn event(&self, event: PluginEvent) {
        for observer in &self.0.observers {
            observer.tell(&event);
        }
    }

    fn log(&self, line: LogLine) {
        // The queue is closed only after the engine has stopped.
        let _ = self.0.notifications.push(Notification::Line(line));
    }
}

/// The engine's side of an enhanced authentication.
struct HookExchange {
    shared: Arc<Shared>,
    question: Arc<Question>,
    worker: usize,
}

impl AuthExchange for HookExchange {
    fn proceed(&mut self, data: Option<Secret>, reply: Reply<ExchangeReply>) {
        if self.question.proceed(data, reply) {
            self.shared.ask(Arc::clone(&self.question), self.worker);
        }
    }
}

impl Drop for HookExchange {
    fn drop(&mut self) {
        self.question.leave();
    }
}

/// The question and event queues of one plugin host.
#[pyclass(name = "HookQueues", module = "mqttcore._core", frozen)]
pub(crate) struct PyHookQueues {
    shared: Arc<Shared>,
    classes: Arc<AnswerClasses>,
}

/// An `authorize` hook: action, filter and worker.
fn rule((action, filter, worker): &(String, String, usize)) -> Result<Rule, CoreError> {
    Ok(Rule {
        action: action_named(action)?,
        filter: parse_filter(filter)?,
        worker: *worker,
    })
}

/// Filter and worker of each hook.
fn filters(hooks: &[(String, usize)]) -> Result<Vec<(TopicFilter, usize)>, CoreError> {
    let hooks = hooks.iter();
    hooks
        .map(|(filter, worker)| Ok((parse_filter(filter)?, *worker)))
        .collect()
}

#[pymethods]
impl PyHookQueues {
    /// ``workers``: of each worker, whether its hooks are `async def`. ``logins``: the worker of the first
    /// `authenticate` hook, ``grants``: of the first `grant` hook; None: there is none. ``methods``: what the `enhanced_auth` hooks offer,
    /// and their workers. ``rules``: action, filter and worker of each `authorize` hook, in order.
    /// ``connects``, ``subscribes``: the workers of the first hooks of these points.
    /// ``publishes``, ``wills``: filter and worker of each `publish` and each `will` hook, in order.
    /// ``events``: of each observer the kinds that it wants. ``sessions``: each listener's default
    /// policy.
    #[new]
    #[pyo3(signature = (
        *, workers, logins, grants, methods, rules, connects, subscribes, publishes, wills, events, sessions
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
        py: Python<'_>,
        workers: Vec<bool>,
        logins: Option<usize>,
        grants: Option<usize>,
        methods: Vec<(String, usize)>,
        rules: Vec<(String, String, usize)>,
        connects: Option<usize>,
        subscribes: Option<usize>,
        publishes: Vec<(String, usize)>,
        wills: Vec<(String, usize)>,
        events: Vec<Vec<String>>,
        sessions: HashMap<String, SessionTerms>,
    ) -> PyResult<Self> {
        let methods = methods.into_iter();
        let wanted = Wanted {
            login_worker: logins,
            grant_worker: grants,
            methods: methods
                .map(|(name, worker)| (name.into(), worker))
                .collect(),
            rules: rules.iter().map(rule).collect::<Result<_, _>>()?,
            connect_worker: connects,
            subscribe_worker: subscribes,
            publishes: filters(&publishes)?,
            wills: filters(&wills)?,
        };
        let queues = workers.into_iter().map(QuestionQueue::new);
        let observers = events.iter().map(|kinds| {
            let mut bits = kinds.iter().map(|kind| kind_bit(kind));
            let kinds = bits.try_fold(0, |kinds, bit| bit.map(|bit| kinds | bit))?;
            Ok(EventQueue::new(kinds))
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
            queue.inbox.push_front(Arc::clone(&question.inner));
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

    /// Waits for log lines and expired questions; None: the workers are closed.
    fn notifications(&self, py: Python<'_>) -> Option<PyNotifications> {
        let taken = py.detach(|| self.shared.notifications.take(NOTIFICATIONS))?;
        let mut notifications = PyNotifications {
            lines: Vec::new(),
            expired: Vec::new(),
        };
        for notification in taken {
            match notification {
                Notification::Line(line) => notifications.lines.push(log_line::parts(&line)),
                Notification::TimedOut(question, late) => {
                    let seconds = late.timeout.as_secs_f64();
                    let question = Py::new(py, self.wrap(question)).ok()?;
                    notifications.expired.push((question, late.hook, seconds));
                }
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

fn start(
    queues: Vec<QuestionQueue>,
    observers: Vec<EventQueue>,
    wanted: Wanted,
    sessions: HashMap<String, SessionTerms>,
) -> io::Result<Arc<Shared>> {
    let notifications = Arc::new(BoundedQueue::new(NOTIFICATIONS, Overflow::DropOldest));
    let told = Arc::clone(&notifications);
    let told_of_panics = Arc::clone(&notifications);
    let on_late = Box::new(move |question, late| {
        // The queue is closed only during shutdown.
        let _ = told.push(Notification::TimedOut(question, late));
    });
    let on_panic = Box::new(move |panicked: Panicked| {
        // As above.
        let _ = told_of_panics.push(Notification::Line(LogLine::new(
            LogLevel::Error,
            "panic",
            panicked.to_string(),
        )));
    });
    let watch = DeadlineWatch::start(on_late, on_panic)?;
    Ok(Arc::new(Shared {
        queues,
        observers,
        notifications,
        watch,
        wanted,
        sessions,
    }))
}

/// Log lines and expired questions, returned by `HookQueues.notifications`.
#[pyclass(name = "Notifications", module = "mqttcore._core", frozen, get_all)]
pub(crate) struct PyNotifications {
    /// The engine's log lines: level, text, and the keys of machine-readable logs.
    lines: Vec<log_line::Parts>,
    /// Question, hook (empty if none had started) and timeout of each expired question.
    expired: Vec<(Py<PyQuestion>, String, f64)>,
}
