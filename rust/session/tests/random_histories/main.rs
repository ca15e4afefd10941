//! A session against a reference client, over random histories in which the connection is cut
//! at any point, the broker dies at any point, and tokens are confirmed late.
//!
//! What must hold: QoS 1 arrives at least once and QoS 2 exactly once, both ways; first
//! deliveries keep their order; nothing leaves before its token is confirmed; the send quotas are
//! kept; no identifier is on two open messages; DUP tells the truth.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../common/mod.rs"]
mod common;

mod book;
mod client;
mod world;

use mqttcore_codec::QoS;
use proptest::prelude::*;

use world::World;

/// One thing that happens.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// A message for the client.
    Deliver(QoS),
    /// The client publishes.
    Publish(QoS),
    /// The session's packets reach the client, this many at most.
    Down(u8),
    /// The client's packets reach the session, this many at most.
    Up(u8),
    /// The client acknowledges this many of the packets that it has.
    Work(u8),
    /// The engine, if it is slow, accepts the publish that it holds.
    Accept,
    /// The disk has caught up with this many tokens.
    Confirm(u8),
    /// The connection is cut, and what is under way is lost.
    Cut,
    /// The broker dies, and a new one begins with what the store kept: at least what was
    /// confirmed, and as much of the rest as this decides.
    Crash(u8),
    /// The client comes back, with this Receive Maximum.
    Return(u8),
}

fn step() -> impl Strategy<Value = Step> {
    let qos = prop_oneof![Just(QoS::AtLeastOnce), Just(QoS::ExactlyOnce)];
    prop_oneof![
        4 => qos.clone().prop_map(Step::Deliver),
        4 => qos.prop_map(Step::Publish),
        4 => (1..6_u8).prop_map(Step::Down),
        4 => (1..6_u8).prop_map(Step::Up),
        4 => (1..6_u8).prop_map(Step::Work),
        2 => Just(Step::Accept),
        4 => (1..6_u8).prop_map(Step::Confirm),
        1 => Just(Step::Cut),
        1 => any::<u8>().prop_map(Step::Crash),
        2 => (1..5_u8).prop_map(Step::Return),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_history_ends_well(
        durable in any::<bool>(),
        slow in any::<bool>(),
        max_inflight_bytes in prop_oneof![Just(0_usize), 1..12_usize],
        steps in prop::collection::vec(step(), 0..200),
    ) {
        let mut world = World::new(durable, slow, max_inflight_bytes);
        world.settle();

        for step in &steps {
            world.run(step);
        }
        world.finish();

        world.check_the_end();
    }
}
