//! From an accepted socket to a client that may come in: CONNECT, authentication, permissions.
//!
//! All of it has one deadline, counted from the accept, that no byte extends (abuse C13). It runs
//! on whichever shard the acceptor dealt the socket to; then the socket moves to the shard where
//! the session of its client identifier lives.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Poll, ready};

use mqttcore_codec::{DecodeError, Packet, ReasonCode, Version, decode_connect, encode};
use mqttcore_session::{ConnectRequest, Details, Violation, refusal};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::arrival;
use crate::door::Door;
use crate::grants::{Access, RuleAnswer};
use crate::guard::guarded;
use crate::hooks::{Event, EventKind, Login, Reply, Verdict, refusing};
use crate::linger::linger;
use crate::log::{Escaped, LogClass};
use crate::outbox::Outbox;
use crate::shard::{Letter, Shard};
use crate::topic::topic_of;
use crate::transport::{Parked, Stop, Transport};
use crate::websocket::{self, Fault, Framing, WebSocket};

/// A socket that was just accepted.
pub(crate) struct Accepted {
    pub(crate) socket: std::net::TcpStream,
    pub(crate) peer: SocketAddr,
    /// Number of the listener in the configuration.
    pub(crate) door: usize,
}

/// A client that was let in, on its way to its home shard.
pub(crate) struct Arrival {
    pub(crate) transport: Parked,
    /// Bytes that came behind CONNECT.
    pub(crate) unread: Vec<u8>,
    pub(crate) request: ConnectRequest,
    pub(crate) login: Arc<Login>,
    pub(crate) access: Arc<Access>,
}

/// Why a connection did not become a client.
enum Refusal {
    /// The socket ended, or time ran out: nothing can or may be said.
    Silent(&'static str),
    /// The bytes were not a CONNECT, and this is what can be said about it.
    Malformed(DecodeError, Vec<u8>),
    /// The bytes were no WebSocket request; this answers them.
    Upgrade(websocket::Refused),
    /// They were no WebSocket frames.
    Unframed(Fault),
    /// CONNECT breaks a rule.
    Violation(Version, Violation),
    /// CONNECT is well formed, but this client may not come in.
    Denied(Box<Denied>),
}

struct Denied {
    login: Arc<Login>,
    reason: ReasonCode,
    text: Option<String>,
}

/// Runs the handshake of `accepted` as a task of this shard.
pub(crate) fn start(shard: &Rc<Shard>, accepted: Accepted) {
    let task = run(Rc::clone(shard), accepted);
    tokio::task::spawn_local(guarded(Rc::clone(shard), task, |shard| {
        shard.world.connections.fetch_sub(1, Ordering::Relaxed);
    }));
}

/// Gives back what the acceptor counted when the handshake ends, however it ends.
struct Pending(Rc<Shard>);

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.world.pending.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn run(shard: Rc<Shard>, accepted: Accepted) {
    let pending = Pending(Rc::clone(&shard));
    let deadline = Instant::now() + shard.config().connect_deadline;
    let Accepted { socket, peer, door } = accepted;
    let doors = shard.doors();
    // A listener that a reload took out of the configuration lets nobody in any more.
    let (Some(door), Ok(stream)) = (doors.get(door), TcpStream::from_std(socket)) else {
        shard.world.connections.fetch_sub(1, Ordering::Relaxed);
        return;
    };
    let (mut transport, opened) = open(&shard, stream, door, deadline).await;
    let (mut unread, mut packet_bytes) = (Vec::new(), u32::MAX);
    let outcome = match opened {
        Err(refusal) => Err(refusal),
        Ok(buffer) => {
            let mut handshake = Handshake {
                shard: &shard,
                transport: &mut transport,
                peer,
                door,
                buffer,
                packet_bytes,
            };
            let admitted = timeout_at(deadline, handshake.admit()).await;
            (unread, packet_bytes) = (handshake.buffer, handshake.packet_bytes);
            admitted.unwrap_or(Err(Refusal::Silent("no CONNECT before the deadline")))
        }
    };
    drop(pending);
    match outcome {
        Ok(admitted) => send_home(&shard, transport, unread, *admitted),
        Err(refusal) => {
            let farewell = refuse(&shard, peer, &door.name, &refusal, packet_bytes);
            Box::pin(part(&shard, transport, farewell)).await;
            shard.world.connections.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

/// Finds out what carries the packets, and the first bytes of them.
async fn open(
    shard: &Shard,
    mut stream: TcpStream,
    door: &Door,
    deadline: Instant,
) -> (Transport, Result<Vec<u8>, Refusal>) {
    let Some(rules) = &door.websocket else {
        return (Transport::Tcp(stream), Ok(Vec::new()));
    };
    match websocket::accept(&mut stream, rules, deadline, shard.metrics()).await {
        Ok(mut bytes) => {
            let mut framing = Framing::default();
            let kept = framing.decode(&mut bytes);
            bytes.truncate(kept);
            let socket = WebSocket::new(stream, framing);
            (Transport::WebSocket(Box::new(socket)), Ok(bytes))
        }
        Err(refused) => (Transport::Tcp(stream), Err(Refusal::Upgrade(refused))),
    }
}

/// Sends the last bytes of a connection and ends it.
async fn part(shard: &Rc<Shard>, transport: Transport, farewell: Vec<u8>) {
    let (stream, last) = transport.into_last(farewell);
    linger(shard, stream, last).await;
}

struct Admitted {
    request: ConnectRequest,
    login: Arc<Login>,
    access: Arc<Access>,
}

struct Handshake<'a> {
    shard: &'a Rc<Shard>,
    transport: &'a mut Transport,
    peer: SocketAddr,
    door: &'a Door,
    buffer: Vec<u8>,
    /// The client's Maximum Packet Size, once CONNECT is read.
    packet_bytes: u32,
}

impl Handshake<'_> {
    async fn admit(&mut self) -> Result<Box<Admitted>, Refusal> {
        let request = self.receive_connect().await?;
        let login = Arc::new(self.login(&request));
        let (access, username) = self.authenticate(&request, &login).await?;
        let login = match username {
            Some(name) => Arc::new(Login {
                username: Some(name.into()),
                ..(*login).clone()
            }),
            None => login,
        };
        check_will(&request, &login, &access)?;
        Ok(Box::new(Admitted {
            request,
            login,
            access,
        }))
    }

    /// Reads until a whole CONNECT is there; what follows it stays in the buffer.
    async fn receive_connect(&mut self) -> Result<ConnectRequest, Refusal> {
        let config = Arc::clone(&self.shard.config());
        let limits = config.limits.before_connect();
        loop {
            let decoded = decode_connect(&self.buffer, &limits)
                .map_err(|error| broken_connect(&self.buffer, error))?;
            match decoded {
                Some((connect, len)) => {
                    let version = connect.version;
                    if let Some(limit) = connect.properties.maximum_packet_size() {
                        self.packet_bytes = limit.get();
                    }
                    self.shard.metrics().packets_received.add(1);
                    let request = ConnectRequest::parse(&connect, &config.limits)
                        .map_err(|violation| Refusal::Violation(version, violation))?;
                    self.buffer.drain(..len);
                    return Ok(request);
                }
                None => self.read().await?,
            }
        }
    }

    /// Appends what one read brings.
    async fn read(&mut self) -> Result<(), Refusal> {
        let input = poll_fn(|cx| {
            // On the stack of this turn: a connection that is silent holds no buffer.
            let mut bytes = [0; 2048];
            let input = ready!(self.transport.poll_read(cx, &mut bytes));
            if let Ok(input) = input {
                self.buffer
                    .extend_from_slice(bytes.get(..input.payload).unwrap_or_default());
            }
            if self.transport.has_output() {
                // A Pong. What the socket does not take now goes before CONNACK.
                let _ = self.transport.poll_write(cx, &Outbox::default());
            }
            Poll::Ready(input)
        });
        let input = input.await.map_err(|stop| match stop {
            Stop::Lost => Refusal::Silent("closed before CONNECT"),
            Stop::Fault(fault) => Refusal::Unframed(fault),
        })?;
        self.shard.metrics().bytes_received.add(input.raw as u64);
        Ok(())
    }

    fn login(&self, request: &ConnectRequest) -> Login {
        let assigned = || format!("mqttcore-{:016x}", self.shard.world.unique());
        let client_id = match &request.client_id {
            Some(id) => Arc::clone(id),
            None => Arc::from(assigned()),
        };
        Login {
            client_id,
            version: request.version,
            username: request.username.as_deref().map(Arc::from),
            password: request
                .password
                .as_ref()
                .map(|secret| Arc::from(secret.as_bytes())),
            peer: self.peer,
            listener: Arc::clone(&self.door.name),
            clean_start: request.clean_start,
            keep_alive_s: request.keep_alive_s,
            session_expiry_interval_s: request.session_expiry_interval_s,
            will_topic: request
                .will
                .as_ref()
                .map(|will| Arc::from(will.message.topic())),
            user_properties: request
                .user_properties
                .iter()
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        }
    }

    /// Anonymous access where the listener gives it and no user name was sent; else the plugins.
    async fn authenticate(
        &mut self,
        request: &ConnectRequest,
        login: &Arc<Login>,
    ) -> Result<(Arc<Access>, Option<String>), Refusal> {
        if request.authentication_method.is_some() {
            let text = "no plugin offers this authentication method".into();
            return Err(denied(login, ReasonCode::BAD_AUTHENTICATION_METHOD, text));
        }
        if request.username.is_none()
            && let Some(access) = &self.door.anonymous
        {
            return Ok((Arc::clone(access), None));
        }
        if !self.shard.interests().authenticate {
            return Err(Refusal::Denied(Box::new(Denied {
                login: Arc::clone(login),
                reason: ReasonCode::NOT_AUTHORIZED,
                text: None,
            })));
        }
        let (reply, answer) = Reply::new();
        self.shard.hooks().authenticate(Arc::clone(login), reply);
        match self.while_connected(answer).await? {
            Some(Verdict::Allow { grant, username }) => {
                let unusable = ReasonCode::SERVER_UNAVAILABLE;
                let access = Access::new(*grant)
                    .map_err(|error| denied(login, unusable, error.to_string()))?;
                Ok((Arc::new(access), username))
            }
            Some(Verdict::Deny { reason, text }) => Err(Refusal::Denied(Box::new(Denied {
                login: Arc::clone(login),
                reason: refusing(reason),
                text,
            }))),
            None => Err(denied(
                login,
                ReasonCode::SERVER_UNAVAILABLE,
                "no plugin answered".into(),
            )),
        }
    }

    /// Waits for a plugin's answer, but not longer than the client does.
    async fn while_connected<T>(
        &mut self,
        mut answer: oneshot::Receiver<T>,
    ) -> Result<Option<T>, Refusal> {
        let mut watching = true;
        poll_fn(|cx| {
            if let Poll::Ready(answer) = Pin::new(&mut answer).poll(cx) {
                return Poll::Ready(Ok(answer.ok()));
            }
            if watching {
                match self.transport.poll_gone(cx) {
                    Poll::Ready(true) => {
                        return Poll::Ready(Err(Refusal::Silent("left during authentication")));
                    }
                    Poll::Ready(false) => watching = false,
                    Poll::Pending => {}
                }
            }
            Poll::Pending
        })
        .await
    }
}

fn denied(login: &Arc<Login>, reason: ReasonCode, text: String) -> Refusal {
    Refusal::Denied(Box::new(Denied {
        login: Arc::clone(login),
        reason,
        text: Some(text),
    }))
}

/// A will is a publish that is asked for now (abuse F07).
fn check_will(
    request: &ConnectRequest,
    login: &Arc<Login>,
    access: &Access,
) -> Result<(), Refusal> {
    let Some(will) = &request.will else {
        return Ok(());
    };
    let highest = access.grant.limits.max_qos;
    if highest.is_some_and(|highest| will.message.qos() > highest) {
        // [MQTT-3.2.2-12]
        let text = "the QoS of the will is above the maximum".into();
        return Err(denied(login, ReasonCode::QOS_NOT_SUPPORTED, text));
    }
    let allowed = topic_of(&will.message)
        .is_some_and(|topic| access.permissions.publish(topic) == RuleAnswer::Allowed);
    if allowed {
        return Ok(());
    }
    let text = "not allowed to publish to the will topic".into();
    Err(denied(login, ReasonCode::NOT_AUTHORIZED, text))
}

/// Hands the client over to the shard where its session lives.
fn send_home(shard: &Rc<Shard>, transport: Transport, unread: Vec<u8>, admitted: Admitted) {
    let Ok(transport) = transport.park() else {
        shard.world.connections.fetch_sub(1, Ordering::Relaxed);
        return;
    };
    let home = shard.world.home(&admitted.login.client_id);
    let arrival = Arrival {
        transport,
        unread,
        request: admitted.request,
        login: admitted.login,
        access: admitted.access,
    };
    shard.refresh_now();
    if home == shard.index {
        arrival::arrive(shard, arrival);
    } else {
        shard.post(home, Letter::Arrived(Box::new(arrival)));
    }
    shard.send_mail();
}

/// Counts, logs and tells a refusal; returns the bytes that the client may still get, of which it
/// takes `packet_bytes` in a packet [MQTT-3.1.2-24].
fn refuse(
    shard: &Rc<Shard>,
    peer: SocketAddr,
    listener: &str,
    refusal: &Refusal,
    packet_bytes: u32,
) -> Vec<u8> {
    let now = shard.refresh_now();
    let mut farewell = Vec::new();
    let why = match refusal {
        Refusal::Silent(why) => (*why).to_owned(),
        Refusal::Malformed(error, bytes) => {
            farewell.extend_from_slice(bytes);
            error.to_string()
        }
        Refusal::Upgrade(refused) => {
            farewell.extend_from_slice(&refused.answer);
            refused.why.to_owned()
        }
        Refusal::Unframed(fault) => fault.to_string(),
        Refusal::Violation(version, violation) => {
            farewell = answer(*version, violation.reason, None, packet_bytes);
            violation.to_string()
        }
        Refusal::Denied(denied) => {
            let text = denied.text.as_deref();
            farewell = answer(denied.login.version, denied.reason, text, packet_bytes);
            tell_refused(shard, denied);
            let id = Escaped(&denied.login.client_id);
            format!(
                "client {id}: {} {}",
                denied.reason.name(),
                text.unwrap_or_default()
            )
        }
    };
    shard.metrics().connects_refused.add(1);
    shard.log.warn(LogClass::Refused, now, || {
        format!("listener {listener}: {peer} refused: {why}")
    });
    farewell
}

/// The CONNACK that a broken CONNECT may still get; most get none.
fn broken_connect(bytes: &[u8], error: DecodeError) -> Refusal {
    let mut farewell = Vec::new();
    if let Some((version, connack)) = mqttcore_codec::refusal(bytes, error) {
        let encoded = encode(&Packet::ConnAck(connack), version, &mut farewell);
        debug_assert!(encoded.is_ok(), "a bare CONNACK encodes");
    }
    Refusal::Malformed(error, farewell)
}

/// The CONNACK that says `reason`, where `version` has one and the client takes it.
fn answer(version: Version, reason: ReasonCode, text: Option<&str>, packet_bytes: u32) -> Vec<u8> {
    let mut bytes = Vec::new();
    let details = text.map_or_else(Details::none, Details::reason);
    if let Some(connack) = refusal(version, reason, None, details) {
        connack.encode(version, packet_bytes, &mut bytes);
    }
    bytes
}

fn tell_refused(shard: &Rc<Shard>, denied: &Denied) {
    if shard.interests().wants(EventKind::AuthFailed) {
        shard.tell_plugins(Event {
            kind: EventKind::AuthFailed,
            client_id: Arc::clone(&denied.login.client_id),
            username: denied.login.username.clone(),
            peer: Some(denied.login.peer),
            topic: None,
            reason: Some(denied.reason),
            at: std::time::SystemTime::now(),
        });
    }
}

/// Refuses a client that plugins let in but whose session it may not have.
pub(crate) fn turn_away(shard: &Rc<Shard>, arrival: Arrival, reason: ReasonCode) {
    let Arrival {
        transport,
        login,
        request,
        ..
    } = arrival;
    let refusal = Refusal::Denied(Box::new(Denied {
        login: Arc::clone(&login),
        reason,
        text: None,
    }));
    let limit = request.maximum_packet_size;
    let farewell = refuse(shard, login.peer, &login.listener, &refusal, limit);
    let shard = Rc::clone(shard);
    tokio::task::spawn_local(async move {
        if let Ok(transport) = transport.unpark() {
            part(&shard, transport, farewell).await;
        }
        shard.world.connections.fetch_sub(1, Ordering::Relaxed);
    });
}
