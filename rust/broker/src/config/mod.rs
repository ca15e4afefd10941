//! Configuration: settings, listener policies, grants, durability, and the interface to plugins.
//!
//! Plain data and rules about it. No dependency on shards or clients.

mod address;
pub(crate) mod address_limits;
pub(crate) mod client_rates;
pub(crate) mod durability;
pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod listener_policy;
pub(crate) mod measures;
pub(crate) mod network;
pub(crate) mod packet_hooks;
pub(crate) mod permissions;
pub(crate) mod place;
pub(crate) mod plugin_event;
mod proxy_source;
pub(crate) mod queue_policy;
pub(crate) mod rule_list;
mod settings;
mod share_limits;
pub(crate) mod topic_metrics;

pub use address::{InvalidPeer, ListenAddress, Peer, UnixAddress};
pub use address_limits::{AddressLimits, FailedLoginLimits, FlappingLimits};
pub use client_rates::{ClientRates, RateLimitKind};
pub use grants::ListenerCaps;
pub use network::{InvalidNetwork, Network};
pub use proxy_source::{InvalidProxySource, ProxySource};
pub use settings::{Config, Data, Listener, PeerIdentity, WebSocketRules};
pub use share_limits::ShareLimits;
