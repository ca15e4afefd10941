//! The endpoint as its clients meet it, and messages as rows that are read through it.
//!
//! One binary, so that it links once.

#[path = "../../../broker/tests/common/mod.rs"]
mod common;
#[path = "../../../broker/tests/common/tls.rs"]
mod tls_client;

mod api_access;
mod api_audit;
mod api_caller;
mod api_clients;
mod api_history;
mod api_login;
mod api_messages;
mod api_sessions;
mod api_steering;
mod api_topics;
mod client;
mod deliveries;
mod endpoint;
mod explain;
mod kept_clock;
mod operations;
mod page;
mod served;
mod stream_keys;
mod streams;
mod traces;
