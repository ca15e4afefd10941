//! What handling costs, in bytes that are allocated: it does not grow with what else waits.

use std::sync::atomic::Ordering;

use mqttcore_broker::{Action, AuthorizeDecision, Grant};
use mqttcore_codec::{PublishQoS, QoS};

use crate::common::{Plugin, allow, config, eventually, start_with, v3, v5};
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
            reply.send(AuthorizeDecision::Allow);
        });
    let broker = start_with(config(), plugin);
    let mut publisher = v3("publisher").username("user").connect(&broker);
    let bytes = frame("asked", PublishQoS::AtMostOnce, b"0123456789").repeat(PUBLISHES);
    publisher.ping();
    let before = ALLOCATED.load(Ordering::Relaxed);

    publisher.send_bytes(&bytes);
    publisher.ping();

    let each = (ALLOCATED.load(Ordering::Relaxed) - before) / PUBLISHES;
    assert_eq!(broker.stats().denied, 0);
    assert!(each < 2 * KIB, "{each} bytes a publish");
}

/// If no subscription was lost, only deny rules apply to queued messages.
#[test]
fn a_resume_with_deny_rules_costs_the_same_however_many_subscriptions_there_are() {
    let _alone = Heap::alone();
    let plugin = Plugin::default().authenticate(|_, reply| {
        reply.send(allow(Grant {
            deny: vec!["secret/#".into()],
            ..Grant::everything()
        }));
    });
    let broker = start_with(config(), plugin);
    let resume_once = |id: &str| {
        let hello = v5(id).username("user").keeping_session_s(60);
        let mut publisher = v5("publisher").username("user").connect(&broker);
        for _ in 0..20 {
            publisher.publish_acknowledged(&format!("{id}/0"), "waits");
        }
        publisher.disconnect();
        eventually("both are away", || broker.stats().clients_connected == 0);
        let before = ALLOCATED.load(Ordering::Relaxed);
        let mut client = hello.connect(&broker);
        (0..20).for_each(|_| drop(client.message()));
        client.disconnect();
        eventually("it is away", || broker.stats().clients_connected == 0);
        ALLOCATED.load(Ordering::Relaxed) - before
    };
    // The least of five: work of each second may fall into one.
    let resume = |id: &str, subscriptions: usize| {
        let hello = v5(id).username("user").keeping_session_s(60);
        let mut client = hello.connect(&broker);
        for number in 0..subscriptions {
            client.subscribe(&format!("{id}/{number}"), QoS::AtLeastOnce);
        }
        client.disconnect();
        (0..5).map(|_| resume_once(id)).min().expect("five")
    };
    resume("warm", 10);

    let (few, many) = (resume("few", 10), resume("many", 1_000));

    assert!(many < few + 8 * KIB, "{few} and {many} bytes");
}
