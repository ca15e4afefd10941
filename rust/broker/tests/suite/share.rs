//! `limits.queues_disk_bytes`: what it means for sessions and publishers when all queues together are full.

use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, FullQueuePolicy};
use mqttcore_codec::{QoS, ReasonCode};

use crate::common::{
    Client, HOUR_S, Home, Plugin, Received, back, config, eventually, figure, queued, v3, v5,
};

const LIMIT: usize = 20_000;
const PAYLOAD: usize = 1_000;

fn small(queue_policy: FullQueuePolicy) -> Config {
    Config {
        queue_policy,
        queues_disk_bytes: LIMIT as u64,
        queue_deadline: Duration::from_secs(3_600),
        ..config()
    }
}

fn subscribed(broker: &Broker, id: &str) -> Client {
    let mut client = v5(id).keeping_session_s(HOUR_S).connect(broker);
    client.subscribe(id, QoS::ExactlyOnce);
    client
}

fn percent(broker: &Broker) -> u64 {
    figure(broker, "store_queues_percent")
}

/// Publishes to the sessions "one" and "two", which are away, until all queues together are full; returns how many were
/// acknowledged with success.
fn fill(broker: &Broker, writer: &mut Client) -> usize {
    for id in ["one", "two"] {
        subscribed(broker, id).disconnect();
    }
    let mut accepted = 0;
    while percent(broker) < 100 {
        for topic in ["one", "two"] {
            let reason = writer.publish_acknowledged(topic, vec![b'x'; PAYLOAD]);
            accepted += usize::from(reason == ReasonCode::SUCCESS);
        }
    }
    accepted
}

fn empty(broker: &Broker, id: &str) {
    let waiting = queued(broker, id);
    let mut client = back(broker, id);
    for _ in 0..waiting {
        client.take_message();
    }
    // A socket that is closed with unread packets in it is reset, and the acknowledgements may be lost.
    client.disconnect();
}

#[test]
fn a_publisher_is_refused_while_all_queues_together_are_full_and_not_for_clients_that_keep_up() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    let mut here = subscribed(&broker, "here");
    let mut writer = v5("writer").connect(&broker);

    let accepted = fill(&broker, &mut writer);

    assert!(accepted * (PAYLOAD + 100) > LIMIT, "{accepted}");
    let refused = writer.publish_acknowledged("one", "!");
    assert_eq!(refused, ReasonCode::QUOTA_EXCEEDED);
    let sent = writer.publish_acknowledged("here", "1");
    assert_eq!(sent, ReasonCode::SUCCESS);
    assert_eq!(here.take_message().number(), 1);
    assert_eq!(broker.stats().dropped_acknowledged, 0);
    let all = || queued(&broker, "one") + queued(&broker, "two");
    eventually("all wait", || all() == accepted);
    empty(&broker, "one");
    eventually("there is room", || {
        writer.publish_acknowledged("two", "!") == ReasonCode::SUCCESS
    });
}

#[test]
fn a_publisher_of_3_1_1_waits_until_there_is_room_for_all_sessions() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    fill(&broker, &mut v5("filler").connect(&broker));
    let mut here = subscribed(&broker, "here");
    let mut writer = v3("writer").connect(&broker);

    let id = writer.publish("two", "!", QoS::AtLeastOnce);
    writer.publish("here", "1", QoS::AtMostOnce);
    v5("other")
        .connect(&broker)
        .publish_acknowledged("here", "2");

    assert_eq!(here.take_message().number(), 2, "it waits");
    empty(&broker, "one");
    assert_eq!(writer.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    assert_eq!(here.take_message().number(), 1);
}

#[test]
fn messages_are_dropped_and_counted_while_all_queues_together_are_full() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Drop));
    let mut here = subscribed(&broker, "here");
    let mut writer = v5("writer").connect(&broker);
    let accepted = fill(&broker, &mut writer);
    eventually("all wait or are dropped", || {
        let waiting = queued(&broker, "one") + queued(&broker, "two");
        waiting as u64 + broker.stats().dropped_acknowledged == accepted as u64
    });
    let (before, waiting) = (broker.stats().dropped_acknowledged, queued(&broker, "one"));

    // Its shard may hear a moment later than the figure that all queues are full.
    let mut sent = 0;
    eventually("one is dropped", || {
        let acknowledged = writer.publish_acknowledged("one", "!");
        assert_eq!(acknowledged, ReasonCode::SUCCESS);
        sent += 1;
        broker.stats().dropped_acknowledged > before
    });
    eventually("each of them waits or is dropped", || {
        let dropped = broker.stats().dropped_acknowledged - before;
        queued(&broker, "one") as u64 + dropped == waiting as u64 + sent
    });
    writer.publish_acknowledged("here", "1");
    assert_eq!(here.take_message().number(), 1);
    // Which of them has more, depends on the shard that was quicker.
    empty(&broker, "one");
    empty(&broker, "two");
    eventually("there is room", || percent(&broker) < 80);
    let before = broker.stats().dropped_acknowledged;
    writer.publish_acknowledged("two", "!");
    eventually("it waits", || queued(&broker, "two") == 1);
    assert_eq!(broker.stats().dropped_acknowledged, before);
}

#[test]
fn queues_that_were_full_together_when_the_broker_died_are_so_for_the_next_one() {
    let home = Home::new();
    let first = home.start_with(0, small(FullQueuePolicy::Refuse));
    fill(&first, &mut v5("filler").connect(&first));

    let second = home.crash_with(first, 0, small(FullQueuePolicy::Refuse));

    let mut writer = v5("writer").connect(&second);
    assert_eq!(
        writer.publish_acknowledged("one", "!"),
        ReasonCode::QUOTA_EXCEEDED
    );
}

#[test]
fn another_limit_holds_from_the_reload_on() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    let mut writer = v5("writer").connect(&broker);
    fill(&broker, &mut writer);
    let reload = |limit: usize| {
        let limited = Config {
            queues_disk_bytes: limit as u64,
            ..small(FullQueuePolicy::Refuse)
        };
        broker
            .reload(&limited, Arc::new(Plugin::default()))
            .unwrap();
    };

    reload(10 * LIMIT);
    eventually("there is room", || {
        writer.publish_acknowledged("one", "!") == ReasonCode::SUCCESS
    });
    reload(LIMIT);
    eventually("there is none", || {
        writer.publish_acknowledged("one", "!") == ReasonCode::QUOTA_EXCEEDED
    });
}
