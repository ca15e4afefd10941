//! Publishes whose receivers take long to find, and floods of filters: the sender pays, and the others do not wait
//! (abuse H15).

use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};

use mqttcore_broker::{Broker, Config, EventKind};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{
    Client, HOUR_S, Plugin, Received, config, config_with_limits, eventually, start, start_with,
    v3, v5,
};

/// Filters of a literal or `+` on so many levels: a topic of literals leads to twice as many nodes.
const LEVELS: usize = 14;

/// A broker of one shard with all of these filters.
fn with_all_choices() -> (Broker, Vec<Client>) {
    let broker = start(Config {
        shards: 1,
        ..config_with_limits(|limits| limits.wildcard_levels = 1 << 20)
    });
    let choices = (0..1_usize << LEVELS).map(|choice| {
        let level = |bit| if choice >> bit & 1 == 0 { "a" } else { "+" };
        let levels: Vec<&str> = (0..LEVELS).map(level).collect();
        format!("{}/x", levels.join("/"))
    });
    let filters: Vec<String> = choices.collect();
    let subscribe = |(index, filters): (usize, &[String])| {
        let mut client = v5(&format!("subscriber-{index}")).connect(&broker);
        for filters in filters.chunks(100) {
            let filters: Vec<&str> = filters.iter().map(String::as_str).collect();
            client.send_subscribe(&filters, QoS::AtMostOnce);
            assert!(matches!(client.receive(), Received::SubAck(..)));
        }
        client
    };
    let subscribers = filters.chunks(1_000).enumerate().map(subscribe).collect();
    (broker, subscribers)
}

/// A topic that leads to all of them and matches none, or all if it ends in `x`.
fn topic(end: &str) -> String {
    format!("{}/{end}", ["a"; LEVELS].join("/"))
}

fn refused(broker: &Broker) -> u64 {
    broker.stats().refused_too_many_filters
}

#[test]
fn a_publish_that_leads_to_too_many_filters_is_refused_and_counted() {
    let (broker, mut subscribers) = with_all_choices();
    let mut newer = v5("newer").connect(&broker);
    let mut older = v3("older").connect(&broker);

    let reason = newer.publish_acknowledged(&topic("x"), "1");
    assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED);
    assert!(newer.reason_string().contains("too many filters"));
    newer.publish(&topic("x"), "2", QoS::AtMostOnce);
    let second = newer.publish(&topic("x"), "3", QoS::ExactlyOnce);
    assert_eq!(
        newer.receive(),
        Received::PubRec(second, ReasonCode::QUOTA_EXCEEDED)
    );
    older.publish(&topic("x"), "4", QoS::AtLeastOnce);
    assert_eq!(
        older.next_packet(),
        None,
        "it must not think that it was taken"
    );

    assert_eq!(refused(&broker), 4);
    newer.ping();
    subscribers.iter_mut().for_each(Client::ping);
}

#[test]
fn several_publishes_of_one_write_are_refused_one_by_one() {
    let (broker, mut subscribers) = with_all_choices();
    let mut publisher = v5("publisher").connect(&broker);
    let mut listener = subscribers.pop().expect("the last has few filters");
    listener.subscribe("fine", QoS::AtMostOnce);
    let (fine, costly) = ("fine", topic("x"));

    let topics = [fine, &costly, fine, fine, &costly, fine];
    let bytes: Vec<u8> = topics
        .iter()
        .enumerate()
        .flat_map(|(number, topic)| publisher.numbered(topic, QoS::AtLeastOnce, [number]))
        .collect();
    publisher.send_bytes(&bytes);

    let reasons = topics.map(|_| match publisher.receive() {
        Received::PubAck(_, reason) => reason,
        other => panic!("no PUBACK: {other:?}"),
    });
    let expected = topics.map(|topic| {
        if topic == fine {
            ReasonCode::SUCCESS
        } else {
            ReasonCode::QUOTA_EXCEEDED
        }
    });
    assert_eq!(reasons, expected);
    let numbers = [(); 4].map(|()| listener.message().number());
    assert_eq!(numbers, [0, 2, 3, 5]);
}

#[test]
fn a_retained_message_that_cannot_be_matched_is_not_retained() {
    let (broker, _subscribers) = with_all_choices();
    let mut publisher = v5("publisher").connect(&broker);

    publisher.publish_retained(&topic("x"), "1", QoS::AtLeastOnce);
    let answer = publisher.receive();
    publisher.publish_retained(&topic("x"), "2", QoS::AtMostOnce);
    publisher.ping();

    assert!(matches!(
        answer,
        Received::PubAck(_, ReasonCode::QUOTA_EXCEEDED)
    ));
    assert_eq!((broker.stats().retained_messages, refused(&broker)), (0, 2));
}

/// One write of these publishes took minutes of search; a turn has a share of it, and the bystander is served between.
#[test]
fn a_bystander_is_served_between_publishes_that_lead_to_many_filters() {
    const PUBLISHES: usize = 1_000;
    let (broker, _subscribers) = with_all_choices();
    let mut bystander = v5("bystander").connect(&broker);
    let mut attacker = v3("attacker").connect(&broker);
    let flood = attacker.numbered(&topic("y"), QoS::AtMostOnce, 0..PUBLISHES);

    attacker.send_bytes(&flood);
    eventually("the flood is there", || refused(&broker) > 0);
    (0..3).for_each(|_| bystander.ping());

    let done = refused(&broker);
    assert!(
        done < PUBLISHES as u64 / 2,
        "{done} came before three pings"
    );
}

/// Members that are away cost nothing while one is there, and what nobody is there for is dropped at once.
#[test]
fn members_that_are_away_are_not_asked() {
    const MESSAGES: u64 = 500;
    let broker = start(Config {
        shards: 1,
        ..config()
    });
    for index in 0..300 {
        let member = v5(&format!("away-{index}")).keeping_session_s(HOUR_S);
        let mut member = member.connect(&broker);
        member.subscribe("$share/team/work", QoS::AtLeastOnce);
        member.disconnect();
    }
    eventually("all are away", || broker.stats().clients_connected == 0);
    let mut publisher = v5("publisher").connect(&broker);
    let numbers = || 0..usize::try_from(MESSAGES).expect("small");

    let unwanted = publisher.numbered("work", QoS::AtMostOnce, numbers());
    publisher.send_bytes(&unwanted);
    eventually("all are dropped", || {
        broker.stats().dropped_offline == MESSAGES
    });
    assert_eq!(broker.stats().shared_handed_on, 0);

    let mut there = v5("away-123")
        .keeping_session_s(HOUR_S)
        .connect_or_resume(&broker)
        .0;
    publisher.publish_numbers("work", QoS::AtLeastOnce, numbers().end);
    let taken = numbers().map(|_| there.take_message().number());
    assert!(taken.eq(numbers()));
    let queued: usize = broker.clients().iter().map(|client| client.queued).sum();
    assert_eq!(queued, 0, "nothing waits for those that are away");
}

/// The shard stands still while 100 SUBSCRIBE packets and then one of a bystander arrive. Events of plugins say how many
/// filters it handles before it comes to the bystander.
#[test]
fn h15_a_turn_ends_after_some_hundred_filters() {
    let (reached, at_gate) = channel();
    let (release, gate) = sync_channel::<()>(0);
    let order = Arc::new(Mutex::new(Vec::new()));
    let (seen, gate) = (Arc::clone(&order), Mutex::new((reached, gate)));
    let plugin = Plugin::default().events(&[EventKind::Subscribed], move |event| {
        if &*event.client_id == "gate" {
            let (reached, gate) = &*gate.lock().expect("no panic");
            reached.send(()).expect("the test waits");
            gate.recv().expect("the test goes on");
        }
        seen.lock().expect("no panic").push(event.client_id);
    });
    let one_shard = Config {
        shards: 1,
        ..config()
    };
    let broker = start_with(one_shard, plugin);
    let [mut first, mut attacker, mut bystander] =
        ["gate", "attacker", "bystander"].map(|id| v5(id).connect(&broker));
    let filters: Vec<String> = (0..100).map(|number| format!("f/{number}")).collect();
    let filters: Vec<&str> = filters.iter().map(String::as_str).collect();

    first.send_subscribe(&["gate"], QoS::AtMostOnce);
    at_gate.recv().expect("the shard is there");
    for _ in 0..100 {
        attacker.send_subscribe(&filters, QoS::AtMostOnce);
    }
    bystander.send_subscribe(&["b"], QoS::AtMostOnce);
    release.send(()).expect("the shard waits");
    assert!(matches!(bystander.receive(), Received::SubAck(..)));

    let order = order.lock().expect("no panic");
    let before = order.iter().position(|id| &**id == "bystander");
    let before = before.expect("it has subscribed");
    assert!(before <= 1 + 700, "{before} filters came first");
}

/// A packet may have a filter often, but it ends one subscription.
#[test]
fn e12_equal_filters_of_an_unsubscribe_end_one_subscription() {
    let (sender, ended) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().events(&[EventKind::Unsubscribed], move |event| {
        let _ = sender.lock().expect("no panic").send(event.topic);
    });
    let broker = start_with(config(), plugin);
    let mut client = v5("client").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);

    let reasons = client.unsubscribe_all(&["a", "b", "a", "a"]);

    let none = ReasonCode::NO_SUBSCRIPTION_EXISTED;
    assert_eq!(reasons, [ReasonCode::SUCCESS, none, none, none]);
    client.ping();
    assert_eq!(ended.try_iter().count(), 1);
}
