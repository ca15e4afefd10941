//! The engine's configuration: validated values, no text to parse.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mqttcore_codec::ProtocolVersion;
use mqttcore_session::ServerLimits;
use mqttcore_store::Durability;
use mqttcore_tls::{Identity, TlsSettings};
use mqttcore_topics::{MountPoint, Strategy};

use crate::config::address::ListenAddress;
use crate::config::address_limits::{AddressLimits, FailedLoginLimits, FlappingLimits};
use crate::config::client_rates::ClientRates;
use crate::config::durability::TopicDurability;
use crate::config::grants::{Grant, ListenerCaps};
use crate::config::proxy_source::ProxySource;
use crate::config::queue_policy::{FullQueuePolicy, TopicQueuePolicy};
use crate::config::share_limits::ShareLimits;
use crate::config::topic_metrics::TopicMetric;

/// The configuration of the engine. The caller validates it; the engine trusts it.
#[derive(Clone, Debug)]
pub struct Config {
    /// The listeners; at least one.
    pub listeners: Vec<Listener>,
    /// Number of shards, with one thread each; 0: one for each core that this process may use.
    pub shards: usize,
    /// Limits of one session, some of which CONNACK announces.
    pub limits: Arc<ServerLimits>,
    /// Maximum time from accept to CONNACK, including enhanced authentication; received bytes do not extend it
    /// (abuse C13). It also limits a re-authentication.
    pub connect_deadline: Duration,
    /// Maximum number of connections without CONNACK, over all listeners (abuse C15).
    pub pending_connections: usize,
    /// Maximum number of connected clients, over all listeners.
    pub connections: usize,
    /// Connections a second of each listener, without those from exempt addresses; the connections of five seconds may
    /// come at once. 0 means no limit.
    pub connects_per_second: u32,
    /// Limits of one address.
    pub address_limits: AddressLimits,
    /// Rate limits of one client.
    pub client_rates: ClientRates,
    /// Wills that are published a second by the whole broker; further ones wait. The wills of one second may be
    /// published at once. 0 means no limit.
    pub wills_per_second: u32,
    /// Limits of failed logins from one address that is not exempt, or with one user name.
    pub failed_logins: FailedLoginLimits,
    /// Limits of reconnects with one client identifier and user name.
    pub flapping: FlappingLimits,
    /// Maximum number of sessions that outlive their connection.
    pub sessions: usize,
    /// Limits of one user: sessions and retained messages.
    pub user_limits: ShareLimits,
    /// A client is disconnected if bytes are queued for it and its socket accepts none for this long.
    pub stall_deadline: Duration,
    /// How a shared subscription chooses a member for each message.
    pub shared_strategy: Strategy,
    /// Maximum number of retained messages.
    pub retained_messages: usize,
    /// Maximum bytes of retained messages.
    pub retained_bytes: usize,
    /// Withholds a retained message from new subscriptions while its publisher has lost the right to publish it.
    pub check_retain_source: bool,
    /// Memory budget in bytes for messages, sessions, buffers and tables; 0: see
    /// [`memory_budget`](crate::memory_budget).
    pub memory_bytes: usize,
    /// Interval of `$SYS/broker/...` messages; `None` disables them.
    pub sys_interval: Option<Duration>,
    /// When a client has been offline for this long, its stored messages are dropped from memory.
    pub spill_after: Duration,
    /// Interval in which every stored segment is re-read and its checksums verified; zero disables scrubbing.
    pub scrub_every: Duration,
    /// The store of sessions and messages; `None` keeps them in memory only.
    pub data: Option<Data>,
    /// Durability of messages by topic; the first matching rule applies.
    pub topic_durability: Vec<TopicDurability>,
    /// Queue policy for publishes to kept sessions with a full queue, unless the topic, the grant of the publisher or
    /// its listener has one.
    pub queue_policy: FullQueuePolicy,
    /// Queue policy by topic; the first matching rule applies.
    pub topic_queue_policies: Vec<TopicQueuePolicy>,
    /// Counters of messages by topic; those of the start stay until the broker ends.
    pub topic_metrics: Vec<TopicMetric>,
    /// Time that a publish waits for room before it is refused, if its publisher cannot be informed of a refusal.
    pub queue_deadline: Duration,
    /// Maximum bytes of stored messages in all queues together; above it all queues count as full. 0: half of the free
    /// disk space at the start, plus what is stored.
    pub queues_disk_bytes: u64,
    /// Reads the system clock, the only source for how long the broker was down.
    pub system_time: fn() -> SystemTime,
    /// Trusts the system clock about the down time, however long it is.
    pub accepts_clock: bool,
}

/// The store folder and the default durability.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Data {
    /// The folder; created if missing.
    pub folder: PathBuf,
    /// The default durability of sessions and messages.
    pub durability: Durability,
}

impl Default for Config {
    /// The limits and defaults of the threat model (`SECURITY.md`), without any listener.
    fn default() -> Self {
        Self {
            listeners: Vec::new(),
            shards: 0,
            limits: Arc::default(),
            connect_deadline: Duration::from_secs(10),
            pending_connections: 4_096,
            connections: 100_000,
            connects_per_second: 1_000,
            address_limits: AddressLimits::default(),
            client_rates: ClientRates::default(),
            wills_per_second: 1_000,
            failed_logins: FailedLoginLimits::default(),
            flapping: FlappingLimits::default(),
            sessions: 1_000_000,
            user_limits: ShareLimits::default(),
            stall_deadline: Duration::from_secs(30),
            shared_strategy: Strategy::RoundRobin,
            retained_messages: 1_000_000,
            retained_bytes: 1 << 30,
            check_retain_source: true,
            memory_bytes: 0,
            sys_interval: Some(Duration::from_secs(10)),
            spill_after: Duration::from_secs(600),
            scrub_every: Duration::from_secs(7 * 24 * 3_600),
            data: None,
            system_time: SystemTime::now,
            accepts_clock: false,
            topic_durability: Vec::new(),
            queues_disk_bytes: 0,
            queue_policy: FullQueuePolicy::default(),
            topic_queue_policies: Vec::new(),
            topic_metrics: Vec::new(),
            queue_deadline: Duration::from_secs(10),
        }
    }
}

/// One address that clients connect to.
#[derive(Clone, Debug)]
pub struct Listener {
    /// Name in logs, events and plugins.
    pub name: String,
    /// The address.
    pub address: ListenAddress,
    /// Proxies whose connections must begin with a PROXY header; all other peers are then rejected. Empty: no proxies.
    pub proxies: Vec<ProxySource>,
    /// The source of the user name; `None`: CONNECT, unless `tls` names another one.
    pub identity: Option<PeerIdentity>,
    /// The grant of clients without user name; `None` refuses them unless a plugin allows them.
    pub anonymous: Option<Grant>,
    /// Rules for WebSocket requests; `None`: plain TCP.
    pub websocket: Option<WebSocketRules>,
    /// Certificates and rules for client certificates; `None`: no encryption.
    pub tls: Option<TlsSettings>,
    /// Durability for clients whose grant has none; `None`: that of the broker.
    pub durability: Option<Durability>,
    /// Accepted versions of MQTT.
    pub protocol_versions: Vec<ProtocolVersion>,
    /// Maximum number of connections, in addition to `Config::connections`; 0 means no limit.
    pub max_connections: usize,
    /// Restrictions on every grant of its clients.
    pub caps: ListenerCaps,
    /// Queue policy for clients whose grant has none; `None`: that of the broker.
    pub queue_policy: Option<FullQueuePolicy>,
    /// Prefix of its clients' topics, hidden from the clients.
    pub mount_point: Option<MountPoint>,
}

impl Listener {
    /// A listener for plain TCP and all versions of MQTT that refuses clients without user name.
    pub fn new(name: &str, address: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            address: address.into(),
            proxies: Vec::new(),
            identity: None,
            anonymous: None,
            websocket: None,
            tls: None,
            durability: None,
            protocol_versions: ProtocolVersion::ALL.to_vec(),
            max_connections: 0,
            caps: ListenerCaps::default(),
            queue_policy: None,
            mount_point: None,
        }
    }
}

/// A property of the peer that replaces the user name.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerIdentity {
    /// The user id of the process at the other end of a Unix socket.
    Uid,
    /// The common name of the client certificate that a proxy has verified.
    ProxyCommonName,
    /// This name in the client certificate that a proxy has verified, and sends in its header.
    ProxyCertificate(Identity),
}

/// Which HTTP requests are upgraded to MQTT connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebSocketRules {
    /// The path of the request, with its leading slash.
    pub path: String,
    /// Origins of Web pages that may connect, in addition to the listener's own origin by address or as `localhost`;
    /// `*` allows all. Clients that are not browsers send no origin.
    pub origins: Vec<String>,
}
