//! `stats()` and `clients()` tell the truth, above all after everybody has left.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use mqttcore_broker::{
    AuthorizeDecision, AuthorizeRequest, Broker, BrokerHandle, ClientInfo, Config, EventKind,
    Extensions, Figure, Figures, HookInterests, Hooks, LogLine, Login, LoginDecision, NoHooks,
    PluginEvent, Reply, Service, ServiceError, Stats,
};
use mqttcore_codec::{Properties, ProtocolVersion, QoS, ReasonCode};

use crate::common::{
    DEADLINE, Dice, Plugin, Received, config, eventually, figure, start, start_with, v3, v5,
};

/// Nothing is left of anybody.
fn is_empty(broker: &Broker) -> bool {
    let stats = broker.stats();
    (stats.clients_connected, stats.sessions, stats.subscriptions) == (0, 0, 0)
}

/// Clients that come, do what they like, and leave in every way there is.
fn churn(broker: &Broker, thread: usize, rounds: usize) {
    let mut dice = Dice::new(thread as u64 * 77 + 1);
    for round in 0..rounds {
        let name = format!("churn-{thread}-{}", round % 10);
        let hello = match dice.below(3) {
            0 => v3(&name),
            1 => v5(&name),
            _ => v5(&name).will("churn/will", "gone"),
        };
        let mut client = hello.connect(broker);
        client.send_subscribe(
            &["churn/#", "$share/group/churn/+", &name],
            QoS::AtLeastOnce,
        );
        client.publish("churn/a", "x", QoS::AtMostOnce);
        match dice.below(5) {
            0 => client.vanish(),
            1 => client.disconnect(),
            2 => drop(client),
            // A second CONNECT: thrown out.
            3 => client.send_bytes(&hello.bytes()),
            // Taken over in the next round, or never.
            _ => client.send_bytes(b"\xC0\x00"),
        }
    }
}

#[test]
fn after_churn_nothing_is_left() {
    let broker = start(config());

    thread::scope(|scope| {
        for thread in 0..4 {
            let broker = &broker;
            scope.spawn(move || churn(broker, thread, 100));
        }
    });

    eventually("everybody is gone", || is_empty(&broker));
    assert!(broker.clients().is_empty());
    let stats = broker.stats();
    assert_eq!(stats.panics, 0);
    assert_eq!(stats.connections_accepted, 400);
}

/// The places of connections and of pending ones come back, each of them.
#[test]
fn after_churn_all_places_are_free() {
    const PLACES: usize = 20;
    let broker = start(Config {
        connections: PLACES,
        pending_connections: PLACES,
        sessions: PLACES,
        ..config()
    });
    churn(&broker, 0, 15);
    eventually("everybody is gone", || is_empty(&broker));
    let mut refused = v5("").open(broker.addresses()[0]);
    refused.send_bytes(b"\x20");
    refused.until_closed();
    drop(refused);

    // A place is given back a moment after its client is gone.
    let mut clients = Vec::new();
    eventually("all places are taken", || {
        let name = format!("client-{}", clients.len());
        let mut client = v5(&name).dial(&broker);
        if matches!(client.next_packet(), Some(Received::ConnAck { .. })) {
            clients.push(client);
        }
        clients.len() == PLACES
    });

    assert_eq!(v5("too many").dial(&broker).until_closed(), []);
    for client in &mut clients {
        client.ping();
    }
}

/// What is told about a client once it is `settled`; messages from other shards take a moment.
fn listed(broker: &Broker, name: &str, settled: impl Fn(&ClientInfo) -> bool) -> ClientInfo {
    let mut found = None;
    eventually("it is listed like that", || {
        let clients = broker.clients().into_iter();
        found = clients
            .filter(|info| &*info.client_id == name)
            .find(&settled);
        found.is_some()
    });
    found.expect("it is listed")
}

#[test]
fn a_client_is_listed_as_it_is() {
    let broker = start_with(config(), Plugin::welcoming());
    let mut client = v5("one")
        .username("user")
        .keep_alive_s(33)
        .keeping_session_s(60)
        .receive_maximum(1)
        .connect(&broker);
    client.subscribe("a/+", QoS::AtLeastOnce);
    client.subscribe("$share/team/b", QoS::AtMostOnce);
    v3("publisher")
        .connect(&broker)
        .publish_numbers("a/b", QoS::AtLeastOnce, 3);

    let info = listed(&broker, "one", |info| {
        (info.in_flight, info.queued) == (1, 2)
    });

    assert_eq!(info.username.as_deref(), Some("user"));
    assert!(info.connected);
    assert!(info.peer.ip().is_some_and(|ip| ip.is_loopback()));
    assert_eq!(&*info.listener, "test");
    assert_eq!((info.version, info.keep_alive_s), (ProtocolVersion::V5, 33));
    assert!(info.connected_for < DEADLINE);
    let mut filters = info.subscriptions.clone();
    filters.sort_unstable();
    assert_eq!(filters, ["$share/team/b", "a/+"]);
}

#[test]
fn a_session_without_connection_is_listed_as_away() {
    let broker = start(config());
    let mut client = v5("one").keeping_session_s(60).connect(&broker);
    client.subscribe("a", QoS::AtLeastOnce);
    client.disconnect();
    v3("publisher")
        .connect(&broker)
        .publish_numbers("a", QoS::AtLeastOnce, 3);

    let info = listed(&broker, "one", |info| {
        (info.in_flight, info.queued) == (0, 3)
    });

    assert!(!info.connected);
    assert_eq!(info.connected_for, Duration::ZERO);
    eventually("only the session is left", || {
        let stats = broker.stats();
        (stats.clients_connected, stats.sessions, stats.subscriptions) == (0, 1, 1)
    });
}

#[test]
fn an_unsubscribed_filter_is_not_counted() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);
    client.subscribe("a", QoS::AtLeastOnce);
    assert_eq!(broker.stats().subscriptions, 1);

    let gone = client.unsubscribe("a");
    let unknown = client.unsubscribe("a");

    assert_eq!(gone, ReasonCode::SUCCESS);
    assert_eq!(unknown, ReasonCode::NO_SUBSCRIPTION_EXISTED);
    assert_eq!(broker.stats().subscriptions, 0);
}

#[test]
fn packets_messages_and_bytes_are_counted_exactly() {
    let broker = start(config());
    let mut client = v3("one").connect(&broker);
    client.subscribe("t", QoS::AtMostOnce);
    eventually("CONNACK and SUBACK are counted", || {
        broker.stats().bytes_sent == 4 + 5
    });
    let before = broker.stats();

    // PUBLISH of 6 bytes, three times; each comes back as it is.
    client.send_bytes(&b"\x30\x04\x00\x01t!".repeat(3));
    for _ in 0..3 {
        client.message();
    }

    let received = |stats: Stats| {
        (
            stats.packets_received,
            stats.messages_received,
            stats.bytes_received,
        )
    };
    let sent = |stats: Stats| (stats.packets_sent, stats.messages_sent, stats.bytes_sent);
    let (a, b) = (received(before), received(broker.stats()));
    assert_eq!((b.0 - a.0, b.1 - a.1, b.2 - a.2), (3, 3, 18));
    let a = sent(before);
    eventually("all is counted", || {
        let b = sent(broker.stats());
        (b.0 - a.0, b.1 - a.1, b.2 - a.2) == (3, 3, 18)
    });
}

#[test]
fn a_publish_from_inside_says_how_many_it_matched() {
    let broker = start(config());
    let mut clients: Vec<_> = (0..16)
        .map(|index| {
            let mut client = v5(&format!("client-{index}")).connect(&broker);
            client.subscribe("a", QoS::AtLeastOnce);
            client
        })
        .collect();

    let matched = broker.publish("a", b"x", QoS::AtLeastOnce, false, Properties::EMPTY);

    assert_eq!(matched, Ok(16));
    for client in &mut clients {
        assert_eq!(client.take_message().text(), "x");
    }
    assert!(
        broker
            .publish("a/+", b"", QoS::AtMostOnce, false, Properties::EMPTY)
            .is_err()
    );
}

#[test]
fn an_administrator_disconnects_one_client() {
    let broker = start(config());
    let mut one = v5("one").connect(&broker);
    let mut other = v5("other").connect(&broker);

    let found = broker.disconnect("one", ReasonCode::ADMINISTRATIVE_ACTION);
    let unknown = broker.disconnect("nobody", ReasonCode::ADMINISTRATIVE_ACTION);

    assert_eq!((found, unknown), (true, false));
    let disconnect = Received::Disconnect(ReasonCode::ADMINISTRATIVE_ACTION);
    assert_eq!(one.until_closed(), [disconnect]);
    other.ping();
    assert!(!broker.disconnect("one", ReasonCode::ADMINISTRATIVE_ACTION));
}

#[test]
fn a_reason_that_no_disconnect_can_give_disconnects_all_the_same() {
    let broker = start(config());
    let mut client = v5("one").connect(&broker);

    assert!(broker.disconnect("one", ReasonCode::PACKET_IDENTIFIER_NOT_FOUND));

    let disconnect = Received::Disconnect(ReasonCode::UNSPECIFIED_ERROR);
    assert_eq!(client.until_closed(), [disconnect]);
}

#[test]
fn the_events_of_a_client_come_in_order() {
    let (sender, events) = channel();
    let kinds = [
        EventKind::SessionCreated,
        EventKind::Connected,
        EventKind::Subscribed,
        EventKind::Unsubscribed,
        EventKind::Disconnected,
        EventKind::SessionResumed,
    ];
    let plugin = Plugin::default().events(&kinds, move |event| {
        let _ = sender.send((event.kind, event.topic));
    });
    let broker = start_with(config(), plugin);
    let hello = v5("one").keeping_session_s(60);

    let mut client = hello.connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);
    client.unsubscribe("a");
    client.disconnect();
    hello.connect(&broker).disconnect();

    let told: Vec<_> = (0..8)
        .map(|_| events.recv_timeout(DEADLINE).expect("told"))
        .collect();
    let a = || Some("a".into());
    let expected = [
        (EventKind::SessionCreated, None),
        (EventKind::Connected, None),
        (EventKind::Subscribed, a()),
        (EventKind::Unsubscribed, a()),
        (EventKind::Disconnected, None),
        (EventKind::SessionResumed, None),
        (EventKind::Connected, None),
        (EventKind::Disconnected, None),
    ];
    assert_eq!(told, expected);
}

#[test]
fn a_refused_login_is_reported() {
    let (sender, events) = channel();
    let plugin = Plugin::default().events(&[EventKind::AuthFailed], move |event| {
        let _ = sender.send((event.client_id, event.reason));
    });
    let mut config = config();
    config.listeners[0].anonymous = None;
    let broker = start_with(config, plugin);

    v5("one").username("nobody").refused(&broker);

    let told = events.recv_timeout(DEADLINE).expect("told");
    assert_eq!(told, ("one".into(), Some(ReasonCode::NOT_AUTHORIZED)));
}

#[test]
fn the_broker_publishes_its_figures() {
    let broker = start(Config {
        sys_interval: Some(Duration::from_millis(100)),
        ..config()
    });
    let mut client = v5("one").connect(&broker);
    client.subscribe("$SYS/broker/clients/connected", QoS::AtMostOnce);

    // The retained one may be from before this client came.
    let mut text = String::new();
    while text != "1" {
        let message = client.message();
        assert_eq!(message.topic, "$SYS/broker/clients/connected");
        text = message.text().into();
    }
}

#[test]
fn a_wildcard_does_not_reach_the_brokers_figures() {
    let broker = start(Config {
        sys_interval: Some(Duration::from_millis(100)),
        ..config()
    });
    let mut client = v5("one").connect(&broker);
    client.subscribe("#", QoS::AtMostOnce);

    client.hears_nothing_for(Duration::from_millis(250));

    client.ping();
}

/// What a shard remembers of a hot topic is used, and is void with the next subscription.
#[test]
fn receivers_of_a_hot_topic_are_remembered_until_somebody_subscribes() {
    let broker = start(Config {
        shards: 1,
        ..config()
    });
    let mut first = v5("first").connect(&broker);
    first.subscribe("hot", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);
    // The first matches of a shard only show that it has some.
    for _ in 0..300 {
        publisher.publish_acknowledged("hot", "");
        first.take_message();
    }
    assert!(broker.stats().matches_cached > 0);

    let mut second = v5("second").connect(&broker);
    second.subscribe("+", QoS::AtLeastOnce);
    for _ in 0..2 {
        publisher.publish_acknowledged("hot", "");
        first.take_message();
        second.take_message();
    }

    first.disconnect();
    eventually("it is forgotten", || broker.stats().subscriptions == 1);
    let before = broker.stats().matches_cached;
    for _ in 0..3 {
        publisher.publish_acknowledged("hot", "");
        second.take_message();
    }
    assert_eq!(broker.stats().matches_cached - before, 2);
}

/// A service that holds 1 MiB, and counts how often it is asked for its figures.
#[derive(Default)]
struct Probe {
    asked: AtomicUsize,
}

impl Figures for Probe {
    fn figures(&self) -> Vec<Figure> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        vec![Figure::new("probe_items", "Items of the probe.", 7)]
    }

    fn memory_bytes(&self) -> usize {
        1 << 20
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl Service for Probe {
    fn start(&self, _: &BrokerHandle, _: &Config) -> Result<(), ServiceError> {
        Ok(())
    }

    fn begin_to_stop(&self, _: Duration) {}

    fn stop(&self) {}
}

#[test]
fn the_budget_asks_a_service_for_its_memory_and_not_for_its_figures() {
    let probe: Arc<Probe> = Arc::default();
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let extensions = Extensions {
        services: vec![Arc::clone(&probe) as _],
        ..Extensions::default()
    };
    let broker = Broker::start_with(config(), &hooks, extensions).expect("the broker starts");

    eventually("its memory is counted", || {
        broker.stats().memory_tables_bytes >= 1 << 20
    });

    assert_eq!(probe.asked.load(Ordering::SeqCst), 0);
    assert_eq!(figure(&broker, "probe_items"), 7);
    assert_eq!(probe.asked.load(Ordering::SeqCst), 1);
}

/// A plugin whose password hashes hold a quarter of the memory budget.
struct Hashing;

impl Hooks for Hashing {
    fn interests(&self) -> HookInterests {
        NoHooks.interests()
    }

    fn authenticate(&self, login: Arc<Login>, reply: Reply<LoginDecision>) {
        NoHooks.authenticate(login, reply);
    }

    fn authorize(&self, ask: AuthorizeRequest, reply: Reply<AuthorizeDecision>) {
        NoHooks.authorize(ask, reply);
    }

    fn password_bytes(&self, budget: usize) -> usize {
        budget / 4
    }

    fn event(&self, _: PluginEvent) {}

    fn log(&self, _: LogLine) {}
}

#[test]
fn the_budget_counts_the_memory_of_password_hashes() {
    let hooks: Arc<dyn Hooks> = Arc::new(Hashing);
    let broker = Broker::start(config(), &hooks).expect("the broker starts");

    eventually("hashes are counted", || {
        let stats = broker.stats();
        let wanted = stats.memory_budget_bytes / 4;
        stats.memory_passwords_bytes == wanted && stats.memory_used_bytes >= wanted
    });
}
