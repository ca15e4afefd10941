//! One client on its shard: its session, and its connection if it has one.

use std::cell::{Cell, Ref, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use mqttcore_session::Session;
use mqttcore_store::Durability;
use mqttcore_topics::{SubscriberId, TopicFilter};

use crate::clients::ack_order::AckOrder;
use crate::clients::flags::{Flag, Flags};
use crate::clients::handle::Handle;
use crate::clients::link::Link;
use crate::config::hooks::{Action, LogSubject, Login};
use crate::config::permissions::CompiledGrant;
use crate::config::queue_policy::FullQueuePolicy;
use crate::runtime::log::{Escaped, LogEntry};

/// Where the store keeps the will of a client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum KeptWill {
    /// The will is not stored.
    #[default]
    None,
    /// In the record of its session.
    InSession,
    /// In a session record of its own, because the session ends with its connection; `DurableSessions` has its number.
    Alone,
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum QueueLevel {
    #[default]
    Empty,
    /// Messages are queued, or many bytes are not acknowledged while memory is short.
    Waiting,
    /// The queue is nearly full; this is counted and logged.
    High,
}

/// One session and the state that belongs to it.
pub(crate) struct Client {
    pub(crate) id: Arc<str>,
    pub(crate) handle: Handle,
    pub(crate) subscriber: SubscriberId,
    pub(crate) session: RefCell<Session>,
    identity: RefCell<ClientIdentity>,
    link: RefCell<Option<Rc<Link>>>,
    pub(crate) flags: Flags,
    /// How full the queue was at the last check.
    pub(crate) queue_level: Cell<QueueLevel>,
    /// Where the store keeps its will.
    pub(crate) kept_will: Cell<KeptWill>,
    /// Most messages of this client that are routed together; grows from 1 while they have few receivers.
    pub(crate) batch_limit: Cell<u8>,
    /// Acknowledgements of this client that wait for the store, and the durability of its messages and requests.
    pub(crate) ack_order: AckOrder,
}

/// The identity and the grant of a client; replaced by every connection.
pub(crate) struct ClientIdentity {
    pub(crate) who: KnownLogin,
    pub(crate) access: Arc<CompiledGrant>,
}

/// The identity of a client.
pub(crate) enum KnownLogin {
    /// The client has connected since the broker started.
    Known(Arc<Login>),
    /// The client has not connected since the broker started; the store has its session and user name.
    Kept(Option<Arc<str>>),
}

impl Client {
    pub(crate) fn new(
        handle: Handle,
        subscriber: SubscriberId,
        id: Arc<str>,
        identity: ClientIdentity,
        session: Session,
    ) -> Self {
        let flags = Flags::default();
        flags.set(Flag::Unchecked, matches!(identity.who, KnownLogin::Kept(_)));
        Self {
            id,
            handle,
            subscriber,
            session: RefCell::new(session),
            identity: RefCell::new(identity),
            link: RefCell::new(None),
            flags,
            queue_level: Cell::default(),
            kept_will: Cell::default(),
            batch_limit: Cell::new(1),
            ack_order: AckOrder::default(),
        }
    }

    /// Durability of the client's messages and requests.
    #[inline]
    pub(crate) fn durability(&self) -> Durability {
        self.ack_order.of_client.get()
    }

    /// Durability of the kept session.
    pub(crate) fn kept_at(&self) -> Durability {
        self.durability().max(Durability::Os)
    }

    /// Replaces the identity and the grant.
    pub(crate) fn identify(&self, login: Arc<Login>, access: Arc<CompiledGrant>) {
        let who = KnownLogin::Known(login);
        *self.identity.borrow_mut() = ClientIdentity { who, access };
    }

    /// Replaces the grant.
    pub(crate) fn set_access(&self, access: Arc<CompiledGrant>) {
        self.identity.borrow_mut().access = access;
    }

    /// The login; for a client that has not connected since the broker started, made from the kept session.
    pub(crate) fn login(&self) -> Arc<Login> {
        match &self.identity.borrow().who {
            KnownLogin::Known(login) => Arc::clone(login),
            KnownLogin::Kept(username) => {
                let (id, session) = (Arc::clone(&self.id), self.session.borrow());
                let expiry_s = session.expiry_interval_s();
                let login = Login::restored(id, session.version(), username.clone(), expiry_s);
                Arc::new(login)
            }
        }
    }

    /// Whether it has connected since the broker started.
    pub(crate) fn was_here(&self) -> bool {
        matches!(self.identity.borrow().who, KnownLogin::Known(_))
    }

    /// The client in log lines: "client ID at ADDRESS", without the address if it has not connected since the start.
    pub(crate) fn named(&self) -> String {
        let id = Escaped(&self.id);
        match &self.identity.borrow().who {
            KnownLogin::Known(login) => format!("client {id} at {}", login.peer),
            KnownLogin::Kept(_) => format!("client {id}"),
        }
    }

    /// A log line about this client.
    pub(crate) fn log_entry(&self, event: &'static str, text: String) -> LogEntry {
        let subject = match &self.identity.borrow().who {
            KnownLogin::Known(login) => LogSubject::of_login(login),
            KnownLogin::Kept(username) => LogSubject {
                client_id: Some(Arc::clone(&self.id)),
                username: username.clone(),
                ..LogSubject::default()
            },
        };
        LogEntry::new(event, text, subject)
    }

    pub(crate) fn is_user(&self, username: Option<&str>) -> bool {
        match &self.identity.borrow().who {
            KnownLogin::Known(login) => login.username.as_deref() == username,
            KnownLogin::Kept(kept) => kept.as_deref() == username,
        }
    }

    /// The grant. Many clients of all shards share one `Arc`: deliveries borrow it, since all shards would contend for
    /// its reference count.
    pub(crate) fn access(&self) -> Ref<'_, Arc<CompiledGrant>> {
        Ref::map(self.identity.borrow(), |identity| &identity.access)
    }

    pub(crate) fn link(&self) -> Option<Rc<Link>> {
        self.link.borrow().clone()
    }

    /// Whether a cached answer of a plugin allows `action` on the topic or filter that `is_covered` tests.
    pub(crate) fn has_cached_allow(
        &self,
        action: Action,
        is_covered: impl Fn(&TopicFilter) -> bool,
    ) -> bool {
        let own = self.link.borrow();
        own.as_ref()
            .is_some_and(|link| link.has_cached_allow(action, is_covered))
    }

    /// The last record sent to the external log that this client's acknowledgements wait for.
    pub(crate) fn external_record(&self) -> u64 {
        self.link
            .borrow()
            .as_ref()
            .map_or(0, |link| link.external_record())
    }

    /// The queue policy of its grant or its listener, for its publishes to sessions with a full queue.
    pub(crate) fn queue_policy(&self) -> Option<FullQueuePolicy> {
        self.link.borrow().as_ref()?.queue_policy()
    }

    /// Frees empty buffers of the session and of `link`, its connection.
    pub(crate) fn free_buffers(&self, link: &Link) {
        self.session.borrow_mut().shrink();
        let mut outbox = link.outbox_mut();
        if outbox.is_idle() {
            outbox.clear();
        }
    }

    /// Index of the listener of its connection; `None` if it has none.
    pub(crate) fn listener(&self) -> Option<usize> {
        let link = self.link.borrow();
        link.as_ref().map(|link| usize::from(link.listener))
    }

    pub(crate) fn is_online(&self) -> bool {
        self.link.borrow().is_some()
    }

    pub(crate) fn link_ref(&self) -> Ref<'_, Option<Rc<Link>>> {
        self.link.borrow()
    }

    pub(crate) fn set_link(&self, link: Option<Rc<Link>>) {
        *self.link.borrow_mut() = link;
    }

    /// Whether `link` is the current connection of this client, and not one that was taken over.
    pub(crate) fn has_link(&self, link: &Rc<Link>) -> bool {
        let own = self.link.borrow();
        own.as_ref().is_some_and(|own| Rc::ptr_eq(own, link))
    }
}

#[cfg(test)]
impl Client {
    /// An offline client with an empty session, for tests.
    pub(crate) fn offline(
        directory: &mqttcore_topics::Directory,
        handle: Handle,
        id: &str,
    ) -> Self {
        let access = CompiledGrant::of(crate::config::permissions::Permissions::default());
        let identity = ClientIdentity {
            who: KnownLogin::Kept(None),
            access: Arc::new(access),
        };
        let session = Session::new(Arc::new(mqttcore_session::ServerLimits::default()));
        Self::new(
            handle,
            directory.join(handle.word()),
            id.into(),
            identity,
            session,
        )
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::{Directory, Strategy};

    use super::*;

    #[test]
    fn asking_for_the_rights_of_a_client_counts_nobody_in() {
        let directory = Directory::new(1, Strategy::default());
        let client = Client::offline(&directory, Handle::new(0, 1, 1), "one");

        let asked = client.access();

        assert!(!asked.permissions.checks_deliveries());
        assert_eq!(Arc::strong_count(&asked), 1, "the client's own");
    }
}
