//! What a reload changes, and what it must not.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant, Hooks, Listener};
use mqttcore_codec::QoS;

use crate::common::{Plugin, Received, config, eventually, v5};

fn listener(name: &str, anonymous: Option<Grant>) -> Listener {
    Listener {
        anonymous,
        ..Listener::new(name, ([127, 0, 0, 1], 0).into())
    }
}

#[test]
fn listeners_keep_their_grants_by_name_whatever_their_order() {
    let public = listener("public", None);
    let internal = listener("internal", Some(Grant::everything()));
    let with = |listeners: Vec<Listener>| Config {
        listeners,
        ..config()
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let broker = Broker::start(with(vec![public.clone(), internal.clone()]), &hooks).unwrap();
    let before = v5("a").refused(&broker);

    broker
        .reload(&with(vec![internal, public]), hooks)
        .expect("the reload is fine");

    assert_eq!((before, v5("a").refused(&broker)), (0x87, 0x87));
}

#[test]
fn sys_topics_can_be_switched_on() {
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let off = Config {
        sys_interval: None,
        ..config()
    };
    let on = Config {
        sys_interval: Some(Duration::from_millis(50)),
        ..config()
    };
    let broker = Broker::start(off, &hooks).unwrap();
    let mut client = v5("a").connect(&broker);
    client.subscribe("$SYS/broker/version", QoS::AtMostOnce);
    client.ping();

    broker.reload(&on, hooks).expect("the reload is fine");

    assert!(client.message().text().starts_with("mqttcore "));
}

/// It used to refuse every new client until a restart.
#[test]
fn a_listener_with_another_name_lets_clients_in_as_its_rules_say() {
    let with = |name: &str| Config {
        listeners: vec![listener(name, Some(Grant::everything()))],
        ..config()
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let broker = Broker::start(with("old"), &hooks).unwrap();

    for name in ["new", "newer"] {
        let places = broker.reload(&with(name), Arc::clone(&hooks)).unwrap();

        assert_eq!(places, [Some(0)]);
        let mut client = v5(name).connect(&broker);
        client.ping();
        let clients = broker.clients();
        let seen: Vec<&str> = clients
            .iter()
            .map(|client| client.listener.as_str())
            .collect();
        assert_eq!(seen, [name]);
        client.disconnect();
        eventually("it has left", || broker.clients().is_empty());
    }
}

#[test]
fn a_listener_that_is_taken_out_lets_no_anonymous_client_in() {
    let everything = || Some(Grant::everything());
    let with = |listeners: Vec<Listener>| Config {
        listeners,
        ..config()
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let other = Listener {
        address: SocketAddr::from(([127, 0, 0, 1], 1)).into(),
        ..listener("other", everything())
    };
    let broker = Broker::start(with(vec![listener("own", everything())]), &hooks).unwrap();

    let places = broker.reload(&with(vec![other]), hooks).unwrap();

    assert_eq!(places, [None]);
    assert_eq!(v5("a").refused(&broker), 0x87);
}

#[test]
fn a_client_that_is_connected_stays_so() {
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let broker = Broker::start(config(), &hooks).unwrap();
    let mut client = v5("a").connect(&broker);

    broker.reload(&config(), hooks).expect("the reload is fine");

    client.ping();
    let mut other = v5("b").dial(&broker);
    assert!(matches!(other.receive(), Received::ConnAck { reason, .. } if !reason.is_error()));
}
