//! The session: its state, its input, its outputs.

use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{Disconnect, Packet, PacketType, ProtocolVersion, ReasonCode};
use mqttcore_topics::MountPoint;

use crate::cause::Cause;
use crate::control::{Control, ControlKind};
use crate::event::SessionEvent;
use crate::gate::{AckGate, AckToken};
use crate::inflight::{InFlight, InFlightMessage};
use crate::limits::ServerLimits;
use crate::live::{ActiveState, OptionalState};
use crate::message::Message;
use crate::queue::{Outgoing, Queue};
use crate::request::Request;
use crate::subscriptions::Subscriptions;
use crate::transmit::Transmit;
use crate::violation::Violation;

/// One client's protocol state: what survives a connection, and the connection if there is one.
///
/// Sans-IO: decoded packets and the time go in, [`Transmit`]s, [`SessionEvent`]s and deadlines come out.
/// After every call that can change something, poll transmits and events until there are none,
/// and ask for the next deadline.
#[derive(Debug)]
pub struct Session {
    pub(crate) limits: Arc<ServerLimits>,
    /// The client's last packet, or the end of its connection.
    pub(crate) since: Option<Instant>,
    pub(crate) expiry_interval_s: u32,
    pub(crate) state: LinkState,
    pub(crate) version: ProtocolVersion,
    /// The session outlives a crash of the broker: its promises are recorded first.
    pub(crate) is_durable: bool,
    pub(crate) gate: AckGate,
    pub(crate) queue: Queue,
    pub(crate) subscriptions: Subscriptions,
    /// Nothing, for most clients that are away.
    pub(crate) live: OptionalState,
}

/// How far a connection has come.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinkState {
    /// No connection.
    Away,
    /// CONNACK has not left: nothing else may [MQTT-3.2.0-1].
    Accepting,
    /// CONNACK has left.
    Open,
    /// No connection, and no further one: the session has ended.
    Ended,
}

impl Session {
    /// Heap bytes of the session's own tables: not the messages, filters and texts they refer to.
    pub fn heap_bytes(&self) -> usize {
        let live = self.live.heap_bytes(ActiveState::heap_bytes);
        self.queue.heap_bytes() + self.subscriptions.heap_bytes() + live
    }

    /// The limits of the last connection.
    pub fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// A session without a connection, and without any state.
    pub fn new(limits: Arc<ServerLimits>) -> Self {
        Self {
            limits,
            since: None,
            expiry_interval_s: 0,
            state: LinkState::Away,
            version: ProtocolVersion::V5,
            is_durable: false,
            gate: AckGate::default(),
            queue: Queue::default(),
            subscriptions: Subscriptions::default(),
            live: OptionalState::default(),
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
        self.since = Some(now);
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
        if self.state != LinkState::Open {
            return None;
        }
        self.poll_publish().map(Transmit::Publish)
    }

    /// The next thing to do or to count.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        let event = self.live.get_mut().and_then(|live| live.events.pop_front());
        if event.is_none() && !self.is_connected() {
            self.live.rest();
        }
        event
    }

    /// As [`poll_event`](Self::poll_event), for events about messages alone: it stops at [`SessionEvent::WillDue`] and
    /// [`SessionEvent::Expired`].
    pub fn poll_message_event(&mut self) -> Option<SessionEvent> {
        let next = self.live.get_mut().and_then(|live| live.events.front());
        let is_of_session = matches!(next, Some(SessionEvent::WillDue(_) | SessionEvent::Expired));
        if is_of_session {
            None
        } else {
            self.poll_event()
        }
    }

    /// The token of the latest held acknowledgement, confirmed or not.
    pub fn last_token(&self) -> AckToken {
        self.gate.last()
    }

    /// Releases all acknowledgements up to `token`: what they confirm is durable.
    pub fn confirm(&mut self, token: AckToken) {
        self.gate.confirm(token);
    }

    /// Whether everything up to `token` may leave.
    pub fn is_confirmed(&self, token: AckToken) -> bool {
        self.gate.is_open(token)
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        matches!(self.state, LinkState::Accepting | LinkState::Open)
    }

    /// The version of the connection, or of the last one.
    pub fn version(&self) -> ProtocolVersion {
        self.version
    }

    /// The largest packet that the client takes; `u32::MAX` without a limit.
    pub fn client_packet_bytes(&self) -> u32 {
        self.live.link.packet_bytes
    }

    /// The agreed Keep Alive in seconds; 0 disables it.
    pub fn keep_alive_s(&self) -> u16 {
        self.live.link.keep_alive_s
    }

    /// How long the session outlives its connection in seconds, as agreed; `u32::MAX` is for ever.
    pub fn expiry_interval_s(&self) -> u32 {
        self.expiry_interval_s
    }

    /// What stands in front of the client's topics, while it is connected behind a mount point.
    pub fn mount_point(&self) -> Option<&MountPoint> {
        self.live.link.mount_point.as_ref()
    }

    /// Messages that wait behind the window or for the client to come back.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Whether a message at QoS 1 or 2 would wait for an acknowledgement: a shared subscription has better members.
    pub fn is_full(&self) -> bool {
        !self.queue.is_empty() || !self.has_room(1)
    }

    /// Whether a message that is small enough would find a place in the queue.
    pub fn has_queue_room(&self) -> bool {
        let bytes = size_of::<Outgoing>();
        self.queue.has_room(self.is_durable, bytes, &self.limits)
    }

    /// How much of its limits the queue takes, in percent; of those of the disk if the store keeps the session.
    pub fn queue_fill_percent(&self, is_kept: bool) -> usize {
        self.queue.fill_percent(is_kept, &self.limits)
    }

    /// Bytes that [`Session::queued`] messages count with.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Bytes of the queued messages that are in memory.
    pub fn queue_memory_bytes(&self) -> usize {
        self.queue.sendable().1
    }

    /// Bytes of messages in memory that the client has not taken or not acknowledged.
    pub fn held_bytes(&self) -> usize {
        self.queue_memory_bytes() + self.live.in_flight.message_bytes()
    }

    /// QoS 1 and 2 messages in flight to the client.
    pub fn in_flight(&self) -> usize {
        self.live.in_flight.len()
    }

    /// Messages that were sent and not acknowledged to the end, in the order of their first transmission; then those that
    /// only wait for PUBCOMP.
    pub fn in_flight_messages(&self) -> impl Iterator<Item = InFlightMessage> {
        self.live.in_flight.messages()
    }

    /// QoS 1 and 2 publishes of the client's that are not acknowledged to the end: they count against Receive Maximum.
    pub fn open_publishes(&self) -> usize {
        self.live.link.open_publishes as usize
    }

    /// Cuts messages that are under way out of the chunks that they came in (decision 18); for a client
    /// that has not taken what it was sent. Queued messages have bytes of their own.
    pub fn release_chunks(&mut self) {
        if let Some(live) = self.live.get_mut() {
            let backlog = live.backlog.iter_mut();
            let backlog = backlog.map(|outgoing| &mut outgoing.message);
            let in_flight = live.in_flight.get_mut().into_iter();
            let waiting = in_flight.flat_map(InFlight::messages_mut).chain(backlog);
            waiting.for_each(Message::release_chunk);
        }
    }

    /// Gives back the memory of buffers that are empty; a PINGREQ does so too, since a client
    /// that pings has been idle.
    pub fn shrink(&mut self) {
        self.queue.shrink();
        if let Some(live) = self.live.get_mut() {
            live.shrink();
        }
    }

    pub(crate) fn push_control(&mut self, kind: ControlKind) {
        self.live.controls.push_back(Control(kind));
    }

    fn poll_control(&mut self) -> Option<Control> {
        let live = self.live.get_mut()?;
        let held = live.held.poll(&self.gate);
        held.or_else(|| match self.state {
            LinkState::Open => live.controls.pop_front(),
            _ => None,
        })
    }

    /// Follows the client's quota: what ends one of its exchanges leaves now [MQTT-4.9.0-1].
    fn note_sent(&mut self, control: &Control) {
        let ends = match control.0 {
            ControlKind::ConnAck(_) => {
                self.state = LinkState::Open;
                false
            }
            ControlKind::PubAck(..) | ControlKind::PubComp(..) => true,
            ControlKind::PubRec(_, reason) => reason.is_error(),
            ControlKind::Explained(ref body) => {
                body.packet_type != PacketType::PubRel && body.reason.is_error()
            }
            _ => false,
        };
        let open_publishes = &mut self.live.link.open_publishes;
        *open_publishes = open_publishes.saturating_sub(u32::from(ends));
    }

    fn handle_ping(&mut self) -> Request<'static> {
        self.shrink();
        self.push_control(ControlKind::PingResp);
        Request::None
    }

    fn handle_disconnect(
        &mut self,
        disconnect: Disconnect<'_>,
    ) -> Result<Request<'static>, Violation> {
        if let Some(interval_s) = disconnect.properties.session_expiry_interval() {
            let asked_for_none = self.expiry_interval_s == 0 && self.live.link.expiry_max_s > 0;
            if asked_for_none && interval_s > 0 {
                return Err(LATE_EXPIRY);
            }
            self.expiry_interval_s = interval_s.min(self.live.link.expiry_max_s);
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
    "DISCONNECT sets a Session Expiry Interval, but that of CONNECT is 0",
);
