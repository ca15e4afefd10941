//! Enhanced authentication: the exchange of AUTH packets between a client and a plugin before CONNACK.

use std::future::poll_fn;
use std::sync::Arc;

use mqttcore_codec::{PacketType, ProtocolVersion, ReasonCode, decode};
use mqttcore_session::{AuthStep, Authentication, ConnAckFormat, ConnectRequest, Details, Secret};
use tokio::sync::oneshot;

use crate::admission::handshake::Handshake;
use crate::admission::identify::{Identified, UserName, judge, too_many_failed, unanswered};
use crate::admission::rejection::{RejectReason, RejectedClient};
use crate::clients::traces::TraceDirection;
use crate::config::hooks::{
    AuthExchange, ExchangeReply, ExchangeStart, Login, LoginDecision, Reply, refusing,
};
use crate::connection::login_limits::LimitedLogin;
use crate::transport::outbox::Outbox;

impl Handshake<'_> {
    /// Exchanges AUTH packets until the plugin decides [MQTT-4.12.0-2, -4].
    pub(super) async fn run_exchange(
        &mut self,
        request: &mut ConnectRequest,
        login: &Arc<Login>,
        mut authentication: Authentication,
        limited: &mut Option<LimitedLogin>,
    ) -> Result<Identified, RejectReason> {
        let to = request.recipient();
        let data = request.authentication_data.take();
        let method = authentication.method();
        let (mut exchange, mut answer) = self.begin_exchange(login, to, method, data)?;
        let mut is_challenged = false;
        loop {
            match self.while_connected(answer).await? {
                Some(ExchangeReply::Challenge {
                    data,
                    text,
                    username,
                }) => {
                    is_challenged = true;
                    self.name_user(limited, username, login, to)?;
                    let challenge = (data.as_ref(), text.as_deref());
                    let data = self.challenge(login, to, &mut authentication, challenge);
                    let data = data.await?;
                    let (reply, next) = Reply::new();
                    exchange.proceed(data, reply);
                    answer = next;
                }
                Some(ExchangeReply::End { verdict, data }) => {
                    let is_guess = is_challenged || !is_unreadable(&verdict);
                    if let Some(limited) = limited.as_mut().filter(|_| !is_guess) {
                        limited.forget_user();
                    }
                    return self.conclude(login, to, verdict, (authentication, data));
                }
                None => return Err(broken_off(login, to)),
            }
        }
    }

    /// Counts the login for the user whom a challenge names, if it names one.
    ///
    /// # Errors
    ///
    /// Too many logins of that user have failed.
    fn name_user(
        &self,
        limited: &mut Option<LimitedLogin>,
        username: Option<String>,
        login: &Arc<Login>,
        to: ConnAckFormat,
    ) -> Result<(), RejectReason> {
        if let Some((limited, username)) = limited.as_mut().zip(username) {
            limited.set_user(self.shard, &username);
        }
        if limited.is_some_and(|limited| limited.is_paused(self.shard)) {
            // Counted where the answer is judged.
            return Err(too_many_failed(login, to));
        }
        Ok(())
    }

    /// Converts the decision of the plugin, which has sent its last data.
    fn conclude(
        &self,
        login: &Arc<Login>,
        to: ConnAckFormat,
        verdict: LoginDecision,
        (authentication, data): (Authentication, Option<Secret>),
    ) -> Result<Identified, RejectReason> {
        let mut identified = judge(login, to, verdict, unnamed_user(login), &self.policy.caps)?;
        identified.greeting.authentication = Some(authentication);
        identified.greeting.authentication_data = data;
        Ok(identified)
    }

    /// Sends a challenge, data and reason string; returns the data of the client's response.
    async fn challenge(
        &mut self,
        login: &Arc<Login>,
        to: ConnAckFormat,
        authentication: &mut Authentication,
        (data, text): (Option<&Secret>, Option<&str>),
    ) -> Result<Option<Secret>, RejectReason> {
        let details = text.map_or_else(Details::none, Details::reason);
        let data = data.map(Secret::as_bytes);
        let step = authentication.continue_with(data, to.allowed(details));
        let mut packet = Vec::new();
        if !to.tell(&step, &mut packet) {
            return Err(auth_too_large(login, to));
        }
        self.send(&packet).await?;
        self.shard.trace_login(login, TraceDirection::Out, &packet);
        self.receive_step(login, to, authentication).await
    }

    /// Starts an exchange with the plugin that offers `method`; the receiver gets its first reply.
    fn begin_exchange(
        &self,
        login: &Arc<Login>,
        to: ConnAckFormat,
        method: &str,
        data: Option<Secret>,
    ) -> Result<(Box<dyn AuthExchange>, oneshot::Receiver<ExchangeReply>), RejectReason> {
        if !self.shard.interests().offers(method) {
            // [MQTT-4.12.0-1]
            let denied = RejectedClient::new(login, to, ReasonCode::BAD_AUTHENTICATION_METHOD);
            let text = "no plugin offers this authentication method";
            return Err(denied.with_reason_string(text).into());
        }
        let opening = ExchangeStart {
            login: Arc::clone(login),
            method: method.into(),
            data,
            again: false,
        };
        let (reply, answer) = Reply::new();
        Ok((self.shard.hooks().start_exchange(opening, reply), answer))
    }

    /// Writes a packet, after bytes that the transport still has to write.
    async fn send(&mut self, packet: &[u8]) -> Result<(), RejectReason> {
        let metrics = self.shard.metrics();
        let mut outbox = Outbox::default();
        outbox.push_with(|out| out.extend_from_slice(packet));
        while self.transport.has_output() || !outbox.is_empty() {
            let written = poll_fn(|cx| self.transport.poll_write(cx, &outbox)).await;
            let written = written.map_err(|_| {
                RejectReason::Silent("the client disconnected during authentication")
            })?;
            let kind = self.transport.kind();
            metrics.tallies.bytes_sent.add(kind, written.raw);
            outbox.advance(written.payload);
        }
        metrics.tallies.packets_sent.count(PacketType::Auth);
        Ok(())
    }

    /// Reads the client's next step: AUTH, or DISCONNECT [MQTT-3.1.2-30].
    async fn receive_step(
        &mut self,
        login: &Login,
        to: ConnAckFormat,
        authentication: &mut Authentication,
    ) -> Result<Option<Secret>, RejectReason> {
        let limits = self.shard.config().limits.before_connect();
        loop {
            let decoded = decode(&self.buffer, ProtocolVersion::V5, &limits).map_err(|error| {
                let mut reply = Vec::new();
                to.refuse(error.reason_code(), Details::none(), &mut reply);
                RejectReason::Malformed(error, reply)
            })?;
            let Some((packet, len)) = decoded else {
                self.read().await?;
                continue;
            };
            let packets = &self.shard.metrics().tallies.packets_received;
            packets.count(packet.packet_type());
            let bytes = self.buffer.get(..len).unwrap_or_default();
            self.shard.trace_login(login, TraceDirection::In, bytes);
            let step = authentication
                .handle_packet(&packet)
                .map_err(|violation| RejectReason::Violation(to, violation))?;
            let AuthStep::Data(data) = step else {
                return Err(RejectReason::Silent("the client aborted authentication"));
            };
            let data = data.map(Secret::from);
            self.buffer.remove_first(len);
            return Ok(data);
        }
    }
}

/// The user name if the plugin names none: an exchange verifies its own data, and not the user name of CONNECT.
fn unnamed_user(login: &Login) -> UserName {
    if login.is_certified {
        UserName::Sent
    } else {
        UserName::Anonymous
    }
}

/// Whether a failure before the first challenge counts for no user name: the first data may not be a message of the
/// method at all, and must not lock out the user of CONNECT.
fn is_unreadable(verdict: &LoginDecision) -> bool {
    matches!(verdict, LoginDecision::Deny { reason, .. } if refusing(*reason) == ReasonCode::NOT_AUTHORIZED)
}

fn auth_too_large(login: &Arc<Login>, to: ConnAckFormat) -> RejectReason {
    let denied = RejectedClient::new(login, to, ReasonCode::PACKET_TOO_LARGE);
    denied
        .with_reason_string("AUTH is too large for the client")
        .into()
}

/// The rejection if the plugin breaks the exchange off.
fn broken_off(login: &Arc<Login>, to: ConnAckFormat) -> RejectReason {
    unanswered(login, to, ReasonCode::IMPLEMENTATION_SPECIFIC_ERROR)
}
