//! One client identifier, several connections: the last one has the session, whole.

use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use mqttcore_broker::{Broker, Grant, SessionPolicy, Takeover};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{
    Client, Dice, Hello, Plugin, Received, config, deep_queues, eventually, start, start_with, v3,
    v5,
};

/// [MQTT-3.1.4-3]
#[test]
fn mqtt_3_1_4_3_the_old_v5_client_hears_that_its_session_is_taken_over() {
    let broker = start(config());
    let mut old = v5("one").connect(&broker);

    let mut new = v5("one").connect(&broker);

    let disconnect = Received::Disconnect(ReasonCode::SESSION_TAKEN_OVER);
    assert_eq!(old.until_closed(), [disconnect]);
    new.ping();
    assert_eq!(broker.stats().takeovers, 1);
}

#[test]
fn the_old_3_1_1_client_is_closed_without_a_disconnect() {
    let broker = start(config());
    let mut old = v3("one").connect(&broker);

    let mut new = v3("one").connect(&broker);

    assert_eq!(old.until_closed(), []);
    new.ping();
}

#[test]
fn a_takeover_resumes_the_session_with_its_subscriptions() {
    let broker = start(config());
    let hello = v5("one").keeping_session_s(60);
    let mut old = hello.connect(&broker);
    old.subscribe("a", QoS::AtLeastOnce);

    let (mut new, present) = hello.connect_or_resume(&broker);

    assert!(present);
    new.publish("a", "still subscribed", QoS::AtMostOnce);
    assert_eq!(new.message().text(), "still subscribed");
}

/// [MQTT-3.1.2-4]
#[test]
fn mqtt_3_1_2_4_a_clean_start_takes_over_without_the_session() {
    let broker = start(config());
    let hello = v5("one").keeping_session_s(60);
    let mut old = hello.connect(&broker);
    old.subscribe("a", QoS::AtLeastOnce);

    let (mut new, present) = hello.clean_start().connect_or_resume(&broker);

    assert!(!present);
    new.publish("a", "nobody is subscribed", QoS::AtMostOnce);
    new.ping();
    let stats = broker.stats();
    assert_eq!((stats.sessions, stats.clients_connected), (1, 1));
}

#[test]
fn another_user_gets_0x85_and_the_client_stays() {
    let broker = start_with(config(), Plugin::welcoming());
    let mut owner = v5("one").username("owner").connect(&broker);

    let code = v5("one").username("thief").refused(&broker);

    assert_eq!(code, 0x85);
    owner.ping();
    assert_eq!(broker.stats().takeovers, 0);
}

#[test]
fn another_user_of_3_1_1_gets_return_code_2() {
    let broker = start_with(config(), Plugin::welcoming());
    let mut owner = v3("one").username("owner").connect(&broker);

    assert_eq!(v3("one").username("thief").refused(&broker), 2);
    owner.ping();
}

#[test]
fn an_anonymous_client_does_not_get_the_session_of_a_user() {
    let broker = start_with(config(), Plugin::welcoming());
    let owner = v5("one").username("owner").keeping_session_s(60);
    owner.connect(&broker).disconnect();

    assert_eq!(v5("one").keeping_session_s(60).refused(&broker), 0x85);
    assert!(owner.connect_or_resume(&broker).1);
}

#[test]
fn the_same_user_takes_over() {
    let broker = start_with(config(), Plugin::welcoming());
    let hello = v5("one").username("owner").keeping_session_s(60);
    let _old = hello.connect(&broker);

    let (mut new, present) = hello.connect_or_resume(&broker);

    assert!(present);
    new.ping();
}

fn with_takeover(takeover: Takeover) -> Broker {
    let plugin = Plugin::default().authenticate(move |_, reply| {
        reply.send(crate::common::allow(Grant {
            session: SessionPolicy {
                takeover,
                ..SessionPolicy::default()
            },
            ..Grant::everything()
        }));
    });
    start_with(config(), plugin)
}

#[test]
fn where_anyone_may_take_over_another_user_does() {
    let broker = with_takeover(Takeover::Anyone);
    let mut old = v5("one").username("first").connect(&broker);

    v5("one").username("second").connect(&broker).ping();

    let disconnect = Received::Disconnect(ReasonCode::SESSION_TAKEN_OVER);
    assert_eq!(old.until_closed(), [disconnect]);
}

#[test]
fn where_nobody_may_take_over_the_session_is_free_once_its_client_left() {
    let broker = with_takeover(Takeover::Never);
    let hello = v5("one").username("owner").keeping_session_s(60);
    let mut old = hello.connect(&broker);

    assert_eq!(hello.refused(&broker), 0x85);
    old.ping();
    old.disconnect();
    assert!(hello.connect_or_resume(&broker).1);
}

#[test]
fn the_will_of_a_connection_that_is_taken_over_is_published() {
    let broker = start(config());
    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("will", QoS::AtMostOnce);
    let _old = v5("one").will("will", "taken over").connect(&broker);

    let _new = v5("one").connect(&broker);

    assert_eq!(bystander.message().text(), "taken over");
}

/// [MQTT-3.1.3-9]
#[test]
fn mqtt_3_1_3_9_a_delayed_will_is_not_published_when_the_session_is_taken_over_whole() {
    let broker = start(config());
    let mut bystander = v5("bystander").connect(&broker);
    bystander.subscribe("#", QoS::AtMostOnce);
    let hello = v5("one").keeping_session_s(60);
    let _old = hello
        .clone()
        .will("will", "too soon")
        .will_delay_s(1)
        .connect(&broker);

    let mut new = hello.connect(&broker);

    bystander.hears_nothing_for(Duration::from_millis(1_300));
    bystander.ping();
    new.ping();
}

#[test]
fn an_acknowledgement_over_the_old_socket_has_no_effect() {
    let broker = start(config());
    let hello = v5("one").keeping_session_s(60);
    let mut old = hello.connect(&broker);
    old.subscribe("a", QoS::AtLeastOnce);
    v5("publisher")
        .connect(&broker)
        .publish("a", "1", QoS::AtLeastOnce);
    let message = old.message();

    let mut new = hello.connect(&broker);
    old.acknowledge(&message);

    let again = new.take_message();
    assert_eq!((again.text(), again.dup), ("1", true));
    assert_eq!(again.packet_id, message.packet_id);
    new.ping();
}

/// A client that is taken over again and again while messages come.
struct Stormy {
    broker: Broker,
    hello: Hello,
    dice: Dice,
}

const STORM_MESSAGES: usize = 3_000;

impl Stormy {
    fn new() -> Self {
        Self {
            broker: start(deep_queues()),
            hello: v5("storm").keeping_session_s(60),
            dice: Dice::new(7),
        }
    }

    /// A new connection over the session, and how many packets it may handle.
    fn next(&mut self) -> (Client, usize) {
        let (client, present) = self.hello.connect_or_resume(&self.broker);
        assert!(present, "the session survives every takeover");
        (client, 5 + self.dice.below(60))
    }
}

#[test]
fn no_qos_1_message_is_lost_in_a_takeover_storm() {
    let mut stormy = Stormy::new();
    stormy
        .hello
        .connect(&stormy.broker)
        .subscribe("storm", QoS::AtLeastOnce);
    let mut publisher = v3("publisher").connect(&stormy.broker);
    let source =
        thread::spawn(move || publisher.publish_numbers("storm", QoS::AtLeastOnce, STORM_MESSAGES));

    let mut got = Vec::new();
    let mut seen = HashSet::new();
    // Kept open, so that it is the broker who ends them.
    let mut held = Vec::new();
    while got.len() < STORM_MESSAGES {
        let (mut client, packets) = stormy.next();
        for _ in 0..packets {
            let message = client.take_message();
            let is_first = seen.insert(message.number());
            assert!(is_first || message.dup, "doubled: {message:?}");
            if is_first {
                got.push(message.number());
            }
            if got.len() == STORM_MESSAGES {
                break;
            }
        }
        held.push(client);
    }

    source.join().unwrap();
    assert_eq!(got, (0..STORM_MESSAGES).collect::<Vec<_>>());
}

/// [MQTT-4.3.3-1]
#[test]
fn mqtt_4_3_3_1_each_qos_2_message_arrives_once_in_a_takeover_storm() {
    let mut stormy = Stormy::new();
    stormy
        .hello
        .connect(&stormy.broker)
        .subscribe("storm", QoS::ExactlyOnce);
    let mut publisher = v3("publisher").connect(&stormy.broker);
    let source =
        thread::spawn(move || publisher.publish_numbers("storm", QoS::ExactlyOnce, STORM_MESSAGES));

    let mut got = Vec::new();
    // Received and not released: the state that a QoS 2 client keeps over its connections.
    let mut unreleased = HashSet::new();
    let mut held = Vec::new();
    while got.len() < STORM_MESSAGES || !unreleased.is_empty() {
        let (mut client, packets) = stormy.next();
        for _ in 0..packets {
            match client.receive() {
                Received::Publish(message) => {
                    client.acknowledge(&message);
                    if unreleased.insert(message.packet_id) {
                        got.push(message.number());
                    } else {
                        assert!(message.dup, "a repeat without DUP: {message:?}");
                    }
                }
                Received::PubRel(id, _) => {
                    unreleased.remove(&id);
                    client.pubcomp(id);
                }
                other => panic!("unexpected: {other:?}"),
            }
            if got.len() == STORM_MESSAGES && unreleased.is_empty() {
                break;
            }
        }
        held.push(client);
    }

    source.join().unwrap();
    assert_eq!(got, (0..STORM_MESSAGES).collect::<Vec<_>>());
}

/// [MQTT-4.3.3-10] The publisher is the one that is taken over, with its exchanges open.
#[test]
fn mqtt_4_3_3_10_each_qos_2_message_from_a_takeover_storm_is_published_once() {
    let mut stormy = Stormy::new();
    let mut subscriber = v3("subscriber").connect(&stormy.broker);
    subscriber.subscribe("storm", QoS::AtMostOnce);
    let _first = stormy.hello.connect(&stormy.broker);

    let mut outgoing = Outgoing::default();
    let mut held = Vec::new();
    while outgoing.done < STORM_MESSAGES {
        let (mut client, packets) = stormy.next();
        outgoing.resend(&mut client);
        for _ in 0..packets {
            outgoing.fill(&mut client);
            if outgoing.open.is_empty() {
                break;
            }
            outgoing.handle(&mut client);
        }
        held.push(client);
    }

    for number in 0..STORM_MESSAGES {
        assert_eq!(subscriber.message().number(), number);
    }
    subscriber.ping();
}

/// A QoS 2 publisher's state: it outlives the connections.
#[derive(Default)]
struct Outgoing {
    sent: usize,
    done: usize,
    /// Number of each open message, and whether it is received.
    open: Vec<(usize, bool)>,
}

impl Outgoing {
    const WINDOW: usize = 20;

    /// Packet identifiers follow from the number, and are free again long before they recur.
    fn id(number: usize) -> u16 {
        u16::try_from(number % 1_000 + 1).expect("small")
    }

    fn publish(client: &mut Client, number: usize, dup: bool) {
        let text = number.to_string();
        let id = Self::id(number);
        let mut bytes = vec![0x34 | u8::from(dup) << 3];
        bytes.push(u8::try_from(2 + 5 + 2 + 1 + text.len()).expect("small"));
        bytes.extend_from_slice(b"\x00\x05storm");
        bytes.extend_from_slice(&id.to_be_bytes());
        bytes.push(0);
        bytes.extend_from_slice(text.as_bytes());
        client.send_bytes(&bytes);
    }

    fn resend(&self, client: &mut Client) {
        for &(number, received) in &self.open {
            if received {
                client.pubrel(Self::id(number));
            } else {
                Self::publish(client, number, true);
            }
        }
    }

    fn fill(&mut self, client: &mut Client) {
        while self.open.len() < Self::WINDOW && self.sent < STORM_MESSAGES {
            Self::publish(client, self.sent, false);
            self.open.push((self.sent, false));
            self.sent += 1;
        }
    }

    fn handle(&mut self, client: &mut Client) {
        match client.receive() {
            Received::PubRec(id, reason) => {
                assert!(!reason.is_error());
                let open = self
                    .open
                    .iter_mut()
                    .find(|(number, _)| Self::id(*number) == id);
                if let Some((_, received)) = open {
                    *received = true;
                }
                client.pubrel(id);
            }
            Received::PubComp(id, _) => {
                let before = self.open.len();
                self.open.retain(|(number, _)| Self::id(*number) != id);
                self.done += before - self.open.len();
            }
            other => panic!("unexpected: {other:?}"),
        }
    }
}

#[test]
fn a_takeover_storm_leaves_one_session_and_no_connection_behind() {
    let broker = start(config());
    let hello = v5("one").keeping_session_s(60);
    let clients: Vec<Client> = thread::scope(|scope| {
        let storm = |_| scope.spawn(|| (0..50).map(|_| hello.dial(&broker)).collect::<Vec<_>>());
        let threads: Vec<_> = (0..4).map(storm).collect();
        let clients = threads
            .into_iter()
            .flat_map(|thread| thread.join().unwrap());
        clients.collect()
    });

    eventually("all but one connection are taken over", || {
        // A takeover is counted before its client is.
        let stats = broker.stats();
        (stats.takeovers, stats.clients_connected) == (199, 1)
    });

    assert_eq!(broker.stats().sessions, 1);
    drop(clients);
    eventually("the last connection is gone", || {
        broker.stats().clients_connected == 0
    });
    assert_eq!(broker.stats().sessions, 1);
}
