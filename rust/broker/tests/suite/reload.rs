//! What a reload changes, and what it must not.

use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant, Hooks, Listener};
use mqttcore_codec::QoS;

use crate::common::{Plugin, Received, config, v5};

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
