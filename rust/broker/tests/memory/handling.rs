//! What handling costs, in bytes that are allocated: it does not grow with what else waits.

use std::sync::atomic::Ordering;

use mqttcore_broker::{Action, Grant, Ruling};
use mqttcore_codec::Delivery;

use crate::common::{Plugin, allow, config, start_with, v3};
use crate::{ALLOCATED, Heap, KIB, frame};

/// A publish that a plugin is asked about makes those behind it wait; they are not copied each time.
#[test]
fn publishes_that_wait_for_a_plugin_are_copied_once() {
    const PUBLISHES: usize = 3_000;
    let _alone = Heap::alone();
    let plugin = Plugin::default()
        .authenticate(|_, reply| {
            reply.send(allow(Grant::default()));
        })
        .authorize(&[(Action::Publish, "#")], |_, reply| {
            reply.send(Ruling::Allow);
        });
    let broker = start_with(config(), plugin);
    let mut publisher = v3("publisher").username("user").connect(&broker);
    let bytes = frame("asked", Delivery::AtMostOnce, b"0123456789").repeat(PUBLISHES);
    publisher.ping();
    let before = ALLOCATED.load(Ordering::Relaxed);

    publisher.send_bytes(&bytes);
    publisher.ping();

    let each = (ALLOCATED.load(Ordering::Relaxed) - before) / PUBLISHES;
    assert_eq!(broker.stats().denied, 0);
    assert!(each < 2 * KIB, "{each} bytes a publish");
}
