//! A panic ends one connection and nothing else (abuse H13).
//!
//! Hooks run on shard threads. A hook that panics is a bug of ours, and it must stay a small one:
//! the shard goes on, its timers go on, nothing is left half done.

use std::sync::atomic::{AtomicBool, Ordering};

use mqttcore_broker::{Action, Broker, Config, EventKind, PluginEvent};
use mqttcore_codec::QoS;

use crate::common::{Client, Plugin, config, config_with_limits, eventually, start_with, v3, v5};

/// Whoever is called this is met with a panic.
const UNLUCKY: &str = "unlucky";

fn is_unlucky(client_id: &str) -> bool {
    client_id.starts_with(UNLUCKY)
}

/// The first event of `kind` about an unlucky client panics; later ones do not.
fn panicking_at(shards: usize, kind: EventKind) -> Broker {
    let done = AtomicBool::new(false);
    let plugin = Plugin::default().events(&[kind], move |event| {
        let first = is_unlucky(&event.client_id) && !done.swap(true, Ordering::Relaxed);
        assert!(!first, "a hook panics on purpose");
    });
    start_with(with_shards(shards), plugin)
}

fn with_shards(shards: usize) -> Config {
    Config { shards, ..config() }
}

fn panic_at(event: &PluginEvent) {
    assert!(!is_unlucky(&event.client_id), "a hook panics on purpose");
}

/// Clients that have nothing to do with it; enough for every shard to have some.
struct Bystanders(Vec<Client>);

impl Bystanders {
    fn new(broker: &Broker) -> Self {
        let connect = |index| {
            let mut client = v5(&format!("bystander-{index}")).connect(broker);
            client.subscribe("bystanders", QoS::AtLeastOnce);
            client
        };
        Self((0..16).map(connect).collect())
    }

    /// Every one of them is served, and a new client too.
    fn go_on(&mut self, broker: &Broker) {
        let mut publisher = v5("newcomer").connect(broker);
        publisher.publish_acknowledged("bystanders", "still here");
        publisher.disconnect();
        for client in &mut self.0 {
            assert_eq!(client.take_message().text(), "still here");
            client.ping();
        }
    }

    /// And nobody else is left.
    fn are_alone(&self, broker: &Broker) {
        let count = self.0.len() as u64;
        eventually("only the bystanders are left", || {
            let stats = broker.stats();
            (stats.clients_connected, stats.sessions, stats.subscriptions) == (count, count, count)
        });
        assert_eq!(broker.clients().len(), self.0.len());
    }
}

fn was_counted(broker: &Broker) {
    eventually("the panic is counted", || broker.stats().panics > 0);
}

#[test]
fn a_panic_in_authenticate_ends_that_connection_only() {
    let plugin = Plugin::default().authenticate(|_, _| panic!("a hook panics on purpose"));
    let broker = start_with(config(), plugin);
    let mut bystanders = Bystanders::new(&broker);

    for index in 0..8 {
        let client_id = format!("{UNLUCKY}-{index}");
        v5(&client_id).username("user").dial(&broker).until_closed();
    }

    eventually("each panic is counted", || broker.stats().panics == 8);
    bystanders.go_on(&broker);
    bystanders.are_alone(&broker);
}

#[test]
fn a_panic_in_authorize_ends_that_connection_only() {
    let plugin = Plugin::default().authorize(&[(Action::Publish, "$ask")], |_, _| {
        panic!("a hook panics on purpose")
    });
    let broker = start_with(config(), plugin);
    let mut bystanders = Bystanders::new(&broker);
    let mut client = v5(UNLUCKY).connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);

    client.publish("$ask", "", QoS::AtLeastOnce);

    client.until_closed();
    was_counted(&broker);
    bystanders.go_on(&broker);
    bystanders.are_alone(&broker);
}

#[test]
fn a_client_whose_task_panicked_leaves_its_will() {
    let plugin = Plugin::default().authorize(&[(Action::Publish, "$ask")], |_, _| {
        panic!("a hook panics on purpose")
    });
    let broker = start_with(config(), plugin);
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("will", QoS::AtMostOnce);
    let mut client = v5(UNLUCKY).will("will", "to you").connect(&broker);

    client.publish("$ask", "", QoS::AtMostOnce);

    assert_eq!(heir.message().text(), "to you");
}

#[test]
fn a_kept_session_survives_the_panic_of_its_connection() {
    let plugin = Plugin::default().authorize(&[(Action::Publish, "$ask")], |_, _| {
        panic!("a hook panics on purpose")
    });
    let broker = start_with(config(), plugin);
    let hello = v5(UNLUCKY).keeping_session_s(60);
    let mut client = hello.connect(&broker);
    client.subscribe("a", QoS::AtLeastOnce);
    client.publish("$ask", "", QoS::AtMostOnce);
    client.until_closed();

    v5("publisher")
        .connect(&broker)
        .publish_acknowledged("a", "meanwhile");
    let (mut client, present) = hello.connect_or_resume(&broker);

    assert!(present);
    assert_eq!(client.take_message().text(), "meanwhile");
}

/// Many names, so that it happens on every shard, to sockets from every shard.
#[test]
fn a_panic_when_a_client_connects_stops_no_shard() {
    let plugin = Plugin::default().events(&[EventKind::Connected], |event| panic_at(&event));
    let broker = start_with(config(), plugin);
    let mut bystanders = Bystanders::new(&broker);

    let unlucky: Vec<Client> = (0..16)
        .map(|index| v5(&format!("{UNLUCKY}-{index}")).dial(&broker))
        .collect();

    eventually("each panic is counted", || broker.stats().panics == 16);
    bystanders.go_on(&broker);
    drop(unlucky);
    bystanders.are_alone(&broker);
}

#[test]
fn a_panic_when_a_session_is_created_leaves_none_behind() {
    let broker = panicking_at(1, EventKind::SessionCreated);
    let mut bystanders = Bystanders::new(&broker);

    let client = v5(UNLUCKY).dial(&broker);

    was_counted(&broker);
    drop(client);
    bystanders.go_on(&broker);
    bystanders.are_alone(&broker);
}

#[test]
fn a_panic_when_a_client_leaves_leaves_no_session_behind() {
    let broker = panicking_at(4, EventKind::Disconnected);
    let mut bystanders = Bystanders::new(&broker);

    v5(UNLUCKY).connect(&broker).vanish();

    was_counted(&broker);
    bystanders.go_on(&broker);
    bystanders.are_alone(&broker);
}

#[test]
fn a_panic_when_a_client_leaves_does_not_take_its_will() {
    let broker = panicking_at(4, EventKind::Disconnected);
    let mut heir = v5("heir").connect(&broker);
    heir.subscribe("will", QoS::AtMostOnce);

    v5(UNLUCKY).will("will", "to you").connect(&broker).vanish();

    assert_eq!(heir.message().text(), "to you");
}

#[test]
fn a_panic_at_a_takeover_harms_neither_shard_nor_session() {
    let broker = panicking_at(4, EventKind::SessionTakenOver);
    let mut bystanders = Bystanders::new(&broker);
    let old = v5(UNLUCKY).connect(&broker);
    let new = v5(UNLUCKY).dial(&broker);

    was_counted(&broker);
    bystanders.go_on(&broker);
    drop((old, new));
    v5(UNLUCKY).connect(&broker).disconnect();
    bystanders.are_alone(&broker);
}

#[test]
fn a_panic_about_a_subscription_leaves_none_behind() {
    let broker = panicking_at(4, EventKind::Subscribed);
    let mut bystanders = Bystanders::new(&broker);
    let mut client = v5(UNLUCKY).connect(&broker);

    client.send_subscribe(&["a", "b"], QoS::AtMostOnce);

    was_counted(&broker);
    drop(client);
    bystanders.go_on(&broker);
    bystanders.are_alone(&broker);
}

#[test]
fn a_panic_about_an_expired_session_does_not_stop_the_clock() {
    let plugin = Plugin::default().events(&[EventKind::SessionExpired], |event| panic_at(&event));
    let broker = start_with(with_shards(1), plugin);
    let mut bystanders = Bystanders::new(&broker);

    // Their ends are timers of one shard, some of them at the same tick.
    for index in 0..5 {
        for name in [UNLUCKY, "mortal"] {
            let hello = v5(&format!("{name}-{index}")).expiring_s(1);
            hello.connect(&broker).vanish();
        }
    }

    eventually("each panic is counted", || broker.stats().panics == 5);
    bystanders.are_alone(&broker);
    bystanders.go_on(&broker);
}

#[test]
fn a_panic_about_one_clients_dropped_message_costs_nobody_theirs() {
    let plugin = Plugin::default().events(&[EventKind::Dropped], |event| panic_at(&event));
    let no_queue = config_with_limits(|limits| limits.queue_messages = 0);
    let broker = start_with(no_queue, plugin);
    let unlucky = |index| v3(&format!("{UNLUCKY}-{index}")).keeping_session_s(60);
    for index in 0..16 {
        let mut client = unlucky(index).connect(&broker);
        client.subscribe("bystanders", QoS::AtLeastOnce);
        client.disconnect();
    }
    let mut bystanders = Bystanders::new(&broker);

    // One message for all of them: those that can have it get it.
    bystanders.go_on(&broker);

    eventually("each panic is counted", || broker.stats().panics == 16);
    for index in 0..16 {
        let hello = unlucky(index).clean_start();
        hello.connect(&broker).disconnect();
    }
    bystanders.are_alone(&broker);
}

#[test]
fn a_broker_in_which_hooks_panicked_stops_as_ever() {
    let plugin =
        Plugin::default().events(&[EventKind::Connected, EventKind::Disconnected], |event| {
            panic_at(&event);
        });
    let broker = start_with(config(), plugin);
    let clients: Vec<Client> = (0..16)
        .map(|index| v5(&format!("{UNLUCKY}-{index}")).dial(&broker))
        .collect();
    was_counted(&broker);

    drop(clients);

    crate::common::within(crate::common::DEADLINE, "stop", move || {
        broker.stop(crate::common::DEADLINE);
    });
}
