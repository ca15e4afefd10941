//! The engine: sockets, timers, routing, limits and metrics around `mqttcore-session`.
//!
//! N shards, each one single-threaded tokio runtime on its own thread; one task a connection; a
//! session lives on the shard that its client identifier hashes to. The crate refuses to know
//! Python: plugins are a trait ([`Hooks`]) whose answers come later.
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

mod arrival;
mod broker;
mod client;
mod clock;
mod config;
mod connection;
mod door;
mod durable;
mod end;
mod event_loop;
mod failure;
mod fill;
mod full_sessions;
mod grants;
mod group;
mod guard;
mod handshake;
mod hooks;
mod http;
mod hub;
mod identify;
mod journal;
pub mod kafka;
mod last_packets;
mod life;
mod line;
mod linger;
mod listener;
mod loading;
mod log;
mod mailbox;
mod metrics;
mod outbox;
mod paging;
mod promise;
mod queue_policy;
mod reauthentication;
mod recovery;
mod refusal;
mod registry;
mod reports;
mod requests;
mod retain;
mod shard;
mod share;
mod shutdown;
mod sink;
mod sources;
mod store;
mod streams;
mod sys_topics;
mod throttle;
mod topic;
mod transport;
mod websocket;
mod wheel;
mod when_full;

pub use broker::{Broker, PublishError, StartError};
pub use config::{Config, Data, HttpLimits, HttpListener, Listener, WebSocketRules};
pub use failure::Failure;
pub use grants::{
    Grant, GrantError, GrantLimits, Permissions, RuleAnswer, SessionPolicy, Takeover,
    check_grant_rule,
};
pub use hooks::{
    Action, Ask, Conversation, Event, EventKind, Hooks, Interests, LogLevel, Login, NoHooks,
    Opening, Reply, Ruling, Turn, Verdict,
};
pub use metrics::Stats;
pub use mqttcore_session::Secret;
pub use mqttcore_store::Level as Promise;
pub use mqttcore_store::stream::{Definition as Stream, Key as StreamKey, ProtobufMessage};
pub use promise::TopicPromise;
pub use registry::ClientInfo;
pub use when_full::{TopicWhenFull, WhenFull};
