//! Optional state of a session: on the heap only during a connection or an open exchange.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};

use mqttcore_codec::PacketId;
use mqttcore_topics::MountPoint;

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::auth::Authentication;
use crate::control::Control;
use crate::event::SessionEvent;
use crate::gate::{AckToken, HeldAcks};
use crate::inflight::InFlight;
use crate::queue::Outgoing;
use crate::received::ReceivedIds;
use crate::will::WillMessage;

/// Everything of a session but its name, its subscriptions and its queue.
#[derive(Debug)]
pub(crate) struct ActiveState {
    pub(crate) link: ConnectionState,
    /// Acknowledgements that wait until their token is confirmed.
    pub(crate) held: HeldAcks,
    /// Packets that wait for nothing.
    pub(crate) controls: VecDeque<Control>,
    /// QoS 0 messages to be polled.
    pub(crate) backlog: VecDeque<Outgoing>,
    pub(crate) backlog_bytes: usize,
    pub(crate) in_flight: InFlight,
    /// The last drop of a message that the store has: no later QoS 1 message leaves before this is confirmed.
    pub(crate) dropped: AckToken,
    pub(crate) events: VecDeque<SessionEvent>,
    pub(crate) incoming: Option<Box<Incoming>>,
    pub(crate) aliases: Option<Box<TopicAliases>>,
    pub(crate) authentication: Option<Box<Authentication>>,
    pub(crate) will: Option<Box<WillMessage>>,
}

/// What belongs to one connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) problem_information: bool,
    /// The client is a bridge of another broker.
    pub(crate) is_bridge: bool,
    /// What stands in front of its topics.
    pub(crate) mount_point: Option<MountPoint>,
    /// Maximum number of QoS 1 and 2 messages in flight to the client.
    pub(crate) window: u16,
    /// Acknowledgements of nothing so far.
    pub(crate) strays: u16,
    pub(crate) keep_alive_s: u16,
    /// QoS 1 and 2 publishes of the client's without their last acknowledgement.
    pub(crate) open_publishes: u32,
    /// New filters of SUBSCRIBEs that are not answered yet: they count against the limit.
    pub(crate) requested: u32,
    /// The client's Maximum Packet Size.
    pub(crate) packet_bytes: u32,
    /// The most that a session expiry may be, in seconds.
    pub(crate) expiry_max_s: u32,
}

/// QoS 2 publishes of the client's.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Accepted and not released identifiers: a PUBLISH with one of them is a repeat [MQTT-4.3.3-10].
    pub(crate) received: ReceivedIds,
    /// Handed to the engine, not accepted yet; forgotten with the connection.
    pub(crate) pending: Vec<PacketId>,
}

/// Topic aliases of one connection.
#[derive(Debug)]
pub(crate) struct TopicAliases {
    pub(crate) incoming: IncomingAliases,
    pub(crate) outgoing: OutgoingAliases,
}

impl ConnectionState {
    pub(crate) const AWAY: Self = Self {
        problem_information: true,
        is_bridge: false,
        mount_point: None,
        window: 0,
        strays: 0,
        keep_alive_s: 0,
        open_publishes: 0,
        requested: 0,
        packet_bytes: u32::MAX,
        expiry_max_s: 0,
    };
}

impl ActiveState {
    fn heap_bytes(&self) -> usize {
        let incoming = self.incoming.as_ref().map_or(0, |incoming| {
            size_of::<Incoming>() + incoming.received.heap_bytes() + incoming.pending.capacity() * 2
        });
        let authentication = self.authentication.as_ref();
        self.held.heap_bytes()
            + self.controls.capacity() * size_of::<Control>()
            + self.backlog.capacity() * size_of::<Outgoing>()
            + self.in_flight.heap_bytes()
            + self.events.capacity() * size_of::<SessionEvent>()
            + self
                .aliases
                .as_ref()
                .map_or(0, |_| size_of::<TopicAliases>())
            + authentication.map_or(0, |_| size_of::<Authentication>())
            + self.will.as_ref().map_or(0, |_| size_of::<WillMessage>())
            + incoming
    }

    const REST: Self = Self {
        link: ConnectionState::AWAY,
        held: HeldAcks::NONE,
        controls: VecDeque::new(),
        backlog: VecDeque::new(),
        backlog_bytes: 0,
        in_flight: InFlight::NONE,
        dropped: AckToken::NONE,
        events: VecDeque::new(),
        incoming: None,
        aliases: None,
        authentication: None,
        will: None,
    };

    /// Whether it can be dropped when there is no connection.
    fn is_over(&self) -> bool {
        self.events.is_empty()
            && self.in_flight.len() == 0
            && self.will.is_none()
            && self.incoming.is_none()
    }

    /// Gives back the memory of lines that are empty.
    pub(crate) fn shrink(&mut self) {
        self.held.shrink();
        self.in_flight.shrink();
        if self.controls.is_empty() {
            self.controls = VecDeque::new();
        }
        if self.backlog.is_empty() {
            self.backlog = VecDeque::new();
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        let is_done =
            |incoming: &Incoming| incoming.received.len() == 0 && incoming.pending.is_empty();
        if self.incoming.as_deref().is_some_and(is_done) {
            self.incoming = None;
        }
    }
}

/// A [`ActiveState`] that is on the heap while it is needed: most kept sessions wait for clients that are
/// away, and have nothing of it.
///
/// It reads as one where nothing goes on, and comes to be when it is written to.
#[derive(Debug, Default)]
pub(crate) struct OptionalState(Option<Box<ActiveState>>);

impl OptionalState {
    pub(crate) fn heap_bytes(&self) -> usize {
        let live = self.0.as_deref();
        live.map_or(0, |live| size_of::<ActiveState>() + live.heap_bytes())
    }

    /// Lets go of it if there is nothing in it that outlives a connection; there must be none.
    pub(crate) fn rest(&mut self) {
        if self.0.as_deref().is_some_and(ActiveState::is_over) {
            self.0 = None;
        }
    }

    /// As it is, if it is.
    pub(crate) fn get_mut(&mut self) -> Option<&mut ActiveState> {
        self.0.as_deref_mut()
    }
}

impl Deref for OptionalState {
    type Target = ActiveState;

    fn deref(&self) -> &ActiveState {
        const REST: &ActiveState = &ActiveState::REST;
        self.0.as_deref().unwrap_or(REST)
    }
}

impl DerefMut for OptionalState {
    fn deref_mut(&mut self) -> &mut ActiveState {
        self.0.get_or_insert_with(|| Box::new(ActiveState::REST))
    }
}
