//! Optional state of a session: on the heap only during a connection or an open exchange.

use std::collections::VecDeque;

use mqttcore_codec::PacketId;
use mqttcore_topics::MountPoint;

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::auth::Authentication;
use crate::control::Control;
use crate::deque::LazyDeque;
use crate::event::SessionEvent;
use crate::gate::{AckToken, HeldAcks};
use crate::inflight::InFlight;
use crate::on_demand::{Idle, OnDemand};
use crate::packet_ids::PacketIdAllocator;
use crate::queue::Outgoing;
use crate::received::ReceivedIds;
use crate::will::WillMessage;

/// State of a session, without its name, its subscriptions and its queue.
#[derive(Debug)]
pub(crate) struct ActiveState {
    pub(crate) link: ConnectionState,
    /// Acknowledgements that wait until their token is confirmed.
    pub(crate) held: HeldAcks,
    /// Packets that may be sent at once.
    pub(crate) controls: LazyDeque<Control>,
    pub(crate) backlog: OnDemand<Backlog>,
    pub(crate) in_flight: OnDemand<InFlight>,
    /// Kept while nothing is in flight, so that the next message gets another identifier.
    pub(crate) packet_ids: PacketIdAllocator,
    pub(crate) events: LazyDeque<SessionEvent>,
    pub(crate) rare: OnDemand<RareState>,
}

/// State that most connected clients do not have.
#[derive(Debug)]
pub(crate) struct RareState {
    /// The prefix of the client's topics.
    pub(crate) mount_point: Option<MountPoint>,
    pub(crate) incoming: Option<Box<ReceivedQos2>>,
    pub(crate) aliases: Option<Box<TopicAliases>>,
    pub(crate) authentication: Option<Box<Authentication>>,
    pub(crate) will: Option<Box<WillMessage>>,
    /// Token of the last drop of a stored message: no later QoS 1 message is sent before it is confirmed.
    pub(crate) dropped: AckToken,
}

/// State of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionState {
    pub(crate) problem_information: bool,
    /// The client is a bridge of another broker.
    pub(crate) is_bridge: bool,
    /// Maximum number of QoS 1 and 2 messages in flight to the client.
    pub(crate) send_quota: u16,
    /// Stray acknowledgements so far.
    pub(crate) strays: u16,
    pub(crate) keep_alive_s: u16,
    /// QoS 1 and 2 publishes of the client that are not fully acknowledged.
    pub(crate) open_publishes: u32,
    /// New filters in SUBSCRIBEs that are not answered yet: they count against the limit.
    pub(crate) requested: u32,
    /// Their levels from the first `+` on.
    pub(crate) requested_levels: u32,
    /// Levels of the granted filters from the first `+` on; `u32::MAX`: not counted yet.
    pub(crate) granted_levels: u32,
    /// The client's Maximum Packet Size.
    pub(crate) packet_bytes: u32,
    /// Maximum session expiry, in seconds.
    pub(crate) expiry_max_s: u32,
}

/// QoS 0 messages to be polled.
#[derive(Debug)]
pub(crate) struct Backlog {
    messages: VecDeque<Outgoing>,
    /// Sum of [`Outgoing::cost_bytes`].
    bytes: usize,
}

impl Backlog {
    pub(crate) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn push(&mut self, outgoing: Outgoing) {
        self.bytes += outgoing.cost_bytes();
        self.messages.push_back(outgoing);
    }

    pub(crate) fn pop(&mut self) -> Option<Outgoing> {
        let outgoing = self.messages.pop_front()?;
        self.bytes -= outgoing.cost_bytes();
        Some(outgoing)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Outgoing> {
        self.messages.iter_mut()
    }

    fn heap_bytes(&self) -> usize {
        self.messages.capacity() * size_of::<Outgoing>()
    }
}

/// QoS 2 publishes of the client.
#[derive(Debug, Default)]
pub(crate) struct ReceivedQos2 {
    /// Identifiers that were accepted and not released: a PUBLISH with one of them is a repeat [MQTT-4.3.3-10].
    pub(crate) received: ReceivedIds,
    /// Identifiers whose PUBLISH the engine has not accepted yet; dropped with the connection.
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
        send_quota: 0,
        strays: 0,
        keep_alive_s: 0,
        open_publishes: 0,
        requested: 0,
        requested_levels: 0,
        granted_levels: u32::MAX,
        packet_bytes: u32::MAX,
        expiry_max_s: 0,
    };
}

impl ActiveState {
    pub(crate) fn heap_bytes(&self) -> usize {
        self.held.heap_bytes()
            + self.controls.heap_bytes()
            + self.backlog.heap_bytes(Backlog::heap_bytes)
            + self.in_flight.heap_bytes(InFlight::heap_bytes)
            + self.events.heap_bytes()
            + self.rare.heap_bytes(RareState::heap_bytes)
    }

    const IDLE: Self = Self {
        link: ConnectionState::AWAY,
        held: HeldAcks::NONE,
        controls: LazyDeque::EMPTY,
        backlog: OnDemand::NONE,
        in_flight: OnDemand::NONE,
        packet_ids: PacketIdAllocator::ALL,
        events: LazyDeque::EMPTY,
        rare: OnDemand::NONE,
    };

    /// Whether the state can be dropped when there is no connection.
    fn is_over(&self) -> bool {
        self.events.is_empty()
            && self.in_flight.len() == 0
            && self.rare.will.is_none()
            && self.rare.incoming.is_none()
    }

    /// Frees the memory of empty queues.
    pub(crate) fn shrink(&mut self) {
        self.held.shrink();
        if self.in_flight.len() == 0 {
            self.in_flight.clear();
        } else if let Some(in_flight) = self.in_flight.get_mut() {
            in_flight.shrink();
        }
        self.controls.shrink();
        if self.backlog.is_empty() {
            self.backlog.clear();
        }
        self.events.shrink();
        if self.rare.get_mut().is_some_and(RareState::is_over) {
            self.rare.clear();
        }
    }
}

impl RareState {
    fn heap_bytes(&self) -> usize {
        let incoming = self.incoming.as_ref().map_or(0, |incoming| {
            size_of::<ReceivedQos2>()
                + incoming.received.heap_bytes()
                + incoming.pending.capacity() * 2
        });
        let aliases = self.aliases.as_ref();
        let authentication = self.authentication.as_ref();
        aliases.map_or(0, |_| size_of::<TopicAliases>())
            + authentication.map_or(0, |_| size_of::<Authentication>())
            + self.will.as_ref().map_or(0, |_| size_of::<WillMessage>())
            + incoming
    }

    /// Frees the memory of an empty table; returns whether there is no state.
    fn is_over(&mut self) -> bool {
        let is_done =
            |incoming: &ReceivedQos2| incoming.received.len() == 0 && incoming.pending.is_empty();
        if self.incoming.as_deref().is_some_and(is_done) {
            self.incoming = None;
        }
        self.mount_point.is_none()
            && self.incoming.is_none()
            && self.aliases.is_none()
            && self.authentication.is_none()
            && self.will.is_none()
            && self.dropped == AckToken::NONE
    }
}

/// Optional state of a session: none for most kept sessions, since their clients are offline.
pub(crate) type OptionalState = OnDemand<ActiveState>;

impl Idle for ActiveState {
    const IDLE: Self = Self::IDLE;

    fn idle() -> &'static Self {
        const { &Self::IDLE }
    }
}

impl Idle for RareState {
    const IDLE: Self = Self {
        mount_point: None,
        incoming: None,
        aliases: None,
        authentication: None,
        will: None,
        dropped: AckToken::NONE,
    };

    fn idle() -> &'static Self {
        const { &Self::IDLE }
    }
}

impl Idle for Backlog {
    const IDLE: Self = Self {
        messages: VecDeque::new(),
        bytes: 0,
    };

    fn idle() -> &'static Self {
        const { &Self::IDLE }
    }
}

impl Idle for InFlight {
    const IDLE: Self = Self::NONE;

    fn idle() -> &'static Self {
        const { &Self::NONE }
    }
}

impl OptionalState {
    /// The rare state, if it is allocated.
    pub(crate) fn rare_mut(&mut self) -> Option<&mut RareState> {
        self.get_mut()?.rare.get_mut()
    }

    /// Frees the state if nothing in it outlives a connection. Call it without a connection only.
    pub(crate) fn free_if_over(&mut self) {
        if self.get_mut().is_some_and(|state| state.is_over()) {
            self.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every connected client has one.
    #[test]
    fn the_state_of_a_connection_stays_small() {
        assert_eq!(size_of::<ActiveState>(), 88);
    }
}
