//! Accepts connections: one task for each address, on the first shard; sockets go to all shards in turn.

use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixListener;
use tokio::time::{sleep, timeout};

use crate::admission::handshake::Accepted;
use crate::admission::rejection::reject_connection;
use crate::admission::unix::{self, SocketFile, bind_unix};
use crate::clients::connections::{ConnectionSlot, ListenerLimit};
use crate::config::hooks::LogSubject;
use crate::config::{ListenAddress, Peer};
use crate::runtime::log::{LogCategory, LogEntry};
use crate::shard::Shard;

const BACKLOG: i32 = 4_096;
/// Maximum bytes that the kernel holds unsent for a client before the socket counts as full.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 * 1024;
/// Pause of the acceptor while the process has no free file descriptor (abuse H05).
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);
/// Maximum number of connections that are refused before each pause.
const REFUSALS_A_PAUSE: usize = 64;

/// Listens at `address`, so that a second broker on the same port fails (docs/decisions.md, 16).
///
/// # Errors
///
/// The error of the operating system: address in use, no permission, not an address of this machine.
pub fn bind(address: SocketAddr) -> io::Result<std::net::TcpListener> {
    let socket = bound(address)?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Binds `address`; connections are refused until the socket listens.
fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    socket.set_nonblocking(true)?;
    set_options(&socket)?;
    Ok(socket)
}

/// Sets options that Linux passes on to accepted sockets, which saves five system calls for each: small packets are sent
/// at once, and keep-alive probes find a peer that vanished.
fn set_options(socket: &Socket) -> io::Result<()> {
    socket.set_tcp_nodelay(true)?;
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(60))
        .with_interval(Duration::from_secs(10));
    socket.set_tcp_keepalive(&keepalive)?;
    // The socket then becomes writable as soon as less than half of this is unsent, instead of when a third of a
    // large buffer is free, so that the progress of a slow reader is visible.
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    Ok(())
}

/// A bound socket. A TCP socket refuses connections until it listens. A Unix socket listens at once: another process
/// would consider one that does not listen as that of a dead process.
pub(crate) enum BoundSocket {
    Tcp(Socket),
    Unix(std::os::unix::net::UnixListener, SocketFile),
}

impl BoundSocket {
    /// Binds `address`.
    ///
    /// # Errors
    ///
    /// As [`bind`] and [`bind_unix`].
    pub(crate) fn bind(address: &ListenAddress) -> io::Result<Self> {
        Ok(match address {
            ListenAddress::Tcp(address) => Self::Tcp(bound(*address)?),
            ListenAddress::Unix(address) => {
                let socket = bind_unix(address)?;
                Self::Unix(socket, SocketFile::at(&address.path)?)
            }
        })
    }

    /// The address of a TCP socket.
    pub(crate) fn tcp_address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(socket) => socket.local_addr().ok()?.as_socket(),
            Self::Unix(..) => None,
        }
    }

    /// Starts to accept connections.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::AddrInUse`] if another process has bound the address, too, and listens by now.
    pub(crate) fn listen(&self) -> io::Result<()> {
        match self {
            Self::Tcp(socket) => socket.listen(BACKLOG),
            Self::Unix(..) => Ok(()),
        }
    }

    /// Registers the socket with this thread's runtime.
    fn open(self) -> io::Result<Acceptor> {
        Ok(match self {
            Self::Tcp(socket) => {
                let socket = mio::net::TcpListener::from_std(socket.into());
                #[expect(
                    deprecated,
                    reason = "what replaces it is unsafe, for types that lie about their descriptor"
                )]
                let socket = AsyncFd::with_interest(socket, Interest::READABLE)?;
                Acceptor::Tcp(socket)
            }
            Self::Unix(socket, file) => Acceptor::Unix(UnixListener::from_std(socket)?, file),
        })
    }
}

/// A socket that is registered with a runtime.
enum Acceptor {
    /// Not a listener of tokio, which would register each accepted socket with this shard's runtime, whichever shard it
    /// is for.
    Tcp(AsyncFd<mio::net::TcpListener>),
    /// The file is removed with the socket.
    Unix(
        UnixListener,
        #[expect(dead_code, reason = "its drop counts")] SocketFile,
    ),
}

impl Acceptor {
    /// Waits for a connection; its socket is not registered with a runtime.
    async fn accept(&self) -> io::Result<(std::net::TcpStream, Peer)> {
        match self {
            Self::Tcp(socket) => {
                let accept = |socket: &mio::net::TcpListener| socket.accept();
                let (stream, peer) = socket.async_io(Interest::READABLE, accept).await?;
                Ok((stream.into(), peer.into()))
            }
            Self::Unix(socket, _) => {
                let (stream, _) = socket.accept().await?;
                unix::accepted(stream)
            }
        }
    }
}

/// A descriptor that is kept for the time when the process has no other: the acceptor closes it, and accepts and closes
/// the waiting connections in its place, so that their clients need not wait for a timeout (abuse H05).
struct SpareDescriptor(Option<File>);

impl SpareDescriptor {
    fn open() -> Self {
        Self(File::open("/dev/null").ok())
    }

    /// Refuses waiting connections, at most `REFUSALS_A_PAUSE`. Returns one that can be served, since the process has
    /// descriptors again.
    async fn refuse_waiting(
        &mut self,
        shard: &Shard,
        acceptor: &Acceptor,
        listener: usize,
    ) -> Option<(std::net::TcpStream, Peer)> {
        self.0 = None;
        for _ in 0..REFUSALS_A_PAUSE {
            // `timeout` polls `accept` before it looks at the time.
            let Ok(Ok((socket, peer))) = timeout(Duration::ZERO, acceptor.accept()).await else {
                break;
            };
            *self = Self::open();
            if self.0.is_some() {
                return Some((socket, peer));
            }
            let refusals = shard.metrics().refusals(Some(listener));
            refusals.connections_refused_descriptors.add(1);
            let why = "the process has no free file descriptor (raise its limit: ulimit -n)";
            refuse(shard, (LogCategory::Descriptors, why), peer, listener);
        }
        *self = Self::open();
        None
    }
}

/// Accepts until the broker stops.
pub(crate) async fn accept(shard: Rc<Shard>, socket: BoundSocket, listener: usize) {
    let acceptor = match socket.open() {
        Ok(acceptor) => acceptor,
        Err(error) => {
            warn(&shard, listener, &error);
            return;
        }
    };
    let mut spare = SpareDescriptor::open();
    let mut next = 0;
    loop {
        let accepted = match acceptor.accept().await {
            Err(error) if is_without_descriptors(&error) => {
                let free = spare.refuse_waiting(&shard, &acceptor, listener).await;
                if free.is_none() {
                    sleep(ACCEPT_PAUSE).await;
                }
                free
            }
            Err(error) => {
                warn(&shard, listener, &error);
                if !is_one_sockets_fault(&error) {
                    sleep(ACCEPT_PAUSE).await;
                }
                None
            }
            Ok(accepted) => Some(accepted),
        };
        if shard.engine.is_stopping() {
            return;
        }
        if let Some((socket, peer)) = accepted {
            next = (next + 1) % shard.engine.shards();
            deliver_to_shards(&shard, next, socket, peer, listener);
        }
    }
}

fn warn(shard: &Shard, listener: usize, error: &io::Error) {
    shard
        .log
        .warn(LogCategory::Accept, shard.refresh_now(), || {
            let name = name_of(shard, listener);
            format!("listener {name}: cannot accept connections: {error}")
        });
}

/// The name of a listener in log lines; its index if a reload has removed it.
fn name_of(shard: &Shard, listener: usize) -> Arc<String> {
    let policies = shard.listener_policies();
    let name = policies
        .get(listener)
        .map(|policy| Arc::clone(&policy.name));
    name.unwrap_or_else(|| Arc::new(listener.to_string()))
}

fn deliver_to_shards(
    shard: &Rc<Shard>,
    to: usize,
    socket: std::net::TcpStream,
    peer: Peer,
    listener: usize,
) {
    let counters = shard.metrics().refusals(Some(listener));
    counters.connections_accepted.add(1);
    let Some(slot) = take_slot(shard, peer, listener) else {
        return;
    };
    let accepted = Accepted {
        socket,
        peer,
        listener,
        slot,
    };
    if to == shard.index {
        crate::admission::handshake::start(shard, accepted);
    } else {
        let start = move |shard: &Rc<Shard>| crate::admission::handshake::start(shard, accepted);
        shard.post_job(to, start);
        shard.flush_mailboxes();
    }
}

/// Counts and logs a connection that is refused whatever the number of others.
fn refuse(shard: &Shard, (category, why): (LogCategory, &str), peer: Peer, listener: usize) {
    let refusals = shard.metrics().refusals(Some(listener));
    refusals.connections_refused.add(1);
    shard.log.warn(category, shard.refresh_now(), || {
        let name = name_of(shard, listener);
        let text = format!("listener {name}: {peer} refused: {why}");
        LogEntry::new("refused", text, LogSubject::of_peer(peer, &name))
    });
}

/// Counts a connection of `peer`; if it is above a limit, counts and logs the rejection and returns `None`.
fn take_slot(shard: &Shard, peer: Peer, listener: usize) -> Option<ConnectionSlot> {
    let now = shard.refresh_now();
    // ORDERING: nothing else is read because of it.
    let refusals = shard.metrics().refusals(Some(listener));
    if shard.engine.paused[listener].load(Ordering::Relaxed) {
        refusals.connections_refused_paused.add(1);
        let why = "the listener is paused";
        refuse(shard, (LogCategory::Paused, why), peer, listener);
        return None;
    }
    if shard.engine.bans.covers_address(peer.ip(), now) {
        refusals.connections_refused_banned.add(1);
        let why = "its address is banned";
        refuse(shard, (LogCategory::Banned, why), peer, listener);
        return None;
    }
    let policies = shard.listener_policies();
    let policy = policies.get(listener);
    let is_proxy = policy.is_some_and(|policy| policy.is_proxy(peer));
    let limit = ListenerLimit {
        index: listener,
        connections: policy.map_or(0, |policy| policy.max_connections),
    };
    // Clients behind a proxy are limited by their own addresses.
    let limited = peer.ip().filter(|_| !is_proxy);
    let connections = &shard.engine.connections;
    match connections.admit(limited, limit, &shard.config(), now) {
        Ok(slot) => Some(slot),
        Err(limit) => {
            reject_connection(shard, limit, peer, (listener, &name_of(shard, listener)));
            None
        }
    }
}

/// Whether an error of `accept` is about one connection, which its peer gave up in the backlog; the listener works.
pub fn is_one_sockets_fault(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Whether `accept` failed because the process, or the system, has no free descriptor.
fn is_without_descriptors(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EMFILE | libc::ENFILE))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::net::Ipv4Addr;

    use socket2::SockRef;

    use super::*;

    #[test]
    fn an_accepted_socket_has_the_options_of_its_listener() {
        let listener = bind((Ipv4Addr::LOCALHOST, 0).into()).expect("a free port");
        let address = listener.local_addr().expect("bound");
        let _client = std::net::TcpStream::connect(address).expect("it listens");

        let (accepted, _) = listener.accept().expect("the client waits");

        let socket = SockRef::from(&accepted);
        assert!(socket.tcp_nodelay().expect("an option"));
        assert!(socket.keepalive().expect("an option"));
        let time = socket.tcp_keepalive_time().expect("an option");
        assert_eq!(time, Duration::from_secs(60));
        let interval = socket.tcp_keepalive_interval().expect("an option");
        assert_eq!(interval, Duration::from_secs(10));
        assert_eq!(socket.tcp_notsent_lowat().expect("an option"), UNSENT_BYTES);
    }
}
