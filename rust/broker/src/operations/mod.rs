//! Operations: queries and changes for operators, from outside of the shards. Each question to a shard is bounded.
//!
//! Depends on connections and sessions, not on listeners, nor on how a question reached the broker.

pub(crate) mod asking;
pub(crate) mod bans;
pub(crate) mod client_facts;
pub(crate) mod client_filter;
pub(crate) mod clients;
pub(crate) mod explain;
mod first_keys;
pub(crate) mod invalidate;
pub(crate) mod listeners;
pub(crate) mod login;
pub(crate) mod one_client;
pub(crate) mod publish;
pub(crate) mod retained;
pub(crate) mod sessions;
pub(crate) mod slowness;
pub(crate) mod steering;
pub(crate) mod subscriptions;
pub(crate) mod topics;
pub(crate) mod traces;
pub(crate) mod watch;
