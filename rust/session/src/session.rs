//! The session: its state, its input, its outputs.

use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{Disconnect, Packet, PacketType, ProtocolVersion, QoS, ReasonCode};
use mqttcore_topics::MountPoint;

use crate::cause::Cause;
use crate::control::{Control, ControlKind};
use crate::event::SessionEvent;
use crate::gate::{AckGate, AckToken};
use crate::inflight::{InFlight, InFlightMessage};
use crate::limits::ServerLimits;
use crate::live::{ActiveState, Backlog, OptionalState};
use crate::message::Message;
use crate::queue::{Outgoing, Queue};
use crate::request::Request;
use crate::subscriptions::Subscriptions;
use crate::transmit::Transmit;
use crate::violation::Violation;

/// The protocol state of one client: the state that survives a connection, and the connection if there is one.
///
/// Sans-IO: the caller passes decoded packets and the time, and polls [`Transmit`]s, [`SessionEvent`]s and deadlines.
/// After every call that may change the session, poll transmits and events until there are none, then ask for the next
/// deadline.
#[derive(Debug)]
pub struct Session {
    pub(crate) limits: Arc<ServerLimits>,
    /// Time of the client's last packet, or of the end of its connection.
    pub(crate) since: Option<Instant>,
    pub(crate) expiry_interval_s: u32,
    pub(crate) state: LinkState,
    pub(crate) version: ProtocolVersion,
    /// The session survives a crash of the broker: its state is recorded before it is acknowledged.
    pub(crate) is_durable: bool,
    pub(crate) gate: AckGate,
    pub(crate) queue: Queue,
    pub(crate) subscriptions: Subscriptions,
    /// None for most clients that are offline.
    pub(crate) live: OptionalState,
}

/// State of the connection.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LinkState {
    /// No connection.
    Away,
    /// CONNACK was not sent yet: no other packet may be sent [MQTT-3.2.0-1].
    Accepting,
    /// CONNACK was sent.
    Open,
    /// The session has ended; it accepts no further connection.
    Ended,
}

impl Session {
    /// Heap bytes of the session's own tables, without the messages, filters and texts that they refer to.
    pub fn heap_bytes(&self) -> usize {
        let live = self.live.heap_bytes(ActiveState::heap_bytes);
        self.queue.heap_bytes() + self.subscriptions.heap_bytes() + live
    }

    /// The limits of the last connection.
    pub fn limits(&self) -> &ServerLimits {
        &self.limits
    }

    /// Creates a session without a connection and without state.
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

    /// Handles a packet of the client; it must have the version of the CONNECT.
    ///
    /// The returned request borrows from the packet.
    ///
    /// # Errors
    ///
    /// A [`Violation`]: send [`Session::disconnect_packet`] with its reason, detach for [`Cause::Violation`] and close
    /// [MQTT-4.13.1-1]. The session's state is unchanged.
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

    /// Returns the next packet for the client. Packets must be written in this order.
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

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<SessionEvent> {
        let event = self.live.get_mut().and_then(|live| live.events.pop_front());
        if event.is_none() && !self.is_connected() {
            self.live.free_if_over();
        }
        event
    }

    /// Like [`poll_event`](Self::poll_event), for events of messages only: it stops at [`SessionEvent::WillDue`] and
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

    /// Whether everything up to `token` is confirmed.
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

    /// The client's Maximum Packet Size, for [`Control::encode`](crate::Control::encode); `u32::MAX` means no limit.
    pub fn client_packet_bytes(&self) -> u32 {
        self.live.link.packet_bytes
    }

    /// The agreed Keep Alive in seconds; 0 disables it.
    pub fn keep_alive_s(&self) -> u16 {
        self.live.link.keep_alive_s
    }

    /// The agreed session expiry in seconds; `u32::MAX` means that the session never expires.
    pub fn expiry_interval_s(&self) -> u32 {
        self.expiry_interval_s
    }

    /// The client's mount point, while it is connected.
    #[inline]
    pub fn mount_point(&self) -> Option<&MountPoint> {
        self.live.rare.mount_point.as_ref()
    }

    /// Number of messages that wait for send quota or for the client to reconnect.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// The queued messages in memory, oldest first, up to the first one that is in the store only; each with the QoS of
    /// its delivery.
    pub fn queued_messages(&self) -> impl Iterator<Item = (&Message, QoS)> {
        let waiting = self.queue.waiting();
        waiting.map(|outgoing| (&outgoing.message, outgoing.qos))
    }

    /// Whether a QoS 1 or 2 message would have to wait: a shared subscription then prefers other members.
    pub fn is_full(&self) -> bool {
        !self.queue.is_empty() || !self.has_room(1)
    }

    /// Whether the queue has room for a small message.
    pub fn has_queue_room(&self) -> bool {
        let bytes = size_of::<Outgoing>();
        self.queue.has_room(self.is_durable, bytes, &self.limits)
    }

    /// Whether the queue would be at most half full with `message`, by the limits in memory.
    pub fn has_spare_room(&self, message: &Message) -> bool {
        let bytes = self.queue.bytes() + message.len() + size_of::<Outgoing>();
        let (messages, limits) = (self.queue.len() + 1, &*self.limits);
        messages <= limits.queue_messages / 2 && bytes <= limits.queue_bytes / 2
    }

    /// Usage of the queue's limits in percent; of the disk limits if the store keeps the session.
    pub fn queue_fill_percent(&self, is_kept: bool) -> usize {
        self.queue.fill_percent(is_kept, &self.limits)
    }

    /// Maximum number of queued messages, and maximum bytes of them.
    pub fn queue_limits(&self) -> (usize, usize) {
        Queue::limits(self.is_durable, &self.limits)
    }

    /// Maximum number of QoS 1 and 2 messages in flight to the connected client; 0 if it is offline.
    pub fn in_flight_max(&self) -> u16 {
        self.live.link.send_quota
    }

    /// Bytes of the [`Session::queued`] messages, as counted against limits.
    pub fn queued_bytes(&self) -> usize {
        self.queue.bytes()
    }

    /// Bytes of the queued messages that are in memory.
    pub fn queue_memory_bytes(&self) -> usize {
        self.queue.sendable().1
    }

    /// Bytes of messages in memory that were not sent or not acknowledged.
    pub fn held_bytes(&self) -> usize {
        self.queue_memory_bytes() + self.live.in_flight.message_bytes()
    }

    /// QoS 1 and 2 messages in flight to the client.
    pub fn in_flight(&self) -> usize {
        self.live.in_flight.len()
    }

    /// The messages in flight, in the order of their first transmission; then those that only wait for PUBCOMP.
    pub fn in_flight_messages(&self) -> impl Iterator<Item = InFlightMessage> {
        self.live.in_flight.messages()
    }

    /// QoS 1 and 2 publishes of the client that are not fully acknowledged: they count against Receive Maximum.
    pub fn open_publishes(&self) -> usize {
        self.live.link.open_publishes as usize
    }

    /// Copies the messages in flight out of their chunks (docs/decisions.md, 18), for a client that reads too slowly.
    /// Queued messages have copies already.
    pub fn release_chunks(&mut self) {
        if let Some(live) = self.live.get_mut() {
            let backlog = live.backlog.get_mut().into_iter();
            let backlog = backlog.flat_map(Backlog::iter_mut);
            let backlog = backlog.map(|outgoing| &mut outgoing.message);
            let in_flight = live.in_flight.get_mut().into_iter();
            let waiting = in_flight.flat_map(InFlight::messages_mut).chain(backlog);
            waiting.for_each(Message::release_chunk);
        }
    }

    /// Frees the memory of empty buffers. PINGREQ does so too, since a client that pings has been idle.
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

    /// Counts an open publish of the client as closed when the last packet of its exchange is sent [MQTT-4.9.0-1].
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
