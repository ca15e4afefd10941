//! A client: its session for as long as it is kept, its connection while it has one.

use std::cell::{Cell, Ref, RefCell};
use std::collections::VecDeque;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use mqttcore_codec::{PropertiesBuf, ReasonCode, Version};
use mqttcore_session::{AckToken, Cause, Control, PublishTransmit, Session, Transmit};
use mqttcore_store::Level;
use mqttcore_topics::{SubscriberId, TopicFilter};

use crate::clients::ack_order::Standing;
use crate::clients::outbox::{Outbox, SHARE_FROM_BYTES};
use crate::config::grants::Access;
use crate::config::hooks::{Action, Login};
use crate::config::when_full::WhenFull;
use crate::connection::last_packets::LastPackets;
use crate::kafka;
use crate::routing::retain::Replay;
use crate::shard::{Shard, World};

/// Where a session is, in one word that the directory carries for us: from the top the shard (8 bits), the generation,
/// which tells two sessions apart that had the same slot (24), and the slot (32).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Handle(u64);

pub(crate) const GENERATION_BITS: u32 = 24;

impl Handle {
    pub(crate) const fn new(shard: u8, generation: u32, slot: u32) -> Self {
        let generation = generation as u64 & ((1 << GENERATION_BITS) - 1);
        Self((shard as u64) << (GENERATION_BITS + 32) | generation << 32 | slot as u64)
    }

    pub(crate) const fn of_word(word: u64) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    pub(crate) const fn shard(self) -> usize {
        (self.0 >> (GENERATION_BITS + 32)) as usize
    }

    pub(crate) const fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & ((1 << GENERATION_BITS) - 1)
    }

    #[expect(clippy::cast_possible_truncation, reason = "the lower half")]
    pub(crate) const fn slot(self) -> u32 {
        self.0 as u32
    }
}

/// Where the store has the will of a client.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum KeptWill {
    /// Nowhere.
    #[default]
    None,
    /// With its session.
    InSession,
    /// In a session that has nothing else, as its own ends with the connection; `DurableSessions` has its number.
    Alone,
}

/// How full a queue is.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum QueueLevel {
    #[default]
    Empty,
    /// Messages wait in it.
    Waiting,
    /// It is nearly full, and that is counted and logged.
    High,
}

/// One session and what belongs to it.
pub(crate) struct Client {
    pub(crate) id: Arc<str>,
    pub(crate) handle: Handle,
    pub(crate) subscriber: SubscriberId,
    pub(crate) session: RefCell<Session>,
    identity: RefCell<Identity>,
    link: RefCell<Option<Rc<Link>>>,
    /// It has lost rights: what is read back may be what it must not have.
    pub(crate) is_queue_judged: Cell<bool>,
    /// Its queue when it was last looked at.
    pub(crate) queue_level: Cell<QueueLevel>,
    /// Where the store has its will.
    pub(crate) kept_will: Cell<KeptWill>,
    /// How safe what it does is.
    pub(crate) promise: Cell<Level>,
    /// Where its promises stand in its shard's journal.
    pub(crate) standing: Standing,
}

/// What a plugin allowed beyond the grant, for a while.
struct Widened {
    action: Action,
    covers: TopicFilter,
    until: Instant,
}

/// Answers kept for one client; the oldest makes room.
const WIDENED_MAX: usize = 64;

/// Who the client is and what it may do; renewed by every connection.
pub(crate) struct Identity {
    pub(crate) who: Who,
    pub(crate) access: Arc<Access>,
}

/// Who a client is.
pub(crate) enum Who {
    /// It said so in this life of the broker.
    Known(Arc<Login>),
    /// The store kept its session, and what it called itself.
    Kept(Option<Arc<str>>),
}

impl Client {
    pub(crate) fn new(
        handle: Handle,
        subscriber: SubscriberId,
        id: Arc<str>,
        identity: Identity,
        session: Session,
    ) -> Self {
        Self {
            id,
            handle,
            subscriber,
            session: RefCell::new(session),
            identity: RefCell::new(identity),
            link: RefCell::new(None),
            is_queue_judged: Cell::new(false),
            queue_level: Cell::default(),
            kept_will: Cell::default(),
            promise: Cell::new(Level::Fsync),
            standing: Standing::default(),
        }
    }

    /// The number that the store keeps the session under.
    pub(crate) fn number(&self, world: &World) -> Option<u64> {
        world.durable.number(self.handle)
    }

    /// How safe what the store keeps of the session is.
    pub(crate) fn kept_at(&self) -> Level {
        self.promise.get().max(Level::Os)
    }

    /// The store keeps the session under `number` from now on; 0 is no longer.
    pub(crate) fn set_number(&self, world: &World, number: u64) {
        world.durable.set(self.handle, number);
        self.kept_will.set(KeptWill::None);
    }

    /// Says anew who the client is and what it may do.
    pub(crate) fn identify(&self, login: Arc<Login>, access: Arc<Access>) {
        let who = Who::Known(login);
        *self.identity.borrow_mut() = Identity { who, access };
    }

    /// Who it is; of a client that was not here yet in this life of the broker, what the store
    /// knows.
    pub(crate) fn login(&self) -> Arc<Login> {
        match &self.identity.borrow().who {
            Who::Known(login) => Arc::clone(login),
            Who::Kept(username) => Arc::new(Login {
                client_id: Arc::clone(&self.id),
                version: self.session.borrow().version(),
                username: username.clone(),
                password: None,
                peer: SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
                listener: Arc::default(),
                clean_start: false,
                keep_alive_s: 0,
                session_expiry_interval_s: self.session.borrow().expiry_interval_s(),
                will_topic: None,
                user_properties: Arc::default(),
            }),
        }
    }

    /// Whether it connected in this life of the broker.
    pub(crate) fn was_here(&self) -> bool {
        matches!(self.identity.borrow().who, Who::Known(_))
    }

    pub(crate) fn is_user(&self, username: Option<&str>) -> bool {
        match &self.identity.borrow().who {
            Who::Known(login) => login.username.as_deref() == username,
            Who::Kept(kept) => kept.as_deref() == username,
        }
    }

    /// What it may do. Many clients of all shards share one, so a delivery must not count itself in and out.
    pub(crate) fn access(&self) -> Ref<'_, Arc<Access>> {
        Ref::map(self.identity.borrow(), |identity| &identity.access)
    }

    pub(crate) fn link(&self) -> Option<Rc<Link>> {
        self.link.borrow().clone()
    }

    /// Whether a plugin's remembered answer allows `action` on what `is_covered` asks about.
    pub(crate) fn is_widened(
        &self,
        action: Action,
        is_covered: impl Fn(&TopicFilter) -> bool,
    ) -> bool {
        let own = self.link.borrow();
        own.as_ref()
            .is_some_and(|link| link.is_widened(action, is_covered))
    }

    /// The last record on its way to Kafka that its promises wait for.
    pub(crate) fn kafka(&self) -> u64 {
        self.link
            .borrow()
            .as_ref()
            .map_or(0, |link| link.kafka.get())
    }

    /// What its grant or its listener says of publishes for sessions whose queue is full.
    pub(crate) fn when_full(&self) -> Option<WhenFull> {
        self.link.borrow().as_ref()?.when_full.get()
    }

    pub(crate) fn is_online(&self) -> bool {
        self.link.borrow().is_some()
    }

    pub(crate) fn set_link(&self, link: Option<Rc<Link>>) {
        *self.link.borrow_mut() = link;
    }

    /// Whether `link` is this client's connection, and not one that was taken over.
    pub(crate) fn has_link(&self, link: &Rc<Link>) -> bool {
        let own = self.link.borrow();
        own.as_ref().is_some_and(|own| Rc::ptr_eq(own, link))
    }

    /// Moves what the session wants to send into the connection's outbox, and wakes its task.
    pub(crate) fn flush_session(&self, shard: &Shard) {
        let own = self.link.borrow();
        let Some(link) = &*own else { return };
        let mut session = self.session.borrow_mut();
        let was_empty = link.outbox.borrow().is_empty();
        while let Some(transmit) = session.poll_transmit() {
            link.push(shard, &transmit);
        }
        if was_empty && !link.in_turn.get() && !link.outbox.borrow().is_empty() {
            link.wake();
        }
    }
}

/// One network connection, as the rest of the shard sees it.
pub(crate) struct Link {
    pub(crate) version: Version,
    /// When the grant ends, on the monotonic clock.
    pub(crate) grant_ends: Cell<Option<Instant>>,
    /// Retained messages that are still to be sent, a subscription each.
    pub(crate) replays: RefCell<VecDeque<Replay>>,
    /// Answers of plugins that hold for more than one question.
    widened: Cell<Vec<Widened>>,
    /// What the first page of its queue promised: nothing is read from it before that has left.
    pub(crate) first_page: Cell<AckToken>,
    /// The last record on its way to Kafka that its promises wait for, or [`crate::kafka::LOST`].
    pub(crate) kafka: Cell<u64>,
    /// What leaves when the connection ends and waits for the store or Kafka.
    pub(crate) last_packets: Cell<Option<Box<LastPackets>>>,
    /// The client's Maximum Packet Size.
    pub(crate) packet_bytes: u32,
    pub(crate) peer: SocketAddr,
    pub(crate) connected_at: Instant,
    pub(crate) outbox: RefCell<Outbox>,
    /// The last turn ended without a look at the socket: a plugin, the client's allowance, its own
    /// full outbox or another shard is waited for. Its silence then says nothing.
    pub(crate) is_unread: Cell<bool>,
    /// Its own task runs, and will write before it rests: no wake is needed.
    pub(crate) in_turn: Cell<bool>,
    /// What its grant or its listener says of publishes for sessions whose queue is full.
    pub(crate) when_full: Cell<Option<WhenFull>>,
    /// Since when the socket has taken no byte although some wait.
    pub(crate) blocked_since: Cell<Option<Instant>>,
    waker: RefCell<Waker>,
    closing: Cell<Option<Closing>>,
}

/// Why somebody else than its own task ends a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// What the session is told.
    pub(crate) cause: Cause,
    /// What the client is told, where its version can be told.
    pub(crate) reason: ReasonCode,
}

impl Link {
    pub(crate) fn new(version: Version, packet_bytes: u32, peer: SocketAddr, now: Instant) -> Self {
        Self {
            version,
            grant_ends: Cell::default(),
            replays: RefCell::default(),
            widened: Cell::default(),
            first_page: Cell::default(),
            kafka: Cell::new(0),
            last_packets: Cell::default(),
            packet_bytes,
            peer,
            connected_at: now,
            outbox: RefCell::default(),
            is_unread: Cell::new(false),
            in_turn: Cell::new(false),
            when_full: Cell::default(),
            blocked_since: Cell::new(None),
            waker: RefCell::new(Waker::noop().clone()),
            closing: Cell::new(None),
        }
    }

    /// Remembers that a plugin allowed `action` on everything that `covers` covers.
    pub(crate) fn widen(&self, action: Action, covers: TopicFilter, until: Instant) {
        let mut widened = self.widened.take();
        if widened.len() == WIDENED_MAX {
            widened.remove(0);
        }
        widened.push(Widened {
            action,
            covers,
            until,
        });
        self.widened.set(widened);
    }

    /// Whether a remembered answer allows `action` on what `is_covered` asks about.
    fn is_widened(&self, action: Action, is_covered: impl Fn(&TopicFilter) -> bool) -> bool {
        let mut widened = self.widened.take();
        if widened.is_empty() {
            return false;
        }
        let now = Instant::now();
        widened.retain(|answer| now < answer.until);
        let is_widened = widened
            .iter()
            .any(|answer| answer.action == action && is_covered(&answer.covers));
        self.widened.set(widened);
        is_widened
    }

    /// Forgets what plugins allowed: it was said of an earlier grant.
    pub(crate) fn narrow(&self) {
        self.widened.take();
    }

    /// Whether Kafka did not take a message that came over this connection: no promise leaves any more.
    pub(crate) fn has_lost_a_record(&self) -> bool {
        self.kafka.get() == kafka::LOST
    }

    /// Remembers the task that reads and writes the socket.
    pub(crate) fn park(&self, waker: &Waker) {
        let mut own = self.waker.borrow_mut();
        if !own.will_wake(waker) {
            own.clone_from(waker);
        }
    }

    pub(crate) fn wake(&self) {
        self.waker.borrow().wake_by_ref();
    }

    /// Has the connection's own task end it.
    pub(crate) fn close(&self, cause: Cause, reason: ReasonCode) {
        if self.closing.get().is_none() {
            self.closing.set(Some(Closing { cause, reason }));
        }
        self.wake();
    }

    pub(crate) fn closing(&self) -> Option<Closing> {
        self.closing.get()
    }

    /// Puts one packet into the outbox.
    pub(crate) fn push(&self, shard: &Shard, transmit: &Transmit) {
        let metrics = shard.metrics();
        metrics.packets_sent.add(1);
        let mut outbox = self.outbox.borrow_mut();
        match transmit {
            Transmit::Publish(publish) => {
                metrics.messages_sent.add(1);
                let mut scratch = shard.properties.borrow_mut();
                push_publish(
                    &mut outbox,
                    self.version,
                    shard.now(),
                    &mut scratch,
                    publish,
                );
            }
            Transmit::Control(control) => {
                outbox.push_with(|out| control.encode(self.version, self.packet_bytes, out));
            }
        }
    }

    /// Puts a packet that is not the session's turn into the outbox.
    pub(crate) fn push_control(&self, shard: &Shard, control: &Control) {
        shard.metrics().packets_sent.add(1);
        let mut outbox = self.outbox.borrow_mut();
        outbox.push_with(|out| control.encode(self.version, self.packet_bytes, out));
    }
}

/// The publisher's own bytes where they fit; else a head of our own and a shared payload.
fn push_publish(
    outbox: &mut Outbox,
    version: Version,
    now: Instant,
    scratch: &mut PropertiesBuf,
    publish: &PublishTransmit,
) {
    if let Some((chunk, range)) = publish.shared_frame(version) {
        outbox.push_shared(chunk, range);
        return;
    }
    let message = publish.message();
    let payload = message.payload_range();
    let encoded = if payload.len() < SHARE_FROM_BYTES {
        outbox.push_with(|out| publish.encode(version, now, scratch, out))
    } else {
        outbox.push_with(|out| publish.encode_head(version, now, scratch, out))
    };
    // The session has checked the size; an error leaves nothing behind.
    debug_assert!(encoded.is_ok(), "a session hands out what can be encoded");
    if encoded.is_ok() && payload.len() >= SHARE_FROM_BYTES {
        outbox.push_payload(message.bytes(), payload);
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_session::ServerLimits;
    use mqttcore_topics::{Directory, Strategy};

    use super::*;
    use crate::config::grants::Permissions;

    #[test]
    fn asking_for_the_rights_of_a_client_counts_nobody_in() {
        let directory = Directory::new(1, Strategy::default());
        let (handle, access) = (
            Handle::new(0, 1, 1),
            Arc::new(Access::of(Permissions::default())),
        );
        let identity = Identity {
            who: Who::Kept(None),
            access: Arc::clone(&access),
        };
        let subscriber = directory.join(handle.word());
        let session = Session::new(Arc::new(ServerLimits::default()));
        let client = Client::new(handle, subscriber, "one".into(), identity, session);

        let asked = client.access();

        assert!(!asked.permissions.checks_deliveries());
        assert_eq!(Arc::strong_count(&access), 2, "the test's and the client's");
    }

    #[test]
    fn a_handle_is_found_again_in_its_word() {
        for (shard, generation, slot) in [(0, 0, 0), (63, 0xFF_FFFF, u32::MAX), (7, 99, 12)] {
            let handle = Handle::of_word(Handle::new(shard, generation, slot).word());

            let parts = (handle.shard(), handle.generation(), handle.slot());
            assert_eq!(parts, (usize::from(shard), generation, slot));
        }
    }
}
