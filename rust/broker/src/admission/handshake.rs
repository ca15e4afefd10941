//! The handshake of a connection: CONNECT, authentication, grant.
//!
//! One deadline, counted from the accept, holds for all steps; received bytes do not extend it (abuse C13). The handshake
//! runs on the shard that the acceptor chose; then the socket moves to the shard of its client identifier.

use std::cell::Cell;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use mqttcore_codec::{PacketType, decode_connect};
use mqttcore_session::{ConnAckFormat, ConnectRequest, Secret, SecretBuffer, Violation, wipe};
use mqttcore_tls::ClientCertificate;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use crate::admission::admitted::{AdmittedConnection, ConnAckFields, resumes};
use crate::admission::arrival::bind_when_checked;
use crate::admission::connect_hooks::check_will;
use crate::admission::identify::Identified;
use crate::admission::opening::{Connected, Opened, connected};
use crate::admission::rejection::{RejectReason, broken_connect, reject, reject_banned};
use crate::clients::connections::ConnectionSlot;
use crate::clients::traces::TraceDirection;
use crate::config::Peer;
use crate::config::hooks::Login;
use crate::config::listener_policy::ListenerPolicy;
use crate::config::permissions::CompiledGrant;
use crate::connection::linger::linger;
use crate::connection::proxy_header::ProxiedCertificate;
use crate::sessions::loading;
use crate::shard::Shard;
use crate::shard::guard::{CONNECTION, guarded};
use crate::transport::outbox::Outbox;
use crate::transport::socket::{CONTROL_FRAMES_BEFORE_CONNACK, ReadEnd, ReadPlace};
use crate::transport::tls::TLS_BYTES;
use crate::transport::{MovingTransport, Transport};

/// A socket that was just accepted.
pub(crate) struct Accepted {
    pub(crate) socket: std::net::TcpStream,
    pub(crate) peer: Peer,
    /// Index of the listener in the configuration.
    pub(crate) listener: usize,
    pub(crate) slot: ConnectionSlot,
}

/// Binds an admitted connection to its session, on the session's shard, once that session is loaded.
fn enter(shard: &Rc<Shard>, arrival: AdmittedConnection) {
    let client_id = Arc::clone(&arrival.login.client_id);
    let resumes = resumes(&arrival.request, &arrival.access.grant);
    loading::when_there(shard, &client_id, resumes, |shard| {
        bind_when_checked(shard, arrival);
    });
}

/// Runs the handshake of `accepted` as a task of this shard.
pub(crate) fn start(shard: &Rc<Shard>, accepted: Accepted) {
    let task = run(Rc::clone(shard), accepted);
    tokio::task::spawn_local(guarded(Rc::clone(shard), CONNECTION, task, |_| {}));
}

/// Bytes of a handshake. They count against the memory budget until this is dropped.
struct HandshakeBytes {
    shard: Rc<Shard>,
    bytes: Cell<usize>,
}

impl HandshakeBytes {
    fn new(shard: &Rc<Shard>) -> Self {
        shard.memory().pending.add(PENDING_BYTES as u64);
        Self {
            shard: Rc::clone(shard),
            bytes: Cell::new(PENDING_BYTES),
        }
    }

    /// Adds `bytes` of its transport and its buffer.
    fn count_bytes(&self, bytes: usize) {
        let before = self.bytes.replace(PENDING_BYTES + bytes);
        let pending = &self.shard.memory().pending;
        pending.sub(before as u64);
        pending.add(self.bytes.get() as u64);
        self.shard
            .count_growth(self.bytes.get().saturating_sub(before));
    }
}

/// Memory of a pending connection without its transport and its buffer: its task and its socket.
const PENDING_BYTES: usize = 2 * 1_024;

impl Drop for HandshakeBytes {
    fn drop(&mut self) {
        self.shard.memory().pending.sub(self.bytes.get() as u64);
    }
}

/// Longer than other functions: the steps of a handshake, in their order.
async fn run(shard: Rc<Shard>, accepted: Accepted) {
    let pending = HandshakeBytes::new(&shard);
    let deadline = Instant::now() + shard.config().connect_deadline;
    let (peer, mut slot) = (accepted.peer, accepted.slot);
    let listener_policies = shard.listener_policies();
    let policy = listener_policies.get(accepted.listener);
    // A listener that a reload removed from the configuration accepts no clients.
    let (Some(policy), Ok(stream)) = (policy, TcpStream::from_std(accepted.socket)) else {
        return;
    };
    if policy.tls.is_some() {
        pending.count_bytes(TLS_BYTES);
    }
    let connecting = connected(&shard, stream, peer, policy, &mut slot, deadline);
    let Some((mut connected, opened)) = connecting.await else {
        return;
    };
    let outcome = match opened {
        Ok(opened) => {
            let listener = (accepted.listener, policy);
            let admission = connected.admit(opened, (&shard, &pending), listener, deadline);
            admission.await
        }
        Err(rejection) => Err(rejection),
    };
    drop(pending);
    slot.end_pending();
    let Connected {
        peer, transport, ..
    } = connected;
    match outcome {
        Ok((admitted, unread)) => {
            move_to_shard(&shard, (transport, slot), unread, *admitted, policy);
        }
        Err(rejection) => {
            let listener = (accepted.listener, policy.name.as_str());
            let reply = reject(&shard, peer, listener, &rejection);
            // Drop it before the wait for the client: it may hold a password.
            drop(rejection);
            Box::pin(linger(&shard, transport, reply)).await;
        }
    }
}

impl Connected {
    /// Authenticates the client; returns the bytes after CONNECT, too.
    async fn admit(
        &mut self,
        opened: Opened,
        (shard, pending): (&Rc<Shard>, &HandshakeBytes),
        (listener, policy): (usize, &ListenerPolicy),
        deadline: Instant,
    ) -> Result<(Box<Admitted>, SecretBuffer), RejectReason> {
        let Opened { certificate, bytes } = opened;
        let mut handshake = Handshake {
            shard,
            transport: &mut self.transport,
            peer: self.peer,
            listener,
            policy,
            certificate,
            proxied: self.proxied.take(),
            pending,
            traced_connect: None,
            control_frames: 0,
            buffer: bytes.into(),
        };
        let admitted = timeout_at(deadline, handshake.admit()).await;
        let admitted = admitted.unwrap_or(Err(RejectReason::Silent(
            "not authenticated before the deadline",
        )))?;
        Ok((admitted, handshake.buffer))
    }
}

struct Admitted {
    request: ConnectRequest,
    login: Arc<Login>,
    access: Arc<CompiledGrant>,
    greeting: ConnAckFields,
    /// Number of invalidations before the plugins were asked.
    asked_at: u64,
}

/// A connection before CONNACK; `identify` authenticates its client.
pub(crate) struct Handshake<'a> {
    pub(crate) shard: &'a Rc<Shard>,
    pub(crate) transport: &'a mut Transport,
    pub(crate) peer: Peer,
    /// Index of the listener.
    pub(crate) listener: usize,
    pub(crate) policy: &'a ListenerPolicy,
    /// The certificate that the client presented to its proxy, which verified it.
    pub(crate) proxied: Option<ProxiedCertificate>,
    /// The certificate that the client presented, verified.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
    pending: &'a HandshakeBytes,
    /// CONNECT for traces, if there are any.
    traced_connect: Option<Secret>,
    /// Number of control frames so far.
    control_frames: u32,
    /// Unhandled input.
    pub(crate) buffer: SecretBuffer,
}

impl Handshake<'_> {
    async fn admit(&mut self) -> Result<Box<Admitted>, RejectReason> {
        let mut request = self.receive_connect().await?;
        let is_certified = self.name_by_identity(&mut request)?;
        let login = Arc::new(self.login(&mut request, is_certified));
        self.trace_connect(&login);
        if let Some(banned) = reject_banned(self.shard, &login, request.recipient()) {
            return Err(banned.into());
        }
        let (began, asked_at) = (Instant::now(), self.shard.engine.invalidations.count());
        let identified = self.authenticate(&mut request, &login).await;
        let logins = &self.shard.metrics().tallies.logins;
        logins.count(began.elapsed());
        let Identified {
            mut access,
            name,
            mut greeting,
        } = identified?;
        let login = name.apply(login);
        if self.shard.interests().connect {
            let asking = self.ask_connect_hooks(&login, request.recipient());
            let changes = Box::pin(asking).await?;
            access = changes.apply(&access);
            greeting.keep_alive_s = changes.keep_alive_s;
            greeting.user_properties.extend(changes.user_properties);
        }
        check_will(&request, &login, &access)?;
        if self.has_will_hook(&request) {
            Box::pin(self.ask_will_hooks(&mut request, &login)).await?;
            check_will(&request, &login, &access)?;
        }
        Ok(Box::new(Admitted {
            request,
            login,
            access,
            greeting,
            asked_at,
        }))
    }

    /// Adds CONNECT to the traces of its client.
    fn trace_connect(&mut self, login: &Arc<Login>) {
        if let Some(connect) = self.traced_connect.take() {
            let bytes = connect.as_bytes();
            self.shard.trace_login(login, TraceDirection::In, bytes);
        }
    }

    /// Reads until CONNECT is complete; later bytes stay in the buffer.
    async fn receive_connect(&mut self) -> Result<ConnectRequest, RejectReason> {
        let config = Arc::clone(&self.shard.config());
        let limits = config.limits.before_connect();
        loop {
            let decoded = decode_connect(&self.buffer, &limits)
                .map_err(|error| broken_connect(&self.buffer, error, self.policy))?;
            match decoded {
                Some((connect, len)) => {
                    let to = ConnAckFormat::of(&connect);
                    let packets = &self.shard.metrics().tallies.packets_received;
                    packets.count(PacketType::Connect);
                    if self.shard.engine.traces.version() != 0 {
                        let bytes = self.buffer.get(..len).unwrap_or_default();
                        self.traced_connect = Some(Secret::from(bytes));
                    }
                    if !self.policy.protocol_versions.contains(&connect.version) {
                        return Err(RejectReason::Violation(to, Violation::protocol_version()));
                    }
                    let mut request = ConnectRequest::parse(&connect, &config.limits)
                        .map_err(|violation| RejectReason::Violation(to, violation))?;
                    if let Some(mount_point) = &self.policy.mount_point {
                        request
                            .mount(mount_point.clone())
                            .map_err(|violation| RejectReason::Violation(to, violation))?;
                    }
                    self.buffer.remove_first(len);
                    return Ok(request);
                }
                None => self.read().await?,
            }
        }
    }

    /// Reads once and appends to the buffer.
    pub(crate) async fn read(&mut self) -> Result<(), RejectReason> {
        let input = poll_fn(|cx| {
            // A Ping may already have been read with earlier bytes.
            self.answer_ping(cx);
            // On the stack, so that an idle connection has no read buffer.
            let mut bytes = [0; 2048];
            let input = ready!(self.transport.poll_read(cx, ReadPlace::Over(&mut bytes)));
            if let Ok(input) = input {
                self.buffer
                    .extend_from_slice(bytes.get(..input.payload).unwrap_or_default());
            }
            wipe(&mut bytes);
            self.answer_ping(cx);
            Poll::Ready(input)
        });
        let input = input.await.map_err(|stop| match stop {
            ReadEnd::Lost => {
                RejectReason::Silent("the client closed the connection before CONNACK")
            }
            ReadEnd::Fault(fault) => RejectReason::Unframed(fault),
            ReadEnd::Flood => flood(),
        })?;
        let tallies = &self.shard.metrics().tallies;
        tallies.bytes_received.add(self.transport.kind(), input.raw);
        self.control_frames = self.control_frames.saturating_add(input.control_frames);
        if self.control_frames > CONTROL_FRAMES_BEFORE_CONNACK {
            return Err(flood());
        }
        let bytes = self.transport.heap_bytes() + self.buffer.capacity();
        self.pending.count_bytes(bytes);
        Ok(())
    }

    /// Writes an outstanding Pong. Bytes that the socket does not take now are sent before CONNACK.
    fn answer_ping(&mut self, cx: &mut Context<'_>) {
        if self.transport.has_output()
            && let Poll::Ready(Ok(written)) = self.transport.poll_write(cx, &Outbox::default())
        {
            let tallies = &self.shard.metrics().tallies;
            tallies.bytes_sent.add(self.transport.kind(), written.raw);
        }
    }
}

fn flood() -> RejectReason {
    RejectReason::Silent("too many WebSocket control frames or TLS records without payload")
}

/// Moves the connection to the shard of its session.
fn move_to_shard(
    shard: &Rc<Shard>,
    (transport, slot): (Transport, ConnectionSlot),
    unread: SecretBuffer,
    admitted: Admitted,
    policy: &ListenerPolicy,
) {
    let home = shard.engine.shard_of(&admitted.login.client_id);
    let transport = if home == shard.index {
        MovingTransport::Here(transport)
    } else {
        let Ok(detached) = transport.detach() else {
            return;
        };
        MovingTransport::Elsewhere(detached)
    };
    let grant = &admitted.access.grant;
    let durability = shard
        .config()
        .client_durability(grant.durability, policy.durability);
    let arrival = AdmittedConnection {
        transport,
        slot,
        queue_policy: grant.queue_policy.or(policy.queue_policy),
        unread,
        request: admitted.request,
        login: admitted.login,
        access: admitted.access,
        durability,
        greeting: admitted.greeting,
        asked_at: admitted.asked_at,
    };
    shard.refresh_now();
    if home == shard.index {
        enter(shard, arrival);
    } else {
        shard.post_job(home, move |shard| enter(shard, arrival));
    }
    shard.flush_mailboxes();
}
