//! Wills of many clients that are lost at once (abuse F09).

use std::collections::BTreeSet;
use std::thread::JoinHandle;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant, SessionPolicy, Takeover};
use mqttcore_codec::QoS;

use crate::common::{
    Client, DEADLINE, HOUR_S, Hello, Home, Plugin, allow, back, config, deep_queues, eventually,
    start, start_with, v5, within,
};

const LOST: usize = 30;

/// One shard that publishes so many wills a second.
fn slowly(wills_per_second: u32) -> Config {
    Config {
        wills_per_second,
        shards: 1,
        ..config()
    }
}

fn with_will(number: usize) -> Hello {
    let text = number.to_string();
    let hello = v5(&format!("with a will {number}"));
    hello.will("will", &text).will_qos(QoS::AtLeastOnce)
}

/// Connects these clients, and cuts them off together.
fn lose(broker: &Broker, clients: impl IntoIterator<Item = Hello>) {
    let clients: Vec<Client> = clients
        .into_iter()
        .map(|hello| hello.connect(broker))
        .collect();
    clients.into_iter().for_each(Client::vanish);
}

/// Loses [`LOST`] clients, most of whose wills wait.
fn lose_and_wait(broker: &Broker, keeping_session_s: u32) {
    let others = broker.stats().clients_connected;
    let hello = |number| with_will(number).keeping_session_s(keeping_session_s);
    lose(broker, (0..LOST).map(hello));
    eventually("all are gone", || {
        broker.stats().clients_connected == others
    });
    assert!(broker.stats().wills_delayed > LOST as u64 / 2);
}

/// Stops the broker on another thread.
fn stop(broker: Broker) -> JoinHandle<()> {
    std::thread::spawn(move || {
        within(DEADLINE, "stop", move || {
            broker.stop(Duration::from_secs(3_600));
        });
    })
}

fn lost_sessions(broker: &Broker) -> usize {
    let clients = broker.clients().into_iter();
    clients
        .filter(|client| client.client_id.starts_with("with a will"))
        .count()
}

/// The numbers of the next `count` wills.
fn take_wills(subscriber: &mut Client, count: usize) -> BTreeSet<usize> {
    let wills = (0..count).map(|_| {
        let will = subscriber.take_message();
        assert_eq!(will.topic, "will");
        will.number()
    });
    wills.collect()
}

#[test]
fn f09_wills_of_two_thousand_lost_clients_are_spread_and_others_are_answered() {
    const MANY: usize = 2_000;
    let broker = start(Config {
        wills_per_second: 4,
        ..deep_queues()
    });
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("will", QoS::AtMostOnce);
    subscriber.subscribe("marker", QoS::AtMostOnce);
    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("bystander", QoS::AtMostOnce);

    lose(&broker, (0..MANY).map(with_will));

    eventually("all are gone", || broker.stats().clients_connected == 2);
    for number in 0..200 {
        bystander.publish("bystander", number.to_string(), QoS::AtMostOnce);
        assert_eq!(bystander.take_message().number(), number);
    }
    assert!(broker.stats().wills_delayed > MANY as u64 / 2);
    bystander.publish("marker", "", QoS::AtMostOnce);
    let messages = std::iter::repeat_with(|| subscriber.take_message());
    let before = messages.take_while(|message| message.topic == "will");
    let mut wills: BTreeSet<usize> = before.map(|will| will.number()).collect();
    assert!(wills.len() < MANY / 2, "{} wills at once", wills.len());
    // They come in their turn, and at a stop.
    wills.extend(take_wills(&mut subscriber, 2));
    let stopping = stop(broker);
    wills.extend(take_wills(&mut subscriber, MANY - wills.len()));
    assert_eq!(wills.len(), MANY);
    stopping.join().expect("it stops");
}

#[test]
fn f09_while_wills_wait_their_clients_are_offline() {
    let plugin = Plugin::default().authenticate(|_, reply| {
        let session = SessionPolicy {
            takeover: Takeover::Never,
            ..SessionPolicy::default()
        };
        reply.send(allow(Grant {
            session,
            ..Grant::everything()
        }));
    });
    let broker = start_with(slowly(1), plugin);
    let mut member = v5("member").connect(&broker);
    member.subscribe("$share/group/job", QoS::AtLeastOnce);
    let hellos = (0..LOST).map(|number| with_will(number).keeping_session_s(HOUR_S));
    let mut lost: Vec<Client> = hellos.map(|hello| hello.connect(&broker)).collect();
    for client in &mut lost {
        client.subscribe("$share/group/job", QoS::AtLeastOnce);
    }

    lost.into_iter().for_each(Client::vanish);

    eventually("all are gone", || broker.stats().clients_connected == 1);
    assert!(broker.stats().wills_delayed > LOST as u64 / 2);
    for number in 0..LOST {
        member.publish("job", number.to_string(), QoS::AtMostOnce);
        assert_eq!(member.take_message().number(), number);
    }
    let returning = with_will(LOST - 1).keeping_session_s(HOUR_S);
    assert!(returning.connect_or_resume(&broker).1);
}

#[test]
fn f09_a_client_that_comes_back_finds_its_will_published() {
    let broker = start(slowly(1));
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("#", QoS::AtLeastOnce);
    lose_and_wait(&broker, 0);

    let mut back: Vec<Client> = (0..LOST)
        .map(|number| with_will(number).connect(&broker))
        .collect();
    back[0].publish("marker", "", QoS::AtMostOnce);

    assert_eq!(take_wills(&mut subscriber, LOST).len(), LOST);
    assert_eq!(subscriber.take_message().topic, "marker");
}

/// [MQTT-3.1.3-9] A will without delay is due when the connection ends: coming back does not cancel it.
#[test]
fn f09_a_session_that_is_resumed_finds_its_will_published_and_keeps_the_new_one() {
    let home = Home::new();
    let broker = home.start_with(1, slowly(1));
    let mut subscriber = v5("subscriber").keeping_session_s(HOUR_S).connect(&broker);
    subscriber.subscribe("will", QoS::AtLeastOnce);
    lose_and_wait(&broker, HOUR_S);

    let hello = |number: usize| with_will(number).keeping_session_s(HOUR_S);
    let resumed: Vec<(Client, bool)> = (0..LOST)
        .map(|number| hello(number).connect_or_resume(&broker))
        .collect();

    assert!(resumed.iter().all(|(_, is_present)| *is_present));
    assert_eq!(take_wills(&mut subscriber, LOST).len(), LOST);
    subscriber.disconnect();
    // A crash ends the new connections, whose wills the store has.
    let broker = home.crash(broker, 1);
    let mut subscriber = back(&broker, "subscriber");
    assert_eq!(take_wills(&mut subscriber, LOST).len(), LOST);
    assert_eq!(lost_sessions(&broker), LOST);
}

#[test]
fn f09_a_will_whose_delay_ends_is_cancelled_by_coming_back_but_not_afterwards() {
    let broker = start(slowly(1));
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("will", QoS::AtLeastOnce);
    let hello = |number| with_will(number).keeping_session_s(HOUR_S);
    lose(
        &broker,
        (0..LOST).map(|number| hello(number).will_delay_s(1)),
    );
    // Its session ends after their delays.
    lose(&broker, [v5("sentinel").keeping_session_s(3)]);
    lose(
        &broker,
        [v5("cancelled")
            .will("will", "999")
            .will_delay_s(3_000)
            .keeping_session_s(HOUR_S)],
    );
    eventually("the delays end", || {
        let mut clients = broker.clients().into_iter();
        clients.all(|client| &*client.client_id != "sentinel")
    });
    v5("afterwards").connect(&broker).disconnect();
    assert!(broker.stats().wills_delayed > LOST as u64 / 2);

    for number in 0..LOST {
        hello(number).connect_or_resume(&broker).0.disconnect();
    }
    v5("cancelled")
        .keeping_session_s(HOUR_S)
        .connect_or_resume(&broker)
        .0
        .disconnect();

    let wills = take_wills(&mut subscriber, LOST);
    assert_eq!(wills, (0..LOST).collect());
    subscriber.ping();
}

#[test]
fn f09_a_stop_publishes_the_wills_that_wait() {
    let broker = start(slowly(1));
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("will", QoS::AtMostOnce);
    lose_and_wait(&broker, 0);

    let stopping = stop(broker);

    assert_eq!(take_wills(&mut subscriber, LOST).len(), LOST);
    stopping.join().expect("it stops");
}

#[test]
fn f09_wills_that_wait_outlive_the_broker_with_and_without_their_sessions() {
    // Sessions that end with the connection, that end while their wills wait, and that stay.
    for keeping_session_s in [0, 1, HOUR_S] {
        let home = Home::new();
        let broker = home.start_with(1, slowly(1));
        let mut subscriber = v5("subscriber").keeping_session_s(HOUR_S).connect(&broker);
        subscriber.subscribe("will", QoS::AtLeastOnce);
        subscriber.disconnect();
        lose_and_wait(&broker, keeping_session_s);
        if keeping_session_s == 1 {
            eventually("the sessions end", || lost_sessions(&broker) == 0);
        }
        let broker = home.crash(broker, 1);

        let mut subscriber = back(&broker, "subscriber");
        assert_eq!(take_wills(&mut subscriber, LOST).len(), LOST);
        subscriber.disconnect();
        let broker = home.crash(broker, 2);
        let kept = if keeping_session_s == HOUR_S { LOST } else { 0 };
        eventually("the records of the other sessions are gone", || {
            lost_sessions(&broker) == kept
        });
        let mut subscriber = back(&broker, "subscriber");
        subscriber.publish("will", LOST.to_string(), QoS::AtMostOnce);
        assert_eq!(take_wills(&mut subscriber, 1), [LOST].into());
    }
}

#[test]
fn f09_clients_that_disconnect_or_have_no_will_do_not_wait() {
    let broker = start(slowly(1));

    for number in 0..20 {
        with_will(number).connect(&broker).disconnect();
        v5(&format!("no will {number}")).connect(&broker).vanish();
    }

    eventually("all are gone", || broker.stats().clients_connected == 0);
    assert_eq!(broker.stats().wills_delayed, 0);
}
