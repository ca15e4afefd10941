//! The engine: sockets, timers, routing, limits and metrics around `mqttcore-session`.
//!
//! There are N shards, each with a single-threaded tokio runtime on its own thread. Each connection is one task. A
//! session lives on the shard that its client identifier hashes to. The crate does not know Python: plugins are a
//! trait ([`Hooks`]) that answers asynchronously.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use mqttcore_broker::{Broker, Config, Grant, Hooks, Listener, NoHooks};
//!
//! let config = Config {
//!     listeners: vec![Listener {
//!         anonymous: Some(Grant::everything()),
//!         ..Listener::new("local", "127.0.0.1:0".parse()?)
//!     }],
//!     shards: 1,
//!     ..Config::default()
//! };
//! let hooks: Arc<dyn Hooks> = Arc::new(NoHooks);
//! let broker = Broker::start(config, &hooks)?;
//! assert_ne!(broker.addresses()[0].port(), 0);
//! broker.stop(Duration::from_secs(1));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod admission;
mod broker;
mod clients;
mod config;
mod connection;
mod durability;
mod event_loop;
mod figures;
mod health;
mod operations;
mod routing;
mod runtime;
mod service;
mod sessions;
mod shard;
mod shutdown;
mod startup;
mod sys_topics;
mod transport;

pub use admission::listener::{bind, is_one_sockets_fault};
pub use admission::unix::bind_unix;
pub use broker::Broker;
pub use clients::bans::{Ban, BanReason, BanTarget, TooManyBans};
pub use clients::client_id_pattern::{ClientIdPattern, InvalidPattern};
pub use clients::handle::RowStream;
pub use clients::invalidations::Invalidation;
pub use clients::measures::{DeliveryTimes, PacketRates};
pub use clients::traces::{
    ClientIdGlob, InvalidGlob, TRACE_BYTES, TRACE_DURATION_MAX, TRACE_PACKETS_MAX, TRACES_MAX,
    Trace, TraceBatch, TraceDirection, TraceError, TraceFigures, TraceFilter, TraceSpec,
    TracedPacket, TracedPayload,
};
pub use config::durability::TopicDurability;
pub use config::grants::{
    Access, AccessRule, Grant, GrantLimits, OrderedRule, OrderedRules, SessionPolicy, Takeover,
};
pub use config::hooks::{
    Action, AuthExchange, AuthorizeDecision, AuthorizeRequest, ControlRequest, DecidingHook,
    ExchangeReply, ExchangeStart, HookInterests, Hooks, LogLevel, LogLine, LogSubject, Login,
    LoginDecision, LoginExtras, NoHooks, PublishBatch, PublishDecision, Reply, StoredMessage,
    Trial,
};
pub use config::measures::{AtomicHistogram, Histogram, HookCalls, Tally, is_plugin_named};
pub use config::packet_hooks::{
    ConnectChanges, ConnectDecision, SubscribeBatch, SubscribeDecision,
};
pub use config::permissions::{GrantError, Permissions, RuleAnswer, check_grant_rule};
pub use config::place::{Place, RulePlaces};
pub use config::plugin_event::{EventKind, PluginEvent};
pub use config::queue_policy::{FullQueuePolicy, TopicQueuePolicy};
pub use config::rule_list::GrantRule;
pub use config::topic_metrics::TopicMetric;
pub use config::{
    AddressLimits, ClientRates, Config, Data, FailedLoginLimits, FlappingLimits, InvalidNetwork,
    InvalidPeer, InvalidProxySource, ListenAddress, Listener, ListenerCaps, Network, Peer,
    PeerIdentity, ProxySource, RateLimitKind, ShareLimits, UnixAddress, WebSocketRules,
};
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub use connection::fuzzing;
pub use durability::audit::{
    AuditEntry, AuditLines, AuditPosition, InvalidAuditPosition, timestamp,
};
pub use durability::outcomes::{RecordOutcomes, RecordTicket};
pub use durability::row_log::{RowLog, RowRecord, RowSubscription};
pub use health::Health;
pub use mqttcore_session::Secret;
pub use mqttcore_slab::{ProgramAllocator, keep_freed};
pub use mqttcore_store::Durability;
pub use mqttcore_store::Pressure;
pub use mqttcore_tls as tls;
pub use operations::asking::{AskError, MissingPart};
pub use operations::bans::BanError;
pub use operations::client_facts::{EventCounts, WillSummary};
pub use operations::client_filter::ClientFilter;
pub use operations::clients::{
    ClientOrder, ClientPage, ClientPosition, ClientQuery, ClientSummary,
};
pub use operations::explain::{
    AccessQuestion, DeliveryQuestion, DeliveryWatch, EXPLAINED_BYTES_MAX, EventQuery, ExplainError,
    ExplainedDelivery, ExplainedReceiver, ExplainedStep, PastEvent, PastEvents, ReceiverPosition,
    Verdict, WatchedDelivery,
};
pub use operations::listeners::ListenerStatus;
pub use operations::login::{LoginRefusal, Operator};
pub use operations::one_client::{ClientItems, ClientQueue, QueuedMessage};
pub use operations::publish::{OwnMessage, PublishError, PublishManyError, Unpublished};
pub use operations::retained::{RetainedItem, RetainedPage};
pub use operations::sessions::CountedSessions;
pub use operations::slowness::{Delay, DelayStage, HoldingLimit};
pub use operations::steering::Subscribed;
pub use operations::subscriptions::{ListPosition, ListedSubscription, Page, Receiver};
pub use operations::topics::{TopicNode, TopicPage, TopicQuery};
pub use operations::traces::TraceStartError;
pub use operations::watch::{EventWatch, WatchedEvents};
pub use runtime::failure::{BrokerFailure, ServiceError};
pub use runtime::log::LoggedLine;
pub use runtime::memory_limit::memory_budget;
pub use runtime::metrics::{Figure, Figures, Refusals, Stats};
pub use runtime::tallies::Tallies;
pub use runtime::tls_servers::ShownCertificates;
pub use runtime::topic_counters::TopicCount;
pub use service::{BrokerHandle, BrokerStopped, Extensions, Service};
pub use sessions::listing::ClientInfo;
pub use startup::StartError;
pub use transport::address::{AddressKey, names_an_address};
pub use transport::channel::{Channel, TlsParameters};
