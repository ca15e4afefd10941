//! The session itself: its state, the way in for packets, the ways out.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{Disconnect, Packet, PacketId, PacketType, ReasonCode, Version};

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::auth::Authentication;
use crate::control::{Control, Kind};
use crate::event::Event;
use crate::gate::{AckToken, Gate};
use crate::inflight::InFlight;
use crate::limits::ServerLimits;
use crate::message::Message;
use crate::queue::{Outgoing, Queue};
use crate::received::ReceivedIds;
use crate::request::Request;
use crate::subscriptions::Subscriptions;
use crate::transmit::Transmit;
use crate::violation::Violation;
use crate::will::{Cause, WillMessage};

/// One client's protocol state: what survives a connection, and the connection if there is one.
///
/// Sans-IO: decoded packets and the time go in, [`Transmit`]s, [`Event`]s and deadlines come out.
/// After every call that can change something, poll transmits and events until there are none,
/// and ask for the next deadline.
#[derive(Debug)]
pub struct Session {
    pub(crate) client_id: Arc<str>,
    pub(crate) limits: Arc<ServerLimits>,
    pub(crate) link: Link,
    pub(crate) gate: Gate,
    /// Packets that wait for nothing.
    pub(crate) controls: VecDeque<Control>,
    /// QoS 0 messages to be polled.
    pub(crate) backlog: VecDeque<Outgoing>,
    pub(crate) backlog_bytes: usize,
    pub(crate) in_flight: InFlight,
    pub(crate) queue: Queue,
    pub(crate) subscriptions: Subscriptions,
    pub(crate) events: VecDeque<Event>,
    pub(crate) incoming: Option<Box<Incoming>>,
    pub(crate) aliases: Option<Box<Aliases>>,
    pub(crate) authentication: Option<Box<Authentication>>,
    pub(crate) will: Option<Box<WillMessage>>,
    pub(crate) expiry_interval_s: u32,
}

/// QoS 2 publishes of the client's.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    /// Accepted, not released: a repeat is no new message [MQTT-4.3.3-10].
    pub(crate) received: ReceivedIds,
    /// Handed to the engine, not accepted yet; forgotten with the connection.
    pub(crate) pending: Vec<PacketId>,
}

/// Topic aliases of one connection.
#[derive(Debug)]
pub(crate) struct Aliases {
    pub(crate) incoming: IncomingAliases,
    pub(crate) outgoing: OutgoingAliases,
}

/// What belongs to one connection.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) state: LinkState,
    pub(crate) version: Version,
    /// The session outlives a crash of the broker: its promises are recorded first.
    pub(crate) is_durable: bool,
    pub(crate) problem_information: bool,
    /// QoS 1 and 2 publishes under way to the client at most.
    pub(crate) window: u16,
    /// Acknowledgements of nothing so far.
    pub(crate) strays: u16,
    /// QoS 1 and 2 publishes of the client's without their last acknowledgement.
    pub(crate) open_publishes: u32,
    /// The client's Maximum Packet Size.
    pub(crate) packet_bytes: u32,
    /// The most that a session expiry may be, in seconds.
    pub(crate) expiry_max_s: u32,
    pub(crate) keep_alive_s: u16,
    /// The client's last packet, or the end of its connection.
    pub(crate) since: Option<Instant>,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinkState {
    /// There is none.
    Away,
    /// CONNACK has not left: nothing else may [MQTT-3.2.0-1].
    Accepting,
    /// CONNACK has left.
    Open,
    /// There is none, and there will be none: the session is over.
    Ended,
}

impl Link {
    pub(crate) const AWAY: Self = Self {
        state: LinkState::Away,
        version: Version::V5,
        is_durable: false,
        problem_information: true,
        window: 0,
        strays: 0,
        open_publishes: 0,
        packet_bytes: u32::MAX,
        expiry_max_s: 0,
        keep_alive_s: 0,
        since: None,
    };
}

impl Session {
    /// A session without a connection, and without any state.
    pub fn new(client_id: Arc<str>, limits: Arc<ServerLimits>) -> Self {
        Self {
            client_id,
            limits,
            link: Link::AWAY,
            gate: Gate::default(),
            controls: VecDeque::new(),
            backlog: VecDeque::new(),
            backlog_bytes: 0,
            in_flight: InFlight::default(),
            queue: Queue::default(),
            subscriptions: Subscriptions::default(),
            events: VecDeque::new(),
            incoming: None,
            aliases: None,
            authentication: None,
            will: None,
            expiry_interval_s: 0,
        }
    }

    /// Takes a packet of the client's; it must be of the version that the client connected with.
    ///
    /// What the packet asks of others comes back at once and borrows from it.
    ///
    /// # Errors
    ///
    /// A [`Violation`]: send [`Session::disconnect_packet`] with its reason, detach for
    /// [`Cause::Violation`] and close [MQTT-4.13.1-1]. The session's state is as before.
    pub fn handle_packet<'p>(
        &mut self,
        now: Instant,
        packet: Packet<'p>,
    ) -> Result<Request<'p>, Violation> {
        debug_assert!(self.is_connected(), "packets come over a connection");
        self.link.since = Some(now);
        match packet {
            Packet::Publish(publish) => self.handle_publish(publish),
            Packet::PubAck(ack) => self.handle_puback(now, ack),
            Packet::PubRec(ack) => self.handle_pubrec(now, ack),
            Packet::PubRel(ack) => self.handle_pubrel(ack),
            Packet::PubComp(ack) => self.handle_pubcomp(now, ack),
            Packet::PingReq => Ok(self.handle_ping()),
            Packet::Subscribe(subscribe) => self.handle_subscribe(&subscribe),
            Packet::Unsubscribe(unsubscribe) => self.handle_unsubscribe(&unsubscribe),
            Packet::Disconnect(disconnect) => self.handle_disconnect(disconnect),
            Packet::Auth(auth) => self.handle_auth(auth),
            Packet::Connect(_) => Err(SECOND_CONNECT),
            Packet::ConnAck(_) | Packet::SubAck(_) | Packet::UnsubAck(_) | Packet::PingResp => {
                Err(SERVER_PACKET)
            }
        }
    }

    /// The next packet for the client, in the order in which packets must be written.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        if let Some(control) = self.poll_control() {
            self.note_sent(&control);
            return Some(Transmit::Control(control));
        }
        if self.link.state != LinkState::Open {
            return None;
        }
        self.poll_publish().map(Transmit::Publish)
    }

    /// The next thing to do or to count.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The token of the latest promise, confirmed or not.
    pub fn last_token(&self) -> AckToken {
        self.gate.last()
    }

    /// Lets every promise up to `token` leave: what they promise is safe.
    pub fn confirm(&mut self, token: AckToken) {
        self.gate.confirm(token);
    }

    /// Whether everything up to `token` may leave.
    pub fn is_confirmed(&self, token: AckToken) -> bool {
        self.gate.is_open(token)
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        matches!(self.link.state, LinkState::Accepting | LinkState::Open)
    }

    /// Who the client is.
    pub fn client_id(&self) -> &Arc<str> {
        &self.client_id
    }

    /// The version of the connection, or of the last one.
    pub fn version(&self) -> Version {
        self.link.version
    }

    /// The largest packet that the client takes; `u32::MAX` without a limit.
    pub fn client_packet_bytes(&self) -> u32 {
        self.link.packet_bytes
    }

    /// The agreed Keep Alive in seconds; 0 is none.
    pub fn keep_alive_s(&self) -> u16 {
        self.link.keep_alive_s
    }

    /// How long the session outlives its connection in seconds, as agreed; `u32::MAX` is for ever.
    pub fn expiry_interval_s(&self) -> u32 {
        self.expiry_interval_s
    }

    /// Messages that wait behind the window or for the client to come back.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether a message at QoS 1 or 2 would wait for an acknowledgement: a shared subscription has better members.
    pub fn is_full(&self) -> bool {
        !self.queue.is_empty() || !self.has_room()
    }

    /// Whether a message that is small enough would find a place in the queue.
    pub fn has_queue_room(&self) -> bool {
        self.queue.has_room(size_of::<Outgoing>(), &self.limits)
    }

    /// Bytes that [`Session::queued`] messages count with.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// QoS 1 and 2 messages under way to the client.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// QoS 1 and 2 publishes of the client's that are not acknowledged to the end. For 3.x
    /// clients, which know no Receive Maximum: stop reading while there are many (abuse D08).
    pub fn open_publishes(&self) -> usize {
        self.link.open_publishes as usize
    }

    /// QoS 2 identifiers of the client's that it has not released.
    pub fn unreleased(&self) -> usize {
        self.incoming
            .as_ref()
            .map_or(0, |incoming| incoming.received.len())
    }

    /// Cuts waiting messages out of the chunks that they came in (decision 18); for a client
    /// that has not taken what it was sent. Each message then has bytes of its own.
    pub fn release_chunks(&mut self) {
        let backlog = self
            .backlog
            .iter_mut()
            .map(|outgoing| &mut outgoing.message);
        let waiting = self
            .in_flight
            .messages_mut()
            .chain(self.queue.messages_mut());
        backlog.chain(waiting).for_each(Message::release_chunk);
    }

    /// Gives back the memory of buffers that are empty; a PINGREQ does so too, since a client
    /// that pings has been idle.
    pub fn shrink(&mut self) {
        self.gate.shrink();
        self.in_flight.shrink();
        self.queue.shrink();
        if self.controls.is_empty() {
            self.controls = VecDeque::new();
        }
        if self.backlog.is_empty() {
            self.backlog = VecDeque::new();
        }
        if self.events.is_empty() {
            self.events = VecDeque::new();
        }
        if let Some(incoming) = &mut self.incoming {
            incoming.received.shrink();
            if incoming.received.len() == 0 && incoming.pending.is_empty() {
                self.incoming = None;
            }
        }
    }

    /// Heap bytes of the session's own tables: not the messages, filters and texts they refer to.
    pub fn heap_bytes(&self) -> usize {
        let incoming = self.incoming.as_ref().map_or(0, |incoming| {
            size_of::<Incoming>() + incoming.received.heap_bytes() + incoming.pending.capacity() * 2
        });
        self.gate.heap_bytes()
            + self.controls.capacity() * size_of::<Control>()
            + self.backlog.capacity() * size_of::<Outgoing>()
            + self.in_flight.heap_bytes()
            + self.queue.heap_bytes()
            + self.subscriptions.heap_bytes()
            + self.events.capacity() * size_of::<Event>()
            + self.aliases.as_ref().map_or(0, |_| size_of::<Aliases>())
            + self
                .authentication
                .as_ref()
                .map_or(0, |_| size_of::<Authentication>())
            + self.will.as_ref().map_or(0, |_| size_of::<WillMessage>())
            + incoming
    }

    pub(crate) fn push_control(&mut self, kind: Kind) {
        self.controls.push_back(Control(kind));
    }

    fn poll_control(&mut self) -> Option<Control> {
        if let Some(control) = self.gate.poll() {
            return Some(control);
        }
        match self.link.state {
            LinkState::Open => self.controls.pop_front(),
            _ => None,
        }
    }

    /// Follows the client's quota: what ends one of its exchanges leaves now [MQTT-4.9.0-1].
    fn note_sent(&mut self, control: &Control) {
        let ends = match control.0 {
            Kind::ConnAck(_) => {
                self.link.state = LinkState::Open;
                false
            }
            Kind::PubAck(..) | Kind::PubComp(..) => true,
            Kind::PubRec(_, reason) => reason.is_error(),
            Kind::Explained(ref body) => {
                body.packet_type != PacketType::PubRel && body.reason.is_error()
            }
            _ => false,
        };
        self.link.open_publishes = self.link.open_publishes.saturating_sub(u32::from(ends));
    }

    fn handle_ping(&mut self) -> Request<'static> {
        self.shrink();
        self.push_control(Kind::PingResp);
        Request::None
    }

    fn handle_disconnect(
        &mut self,
        disconnect: Disconnect<'_>,
    ) -> Result<Request<'static>, Violation> {
        if let Some(interval_s) = disconnect.properties.session_expiry_interval() {
            let asked_for_none = self.expiry_interval_s == 0 && self.link.expiry_max_s > 0;
            if asked_for_none && interval_s > 0 {
                return Err(LATE_EXPIRY);
            }
            self.expiry_interval_s = interval_s.min(self.link.expiry_max_s);
        }
        Ok(Request::Disconnect(match disconnect.reason {
            ReasonCode::NORMAL_DISCONNECTION => Cause::ClientDisconnect,
            _ => Cause::ClientDisconnectWithWill,
        }))
    }
}

const SECOND_CONNECT: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-3.1.0-2",
    "a second CONNECT",
);
const SERVER_PACKET: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT5 4.8.1",
    "a packet that only servers send",
);
const LATE_EXPIRY: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT5 3.14.2.2.2",
    "DISCONNECT keeps a session that CONNECT did not keep",
);
