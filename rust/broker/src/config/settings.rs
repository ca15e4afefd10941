//! The engine's configuration: validated values, no text to parse.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use mqttcore_codec::ProtocolVersion;
use mqttcore_session::ServerLimits;
use mqttcore_store::Durability;
use mqttcore_tls::TlsSettings;
use mqttcore_topics::{MountPoint, Strategy};

use crate::config::address::ListenAddress;
use crate::config::address_limits::{AddressLimits, FailedLoginLimits, FlappingLimits};
use crate::config::client_rates::ClientRates;
use crate::config::grants::{Grant, ListenerCaps};
use crate::config::promise::TopicPromise;
use crate::config::proxy_source::ProxySource;
use crate::config::queue_policy::{FullQueuePolicy, TopicQueuePolicy};
use crate::config::share_limits::ShareLimits;

/// Everything the engine needs to run. The caller checks; the engine trusts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where clients connect; at least one.
    pub listeners: Vec<Listener>,
    /// Event loops, one thread each; 0 takes one for each core that this process may use.
    pub shards: usize,
    /// What one session may use, and what CONNACK announces.
    pub limits: Arc<ServerLimits>,
    /// From accept to CONNACK, enhanced authentication included; bytes in between
    /// do not extend it (abuse C13). A client that authenticates again has as long.
    pub connect_deadline: Duration,
    /// Connections without CONNACK, over all listeners (abuse C15).
    pub pending_connections: usize,
    /// Connected clients, over all listeners.
    pub connections: usize,
    /// Connections a second, for each listener, from addresses that are not exempt from limits; those of five seconds may
    /// come at once; 0 is no limit.
    pub connects_per_second: u32,
    /// What one address may take of these.
    pub address_limits: AddressLimits,
    /// How fast one client is read.
    pub client_rates: ClientRates,
    /// Wills that are published a second in the whole broker; more of them wait. Those of one second may come at once; 0: no
    /// limit.
    pub wills_per_second: u32,
    /// Failed logins of one address that is not exempt from limits, or of one user name.
    pub failed_logins: FailedLoginLimits,
    /// Connections of one client identifier.
    pub flapping: FlappingLimits,
    /// Sessions held, connected or not.
    pub sessions: usize,
    /// What one user may have of sessions and retained messages.
    pub user_limits: ShareLimits,
    /// A client that takes no byte for this long while bytes wait for it is disconnected.
    pub stall_deadline: Duration,
    /// How messages are dealt to the members of a shared subscription.
    pub shared_strategy: Strategy,
    /// Retained messages kept, over all topics.
    pub retained_messages: usize,
    /// Bytes of retained messages kept.
    pub retained_bytes: usize,
    /// Withholds a retained message from new subscriptions while its publisher may not publish it any more.
    pub check_retain_source: bool,
    /// Bytes of memory for messages, sessions, buffers and tables together; 0: see [`memory_budget`](crate::memory_budget).
    pub memory_bytes: usize,
    /// How often `$SYS/broker/...` is published; `None` publishes nothing.
    pub sys_interval: Option<Duration>,
    /// A kept session whose client is away for so long has its queue in the store alone.
    pub spill_after: Duration,
    /// Within so long, all that was written long ago is read again and compared with its
    /// checksums; zero is never.
    pub scrub_every: Duration,
    /// Where sessions and messages are kept; `None` keeps them in memory alone.
    pub data: Option<Data>,
    /// Durability of messages by topic; the first matching rule applies.
    pub topic_promises: Vec<TopicPromise>,
    /// What becomes of a publish for a kept session whose queue is full, where neither a topic's rule, the publisher's
    /// grant nor its listener says.
    pub queue_policy: FullQueuePolicy,
    /// The same by topic; the first matching rule applies.
    pub topic_queue_policies: Vec<TopicQueuePolicy>,
    /// How long a publish that is to be refused waits for room if its publisher cannot be told.
    pub queue_deadline: Duration,
    /// Bytes of messages kept for all sessions together; beyond them all queues count as full. 0: half of the disk that
    /// is free at the start, beside what is kept.
    pub queues_disk_bytes: u64,
    /// What the system's clock says: how long the broker was down, it alone tells.
    pub system_time: fn() -> SystemTime,
    /// Believes the system's clock about the time that the broker was down, however long that is.
    pub accepts_clock: bool,
}

/// Where sessions and messages are kept, and when they count as kept.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Data {
    /// The folder; it is made if it is missing.
    pub folder: PathBuf,
    /// The default durability of sessions and messages before they are acknowledged.
    pub promise: Durability,
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
            topic_promises: Vec::new(),
            queues_disk_bytes: 0,
            queue_policy: FullQueuePolicy::default(),
            topic_queue_policies: Vec::new(),
            queue_deadline: Duration::from_secs(10),
        }
    }
}

/// One address that clients connect to.
#[derive(Clone, Debug)]
pub struct Listener {
    /// How logs, events and plugins call it.
    pub name: String,
    /// Where.
    pub address: ListenAddress,
    /// The proxies whose connections begin with a PROXY header; all other peers are refused then. Empty: nobody sends
    /// one.
    pub proxies: Vec<ProxySource>,
    /// What the user name is, whatever CONNECT says; `None`: CONNECT says it, or `tls` does.
    pub identity: Option<PeerIdentity>,
    /// What a client without user name may do; `None` refuses it unless a plugin allows it.
    pub anonymous: Option<Grant>,
    /// Rules for WebSocket requests; `None`: plain TCP.
    pub websocket: Option<WebSocketRules>,
    /// Certificates and what is asked of clients; `None`: nothing is encrypted.
    pub tls: Option<TlsSettings>,
    /// How safe what its clients do is, where their grants do not say; `None`: as the broker says.
    pub promise: Option<Durability>,
    /// Versions of MQTT that its clients may speak.
    pub protocol_versions: Vec<ProtocolVersion>,
    /// How many connections it may have, beside `Config::connections`; 0 is no limit.
    pub max_connections: usize,
    /// What its clients may not have, whatever they are granted.
    pub caps: ListenerCaps,
    /// What becomes of what its clients publish for a kept session whose queue is full, where their grants do not say;
    /// `None`: as the broker says.
    pub queue_policy: Option<FullQueuePolicy>,
    /// What stands in front of the topics of its clients, who do not see it.
    pub mount_point: Option<MountPoint>,
}

impl Listener {
    /// Plain TCP, every version of MQTT, and nothing for clients without user name.
    pub fn new(name: &str, address: SocketAddr) -> Self {
        Self {
            name: name.to_owned(),
            address: address.into(),
            proxies: Vec::new(),
            identity: None,
            anonymous: None,
            websocket: None,
            tls: None,
            promise: None,
            protocol_versions: ProtocolVersion::ALL.to_vec(),
            max_connections: 0,
            caps: ListenerCaps::default(),
            queue_policy: None,
            mount_point: None,
        }
    }
}

/// A property of the peer that is the user name of a client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PeerIdentity {
    /// The number of the user at the other end of a Unix socket.
    Uid,
    /// The common name of the client certificate that a proxy has verified.
    ProxyCommonName,
}

/// Which HTTP requests become MQTT connections.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct WebSocketRules {
    /// The path that is asked for, with its leading slash.
    pub path: String,
    /// Origins of the Web pages that may connect beside the listener's own, by address or as `localhost`;
    /// `*` is every page.
    /// Clients that are no browsers name none.
    pub origins: Vec<String>,
}
