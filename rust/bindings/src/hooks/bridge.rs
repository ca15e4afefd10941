//! The engine's side of the hooks: turns its calls into questions, events and notifications, and queues them.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use mqttcore_broker::{
    Action, AuthExchange, AuthorizeDecision, AuthorizeRequest, ConnectDecision, ControlRequest,
    DecidingHook, ExchangeReply, ExchangeStart, HookCalls, HookInterests, Hooks, LogLevel, LogLine,
    Login, LoginDecision, PluginEvent, PublishBatch, PublishDecision, Reply, Secret, StoredMessage,
    SubscribeBatch, SubscribeDecision, Trial,
};
use mqttcore_codec::ReasonCode;
use mqttcore_panics::Panicked;
use mqttcore_session::Message;
use mqttcore_topics::TopicFilter;

use super::bounded_queue::{BoundedQueue, Overflow};
use super::counters::HookCounters;
use super::messages::Messages;
use super::packets::{Connecting, SubscribeFilters};
use super::question::{Question, Subject, TimedOut};
use super::question_reply::QuestionReply;
use super::queue::{EventQueue, QuestionQueue};
use super::watch::DeadlineWatch;
use crate::grants::SessionTerms;
use crate::hash_memory::HASH_MEMORY;

/// Capacity of the queue of notifications, and the most that are taken together.
pub(super) const NOTIFICATIONS: usize = 4_096;

/// An `authorize` hook: its name, the requests that it decides, and the index of its worker.
pub(super) struct Rule {
    pub(super) hook: DecidingHook,
    pub(super) action: Action,
    pub(super) filter: TopicFilter,
    pub(super) worker: usize,
}

impl Rule {
    /// Whether the hook decides a request: the filter matches the topic of a publish, or covers that of a subscription.
    fn wants(&self, ask: &AuthorizeRequest) -> bool {
        self.action == ask.action && self.filter.covers(&ask.topic)
    }
}

/// A notification for the plugin host's thread.
pub(super) enum Notification {
    Line(LogLine),
    TimedOut(Arc<Question>, TimedOut),
    Stored(StoredMessage),
}

/// The state that the threads of the engine and those of Python share.
pub(super) struct Shared {
    /// The queues: of a plugin one for `def` hooks, one for `async def` hooks, and two more for those of publishes.
    pub(super) queues: Vec<QuestionQueue>,
    /// One queue for each plugin with event hooks, so that plugins do not delay each other.
    pub(super) observers: Vec<EventQueue>,
    /// Counters of all hooks.
    pub(super) counters: Vec<Arc<HookCounters>>,
    pub(super) notifications: Arc<BoundedQueue<Notification>>,
    pub(super) watch: DeadlineWatch,
    pub(super) wanted: Wanted,
    pub(super) sessions: HashMap<String, SessionTerms>,
}

/// The hooks of all plugins: which questions and events they need.
pub(super) struct Wanted {
    /// The worker of a login's first hook; `None`: no plugin authenticates.
    pub(super) login_worker: Option<usize>,
    /// The worker of the first hook that knows the present grant of a client.
    pub(super) grant_worker: Option<usize>,
    /// Methods of enhanced authentication, with the workers of their hooks.
    pub(super) methods: Vec<(String, usize)>,
    pub(super) rules: Vec<Rule>,
    /// The workers of the first hooks for CONNECT and SUBSCRIBE.
    pub(super) connect_worker: Option<usize>,
    pub(super) subscribe_worker: Option<usize>,
    /// Filter and worker of each publish hook.
    pub(super) publishes: Vec<(TopicFilter, usize)>,
    /// Filter and worker of each deliver hook.
    pub(super) delivers: Vec<(TopicFilter, usize)>,
    /// Filter and worker of each will hook.
    pub(super) wills: Vec<(TopicFilter, usize)>,
    /// Topic and worker of each control hook.
    pub(super) controls: Vec<(String, usize)>,
}

impl Wanted {
    /// The `authorize` hooks that decide a request, with their positions.
    fn deciding(&self, ask: &AuthorizeRequest) -> impl Iterator<Item = (usize, &Rule)> {
        let rules = self.rules.iter().enumerate();
        rules.filter(|(_, rule)| rule.wants(ask))
    }
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
    /// Starts the deadline thread.
    pub(super) fn start(
        queues: Vec<QuestionQueue>,
        observers: Vec<EventQueue>,
        counters: Vec<Arc<HookCounters>>,
        wanted: Wanted,
        sessions: HashMap<String, SessionTerms>,
    ) -> io::Result<Arc<Self>> {
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
        Ok(Arc::new(Self {
            queues,
            observers,
            counters,
            notifications,
            watch,
            wanted,
            sessions,
        }))
    }

    /// Queues a question for a worker; refuses it if the worker does not exist or its queue is full.
    pub(super) fn ask(&self, question: Arc<Question>, worker: usize) {
        self.watch.add(&question, question.deadline());
        let refused = match self.queues.get(worker) {
            Some(queue) => queue.push(question).err(),
            None => Some(question),
        };
        if let Some(question) = refused {
            question.refuse(ReasonCode::SERVER_BUSY);
        }
    }

    /// Asks the first hook whose filter matches one of the messages.
    fn ask_about_messages(
        &self,
        hooks: &[(TopicFilter, usize)],
        subject: fn(Messages) -> Subject,
        batch: PublishBatch,
        reply: Reply<Vec<PublishDecision>>,
    ) {
        if let Some((index, &(_, worker))) = first_of(hooks, &batch.messages) {
            let subject = subject(Messages::new(batch));
            let question = Question::new(subject, QuestionReply::PublishDecisions(reply));
            question.position.store(index, Ordering::SeqCst);
            self.ask(question, worker);
        }
    }

    /// Asks the `authorize` hooks at these positions.
    fn ask_rules(&self, ask: AuthorizeRequest, rules: Vec<usize>, reply: QuestionReply) {
        let first = rules
            .first()
            .and_then(|&index| self.wanted.rules.get(index));
        if let Some(worker) = first.map(|rule| rule.worker) {
            let question = Question::new(Subject::Ask(Arc::new(ask), rules), reply);
            self.ask(question, worker);
        }
    }

    /// Refuses all queued questions and wakes all waiting threads. The queued log lines are still written.
    pub(super) fn close(&self) {
        for question in self.queues.iter().flat_map(QuestionQueue::close) {
            question.refuse(ReasonCode::SERVER_UNAVAILABLE);
        }
        self.watch.stop();
        for observer in &self.observers {
            observer.inbox.close();
        }
        self.notifications.finish();
    }
}

/// Implements [`Hooks`] with queues: cheap to call from any thread of the engine.
pub(super) struct HookBridge(pub(super) Arc<Shared>);

impl Hooks for HookBridge {
    fn interests(&self) -> HookInterests {
        let rules = self.0.wanted.rules.iter();
        let methods = self.0.wanted.methods.iter();
        let publishes = self.0.wanted.publishes.iter();
        let delivers = self.0.wanted.delivers.iter();
        let wills = self.0.wanted.wills.iter();
        let controls = self.0.wanted.controls.iter();
        let observers = self.0.observers.iter();
        HookInterests {
            authenticate: self.0.wanted.login_worker.is_some(),
            grant: self.0.wanted.grant_worker.is_some(),
            methods: methods.map(|(method, _)| method.as_str().into()).collect(),
            authorize: rules
                .map(|rule| (rule.action, rule.filter.clone()))
                .collect(),
            connect: self.0.wanted.connect_worker.is_some(),
            subscribe: self.0.wanted.subscribe_worker.is_some(),
            publish: publishes.map(|(filter, _)| filter.clone()).collect(),
            deliver: delivers.map(|(filter, _)| filter.clone()).collect(),
            will: wills.map(|(filter, _)| filter.clone()).collect(),
            control: controls.map(|(topic, _)| topic.as_str().into()).collect(),
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

    fn start_exchange(
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
        let wanted = self.0.wanted.deciding(&ask).map(|(index, _)| index);
        let wanted = wanted.collect();
        self.0
            .ask_rules(ask, wanted, QuestionReply::AuthorizeDecision(reply));
    }

    fn deciding_hooks(&self, ask: &AuthorizeRequest) -> Vec<DecidingHook> {
        let deciding = self.0.wanted.deciding(ask);
        deciding.map(|(_, rule)| rule.hook.clone()).collect()
    }

    fn try_authorize(&self, ask: AuthorizeRequest, reply: Reply<Trial>) {
        let deciding = self.0.wanted.deciding(&ask);
        let tried = deciding.take_while(|(_, rule)| rule.hook.may_be_tried);
        let tried = tried.map(|(index, _)| index).collect();
        self.0.ask_rules(ask, tried, QuestionReply::Trial(reply));
    }

    fn publish(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        let hooks = &self.0.wanted.publishes;
        self.0
            .ask_about_messages(hooks, Subject::Publish, batch, reply);
    }

    fn deliver(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        let hooks = &self.0.wanted.delivers;
        self.0
            .ask_about_messages(hooks, Subject::Deliver, batch, reply);
    }

    fn will(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        let hooks = &self.0.wanted.wills;
        self.0
            .ask_about_messages(hooks, Subject::Will, batch, reply);
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
            let subject = Subject::Subscribe(SubscribeFilters::new(batch));
            let question = Question::new(subject, QuestionReply::SubscribeDecisions(reply));
            self.0.ask(question, worker);
        }
    }

    fn control(&self, request: ControlRequest, reply: Reply<Vec<u8>>) {
        let mut controls = self.0.wanted.controls.iter().enumerate();
        let found = controls.find(|(_, (topic, _))| topic == request.message.topic());
        if let Some((index, &(_, worker))) = found {
            let subject = Subject::Control(request, index);
            let question = Question::new(subject, QuestionReply::Control(reply));
            self.0.ask(question, worker);
        }
    }

    fn password_bytes(&self, budget: usize) -> usize {
        HASH_MEMORY.measure(budget)
    }

    fn calls(&self) -> Vec<HookCalls> {
        let mut counted = HashSet::new();
        let counters = self.0.counters.iter();
        let read = counters.map(|hook| {
            let queue = hook.worker.filter(|worker| counted.insert(*worker));
            let queue = queue.and_then(|worker| self.0.queues.get(worker));
            hook.read(queue.map_or(0, |queue| queue.inbox.len() as u64))
        });
        read.collect()
    }

    fn stored(&self, message: StoredMessage) {
        // As in `log`.
        let _ = self.0.notifications.push(Notification::Stored(message));
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
