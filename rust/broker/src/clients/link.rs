//! The shard's view of one network connection.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Waker;
use std::time::Instant;

use mqttcore_codec::{ProtocolVersion, ReasonCode};
use mqttcore_session::{AckToken, Cause, ChunkAccount, Control};
use mqttcore_topics::TopicFilter;
use tokio::sync::oneshot;

use crate::clients::outbox::Outbox;
use crate::clients::retained::Replays;
use crate::config::Peer;
use crate::config::hooks::Action;
use crate::config::queue_policy::FullQueuePolicy;
use crate::runtime::wake_queue::WakeQueue;

/// What leaves once the acknowledgements are safe, but not for long.
pub(crate) struct LastPackets {
    /// In their order; they are left out unless they become safe in time.
    pub(crate) acknowledgements: Vec<Control>,
    /// Told when they are safe.
    pub(crate) safe: oneshot::Receiver<()>,
    pub(crate) disconnect: Option<Control>,
}

/// What a plugin allowed beyond the grant, for a while.
struct CachedAllow {
    action: Action,
    covers: TopicFilter,
    until: Instant,
}

/// Such answers; most clients have none.
#[derive(Default)]
struct CachedAllows(Vec<CachedAllow>);

/// Answers kept for one client; the oldest makes room.
const CACHED_ALLOWS_MAX: usize = 64;

/// What a connection takes beside its buffers: itself, its task and its socket.
const CONNECTION_BYTES: usize = size_of::<Link>() + 768;

/// What [`Link::external_record`] is when one of its records was lost: none of its promises leaves until the client
/// connects again.
pub(crate) const LOST: u64 = u64::MAX;

/// One network connection, as the rest of the shard sees it.
pub(crate) struct Link {
    pub(crate) version: ProtocolVersion,
    /// When the grant ends, on the monotonic clock.
    pub(crate) grant_ends: Cell<Option<Instant>>,
    /// Retained messages that are still to be sent.
    pub(crate) replays: RefCell<Replays>,
    /// Answers of plugins that hold for more than one question.
    cached_allows: Cell<Option<Box<CachedAllows>>>,
    /// What the first page of its queue promised: nothing is read from it before that has left.
    pub(crate) first_page: Cell<AckToken>,
    /// The last record on its way to the external log that its promises wait for, or [`LOST`].
    pub(crate) external_record: Cell<u64>,
    /// What leaves when the connection ends and waits for the store or Kafka.
    pub(crate) last_packets: Cell<Option<Box<LastPackets>>>,
    /// The client's Maximum Packet Size.
    pub(crate) packet_bytes: u32,
    pub(crate) peer: Peer,
    pub(crate) connected_at: Instant,
    pub(crate) outbox: RefCell<Outbox>,
    /// Counts the messages that came over it; made with the first one.
    pub(crate) account: OnceCell<Arc<ChunkAccount>>,
    /// Bytes of a frame that is not whole yet.
    pub(crate) partial_bytes: Cell<u32>,
    /// Heap that TLS or WebSocket takes, in KiB: a byte fits into what would be padding.
    pub(crate) transport_kib: Cell<u8>,
    /// How it is read while memory is short.
    pub(crate) pace: Cell<Pace>,
    /// The last turn ended without a look at the socket: a plugin, the client's allowance, its own
    /// full outbox or another shard is waited for. Its silence then says nothing.
    pub(crate) is_unread: Cell<bool>,
    /// Its own task runs, and will write before it rests: no wake is needed.
    pub(crate) in_turn: Cell<bool>,
    /// Its task has run since [`Link::is_idle`] was asked.
    has_run: Cell<bool>,
    /// What its grant or its listener says of publishes for sessions whose queue is full.
    pub(crate) queue_policy: Cell<Option<FullQueuePolicy>>,
    /// Since when the socket has taken no byte although some wait.
    pub(crate) blocked_since: Cell<Option<Instant>>,
    waker: RefCell<Waker>,
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
    /// Once; then it is [`Pace::Held`] again.
    OneRead,
}

/// A sender that is read slowly, and when it is read next.
pub(crate) struct Slowed {
    pub(crate) link: Rc<Link>,
    pub(crate) next: Instant,
}

/// The cause for which code outside of its task ends a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Closing {
    /// The cause that the session gets.
    pub(crate) cause: Cause,
    /// The reason code for a client of MQTT 5.0.
    pub(crate) reason: ReasonCode,
}

impl Link {
    pub(crate) fn new(
        version: ProtocolVersion,
        packet_bytes: u32,
        peer: Peer,
        now: Instant,
    ) -> Self {
        Self {
            version,
            grant_ends: Cell::default(),
            replays: RefCell::default(),
            cached_allows: Cell::default(),
            first_page: Cell::default(),
            external_record: Cell::new(0),
            last_packets: Cell::default(),
            packet_bytes,
            peer,
            connected_at: now,
            outbox: RefCell::default(),
            account: OnceCell::new(),
            partial_bytes: Cell::new(0),
            transport_kib: Cell::default(),
            pace: Cell::default(),
            is_unread: Cell::new(false),
            in_turn: Cell::new(false),
            has_run: Cell::new(true),
            queue_policy: Cell::default(),
            blocked_since: Cell::new(None),
            waker: RefCell::new(Waker::noop().clone()),
            closing: Cell::new(None),
        }
    }

    /// Remembers that a plugin allowed `action` on everything that `covers` covers.
    pub(crate) fn cache_allow(&self, action: Action, covers: TopicFilter, until: Instant) {
        let mut cached = self.cached_allows.take().unwrap_or_default();
        if cached.0.len() == CACHED_ALLOWS_MAX {
            cached.0.remove(0);
        }
        cached.0.push(CachedAllow {
            action,
            covers,
            until,
        });
        self.cached_allows.set(Some(cached));
    }

    /// Whether a remembered answer allows `action` on what `is_covered` asks about.
    pub(crate) fn has_cached_allow(
        &self,
        action: Action,
        is_covered: impl Fn(&TopicFilter) -> bool,
    ) -> bool {
        let Some(mut cached) = self.cached_allows.take() else {
            return false;
        };
        let now = Instant::now();
        cached.0.retain(|answer| now < answer.until);
        let has_cached_allow = cached
            .0
            .iter()
            .any(|answer| answer.action == action && is_covered(&answer.covers));
        self.cached_allows.set(Some(cached));
        has_cached_allow
    }

    /// Forgets what plugins allowed: it was said of an earlier grant.
    pub(crate) fn clear_allows(&self) {
        self.cached_allows.take();
    }

    /// Whether Kafka did not accept a message of this connection: it gets no further acknowledgements.
    pub(crate) fn has_lost_a_record(&self) -> bool {
        self.external_record.get() == LOST
    }

    /// Whether its task has not run since the last call.
    pub(crate) fn is_idle(&self) -> bool {
        !self.has_run.replace(false)
    }

    /// Remembers the task that reads and writes the socket.
    pub(crate) fn park(&self, waker: &Waker) {
        self.has_run.set(true);
        let mut own = self.waker.borrow_mut();
        if !own.will_wake(waker) {
            own.clone_from(waker);
        }
    }

    /// Bytes of memory that its messages take, wherever they are, with the frame that is not whole yet.
    pub(crate) fn sent_bytes(&self) -> usize {
        let messages = self.account.get().map_or(0, |account| account.bytes());
        messages + self.partial_bytes.get() as usize
    }

    /// Bytes that the connection takes, without messages that it shares with others.
    pub(crate) fn heap_bytes(&self) -> usize {
        let transport = usize::from(self.transport_kib.get()) * 1_024;
        let partial = self.partial_bytes.get() as usize;
        CONNECTION_BYTES + transport + partial + self.outbox.borrow().own_bytes()
    }

    pub(crate) fn wake(&self) {
        self.waker.borrow().wake_by_ref();
    }

    /// Wakes the task that reads and writes the socket, in its turn.
    pub(crate) fn wake_in_turn(&self, queue: &WakeQueue) {
        queue.wake(&self.waker.borrow());
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
}
