//! The engine as its clients meet it: over TCP, from several threads, with many shards.
//!
//! One binary, so that it links once; `memory.rs` stands alone because it counts every byte.

#[path = "../common/mod.rs"]
mod common;
#[path = "../common/tls.rs"]
mod tls_client;

mod address_space;
mod aftermath;
mod authenticate;
mod authorize;
mod bans;
mod clock;
mod control;
mod costly;
mod deliver_hook;
mod durability;
mod durable;
mod enhanced;
mod explain;
mod fairness;
mod figures;
mod forwarding;
mod framing;
mod full_queues;
mod grants;
mod groups;
mod invalidate;
mod kept_clock;
mod last_packets;
mod limits;
mod loading;
mod memory_budget;
mod mount;
mod packet_hooks;
mod panics;
mod proxy;
mod publish_hook;
mod rates;
mod reasons;
mod redelivery;
mod refusals;
mod reload;
mod retain_source;
mod retained;
mod shards;
mod share;
mod slow;
mod spilled;
mod start;
mod stop;
mod takeover;
mod tls;
mod tls_records;
mod unix;
mod user_shares;
mod websocket;
mod wills;
