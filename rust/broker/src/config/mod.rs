//! What the broker is told: its configuration, what listeners and grants allow, and the hooks that ask plugins.
//!
//! Plain data and rules about it. Knows no shard and no client.

pub(crate) mod grants;
pub(crate) mod hooks;
pub(crate) mod listener_policy;
pub(crate) mod promise;
pub(crate) mod queue_policy;
mod settings;

pub use settings::{Config, Data, Listener, WebSocketRules};
