//! A broker on a free port, and a plain blocking client that says exactly what a test tells it.
//!
//! Everything waits with a deadline: for bytes, for a close, or for the broker's own figures.
#![allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "each test binary uses a part of it"
)]

mod client;
pub mod frames;
mod hello;
mod home;
pub mod many;
pub mod plugin;

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_broker::{Broker, Config, Grant, Hooks, Listener};
use mqttcore_session::ServerLimits;

pub use client::{AuthFields, Client, Message, Received};
pub use hello::{Hello, bridge, v3, v5};
pub use home::{HOUR_S, Home, copy, settle};
pub use plugin::{Plugin, Said, allow, challenge, end, filter, line_about, logged, told_logins};

/// Longer than anything takes on a loaded machine; only a failing test waits for it.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Four shards, everything allowed, nothing published by the broker itself.
pub fn config() -> Config {
    Config {
        listeners: vec![Listener {
            anonymous: Some(Grant::everything()),
            ..Listener::new("test", ([127, 0, 0, 1], 0).into())
        }],
        shards: 4,
        sys_interval: None,
        ..Config::default()
    }
}

/// The same with limits changed by `change`.
pub fn config_with_limits(change: impl FnOnce(&mut ServerLimits)) -> Config {
    let mut limits = ServerLimits::default();
    change(&mut limits);
    Config {
        limits: Arc::new(limits),
        ..config()
    }
}

/// Queues that no test fills, so that nothing may be dropped for lack of room.
pub fn deep_queues() -> Config {
    config_with_limits(|limits| {
        limits.queue_messages = 1_000_000;
        limits.queue_bytes = 1 << 30;
        limits.qos0_backlog_bytes = 1 << 30;
    })
}

pub fn start(config: Config) -> Broker {
    start_with(config, Plugin::default())
}

pub fn start_with(config: Config, plugin: Plugin) -> Broker {
    let hooks: Arc<dyn Hooks> = Arc::new(plugin);
    Broker::start(config, &hooks).expect("the broker starts")
}

/// Connects the client whose kept session `id` is.
pub fn back(broker: &Broker, id: &str) -> Client {
    let (client, is_resumed) = v5(id).keeping_session_s(HOUR_S).connect_or_resume(broker);
    assert!(is_resumed, "the session is there");
    client
}

/// Messages in the queue of the session `id`.
pub fn queued(broker: &Broker, id: &str) -> usize {
    let clients = broker.clients();
    let client = clients.iter().find(|client| &*client.client_id == id);
    client.map_or(0, |client| client.queued)
}

/// A figure of the broker by its name.
pub fn figure(broker: &Broker, name: &str) -> u64 {
    let figures = broker.figures();
    let found = figures.into_iter().find(|(of, _)| of == name);
    found.expect("a figure of this name").1
}

/// Waits until `condition` holds.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "never happened: {what}");
        std::thread::park_timeout(Duration::from_millis(1));
    }
}

/// Runs `action` on another thread and waits for it, but not for ever.
pub fn within<T: Send + 'static>(
    longest: Duration,
    what: &str,
    action: impl FnOnce() -> T + Send + 'static,
) -> T {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || sender.send(action()));
    receiver
        .recv_timeout(longest)
        .unwrap_or_else(|_| panic!("not done within {longest:?}: {what}"))
}

/// Numbers that look random and are the same in every run.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed | 1)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}
