//! Enhanced authentication: the exchange before CONNACK, and re-authentication.

use mqttcore_codec::{Auth, Packet, PacketType, PropertiesBuf, Property, ReasonCode, Text};

use crate::connect::ConnectRequest;
use crate::control::{Control, ControlKind, Details, PropertiesBody};
use crate::handshake::add;
use crate::limits::ServerLimits;
use crate::request::Request;
use crate::secret::Secret;
use crate::session::Session;
use crate::violation::Violation;

/// The authentication method of one client and the state of its exchange.
///
/// Before CONNACK it is separate from the session, which may be on another shard. [`Terms`](crate::Terms) then hands it
/// to the session for re-authentication.
#[derive(Clone, Debug)]
pub struct Authentication {
    method: Box<str>,
    /// AUTH packets that the client sent in this exchange, its CONNECT included.
    rounds: u8,
    rounds_max: u8,
    turn: NextSender,
}

/// Which side sends the next packet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum NextSender {
    /// No exchange is open.
    Idle,
    Client,
    Server,
}

/// A packet of the client during the exchange before CONNACK.
#[derive(Debug, Eq, PartialEq)]
pub enum AuthStep<'p> {
    /// The next authentication data.
    Data(Option<&'p [u8]>),
    /// A DISCONNECT: close the connection.
    Disconnect,
}

impl Authentication {
    /// Starts an exchange for a CONNECT that names a method. Returns `None` if it names none; then no AUTH may be sent
    /// [MQTT-4.12.0-6].
    pub fn begin(request: &ConnectRequest, limits: &ServerLimits) -> Option<Self> {
        let method = request.authentication_method.clone()?;
        Some(Self {
            method,
            rounds: 0,
            rounds_max: limits.authentication_rounds,
            turn: NextSender::Server,
        })
    }

    /// The name of the method. Refuse an unknown method with 0x8C [MQTT-4.12.0-1].
    pub fn method(&self) -> &str {
        &self.method
    }

    /// Handles a packet that comes before CONNACK: AUTH or DISCONNECT [MQTT-3.1.2-30].
    ///
    /// # Errors
    ///
    /// 0x82 for another packet type, another method or a reason code that does not fit the exchange; 0x97 after too
    /// many rounds.
    pub fn handle_packet<'p>(&mut self, packet: &Packet<'p>) -> Result<AuthStep<'p>, Violation> {
        match packet {
            Packet::Auth(auth) => self.advance(auth).map(AuthStep::Data),
            Packet::Disconnect(_) => Ok(AuthStep::Disconnect),
            _ => Err(Violation::protocol(
                ReasonCode::PROTOCOL_ERROR,
                "MQTT-3.1.2-30",
                "a packet that is neither AUTH nor DISCONNECT before CONNACK",
            )),
        }
    }

    /// Returns the server's next AUTH packet, with reason code 0x18 [MQTT-4.12.0-2]. The client may answer it once.
    pub fn continue_with(&mut self, data: Option<&[u8]>, details: Details) -> Control {
        self.turn = NextSender::Client;
        self.packet(ReasonCode::CONTINUE_AUTHENTICATION, data, details)
    }

    /// Handles the client's next AUTH 0x18, which must name the method of its first packet.
    fn advance<'p>(&mut self, auth: &Auth<'p>) -> Result<Option<&'p [u8]>, Violation> {
        self.check_method(auth)?;
        let is_its_turn = self.turn == NextSender::Client;
        if !is_its_turn || auth.reason != ReasonCode::CONTINUE_AUTHENTICATION {
            return Err(OUT_OF_STEP);
        }
        self.count_round()?;
        self.turn = NextSender::Server;
        Ok(auth.properties.authentication_data())
    }

    /// Handles AUTH 0x19: the client starts a re-authentication [MQTT-4.12.1-1].
    fn restart<'p>(&mut self, auth: &Auth<'p>) -> Result<Option<&'p [u8]>, Violation> {
        self.check_method(auth)?;
        if self.turn != NextSender::Idle {
            return Err(OUT_OF_STEP);
        }
        self.rounds = 0;
        self.count_round()?;
        self.turn = NextSender::Server;
        Ok(auth.properties.authentication_data())
    }

    fn succeed(&mut self, data: Option<&[u8]>, details: Details) -> Control {
        self.turn = NextSender::Idle;
        self.packet(ReasonCode::SUCCESS, data, details)
    }

    /// Marks the exchange before CONNACK as successful.
    pub(crate) fn finished(mut self) -> Self {
        self.turn = NextSender::Idle;
        self
    }

    /// Adds the method [MQTT-4.12.0-5] and the data.
    pub(crate) fn add_to(&self, properties: &mut PropertiesBuf, data: Option<&Secret>) {
        self.add_step(properties, data.map(Secret::as_bytes));
    }

    fn add_step(&self, properties: &mut PropertiesBuf, data: Option<&[u8]>) {
        if let Ok(method) = Text::new(&self.method) {
            add(properties, Property::AuthenticationMethod(method));
        }
        if let Some(data) = data.filter(|data| u16::try_from(data.len()).is_ok()) {
            add(properties, Property::AuthenticationData(data));
        }
    }

    fn packet(&self, reason: ReasonCode, data: Option<&[u8]>, details: Details) -> Control {
        let mut properties = PropertiesBuf::default();
        self.add_step(&mut properties, data);
        Control(ControlKind::Auth(Box::new(PropertiesBody {
            reason,
            properties,
            details,
        })))
    }

    fn check_method(&self, auth: &Auth<'_>) -> Result<(), Violation> {
        let method = auth.properties.authentication_method();
        if method.is_some_and(|method| method.as_str() == &*self.method) {
            return Ok(());
        }
        Err(Violation::protocol(
            ReasonCode::PROTOCOL_ERROR,
            "MQTT-4.12.0-5",
            "AUTH has another authentication method than CONNECT",
        ))
    }

    fn count_round(&mut self) -> Result<(), Violation> {
        self.rounds = self.rounds.saturating_add(1);
        if self.rounds > self.rounds_max {
            return Err(Violation::limit(
                ReasonCode::QUOTA_EXCEEDED,
                "limit authentication_rounds",
                "authentication exceeds the limit of rounds",
            ));
        }
        Ok(())
    }
}

/// The reason code of the DISCONNECT after a failed re-authentication: `reason`, or "not authorized" if DISCONNECT does
/// not allow `reason`, as with bad credentials.
pub fn reauthentication_refusal(reason: ReasonCode) -> ReasonCode {
    if reason.is_error() && reason.allowed_in(PacketType::Disconnect) {
        reason
    } else {
        ReasonCode::NOT_AUTHORIZED
    }
}

impl Session {
    /// Queues the server's next step in a re-authentication; does nothing if none is open.
    ///
    /// If the client did not ask for problem information, the details are left out [MQTT-3.1.2-29].
    pub fn auth_continue(&mut self, data: Option<&[u8]>, details: Details) {
        let details = self.allowed(details);
        self.reply_auth(|running| running.continue_with(data, details));
    }

    /// Completes a re-authentication with success; does nothing if none is open. To reject it, disconnect
    /// with [`reauthentication_refusal`] [MQTT-4.12.1-2].
    pub fn auth_succeed(&mut self, data: Option<&[u8]>, details: Details) {
        let details = self.allowed(details);
        self.reply_auth(|running| running.succeed(data, details));
    }

    fn reply_auth(&mut self, reply: impl FnOnce(&mut Authentication) -> Control) {
        let rare = self.live.rare_mut();
        let running = rare.and_then(|rare| rare.authentication.as_deref_mut());
        if let Some(running) = running.filter(|running| running.turn == NextSender::Server) {
            let control = reply(running);
            self.live.controls.push_back(control);
        }
    }

    /// The method that the client named in CONNECT, if it named one.
    pub fn authentication_method(&self) -> Option<&str> {
        let authentication = self.live.rare.authentication.as_deref()?;
        Some(authentication.method())
    }

    pub(crate) fn handle_auth<'p>(&mut self, auth: Auth<'p>) -> Result<Request<'p>, Violation> {
        let rare = self.live.rare_mut();
        let Some(authentication) = rare.and_then(|rare| rare.authentication.as_deref_mut()) else {
            return Err(NO_METHOD);
        };
        if auth.reason == ReasonCode::RE_AUTHENTICATE {
            return authentication
                .restart(&auth)
                .map(|data| Request::Reauthenticate { data });
        }
        authentication
            .advance(&auth)
            .map(|data| Request::Authenticate { data })
    }

    /// The details if the client asked for problem information, else none.
    pub(crate) fn allowed(&self, details: Details) -> Details {
        if self.live.link.problem_information && self.version.has_properties() {
            details
        } else {
            Details::none()
        }
    }
}

const OUT_OF_STEP: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT5 4.12",
    "AUTH is not expected at this step of the exchange",
);
const NO_METHOD: Violation = Violation::protocol(
    ReasonCode::PROTOCOL_ERROR,
    "MQTT-4.12.0-7",
    "AUTH, but CONNECT has no authentication method",
);
