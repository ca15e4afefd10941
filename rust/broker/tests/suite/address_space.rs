//! Announced lengths do not use up the address space of the process (ADR 0084).
//!
//! The limit is the process's, so the test runs in a process of its own.
#![cfg(all(target_os = "linux", not(miri)))]

use std::process::Command;
use std::sync::Arc;

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::QoS;
use mqttcore_session::ServerLimits;

use crate::common::{Client, config, eventually, start, v5};

const MIB: usize = 1024 * 1024;
/// Set in the process with the limit.
const LIMITED: &str = "MQTTCORE_TEST_ADDRESS_SPACE";
/// Clients that announce 16 MiB each: ten times as much as there is.
const CLIENTS: usize = 200;
const ROOM: usize = 320 * MIB;

#[test]
fn h03_announced_lengths_do_not_use_up_the_address_space() {
    if std::env::var_os(LIMITED).is_some() {
        return announce_many();
    }
    let program = std::env::current_exe().expect("this program");
    let name = "address_space::h03_announced_lengths_do_not_use_up_the_address_space";

    let done = Command::new(program)
        .args(["--exact", name, "--nocapture"])
        .env(LIMITED, "1")
        .output();

    let done = done.expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}: {said}", done.status);
    let ran = String::from_utf8_lossy(&done.stdout);
    assert!(ran.contains("1 passed"), "{ran}");
}

/// Lets the process have `more` bytes of address space than it has now.
fn allow_address_space(more: usize) {
    let status = std::fs::read_to_string("/proc/self/status").expect("procfs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmSize:"));
    let kib: usize = line
        .and_then(|line| line.split_whitespace().next()?.parse().ok())
        .expect("a size");
    let limit = libc::rlimit {
        rlim_cur: (kib * 1024 + more) as u64,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` is a valid `rlimit` for the length of the call.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const limit) };
    assert_eq!(set, 0, "the soft limit may be lowered");
}

/// A QoS 0 PUBLISH of 16 MiB.
fn publish() -> Vec<u8> {
    let mut frame = vec![0x30, 0xFF, 0xFF, 0xFF, 0x07, 0, 1, b't'];
    frame.resize(16 * MIB + 4, 0);
    frame
}

fn announce_many() {
    let broker: Broker = start(Config {
        shards: 1,
        memory_bytes: 128 * MIB,
        limits: Arc::new(ServerLimits {
            maximum_packet_size: 17 << 20,
            ..ServerLimits::default()
        }),
        ..config()
    });
    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("quiet", QoS::AtMostOnce);
    let frame = publish();
    allow_address_space(ROOM);

    let mut clients: Vec<Client> = Vec::new();
    for number in 0..CLIENTS {
        let mut client = v5(&format!("large-{number}")).connect(&broker);
        client.send_bytes(&frame[..5_000]);
        clients.push(client);
        bystander.ping();
    }

    bystander.publish("quiet", "still here", QoS::AtMostOnce);
    assert_eq!(bystander.message().text(), "still here");
    // The first one has its whole buffer, the last one grows.
    for client in [0, CLIENTS - 1] {
        let before = broker.stats().messages_received;
        clients[client].send_bytes(&frame[5_000..]);
        eventually("a frame is complete", || {
            broker.stats().messages_received == before + 1
        });
    }
    assert_eq!(broker.stats().clients_connected, CLIENTS as u64 + 1);
    assert_eq!(broker.stats().panics, 0);
}
