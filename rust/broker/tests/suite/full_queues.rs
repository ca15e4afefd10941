//! `queue_policy = "refuse"`: what a full queue of a kept session means for those who publish to it.

use std::time::Duration;

use mqttcore_broker::{
    Broker, Config, Data, FullQueuePolicy, Grant, PublishError, TopicQueuePolicy,
};
use mqttcore_codec::{Properties, QoS, ReasonCode};

use crate::common::{
    Client, HOUR_S, Home, Plugin, Received, allow, back, config_with_limits, eventually, filter,
    queued, start_with, v3, v5,
};

/// Messages that the queue of a session may hold.
const ROOM: usize = 5;

const ONCE: QoS = QoS::AtLeastOnce;

fn small(queue_policy: FullQueuePolicy) -> Config {
    Config {
        queue_policy,
        ..config_with_limits(|limits| limits.queue_disk_messages = ROOM)
    }
}

/// A broker that refuses, whose 3.x publishers wait for as long as a test does.
fn patient() -> Config {
    Config {
        queue_deadline: Duration::from_secs(3_600),
        ..small(FullQueuePolicy::Refuse)
    }
}

fn subscribed(broker: &Broker, id: &str, filter: &str) -> Client {
    let mut client = v5(id).keeping_session_s(HOUR_S).connect(broker);
    client.subscribe(filter, QoS::ExactlyOnce);
    client
}

/// Sees a session away, and its queue filled with `0..ROOM`.
fn fill(broker: &Broker, client: Client, id: &str, topic: &str) {
    client.disconnect();
    let mut writer = v5("filler").connect(broker);
    for number in 0..ROOM {
        writer.publish_acknowledged(topic, number.to_string());
    }
    eventually("the queue is full", || queued(broker, id) == ROOM);
}

fn take_numbers(client: &mut Client, count: usize) -> Vec<usize> {
    (0..count).map(|_| client.take_message().number()).collect()
}

#[test]
fn a_publisher_is_told_that_the_queue_of_a_kept_session_is_full_and_the_others_get_the_message() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    let away = subscribed(&broker, "away", "t");
    fill(&broker, away, "away", "t");
    let mut here = subscribed(&broker, "here", "#");
    let mut writer = v5("writer").connect(&broker);

    let id = writer.publish("t", "5", ONCE);

    assert_eq!(
        writer.receive(),
        Received::PubAck(id, ReasonCode::QUOTA_EXCEEDED)
    );
    assert_eq!(writer.reason_string(), "the queue of a subscriber is full");
    assert_eq!(here.take_message().number(), 5);
    assert_eq!(
        writer.publish_acknowledged("other", "6"),
        ReasonCode::SUCCESS
    );
    assert_eq!(here.take_message().number(), 6);
    let stats = broker.stats();
    assert_eq!(
        (stats.refused_queue_full, stats.dropped_acknowledged),
        (1, 0)
    );
    let mut away = back(&broker, "away");
    assert_eq!(take_numbers(&mut away, ROOM), [0, 1, 2, 3, 4]);
    eventually("there is room", || {
        writer.publish_acknowledged("t", "7") == ReasonCode::SUCCESS
    });
    assert_eq!(away.take_message().number(), 7);
}

#[test]
fn a_qos_2_message_that_is_refused_leaves_its_identifier_free_through_a_crash_too() {
    let home = Home::new();
    let first = home.start_with(0, small(FullQueuePolicy::Refuse));
    let away = subscribed(&first, "away", "t");
    fill(&first, away, "away", "t");
    let mut here = subscribed(&first, "here", "t");
    let mut writer = v5("writer").keeping_session_s(HOUR_S).connect(&first);

    let id = writer.publish("t", "5", QoS::ExactlyOnce);

    let refused = Received::PubRec(id, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(writer.receive(), refused);
    assert_eq!(here.take_message().number(), 5);
    let second = home.crash_with(first, 0, small(FullQueuePolicy::Drop));
    let mut writer = back(&second, "writer");
    let mut here = back(&second, "here");
    assert_eq!(writer.publish("t", "6", QoS::ExactlyOnce), id);
    assert_eq!(writer.receive(), Received::PubRec(id, ReasonCode::SUCCESS));
    // The broker may have died before it read what it was answered about 5.
    let mut number = here.take_message().number();
    if number == 5 {
        number = here.take_message().number();
    }
    assert_eq!(number, 6);
}

#[test]
fn a_queue_that_was_full_when_the_broker_died_is_so_for_the_next_one() {
    let home = Home::new();
    let first = home.start_with(0, small(FullQueuePolicy::Refuse));
    let away = subscribed(&first, "away", "t");
    fill(&first, away, "away", "t");

    let second = home.crash_with(first, 0, small(FullQueuePolicy::Refuse));

    let mut writer = v5("writer").connect(&second);
    assert_eq!(
        writer.publish_acknowledged("t", "5"),
        ReasonCode::QUOTA_EXCEEDED
    );
}

/// A session that ends makes room for everybody.
#[test]
fn nobody_is_refused_for_a_session_that_has_ended() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    let away = subscribed(&broker, "away", "t");
    fill(&broker, away, "away", "t");

    v5("away").connect(&broker).disconnect();

    let mut writer = v5("writer").connect(&broker);
    assert_eq!(
        writer.publish_acknowledged("t", "5"),
        ReasonCode::NO_MATCHING_SUBSCRIBERS
    );
}

#[test]
fn a_publisher_of_3_1_1_waits_for_room_and_then_gets_its_acknowledgements_in_order() {
    let home = Home::new();
    let broker = home.start_with(0, patient());
    let away = subscribed(&broker, "away", "t");
    fill(&broker, away, "away", "t");
    let mut here = subscribed(&broker, "here", "#");
    let mut writer = v3("writer").connect(&broker);

    let ids: Vec<_> = ["5", "6"]
        .map(|text| writer.publish("t", text, ONCE))
        .into();
    writer.publish("other", "7", ONCE);

    // It waits: others are served, and it is not read from.
    let mut other = v5("other").connect(&broker);
    other.publish_acknowledged("other", "8");
    assert_eq!(here.take_message().number(), 8, "nothing of it came before");
    let mut away = back(&broker, "away");
    assert_eq!(take_numbers(&mut away, ROOM + 2), [0, 1, 2, 3, 4, 5, 6]);
    for id in ids {
        assert_eq!(writer.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
    }
    assert_eq!(take_numbers(&mut here, 3), [5, 6, 7]);
    assert_eq!(broker.stats().refused_queue_full, 0);
}

#[test]
fn a_publisher_of_3_1_1_that_has_waited_too_long_is_disconnected_without_an_acknowledgement() {
    let home = Home::new();
    let impatient = Config {
        queue_deadline: Duration::from_millis(50),
        ..small(FullQueuePolicy::Refuse)
    };
    let broker = home.start_with(0, impatient);
    let away = subscribed(&broker, "away", "t");
    fill(&broker, away, "away", "t");
    let mut here = subscribed(&broker, "here", "#");
    let mut writer = v3("writer").connect(&broker);

    writer.publish_retained("t", "5", QoS::ExactlyOnce);

    assert!(writer.until_closed().is_empty());
    assert_eq!(broker.stats().refused_queue_full, 1);
    let mut other = v5("other").connect(&broker);
    other.publish_acknowledged("other", "6");
    assert_eq!(here.take_message().number(), 6, "nobody got it");
    assert_eq!(broker.stats().retained_messages, 0);
}

/// A queue that is not full any more has room for more than one.
#[test]
fn a_queue_that_was_full_takes_messages_again_below_95_percent() {
    let home = Home::new();
    let broker = home.start_with(
        0,
        Config {
            queue_policy: FullQueuePolicy::Refuse,
            ..config_with_limits(|limits| {
                limits.queue_disk_messages = 40;
                limits.inflight_max = 1;
            })
        },
    );
    let mut slow = subscribed(&broker, "slow", "t");
    let mut writer = v5("writer").connect(&broker);
    let mut publish = || writer.publish_acknowledged("t", "0");
    assert_eq!(publish(), ReasonCode::SUCCESS);
    let mut message = slow.message();
    for _ in 0..40 {
        assert_eq!(publish(), ReasonCode::SUCCESS);
    }
    eventually("the queue is full", || queued(&broker, "slow") == 40);

    for queued in (37..40).rev() {
        assert_eq!(publish(), ReasonCode::QUOTA_EXCEEDED, "before {queued}");
        slow.acknowledge(&message);
        message = slow.message();
    }

    eventually("there is room", || publish() == ReasonCode::SUCCESS);
}

/// Such a message needs no room there.
#[test]
fn nobody_is_refused_for_a_session_whose_grant_denies_the_topic() {
    let home = Home::new();
    let plugin = Plugin::default().authenticate(|login, reply| {
        let deny = (login.client_id.as_ref() == "away").then(|| "secret/#".into());
        reply.send(allow(Grant {
            deny: deny.into_iter().collect(),
            ..Grant::everything()
        }));
    });
    let mut config = patient();
    config.data = Some(home.data(0));
    config.listeners[0].anonymous = None;
    let broker = start_with(config, plugin);
    let away = subscribed(&broker, "away", "#");
    fill(&broker, away, "away", "t");
    let mut new = v5("new").connect(&broker);
    let mut old = v3("old").connect(&broker);

    for client in [&mut new, &mut old] {
        let told = client.publish_acknowledged("secret/1", "!");
        assert_eq!(told, ReasonCode::SUCCESS);
    }
    let told = new.publish_acknowledged("t", "!");

    assert_eq!(told, ReasonCode::QUOTA_EXCEEDED);
    eventually("they are dropped", || broker.stats().dropped_denied == 2);
    assert_eq!(queued(&broker, "away"), ROOM);
}

/// The acknowledgements that make room stand behind its publish.
#[test]
fn a_publisher_of_3_1_1_whose_own_queue_is_full_does_not_wait_for_itself() {
    let home = Home::new();
    let config = Config {
        queue_policy: FullQueuePolicy::Refuse,
        queue_deadline: Duration::from_secs(3_600),
        ..config_with_limits(|limits| {
            limits.queue_disk_messages = ROOM;
            limits.inflight_max = 1;
        })
    };
    let broker = home.start_with(0, config);
    let own = v3("own").keeping_session_s(HOUR_S);
    let mut client = own.connect(&broker);
    client.subscribe("t", ONCE);
    fill(&broker, client, "own", "t");
    let (mut client, is_resumed) = own.connect_or_resume(&broker);
    assert!(is_resumed);
    assert_eq!(client.message().number(), 0, "not acknowledged");
    let mut writer = v5("writer").connect(&broker);
    eventually("its queue is full again", || {
        writer.publish_acknowledged("t", "5") == ReasonCode::QUOTA_EXCEEDED
    });

    let id = client.publish("t", "6", ONCE);

    assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
}

#[test]
fn an_embedded_publish_raises_an_error_and_no_subscriber_gets_the_message() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    let away = subscribed(&broker, "away", "t");
    fill(&broker, away, "away", "t");

    let publish = |topic, qos| broker.publish(topic, b"!", qos, false, Properties::EMPTY);

    assert_eq!(publish("t", ONCE), Err(PublishError::QueueFull));
    assert_eq!(publish("t", QoS::AtMostOnce), Ok(1));
    assert_eq!(publish("other", ONCE), Ok(0));
    assert_eq!(queued(&broker, "away"), ROOM);
}

/// Topic, then grant, then listener, then the broker.
#[test]
fn the_policy_is_that_of_the_topic_else_of_the_publisher_else_of_the_broker() {
    let home = Home::new();
    let mut config = small(FullQueuePolicy::Drop);
    let rule = |text: &str, queue_policy| TopicQueuePolicy {
        filter: filter(text),
        queue_policy,
    };
    config.topic_queue_policies = vec![
        rule("alarm/#", FullQueuePolicy::Refuse),
        rule("noise/#", FullQueuePolicy::Drop),
    ];
    let mut strict = config.listeners[0].clone();
    (strict.queue_policy, strict.anonymous) = (Some(FullQueuePolicy::Refuse), None);
    config.listeners.push(strict);
    config.data = Some(home.data(0));
    let plugin = Plugin::default().authenticate(|login, reply| {
        let is_lax = login.username.as_deref() == Some("lax");
        reply.send(allow(Grant {
            queue_policy: is_lax.then_some(FullQueuePolicy::Drop),
            ..Grant::everything()
        }));
    });
    let broker = start_with(config, plugin);
    let away = subscribed(&broker, "away", "#");
    fill(&broker, away, "away", "t");
    let (mut base, _) = v5("base").connect_at(&broker, 0);
    let (mut strict, _) = v5("strict").username("strict").connect_at(&broker, 1);
    let (mut lax, _) = v5("lax").username("lax").connect_at(&broker, 1);

    let told = |client: &mut Client| {
        ["alarm/1", "noise/1", "t"].map(|topic| client.publish_acknowledged(topic, "!").is_error())
    };

    assert_eq!(told(&mut base), [true, false, false]);
    assert_eq!(told(&mut strict), [true, false, true]);
    assert_eq!(told(&mut lax), [true, false, false]);
}

#[test]
fn a_member_of_a_group_with_room_gets_the_message_and_only_a_group_without_any_is_full() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    for id in ["one", "two"] {
        let member = subscribed(&broker, id, "$share/g/t");
        member.disconnect();
    }
    let mut writer = v5("writer").connect(&broker);

    let mut taken = 0;
    while writer.publish_acknowledged("t", taken.to_string()) == ReasonCode::SUCCESS {
        taken += 1;
        let all = || queued(&broker, "one") + queued(&broker, "two");
        eventually("the message waits", || all() == taken);
    }

    assert_eq!(taken, 2 * ROOM);
    assert_eq!(queued(&broker, "one"), ROOM);
}

/// The queue of another session is full, so each publish is checked before it takes a member's turn.
#[test]
fn members_of_a_group_take_turns_while_another_queue_is_full() {
    let home = Home::new();
    let broker = home.start_with(0, patient());
    let away = subscribed(&broker, "away", "full");
    fill(&broker, away, "away", "full");
    let mut members = ["one", "two"].map(|id| subscribed(&broker, id, "$share/g/t"));
    let mut writer = v3("writer").connect(&broker);

    for number in 0..4 {
        let own = |retain| broker.publish("t", b"9", ONCE, retain, Properties::EMPTY);
        if number < 2 {
            writer.publish_acknowledged("t", "9");
        } else {
            assert_eq!(own(number == 2), Ok(1));
        }
    }

    for member in &mut members {
        assert_eq!(take_numbers(member, 2), [9, 9]);
    }
}

/// However many publishers send at once, on whatever shard: what was acknowledged is kept.
#[test]
fn no_message_that_was_acknowledged_is_dropped_whatever_comes_at_once() {
    let home = Home::new();
    let broker = home.start_with(0, small(FullQueuePolicy::Refuse));
    subscribed(&broker, "away", "t").disconnect();
    let writers = (0..8).map(|index| v5(&format!("writer-{index}")).connect(&broker));
    let mut writers: Vec<_> = writers.collect();

    for writer in &mut writers {
        let bytes = writer.numbered("t", ONCE, 0..20);
        writer.send_bytes(&bytes);
    }
    let answers = writers.iter_mut().flat_map(|writer| {
        (0..20).map(|_| match writer.receive() {
            Received::PubAck(_, reason) => reason,
            other => panic!("no PUBACK: {other:?}"),
        })
    });
    let accepted = answers.filter(|reason| !reason.is_error()).count();

    eventually("all wait", || queued(&broker, "away") == accepted);
    let stats = broker.stats();
    assert_eq!(stats.dropped_acknowledged, 0);
    assert_eq!(stats.refused_queue_full, (160 - accepted) as u64);
    assert!(accepted >= ROOM, "{accepted}");
    let mut away = back(&broker, "away");
    assert_eq!(take_numbers(&mut away, accepted).len(), accepted);
}

/// Without a folder no acknowledgement means that a message is stored.
#[test]
fn what_the_store_does_not_keep_is_dropped_as_ever() {
    let in_memory = Config {
        data: None::<Data>,
        queue_policy: FullQueuePolicy::Refuse,
        ..config_with_limits(|limits| limits.queue_messages = ROOM)
    };
    let broker = crate::common::start(in_memory);
    let away = subscribed(&broker, "away", "t");
    fill(&broker, away, "away", "t");

    let mut writer = v5("writer").connect(&broker);

    assert_eq!(writer.publish_acknowledged("t", "5"), ReasonCode::SUCCESS);
    eventually("it is dropped", || broker.stats().dropped_queue_full == 1);
}
