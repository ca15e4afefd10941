//! How fast one client is read (abuse A16, D21, E12).

use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_broker::{AddressLimits, Broker, ClientRates, Config, Grant, GrantLimits};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{
    Client, Plugin, Received, allow, config, deep_queues, figure, start, start_with, v3, v5,
};

const NONE: ClientRates = ClientRates {
    control_packets: 0,
    messages: 0,
    anonymous_messages: 0,
    bytes: 0,
    retained_bytes: 0,
};

/// With these rates, for clients on this machine too.
fn rated(client_rates: ClientRates) -> Config {
    Config {
        client_rates,
        address_limits: AddressLimits {
            exempt: Vec::new(),
            ..AddressLimits::default()
        },
        ..deep_queues()
    }
}

/// A broker that gives users `limits`, and everything else to everybody.
fn with_users(config: Config, limits: GrantLimits) -> Broker {
    let grant = Grant {
        limits,
        ..Grant::everything()
    };
    let plugin = Plugin::default().authenticate(move |_, reply| {
        reply.send(allow(grant.clone()));
    });
    start_with(config, plugin)
}

/// How long `count` messages of `payload` bytes take to one subscriber; all of them arrive.
fn time_of(broker: &Broker, publisher: &mut Client, count: usize, payload: usize) -> Duration {
    let mut subscriber = v5("subscriber").connect(broker);
    subscriber.subscribe("a", QoS::AtMostOnce);
    let start = Instant::now();
    for _ in 0..count {
        publisher.publish("a", vec![b'x'; payload], QoS::AtMostOnce);
    }
    for _ in 0..count {
        assert_eq!(subscriber.take_message().payload.len(), payload);
    }
    start.elapsed()
}

#[test]
fn clients_without_a_user_name_have_a_rate_of_their_own() {
    let rates = ClientRates {
        anonymous_messages: 20,
        ..NONE
    };
    let broker = with_users(rated(rates), GrantLimits::default());
    let mut anonymous = v3("anonymous").connect(&broker);

    // One second's worth is free.
    assert!(time_of(&broker, &mut anonymous, 40, 1) >= Duration::from_secs(1));
    anonymous.ping();
    assert!(figure(&broker, "held_back_messages") > 0);
    let held_back = figure(&broker, "held_back_messages");

    let start = Instant::now();
    let mut user = v3("user").username("user").connect(&broker);
    time_of(&broker, &mut user, 2_000, 1);
    // At the rate of the others it takes 99 s.
    assert!(start.elapsed() < Duration::from_secs(60));
    assert_eq!(figure(&broker, "held_back_messages"), held_back);
}

#[test]
fn a_grant_says_more_than_the_configuration() {
    let rates = ClientRates {
        messages: 1_000_000,
        ..NONE
    };
    let limits = GrantLimits {
        messages_per_second: Some(20),
        ..GrantLimits::default()
    };
    let broker = with_users(rated(rates), limits);
    let mut user = v3("user").username("user").connect(&broker);

    assert!(time_of(&broker, &mut user, 40, 1) >= Duration::from_secs(1));
}

#[test]
fn bytes_a_second_hold_back_large_messages() {
    let broker = start(rated(ClientRates {
        bytes: 100_000,
        ..NONE
    }));
    let mut publisher = v3("publisher").connect(&broker);

    assert!(time_of(&broker, &mut publisher, 30, 10_000) >= Duration::from_secs(2));
    assert!(figure(&broker, "held_back_bytes") > 0);
}

#[test]
fn exempt_addresses_have_no_rates() {
    let broker = start(Config {
        client_rates: ClientRates {
            control_packets: 1,
            messages: 1,
            anonymous_messages: 1,
            bytes: 1,
            retained_bytes: 1,
        },
        ..config()
    });
    let mut client = v5("client").connect(&broker);

    (0..100).for_each(|_| client.ping());
    assert!(time_of(&broker, &mut client, 100, 1) < Duration::from_secs(60));
}

#[test]
fn too_many_control_packets_are_answered_later_and_others_at_once() {
    let broker = start(rated(ClientRates {
        control_packets: 50,
        ..NONE
    }));
    let mut hasty = v5("hasty").connect(&broker);
    let start = Instant::now();
    hasty.send_bytes(&[0xC0, 0].repeat(140));
    let mut bystander = v5("bystander").connect(&broker);
    bystander.ping();

    for _ in 0..140 {
        assert_eq!(hasty.receive(), Received::PingResp);
    }
    // 51 in each of the first two seconds since CONNACK, of which the first had begun.
    assert!(start.elapsed() > Duration::from_secs(1));
    hasty.ping();
    assert!(figure(&broker, "held_back_control_packets") > 0);
}

#[test]
fn a_flood_of_control_packets_ends_with_0x96() {
    let broker = start(rated(ClientRates {
        control_packets: 10,
        ..NONE
    }));
    let mut flood = v5("flood").connect(&broker);
    flood.send_bytes(&[0xC0, 0].repeat(1_000));

    let received = flood.until_closed();

    let (last, answers) = received.split_last().expect("packets");
    assert_eq!(
        *last,
        Received::Disconnect(ReasonCode::MESSAGE_RATE_TOO_HIGH)
    );
    assert!(answers.len() <= 60, "{} answers", answers.len());
    assert_eq!(broker.stats().violations, 1);
}

/// Retains `count` messages of `bytes` each below `kept`.
fn retain(broker: &Broker, count: usize, bytes: usize) {
    let mut publisher = v5("publisher").connect(broker);
    for number in 0..count {
        let topic = format!("kept/{number}");
        publisher.publish_retained(&topic, vec![b'x'; bytes], QoS::AtMostOnce);
    }
    publisher.ping();
    publisher.disconnect();
}

/// How long it takes until a client that subscribes `times` in a row has got `count` retained messages each time.
fn time_of_replays(client: &mut Client, times: usize, count: usize) -> Duration {
    let start = Instant::now();
    for _ in 0..times {
        client.subscribe("kept/+", QoS::AtMostOnce);
        (0..count).for_each(|_| drop(client.take_message()));
    }
    start.elapsed()
}

#[test]
fn e16_a_client_that_subscribes_again_and_again_gets_retained_messages_at_its_rate() {
    let broker = start(rated(ClientRates {
        retained_bytes: 50_000,
        ..NONE
    }));
    retain(&broker, 10, 10_000);
    let mut greedy = v5("greedy").connect(&broker);

    // Those of four seconds are free, and a turn may take more than is left.
    assert!(time_of_replays(&mut greedy, 5, 10) >= Duration::from_secs(4));

    // What others publish does not wait for them.
    greedy.subscribe("kept/+", QoS::AtMostOnce);
    let mut other = v5("other").connect(&broker);
    other.publish("kept/live", "live", QoS::AtMostOnce);
    while greedy.take_message().text() != "live" {}
    other.ping();
}

#[test]
fn e16_each_connection_has_a_rate_of_its_own() {
    let rates = ClientRates {
        retained_bytes: 100,
        ..NONE
    };
    let broker = start(rated(rates));
    retain(&broker, 1, 100);
    let start = Instant::now();

    for number in 0..100 {
        let mut client = v5(&format!("c{number}")).connect(&broker);
        time_of_replays(&mut client, 1, 1);
    }

    // With one rate for all they take 96 s.
    assert!(start.elapsed() < Duration::from_secs(60));
}

/// Its acknowledgements and PINGREQ are read, however long it has to wait.
#[test]
fn e16_a_client_that_waits_for_retained_messages_is_read() {
    let broker = start(rated(ClientRates {
        retained_bytes: 100,
        ..NONE
    }));
    retain(&broker, 2, 100_000);
    let mut waiting = v5("waiting").connect(&broker);
    waiting.subscribe("kept/0", QoS::AtMostOnce);
    drop(waiting.take_message());

    waiting.subscribe("kept/1", QoS::AtMostOnce);

    // A thousand seconds early, and in front of the message.
    waiting.ping();
    assert_eq!(figure(&broker, "held_back_retained_bytes"), 1);
}

#[test]
fn e16_a_reload_leaves_the_rate_of_a_connection() {
    let broker = start(rated(NONE));
    retain(&broker, 1, 10_000);
    let mut before = v5("before").connect(&broker);
    let slow = rated(ClientRates {
        retained_bytes: 1,
        ..NONE
    });

    broker
        .reload(&slow, Arc::new(Plugin::default()))
        .expect("reloaded");

    time_of_replays(&mut before, 10, 1);
}
