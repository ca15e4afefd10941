//! Hooks made of closures.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use mqttcore_broker::{
    Action, AuthExchange, AuthorizeDecision, AuthorizeRequest, Broker, Config, ConnectDecision,
    ControlRequest, EventKind, ExchangeReply, ExchangeStart, Grant, HookInterests, Hooks, LogLine,
    Login, LoginDecision, PluginEvent, PublishBatch, PublishDecision, Reply, Secret,
    SubscribeBatch, SubscribeDecision,
};
use mqttcore_topics::{TopicFilter, TopicLimits};

use super::{DEADLINE, start_with};

type Authenticate = Box<dyn Fn(Arc<Login>, Reply<LoginDecision>) + Send + Sync>;
type StartExchange = Box<dyn Fn(Said, Reply<ExchangeReply>) + Send + Sync>;
type Authorize = Box<dyn Fn(AuthorizeRequest, Reply<AuthorizeDecision>) + Send + Sync>;
type Publish = Box<dyn Fn(PublishBatch, Reply<Vec<PublishDecision>>) + Send + Sync>;
type Connect = Box<dyn Fn(Arc<Login>, Reply<ConnectDecision>) + Send + Sync>;
type Subscribe = Box<dyn Fn(SubscribeBatch, Reply<Vec<SubscribeDecision>>) + Send + Sync>;
type Control = Box<dyn Fn(ControlRequest, Reply<Vec<u8>>) + Send + Sync>;
type Tell = Box<dyn Fn(PluginEvent) + Send + Sync>;

/// A login, and the place for its answer.
pub type LoginQuestion = (Arc<Login>, Reply<LoginDecision>);

/// What a client says in an enhanced authentication.
pub struct Said {
    pub opening: ExchangeStart,
    /// How many challenges it has answered.
    pub step: usize,
    pub data: Vec<u8>,
}

/// Plugins as a test wants them; by default there are none.
pub struct Plugin {
    interests: HookInterests,
    authenticate: Authenticate,
    grant: Authenticate,
    start_exchange: Arc<StartExchange>,
    authorize: Authorize,
    publish: Publish,
    deliver: Publish,
    connect: Connect,
    will: Publish,
    subscribe: Subscribe,
    control: Control,
    tell: Tell,
    write: Box<dyn Fn(String) + Send + Sync>,
}

impl Default for Plugin {
    fn default() -> Self {
        Self {
            interests: HookInterests::default(),
            authenticate: Box::new(|_, reply| drop(reply)),
            grant: Box::new(|_, reply| drop(reply)),
            start_exchange: Arc::new(Box::new(|_, reply| drop(reply))),
            authorize: Box::new(|_, reply| drop(reply)),
            publish: Box::new(|_, reply| drop(reply)),
            deliver: Box::new(|_, reply| drop(reply)),
            connect: Box::new(|_, reply| drop(reply)),
            will: Box::new(|_, reply| drop(reply)),
            subscribe: Box::new(|_, reply| drop(reply)),
            control: Box::new(|_, reply| drop(reply)),
            tell: Box::new(|_| ()),
            write: Box::new(|_| ()),
        }
    }
}

impl Plugin {
    pub fn authenticate(
        mut self,
        hook: impl Fn(Arc<Login>, Reply<LoginDecision>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.authenticate = true;
        self.authenticate = Box::new(hook);
        self
    }

    /// Says what a client may do now, after an invalidation.
    pub fn grant(
        mut self,
        hook: impl Fn(Arc<Login>, Reply<LoginDecision>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.grant = true;
        self.grant = Box::new(hook);
        self
    }

    /// Reads the lines of the log.
    pub fn log_lines(mut self, read: impl Fn(String) + Send + Sync + 'static) -> Self {
        self.write = Box::new(read);
        self
    }

    /// Offers one method; the hook is called for each thing that the client says.
    pub fn method(
        mut self,
        method: &str,
        hook: impl Fn(Said, Reply<ExchangeReply>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.methods = vec![method.into()];
        self.start_exchange = Arc::new(Box::new(hook));
        self
    }

    /// Everybody with a user name may do everything.
    pub fn welcoming() -> Self {
        Self::default().authenticate(|_, reply| {
            reply.send(allow(Grant::everything()));
        })
    }

    pub fn authorize(
        mut self,
        about: &[(Action, &str)],
        hook: impl Fn(AuthorizeRequest, Reply<AuthorizeDecision>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.authorize = about
            .iter()
            .map(|(action, text)| (*action, filter(text)))
            .collect();
        self.authorize = Box::new(hook);
        self
    }

    /// Decides about messages on topics that match one of `filters`.
    pub fn publish(
        mut self,
        filters: &[&str],
        hook: impl Fn(PublishBatch, Reply<Vec<PublishDecision>>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.publish = filters.iter().map(|text| filter(text)).collect();
        self.publish = Box::new(hook);
        self
    }

    /// Decides about messages for subscribers on topics that match one of `filters`.
    pub fn deliver(
        mut self,
        filters: &[&str],
        hook: impl Fn(PublishBatch, Reply<Vec<PublishDecision>>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.deliver = filters.iter().map(|text| filter(text)).collect();
        self.deliver = Box::new(hook);
        self
    }

    /// Decides about authenticated clients.
    pub fn connect(
        mut self,
        hook: impl Fn(Arc<Login>, Reply<ConnectDecision>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.connect = true;
        self.connect = Box::new(hook);
        self
    }

    /// Decides about wills on topics that match `topics`.
    pub fn will(
        mut self,
        topics: &str,
        hook: impl Fn(PublishBatch, Reply<Vec<PublishDecision>>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.will = vec![filter(topics)];
        self.will = Box::new(hook);
        self
    }

    /// Decides about permitted subscriptions.
    pub fn subscribe(
        mut self,
        hook: impl Fn(SubscribeBatch, Reply<Vec<SubscribeDecision>>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.subscribe = true;
        self.subscribe = Box::new(hook);
        self
    }

    /// Answers requests on a control topic.
    pub fn control(
        mut self,
        topic: &str,
        hook: impl Fn(ControlRequest, Reply<Vec<u8>>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.control = vec![topic.into()];
        self.control = Box::new(hook);
        self
    }

    pub fn events(
        mut self,
        kinds: &[EventKind],
        hook: impl Fn(PluginEvent) + Send + Sync + 'static,
    ) -> Self {
        self.interests.events = kinds.iter().map(|kind| 1 << *kind as u32).sum();
        self.tell = Box::new(hook);
        self
    }

    /// Logins land in the receiver, and nobody answers but the test.
    pub fn logins() -> (Self, Receiver<LoginQuestion>) {
        let (sender, receiver) = channel();
        let plugin = Self::default().authenticate(move |login, reply| {
            let _ = sender.send((login, reply));
        });
        (plugin, receiver)
    }

    /// Questions land in the receiver, and nobody answers but the test.
    pub fn questions(
        about: &[(Action, &str)],
    ) -> (Self, Receiver<(AuthorizeRequest, Reply<AuthorizeDecision>)>) {
        let (sender, receiver) = channel();
        let plugin = Self::default().authorize(about, move |ask, reply| {
            let _ = sender.send((ask, reply));
        });
        (plugin, receiver)
    }
}

pub fn allow(grant: Grant) -> LoginDecision {
    LoginDecision::Allow {
        grant: Box::new(grant),
        username: None,
        user_properties: Vec::new(),
    }
}

pub fn filter(text: &str) -> TopicFilter {
    TopicFilter::parse(text, &TopicLimits::default()).expect("a filter")
}

impl Hooks for Plugin {
    fn interests(&self) -> HookInterests {
        self.interests.clone()
    }

    fn authenticate(&self, login: Arc<Login>, reply: Reply<LoginDecision>) {
        (self.authenticate)(login, reply);
    }

    fn grant(&self, login: Arc<Login>, reply: Reply<LoginDecision>) {
        (self.grant)(login, reply);
    }

    fn start_exchange(
        &self,
        opening: ExchangeStart,
        reply: Reply<ExchangeReply>,
    ) -> Box<dyn AuthExchange> {
        let mut talk = Talk {
            hook: Arc::clone(&self.start_exchange),
            opening: opening.clone(),
            step: 0,
        };
        talk.say(opening.data, reply);
        Box::new(talk)
    }

    fn authorize(&self, ask: AuthorizeRequest, reply: Reply<AuthorizeDecision>) {
        (self.authorize)(ask, reply);
    }

    fn publish(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        (self.publish)(batch, reply);
    }

    fn deliver(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        (self.deliver)(batch, reply);
    }

    fn connect(&self, login: Arc<Login>, reply: Reply<ConnectDecision>) {
        (self.connect)(login, reply);
    }

    fn will(&self, batch: PublishBatch, reply: Reply<Vec<PublishDecision>>) {
        (self.will)(batch, reply);
    }

    fn subscribe(&self, batch: SubscribeBatch, reply: Reply<Vec<SubscribeDecision>>) {
        (self.subscribe)(batch, reply);
    }

    fn control(&self, request: ControlRequest, reply: Reply<Vec<u8>>) {
        (self.control)(request, reply);
    }

    fn event(&self, event: PluginEvent) {
        (self.tell)(event);
    }

    fn log(&self, line: LogLine) {
        (self.write)(line.to_string());
    }
}

struct Talk {
    hook: Arc<StartExchange>,
    opening: ExchangeStart,
    step: usize,
}

impl Talk {
    fn say(&mut self, data: Option<Secret>, reply: Reply<ExchangeReply>) {
        let data = data.map_or_else(Vec::new, |data| data.as_bytes().to_vec());
        let said = Said {
            opening: self.opening.clone(),
            step: self.step,
            data,
        };
        (self.hook)(said, reply);
        self.step += 1;
    }
}

impl AuthExchange for Talk {
    fn proceed(&mut self, data: Option<Secret>, reply: Reply<ExchangeReply>) {
        self.say(data, reply);
    }
}

/// A challenge without words.
pub fn challenge(data: &str) -> ExchangeReply {
    ExchangeReply::Challenge {
        data: Some(data.as_bytes().into()),
        text: None,
        username: None,
    }
}

/// The end of an enhanced authentication.
pub fn end(verdict: LoginDecision, data: &str) -> ExchangeReply {
    ExchangeReply::End {
        verdict,
        data: Some(data.as_bytes().into()),
    }
}

/// A plugin that allows everything, and the logins that it was asked about.
pub fn told_logins() -> (Plugin, Receiver<Arc<Login>>) {
    let (sender, logins) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().authenticate(move |login, reply| {
        let _ = sender.lock().expect("no panic").send(login);
        reply.send(allow(Grant::everything()));
    });
    (plugin, logins)
}

/// A broker, and the lines of its log.
pub fn logged(config: Config) -> (Broker, Receiver<String>) {
    let (sender, lines) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().log_lines(move |line| {
        let _ = sender.lock().expect("no panic").send(line);
    });
    (start_with(config, plugin), lines)
}

/// The next line of a log with `part` in it.
pub fn line_about(lines: &Receiver<String>, part: &str) -> String {
    loop {
        let line = lines.recv_timeout(DEADLINE);
        let line = line.unwrap_or_else(|_| panic!("no line with {part:?}"));
        if line.contains(part) {
            return line;
        }
    }
}
