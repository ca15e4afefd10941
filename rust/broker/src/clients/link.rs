//! The shard's view of one network connection.

use std::cell::{Cell, OnceCell, Ref, RefCell, RefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use mqttcore_codec::{ProtocolVersion, ReasonCode};
use mqttcore_session::{AckToken, Cause, ChunkAccount, Control, OnDemand};
use mqttcore_topics::TopicFilter;
use tokio::sync::oneshot;

use crate::clients::measures::LinkMeasures;
use crate::clients::retained::Replays;
use crate::clients::traces::TraceSet;
use crate::config::hooks::{Action, Login};
use crate::config::queue_policy::FullQueuePolicy;
use crate::config::{Peer, RateLimitKind};
use crate::transport::Transport;
use crate::transport::channel::Channel;
use crate::transport::outbox::Outbox;

/// Packets that are sent when the connection ends, once the acknowledgements are safe, or dropped after a short time.
pub(crate) struct LastPackets {
    /// In order; dropped unless they become safe in time.
    pub(crate) acknowledgements: Vec<Control>,
    /// Notified when they are safe.
    pub(crate) safe: oneshot::Receiver<()>,
    pub(crate) disconnect: Option<Control>,
}

/// A temporary permission that a plugin gave in addition to the grant.
struct CachedAllow {
    action: Action,
    covers: TopicFilter,
    until: Instant,
}

/// State that most connections never have.
#[derive(Default)]
struct RareState {
    /// When the grant ends, on the monotonic clock.
    grant_ends: Cell<Option<Instant>>,
    /// Cached answers of plugins.
    cached_allows: Cell<Vec<CachedAllow>>,
    /// The token of the first page of the queue: no further page is read before it is confirmed.
    first_page: Cell<AckToken>,
    /// The last record sent to the external log that acknowledgements of this connection wait for, or [`LOST`].
    external_record: Cell<u64>,
    /// The last packets, while the connection ends and they wait for the store or Kafka.
    last_packets: Cell<Option<LastPackets>>,
    held_back: Cell<HeldBack>,
    /// The queue policy of its grant or its listener, for its publishes to sessions with a full queue.
    queue_policy: Cell<Option<FullQueuePolicy>>,
}

/// The rate limits because of which a client waits.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct HeldBack {
    /// It is not read.
    pub(crate) reads: Option<RateLimitKind>,
    /// It gets no retained messages.
    pub(crate) retained: Option<RateLimitKind>,
}

impl HeldBack {
    /// The limits for which a wait has begun since `before`.
    pub(crate) fn begun_since(self, before: Self) -> impl Iterator<Item = RateLimitKind> {
        let reads = self.reads.filter(|_| before.reads.is_none());
        let retained = self.retained.filter(|_| before.retained.is_none());
        reads.into_iter().chain(retained)
    }
}

/// Maximum number of cached answers of one client; the oldest is dropped first.
const CACHED_ALLOWS_MAX: usize = 64;

/// Bytes of a connection without its buffers: link, task and socket.
const CONNECTION_BYTES: usize = size_of::<Link>() + 640;

/// Number of turns after which the memory of a connection is counted again.
const WEIGHED_EVERY: u8 = 8;

/// Value of [`Link::external_record()`] after a record was lost: no acknowledgement is sent until the client reconnects.
pub(crate) const LOST: u64 = u64::MAX;

/// What is written, and where to.
#[derive(Default)]
pub(crate) struct Endpoint {
    pub(crate) outbox: OnDemand<Outbox>,
    /// The socket; none before the first turn, nor once the end of the connection sends the last bytes.
    pub(crate) transport: Option<Transport>,
}

/// One network connection, as the rest of the shard sees it.
pub(crate) struct Link {
    pub(crate) version: ProtocolVersion,
    /// Retained messages that are not sent yet.
    replays: Cell<Replays>,
    rare: OnceCell<Box<RareState>>,
    /// The client's Maximum Packet Size.
    pub(crate) packet_bytes: u32,
    /// The login of this connection; after a takeover the client has another one.
    login: Arc<Login>,
    /// Index of the listener that accepted it.
    pub(crate) listener: u16,
    /// Microseconds from the start of the broker to CONNACK: half of an `Instant`.
    connected_us: u64,
    pub(crate) endpoint: RefCell<Endpoint>,
    /// Counts the messages that arrived over it; created with the first one.
    pub(crate) account: OnceCell<Arc<ChunkAccount>>,
    /// Rates and times.
    pub(crate) measures: LinkMeasures,
    /// Bytes of the partial frame.
    pub(crate) partial_bytes: Cell<u32>,
    /// What it runs over: one byte fits into padding.
    pub(crate) channel: Cell<Channel>,
    /// How the connection is read while memory is short.
    pub(crate) pace: Cell<Pace>,
    /// The last turn ended without reading the socket, because it waits for a plugin, the rate limit, its own full
    /// outbox or another shard. Keep Alive must not time out then.
    pub(crate) is_unread: Cell<bool>,
    /// The connection's own task runs and will write before it ends its turn: no wake is needed.
    pub(crate) in_turn: Cell<bool>,
    /// Turns of its task, modulo 256.
    turns: Cell<u8>,
    /// The task has run since the last call of [`Link::is_idle`].
    has_run: Cell<bool>,
    /// The client has just connected, subscribed or sent PINGREQ, and often goes on to send nothing: its empty buffers
    /// are freed as soon as the answer is written.
    pub(crate) is_settling: Cell<bool>,
    /// The active traces that it belongs to, and their version when they were found.
    pub(crate) traces: Cell<(u16, TraceSet)>,
    /// The waker of its task; none before the first turn.
    waker: Cell<Option<Waker>>,
    closing: Cell<Option<Closing>>,
}

/// How a connection is read while memory is short.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Pace {
    /// Without restriction.
    #[default]
    Free,
    /// Not at all.
    Held,
    /// One read; then it is [`Pace::Held`] again.
    OneRead,
}

/// A publisher that is read slowly, and the time of its next read.
pub(crate) struct Slowed {
    pub(crate) link: Rc<Link>,
    pub(crate) next: Instant,
}

/// Why code outside of the connection's task ends it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Closing {
    /// The cause that the session gets.
    pub(crate) cause: Cause,
    /// The reason code for a client of MQTT 5.0.
    pub(crate) reason: ReasonCode,
}

impl Closing {
    /// The client does not read what the broker sends.
    pub(crate) const STALLED: Self = Self {
        cause: Cause::ConnectionLost,
        reason: ReasonCode::QUOTA_EXCEEDED,
    };
}

/// The waker of a link, which it has again at the end, also if that is a panic.
struct Taken<'l>(&'l Cell<Option<Waker>>, Option<Waker>);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.set(self.1.take());
    }
}

impl Link {
    pub(crate) fn new(
        version: ProtocolVersion,
        packet_bytes: u32,
        (login, listener): (Arc<Login>, u16),
        since_start: Duration,
    ) -> Self {
        Self {
            version,
            replays: Cell::default(),
            rare: OnceCell::new(),
            packet_bytes,
            login,
            listener,
            connected_us: u64::try_from(since_start.as_micros()).unwrap_or(u64::MAX),
            endpoint: RefCell::default(),
            account: OnceCell::new(),
            measures: LinkMeasures::default(),
            partial_bytes: Cell::new(0),
            channel: Cell::default(),
            pace: Cell::default(),
            is_unread: Cell::new(false),
            in_turn: Cell::new(false),
            turns: Cell::new(0),
            has_run: Cell::new(true),
            is_settling: Cell::new(true),
            traces: Cell::default(),
            waker: Cell::default(),
            closing: Cell::new(None),
        }
    }

    #[inline]
    pub(crate) fn outbox(&self) -> Ref<'_, OnDemand<Outbox>> {
        Ref::map(self.endpoint.borrow(), |endpoint| &endpoint.outbox)
    }

    #[inline]
    pub(crate) fn outbox_mut(&self) -> RefMut<'_, OnDemand<Outbox>> {
        RefMut::map(self.endpoint.borrow_mut(), |endpoint| &mut endpoint.outbox)
    }

    /// Takes the transport, which is then closed or sends the last bytes.
    pub(crate) fn take_transport(&self) -> Option<Transport> {
        self.endpoint.borrow_mut().transport.take()
    }

    /// The address of the client.
    pub(crate) fn peer(&self) -> Peer {
        self.login.peer
    }

    fn rare(&self) -> &RareState {
        self.rare.get_or_init(Box::default)
    }

    /// When the grant ends, on the monotonic clock.
    pub(crate) fn grant_ends(&self) -> Option<Instant> {
        self.rare.get()?.grant_ends.get()
    }

    /// Sets when the grant ends.
    pub(crate) fn set_grant_ends(&self, ends: Option<Instant>) {
        if ends != self.grant_ends() {
            self.rare().grant_ends.set(ends);
        }
    }

    /// The token of the first page of the queue: no further page is read before it is confirmed.
    pub(crate) fn first_page(&self) -> AckToken {
        let rare = self.rare.get();
        rare.map_or_else(AckToken::default, |rare| rare.first_page.get())
    }

    /// Sets the token of the first page.
    pub(crate) fn set_first_page(&self, token: AckToken) {
        self.rare().first_page.set(token);
    }

    /// The last record sent to the external log that acknowledgements of this connection wait for, or [`LOST`].
    pub(crate) fn external_record(&self) -> u64 {
        let rare = self.rare.get();
        rare.map_or(0, |rare| rare.external_record.get())
    }

    /// Sets the record that acknowledgements wait for.
    pub(crate) fn set_external_record(&self, number: u64) {
        self.rare().external_record.set(number);
    }

    /// The rate limits because of which the client waits.
    pub(crate) fn held_back(&self) -> HeldBack {
        let rare = self.rare.get();
        rare.map_or_else(HeldBack::default, |rare| rare.held_back.get())
    }

    /// Sets the rate limits because of which the client waits.
    pub(crate) fn set_held_back(&self, held_back: HeldBack) {
        if held_back != self.held_back() {
            self.rare().held_back.set(held_back);
        }
    }

    /// The queue policy of its grant or its listener, for its publishes to sessions with a full queue.
    pub(crate) fn queue_policy(&self) -> Option<FullQueuePolicy> {
        self.rare.get()?.queue_policy.get()
    }

    /// Sets the queue policy.
    pub(crate) fn set_queue_policy(&self, policy: Option<FullQueuePolicy>) {
        if policy != self.queue_policy() {
            self.rare().queue_policy.set(policy);
        }
    }

    /// Holds the last packets back.
    pub(crate) fn hold_last_packets(&self, last: LastPackets) {
        self.rare().last_packets.set(Some(last));
    }

    /// Takes the last packets, if they were held back.
    pub(crate) fn take_last_packets(&self) -> Option<LastPackets> {
        self.rare.get()?.last_packets.take()
    }

    /// Caches that a plugin allowed `action` on everything that `covers` covers.
    pub(crate) fn cache_allow(&self, action: Action, covers: TopicFilter, until: Instant) {
        let mut cached = self.rare().cached_allows.take();
        if cached.len() == CACHED_ALLOWS_MAX {
            cached.remove(0);
        }
        cached.push(CachedAllow {
            action,
            covers,
            until,
        });
        self.rare().cached_allows.set(cached);
    }

    /// Whether a cached answer allows `action` on the topic or filter that `is_covered` tests.
    pub(crate) fn has_cached_allow(
        &self,
        action: Action,
        is_covered: impl Fn(&TopicFilter) -> bool,
    ) -> bool {
        let Some(rare) = self.rare.get() else {
            return false;
        };
        let mut cached = rare.cached_allows.take();
        if cached.is_empty() {
            return false;
        }
        let now = Instant::now();
        cached.retain(|answer| now < answer.until);
        let is_allowed =
            |answer: &CachedAllow| answer.action == action && is_covered(&answer.covers);
        let has_cached_allow = cached.iter().any(is_allowed);
        rare.cached_allows.set(cached);
        has_cached_allow
    }

    /// Drops the cached answers, since they belong to an earlier grant.
    pub(crate) fn clear_allows(&self) {
        if let Some(rare) = self.rare.get() {
            rare.cached_allows.take();
        }
    }

    /// Whether Kafka rejected a message of this connection: no further acknowledgements are sent on it.
    pub(crate) fn has_lost_a_record(&self) -> bool {
        self.external_record() == LOST
    }

    /// Counts a turn of its task; returns whether memory is to be counted at its end. Tables change seldom: messages,
    /// queues and partial frames are counted when they change, and a connection that is idle is counted by
    /// `ease_sessions`.
    pub(crate) fn counts_memory(&self) -> bool {
        let turns = self.turns.get();
        self.turns.set(turns.wrapping_add(1));
        turns.is_multiple_of(WEIGHED_EVERY)
    }

    /// Whether its task has not run since the last call.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_run.replace(false)
    }

    /// Notes that it is not idle.
    pub(crate) fn note_run(&self) {
        self.has_run.set(true);
    }

    /// Stores the waker of the task that reads and writes the socket.
    pub(crate) fn store_waker(&self, waker: &Waker) {
        self.note_run();
        let own = self.waker.take();
        let is_stored = own.as_ref().is_some_and(|own| own.will_wake(waker));
        self.waker
            .set(if is_stored { own } else { Some(waker.clone()) });
    }

    /// Whether its task has had a turn; the first one writes what is in the outbox.
    pub(crate) fn has_begun(&self) -> bool {
        self.with_waker(|_| ()).is_some()
    }

    /// When it got its CONNACK, after the start of the broker.
    pub(crate) fn connected_after(&self) -> Duration {
        Duration::from_micros(self.connected_us)
    }

    /// How long it has existed, when the broker has run for `since_start`.
    pub(crate) fn age(&self, since_start: Duration) -> Duration {
        since_start.saturating_sub(self.connected_after())
    }

    /// Bytes of its messages, wherever they are held, and of the partial frame.
    pub(crate) fn sent_bytes(&self) -> usize {
        let messages = self.account.get().map_or(0, |account| account.bytes());
        messages + self.partial_bytes.get() as usize
    }

    /// Heap bytes of the connection, without messages that it shares with others.
    pub(crate) fn heap_bytes(&self) -> usize {
        let transport = self.channel.get().heap_bytes();
        let partial = self.partial_bytes.get() as usize;
        let measures = self.measures.heap_bytes();
        let outbox = self.outbox().heap_bytes(Outbox::own_bytes);
        CONNECTION_BYTES + transport + partial + measures + outbox
    }

    pub(crate) fn wake(&self) {
        self.with_waker(Waker::wake_by_ref);
    }

    /// Calls `with` with the waker of its task, unless its first turn is yet to come.
    pub(crate) fn with_waker<T>(&self, with: impl FnOnce(&Waker) -> T) -> Option<T> {
        let own = Taken(&self.waker, self.waker.take());
        own.1.as_ref().map(with)
    }

    /// Whether retained messages are to be sent.
    #[inline]
    pub(crate) fn has_replays(&self) -> bool {
        self.with_replays(|replays| replays.front().is_some())
    }

    /// Calls `with` with the retained messages that are not sent yet; `with` does not ask for them again.
    pub(crate) fn with_replays<T>(&self, with: impl FnOnce(&mut Replays) -> T) -> T {
        let mut replays = self.replays.take();
        let result = with(&mut replays);
        self.replays.set(replays);
        result
    }

    /// Makes the connection's own task close it after a fault.
    pub(crate) fn close_lost(&self) {
        self.close(Cause::ConnectionLost, ReasonCode::UNSPECIFIED_ERROR);
    }

    /// Makes the connection's own task close it. A connection that seems to be stalled may go on, so that another reason
    /// counts more.
    pub(crate) fn close(&self, cause: Cause, reason: ReasonCode) {
        if self
            .closing
            .get()
            .is_none_or(|closing| closing == Closing::STALLED)
        {
            self.closing.set(Some(Closing { cause, reason }));
        }
        self.wake();
    }

    /// Keeps a connection that seemed to be stalled.
    pub(crate) fn cancel_close(&self) {
        self.closing.set(None);
    }

    pub(crate) fn closing(&self) -> Option<Closing> {
        self.closing.get()
    }
}
