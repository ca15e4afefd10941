//! Hooks made of closures.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use mqttcore_broker::{
    Action, Ask, Event, EventKind, Grant, Hooks, Interests, LogLevel, Login, Reply, Ruling, Verdict,
};
use mqttcore_topics::{TopicFilter, TopicLimits};

type Authenticate = Box<dyn Fn(Arc<Login>, Reply<Verdict>) + Send + Sync>;
type Authorize = Box<dyn Fn(Ask, Reply<Ruling>) + Send + Sync>;
type Tell = Box<dyn Fn(Event) + Send + Sync>;

/// A login, and the place for its answer.
pub type LoginQuestion = (Arc<Login>, Reply<Verdict>);

/// Plugins as a test wants them; by default there are none.
pub struct Plugin {
    interests: Interests,
    authenticate: Authenticate,
    authorize: Authorize,
    tell: Tell,
}

impl Default for Plugin {
    fn default() -> Self {
        Self {
            interests: Interests::default(),
            authenticate: Box::new(|_, reply| drop(reply)),
            authorize: Box::new(|_, reply| drop(reply)),
            tell: Box::new(|_| ()),
        }
    }
}

impl Plugin {
    pub fn authenticate(
        mut self,
        hook: impl Fn(Arc<Login>, Reply<Verdict>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.authenticate = true;
        self.authenticate = Box::new(hook);
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
        hook: impl Fn(Ask, Reply<Ruling>) + Send + Sync + 'static,
    ) -> Self {
        self.interests.authorize = about
            .iter()
            .map(|(action, text)| (*action, filter(text)))
            .collect();
        self.authorize = Box::new(hook);
        self
    }

    pub fn events(
        mut self,
        kinds: &[EventKind],
        hook: impl Fn(Event) + Send + Sync + 'static,
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
    pub fn questions(about: &[(Action, &str)]) -> (Self, Receiver<(Ask, Reply<Ruling>)>) {
        let (sender, receiver) = channel();
        let plugin = Self::default().authorize(about, move |ask, reply| {
            let _ = sender.send((ask, reply));
        });
        (plugin, receiver)
    }
}

pub fn allow(grant: Grant) -> Verdict {
    Verdict::Allow {
        grant: Box::new(grant),
        username: None,
    }
}

pub fn filter(text: &str) -> TopicFilter {
    TopicFilter::parse(text, &TopicLimits::default()).expect("a filter")
}

impl Hooks for Plugin {
    fn interests(&self) -> Interests {
        self.interests.clone()
    }

    fn authenticate(&self, login: Arc<Login>, reply: Reply<Verdict>) {
        (self.authenticate)(login, reply);
    }

    fn authorize(&self, ask: Ask, reply: Reply<Ruling>) {
        (self.authorize)(ask, reply);
    }

    fn event(&self, event: Event) {
        (self.tell)(event);
    }

    fn log(&self, _level: LogLevel, _text: String) {}
}
