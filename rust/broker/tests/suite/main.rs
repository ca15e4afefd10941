//! The engine as its clients meet it: over TCP, from several threads, with many shards.
//!
//! One binary, so that it links once; `memory.rs` stands alone because it counts every byte.

#[path = "../common/mod.rs"]
mod common;

mod authenticate;
mod authorize;
mod framing;
mod limits;
mod panics;
mod shards;
mod stop;
mod takeover;
