//! CONNACK with the properties that both sides have agreed on, and DISCONNECT.

use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;
use std::time::Instant;

use mqttcore_codec::{PacketType, PropertiesBuf, Property, ProtocolVersion, QoS, ReasonCode, Text};

use crate::alias::{IncomingAliases, OutgoingAliases};
use crate::auth::Authentication;
use crate::connect::ConnectRequest;
use crate::control::{ConnAckBody, Control, ControlKind, Details, PropertiesBody, listed};
use crate::event::DropReason;
use crate::gate::AckToken;
use crate::limits::{PACKET_BYTES_MAX, ServerLimits};
use crate::live::{ActiveState, ConnectionState, TopicAliases};
use crate::queue::Outgoing;
use crate::secret::Secret;
use crate::session::{LinkState, Session};
use crate::transmit::Transmit;

/// The terms that the engine grants to an admitted client.
#[derive(Clone, Debug)]
pub struct Terms {
    /// The limits for this connection.
    pub limits: Arc<ServerLimits>,
    /// Whether the session exists and is resumed. If not, its state is dropped.
    pub session_present: bool,
    /// The client identifier that the broker assigned, for CONNACK [MQTT-3.1.3-7].
    pub assigned_client_id: Option<Arc<str>>,
    /// Server Keep Alive in seconds for v5 clients; replaces the client's Keep Alive.
    pub server_keep_alive_s: Option<u16>,
    /// A cap on the session expiry in seconds, in addition to that of the limits.
    pub session_expiry_max_s: Option<u32>,
    /// Response Information, sent if the client asked for it [MQTT-3.1.2-28].
    pub response_information: Option<Box<str>>,
    /// The state of the successful enhanced authentication.
    pub authentication: Option<Authentication>,
    /// The last authentication data for the client.
    pub authentication_data: Option<Secret>,
    /// Reason string and user properties for CONNACK.
    pub details: Details,
    /// The session is stored on disk: its acknowledgements wait for [`Session::confirm`] (docs/decisions.md, 2), and
    /// [`SessionEvent::Record`](crate::SessionEvent::Record) says what to write.
    pub durable: bool,
    /// This CONNECT changes stored state, such as a will or a session that ends. CONNACK then waits for
    /// [`Session::confirm`] even if the session itself is not stored.
    pub changes_kept: bool,
}

impl Terms {
    /// Terms of a new session that is not durable.
    pub fn new(limits: Arc<ServerLimits>) -> Self {
        Self {
            limits,
            session_present: false,
            assigned_client_id: None,
            server_keep_alive_s: None,
            session_expiry_max_s: None,
            response_information: None,
            authentication: None,
            authentication_data: None,
            details: Details::none(),
            durable: false,
            changes_kept: false,
        }
    }

    fn keep_alive_s(&self, request: &ConnectRequest) -> u16 {
        let (asked, cap) = (request.keep_alive_s, self.limits.keep_alive_max_s);
        match self.server_keep_alive_s {
            // MQTT 3.x has no Server Keep Alive, so the client's own value applies (abuse C28).
            _ if !request.version.has_properties() => asked,
            Some(interval_s) => interval_s,
            None if cap > 0 && (asked == 0 || asked > cap) => cap,
            None => asked,
        }
    }

    /// How long the session of `request` will outlive its connection, in seconds.
    pub fn session_expiry_s(&self, request: &ConnectRequest) -> u32 {
        request
            .session_expiry_interval_s
            .min(self.session_expiry_max_s())
    }

    fn session_expiry_max_s(&self) -> u32 {
        let cap = self.session_expiry_max_s.unwrap_or(u32::MAX);
        cap.min(self.limits.session_expiry_max_s)
    }
}

impl ConnectRequest {
    /// Returns whether a CONNACK with `terms` fits into the client's Maximum Packet Size [MQTT-3.1.2-24].
    ///
    /// If it does not fit, nothing may be sent to the client [MQTT-3.2.0-1]: refuse it with 0x95 and leave its session
    /// unchanged.
    pub fn takes_connack(&self, now: Instant, terms: &Terms) -> bool {
        if self.maximum_packet_size == u32::MAX {
            return true;
        }
        let mut trial = Session::new(Arc::clone(&terms.limits));
        let terms = Terms {
            durable: false,
            changes_kept: false,
            ..terms.clone()
        };
        trial.connect(now, self, terms);
        let Some(Transmit::Control(connack)) = trial.poll_transmit() else {
            return false;
        };
        connack.encode(self.version, self.maximum_packet_size, &mut Vec::new())
    }
}

/// Returns the CONNACK that refuses a client of `version`. Returns `None` if the connection must be closed without one,
/// since 3.x has return codes for few reasons [MQTT-3.1.1 3.2.2-6].
///
/// `server_reference` is sent with 0x9C and 0x9D only.
pub fn connack_failure(
    version: ProtocolVersion,
    reason: ReasonCode,
    server_reference: Option<&str>,
    details: Details,
) -> Option<Control> {
    if !version.has_properties() && !has_return_code(reason) {
        return None;
    }
    Some(Control::refused(
        listed(reason, PacketType::ConnAck),
        reference(server_reference),
        details,
    ))
}

/// Whether 3.x has a return code for `reason`. After a malformed packet the connection is closed without an answer;
/// failures that may pass with time or on another server are "server unavailable".
fn has_return_code(reason: ReasonCode) -> bool {
    matches!(
        reason,
        ReasonCode::UNSUPPORTED_PROTOCOL_VERSION
            | ReasonCode::CLIENT_IDENTIFIER_NOT_VALID
            | ReasonCode::BAD_USER_NAME_OR_PASSWORD
            | ReasonCode::NOT_AUTHORIZED
            | ReasonCode::BANNED
            | ReasonCode::BAD_AUTHENTICATION_METHOD
            | ReasonCode::SERVER_UNAVAILABLE
            | ReasonCode::SERVER_BUSY
            | ReasonCode::QUOTA_EXCEEDED
            | ReasonCode::USE_ANOTHER_SERVER
            | ReasonCode::SERVER_MOVED
            | ReasonCode::CONNECTION_RATE_EXCEEDED
    )
}

fn reference(server: Option<&str>) -> PropertiesBuf {
    let mut properties = PropertiesBuf::default();
    if let Some(server) = server.and_then(|server| Text::new(server).ok()) {
        add(&mut properties, Property::ServerReference(server));
    }
    properties
}

/// Adds a property that always encodes.
pub(crate) fn add(properties: &mut PropertiesBuf, property: Property<'_>) {
    // INVARIANT: texts and numbers were checked when they were made.
    properties.push(property).expect("the property encodes");
}

impl Session {
    /// Attaches an accepted connection and queues, in this order: CONNACK, the packets that an earlier connection left
    /// open [MQTT-4.4.0-1], and the queued messages, within the client's Receive Maximum.
    ///
    /// Returns the token that CONNACK waits for: a new one if stored state was created or ended, otherwise one that is
    /// confirmed already. Detach an earlier connection first; its delayed will is cancelled here [MQTT-3.1.3-9].
    pub fn connect(&mut self, now: Instant, request: &ConnectRequest, terms: Terms) -> AckToken {
        debug_assert!(!self.is_connected(), "detach the old connection first");
        let is_resumed = terms.session_present && !request.clean_start;
        self.settle_old_will(now, is_resumed);
        if !is_resumed {
            self.forget();
        }
        if request.will.is_some() {
            self.live.rare.will.clone_from(&request.will);
        }
        self.limits = Arc::clone(&terms.limits);
        self.live.link = link(request, &terms);
        if request.mount_point.is_some() {
            self.live.rare.mount_point.clone_from(&request.mount_point);
        }
        (self.state, self.since) = (LinkState::Accepting, Some(now));
        (self.version, self.is_durable) = (request.version, terms.durable);
        self.expiry_interval_s = terms.session_expiry_s(request);
        if let Some(aliases) = aliases(request, &terms.limits) {
            self.live.rare.aliases = Some(aliases);
        }
        let connack = self.connack(request, &terms);
        if let Some(authentication) = terms.authentication {
            self.live.rare.authentication = Some(Box::new(authentication.finished()));
        }
        let token = if terms.durable || terms.changes_kept {
            self.gate.issue_token()
        } else {
            AckToken::default()
        };
        self.live
            .held
            .push(token, Control(ControlKind::ConnAck(Box::new(connack))));
        self.resend(now);
        token
    }

    /// Returns a DISCONNECT for the client. Write it after everything that was polled so far, then close.
    ///
    /// Returns `None` for 3.x, which has no such packet, and before CONNACK was sent [MQTT-3.14.0-1].
    /// `server_reference` is sent with 0x9C and 0x9D only.
    pub fn disconnect_packet(
        &self,
        reason: ReasonCode,
        server_reference: Option<&str>,
        details: Details,
    ) -> Option<Control> {
        if self.state != LinkState::Open || !self.version.has_properties() {
            return None;
        }
        let properties = reference(server_reference);
        let body = PropertiesBody {
            reason: listed(reason, PacketType::Disconnect),
            properties,
            details: self.allowed(details),
        };
        Some(Control(ControlKind::Disconnect(Box::new(body))))
    }

    /// Removes and returns the acknowledgements that wait for [`Session::confirm`], oldest first. A server that ends
    /// the connection may still write them before DISCONNECT, once [`Session::last_token`] is safe.
    ///
    /// Returns none before CONNACK was sent [MQTT-3.2.0-1].
    pub fn take_held_acks(&mut self) -> Vec<Control> {
        if self.state != LinkState::Open {
            return Vec::new();
        }
        self.live
            .get_mut()
            .map_or_else(Vec::new, |live| live.held.take())
    }

    /// Queues the packets of a resumed session: open PUBRELs in the order of their PUBRECs. The open PUBLISHes are
    /// polled from the messages in flight, in their original order.
    fn resend(&mut self, now: Instant) {
        let version = self.version;
        let ActiveState {
            link,
            in_flight,
            rare,
            ..
        } = &mut *self.live;
        let mount_point = rare.mount_point.as_ref();
        let fits = |outgoing: &Outgoing| link.obstacle(outgoing, version, mount_point).is_none();
        let in_flight = in_flight.get_mut();
        let removed = in_flight.map(|in_flight| in_flight.remove_unless(fits));
        for entry in removed.into_iter().flatten() {
            let reason = self.obstacle(&entry.outgoing);
            let reason = reason.unwrap_or(DropReason::PacketTooLarge);
            self.drop_message(reason, entry.outgoing);
            self.record_completed(entry.packet_id);
        }
        let live = &mut *self.live;
        let releases = live.in_flight.releases();
        live.controls.extend(
            releases.map(|packet_id| Control(ControlKind::PubRel(packet_id, ReasonCode::SUCCESS))),
        );
        self.refill(now);
    }

    fn connack(&self, request: &ConnectRequest, terms: &Terms) -> ConnAckBody {
        let mut properties = PropertiesBuf::default();
        if request.version.has_properties() {
            self.settle(request, terms, &mut properties);
            announce(&terms.limits, &mut properties);
        }
        ConnAckBody {
            session_present: terms.session_present && !request.clean_start,
            reason: ReasonCode::SUCCESS,
            properties,
            details: self.allowed(terms.details.clone()),
        }
    }

    /// Adds the agreed values that differ from those of CONNECT.
    fn settle(&self, request: &ConnectRequest, terms: &Terms, properties: &mut PropertiesBuf) {
        if self.expiry_interval_s != request.session_expiry_interval_s {
            add(
                properties,
                Property::SessionExpiryInterval(self.expiry_interval_s),
            );
        }
        if self.live.link.keep_alive_s != request.keep_alive_s {
            add(
                properties,
                Property::ServerKeepAlive(self.live.link.keep_alive_s),
            );
        }
        if let Some(client_id) = terms.assigned_client_id.as_deref()
            && let Ok(client_id) = Text::new(client_id)
        {
            add(properties, Property::AssignedClientIdentifier(client_id));
        }
        if request.request_response_information
            && let Some(text) = terms.response_information.as_deref()
            && let Ok(text) = Text::new(text)
        {
            add(properties, Property::ResponseInformation(text));
        }
        if let Some(authentication) = &terms.authentication {
            authentication.add_to(properties, terms.authentication_data.as_ref());
        }
    }
}

/// Adds the limits of this server that differ from the defaults of MQTT.
fn announce(limits: &ServerLimits, properties: &mut PropertiesBuf) {
    if let Some(maximum) = NonZeroU16::new(limits.receive_maximum)
        && maximum != NonZeroU16::MAX
    {
        add(properties, Property::ReceiveMaximum(maximum));
    }
    if limits.maximum_qos < QoS::ExactlyOnce {
        add(properties, Property::MaximumQoS(limits.maximum_qos));
    }
    if let Some(maximum) = NonZeroU32::new(limits.maximum_packet_size)
        && maximum.get() < PACKET_BYTES_MAX
    {
        add(properties, Property::MaximumPacketSize(maximum));
    }
    let aliases = limits.topic_alias_maximum;
    if aliases > 0 {
        add(properties, Property::TopicAliasMaximum(aliases));
    }
    let offers = [
        (limits.retain_available, Property::RetainAvailable(false)),
        (
            limits.wildcard_subscription_available,
            Property::WildcardSubscriptionAvailable(false),
        ),
        (
            limits.subscription_identifiers_available,
            Property::SubscriptionIdentifierAvailable(false),
        ),
        (
            limits.shared_subscription_available,
            Property::SharedSubscriptionAvailable(false),
        ),
    ];
    for (is_offered, refusal) in offers {
        if !is_offered {
            add(properties, refusal);
        }
    }
}

fn link(request: &ConnectRequest, terms: &Terms) -> ConnectionState {
    ConnectionState {
        problem_information: request.request_problem_information,
        is_bridge: request.is_bridge,
        send_quota: request
            .receive_maximum
            .min(terms.limits.inflight_max)
            .max(1),
        packet_bytes: request.maximum_packet_size,
        expiry_max_s: terms.session_expiry_max_s(),
        keep_alive_s: terms.keep_alive_s(request),
        ..ConnectionState::AWAY
    }
}

/// Creates the alias tables if either side may use aliases.
fn aliases(request: &ConnectRequest, limits: &ServerLimits) -> Option<Box<TopicAliases>> {
    let outgoing = request
        .topic_alias_maximum
        .min(limits.outgoing_topic_alias_maximum);
    (outgoing > 0).then(|| {
        Box::new(TopicAliases {
            incoming: IncomingAliases::default(),
            outgoing: OutgoingAliases::new(outgoing),
        })
    })
}
