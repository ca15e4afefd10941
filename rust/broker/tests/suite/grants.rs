//! What a grant caps, when it ends, and what a reload changes.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use mqttcore_broker::{Broker, Grant, GrantLimits, Hooks, OrderedRule, OrderedRules, StartError};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::ServerLimits;

use crate::common::{
    Client, Plugin, Received, allow, config, deep_queues, eventually, start, start_with, v3, v5,
};

/// A broker whose users get `grant`; without a user name everything is allowed.
fn granting(grant: Grant) -> Broker {
    let plugin = Plugin::default().authenticate(move |_, reply| {
        reply.send(allow(grant.clone()));
    });
    start_with(deep_queues(), plugin)
}

fn limited(limits: GrantLimits) -> Broker {
    granting(Grant {
        limits,
        ..Grant::everything()
    })
}

fn throttled(messages_per_second: u32) -> Broker {
    limited(GrantLimits {
        messages_per_second: Some(messages_per_second),
        ..GrantLimits::default()
    })
}

fn subscriber(broker: &Broker) -> Client {
    let mut client = v5("subscriber").connect(broker);
    client.subscribe("a", QoS::AtLeastOnce);
    client
}

/// Abuse D21: the client is read from more slowly, nothing is thrown away.
#[test]
fn a_throttled_publisher_is_slowed_down_and_loses_nothing() {
    const MESSAGES: u32 = 60;
    const RATE: u32 = 40;
    let broker = throttled(RATE);
    let mut subscriber = subscriber(&broker);
    let mut publisher = v3("one").username("user").connect(&broker);
    let burst = publisher.numbered("a", QoS::AtMostOnce, 0..MESSAGES as usize);

    let start = Instant::now();
    publisher.send_bytes(&burst);
    for number in 0..MESSAGES as usize {
        assert_eq!(subscriber.take_message().number(), number);
    }

    // One second's worth is free.
    let least = Duration::from_secs(1) * (MESSAGES - RATE) / RATE;
    assert!(start.elapsed() >= least);
    publisher.ping();
}

#[test]
fn a_throttled_publisher_of_large_messages_loses_nothing() {
    let broker = throttled(20);
    let mut subscriber = subscriber(&broker);
    let mut publisher = v5("one").username("user").connect(&broker);

    let ids: Vec<u16> = (0..30)
        .map(|fill| publisher.publish("a", vec![fill; 10_000], QoS::AtLeastOnce))
        .collect();

    for fill in 0..30 {
        assert_eq!(subscriber.take_message().payload, vec![fill; 10_000]);
    }
    for id in ids {
        assert!(
            matches!(publisher.receive(), Received::PubAck(acknowledged, _) if acknowledged == id)
        );
    }
}

#[test]
fn what_a_throttled_client_sent_before_it_left_is_published() {
    let broker = throttled(20);
    let mut subscriber = subscriber(&broker);
    let mut publisher = v3("one").username("user").connect(&broker);
    let burst = publisher.numbered("a", QoS::AtMostOnce, 0..30);

    publisher.send_bytes(&burst);
    publisher.disconnect();

    for number in 0..30 {
        assert_eq!(subscriber.take_message().number(), number);
    }
}

#[test]
fn a_throttle_slows_down_nobody_else() {
    let broker = throttled(10);
    let mut subscriber = subscriber(&broker);
    let mut throttled = v3("one").username("user").connect(&broker);
    let burst = throttled.numbered("a", QoS::AtMostOnce, 0..20);
    throttled.send_bytes(&burst);
    subscriber.take_message();

    let mut bystander = v3("bystander").connect(&broker);
    bystander.publish("a", "1000", QoS::AtMostOnce);

    let mut numbers: Vec<_> = (0..20)
        .map(|_| subscriber.take_message().number())
        .collect();
    assert_ne!(numbers.last(), Some(&1000));
    numbers.retain(|number| *number != 1000);
    assert_eq!(numbers, (1..20).collect::<Vec<_>>());
}

#[test]
fn a_publish_above_the_grants_qos_ends_the_connection() {
    let broker = limited(GrantLimits {
        max_qos: Some(QoS::AtLeastOnce),
        ..GrantLimits::default()
    });
    let mut client = v5("one").username("user").connect(&broker);

    assert!(!client.publish_acknowledged("a", "").is_error());
    client.publish("a", "", QoS::ExactlyOnce);

    let disconnect = Received::Disconnect(ReasonCode::QOS_NOT_SUPPORTED);
    assert_eq!(client.until_closed(), [disconnect]);
}

#[test]
fn a_subscription_above_the_grants_number_is_refused_with_0x97() {
    let broker = limited(GrantLimits {
        subscriptions: Some(2),
        ..GrantLimits::default()
    });
    let mut client = v5("one").username("user").connect(&broker);
    client.subscribe("a", QoS::AtMostOnce);
    client.subscribe("b", QoS::AtMostOnce);

    let reason = client.try_subscribe("c", QoS::AtMostOnce);

    assert_eq!(reason, ReasonCode::QUOTA_EXCEEDED);
    client.unsubscribe("a");
    client.subscribe("c", QoS::AtMostOnce);
    assert_eq!(broker.stats().subscriptions, 2);
}

#[test]
fn a_session_queues_as_much_as_its_grant_says() {
    let broker = limited(GrantLimits {
        queue_messages: Some(3),
        ..GrantLimits::default()
    });
    let hello = v5("one").username("user").keeping_session_s(60);
    let mut client = hello.connect(&broker);
    client.subscribe("a", QoS::AtLeastOnce);
    client.disconnect();

    v5("publisher")
        .connect(&broker)
        .publish_numbers("a", QoS::AtLeastOnce, 5);

    eventually("what is too much is dropped", || {
        broker.stats().dropped_queue_full == 2
    });
    let mut client = hello.connect(&broker);
    for number in 0..3 {
        assert_eq!(client.take_message().number(), number);
    }
    client.ping();
}

/// Abuse G07: deny wins at delivery, whatever filter the message came through.
#[test]
fn a_message_that_the_grant_denies_is_not_delivered_through_a_wider_filter() {
    let broker = granting(Grant {
        deny: vec!["secret/#".into()],
        ..Grant::everything()
    });
    let mut client = v5("one").username("user").connect(&broker);
    client.subscribe("#", QoS::AtLeastOnce);

    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_acknowledged("secret/plan", "");
    publisher.publish_acknowledged("open", "");

    assert_eq!(client.take_message().topic, "open");
    assert_eq!(broker.stats().dropped_denied, 1);
}

#[test]
fn each_topic_of_one_write_is_allowed_or_denied_by_itself() {
    let broker = granting(Grant {
        publish: vec!["open/#".into()],
        deny: vec!["open/not".into()],
        ..Grant::everything()
    });
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("#", QoS::AtLeastOnce);
    let mut publisher = v5("one").username("user").connect(&broker);
    let topics = [
        "open/a", "open/a", "open/not", "open/not", "else", "open/a", "open/b",
    ];
    let mut bytes = Vec::new();
    for (number, topic) in topics.into_iter().cycle().take(70).enumerate() {
        let qos = [QoS::AtMostOnce, QoS::AtLeastOnce][number % 2];
        bytes.extend(publisher.numbered(topic, qos, [number]));
    }

    publisher.send_bytes(&bytes);

    for number in (0..70).filter(|number| !matches!(number % 7, 2..=4)) {
        let message = subscriber.take_message();
        assert_eq!(
            (message.number(), &*message.topic),
            (number, topics[number % 7])
        );
    }
    for number in (0..70).filter(|number| number % 2 == 1) {
        let Received::PubAck(_, reason) = publisher.receive() else {
            panic!("a PUBACK");
        };
        let is_denied = reason == ReasonCode::NOT_AUTHORIZED;
        assert_eq!(is_denied, matches!(number % 7, 2..=4), "{number}");
    }
}

#[test]
fn a_retained_message_that_the_grant_denies_is_not_replayed() {
    let broker = granting(Grant {
        deny: vec!["secret/#".into()],
        ..Grant::everything()
    });
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish_retained("secret/plan", "x", QoS::AtMostOnce);
    publisher.publish_retained("open", "y", QoS::AtMostOnce);
    publisher.ping();

    let mut client = v5("one").username("user").connect(&broker);
    client.subscribe("#", QoS::AtMostOnce);

    assert_eq!(client.message().topic, "open");
    client.ping();
}

#[test]
fn a_client_is_disconnected_with_0xa0_when_its_grant_ends() {
    let ends = SystemTime::now() + Duration::from_millis(1_200);
    let broker = granting(Grant {
        expires_at: Some(ends),
        ..Grant::everything()
    });
    let mut client = v5("one").username("user").connect(&broker);

    let packets = client.until_closed();

    assert!(SystemTime::now() >= ends, "early");
    let disconnect = Received::Disconnect(ReasonCode::MAXIMUM_CONNECT_TIME);
    assert_eq!(packets, [disconnect]);
}

#[test]
fn a_grant_that_has_ended_already_does_not_last() {
    let broker = granting(Grant {
        expires_at: Some(SystemTime::now() - Duration::from_secs(60)),
        ..Grant::everything()
    });

    let packets = v5("one").username("user").dial(&broker).until_closed();

    assert!(matches!(
        packets.last(),
        Some(Received::Disconnect(_) | Received::ConnAck { .. })
    ));
}

#[test]
fn a_session_outlives_the_grant_and_gets_a_new_one_with_its_next_connection() {
    let lasts = Duration::from_millis(300);
    let plugin = Plugin::default().authenticate(move |login, reply| {
        reply.send(allow(Grant {
            expires_at: login.clean_start.then(|| SystemTime::now() + lasts),
            ..Grant::everything()
        }));
    });
    let broker = start_with(config(), plugin);
    let hello = v5("one").username("user").keeping_session_s(60);
    hello.clone().clean_start().connect(&broker).until_closed();

    let (mut client, present) = hello.connect_or_resume(&broker);

    assert!(present);
    client.hears_nothing_for(lasts * 2);
    client.ping();
}

/// Nothing but what the listener's new configuration gives is different.
fn reload(broker: &Broker, anonymous: Option<Grant>) {
    let mut config = config();
    config.listeners[0].anonymous = anonymous;
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    broker.reload(&config, hooks).expect("reloaded");
}

fn reading_only() -> Grant {
    Grant {
        subscribe: vec!["#".into()],
        ..Grant::default()
    }
}

#[test]
fn a_reload_changes_what_new_connections_may_do_and_leaves_the_others() {
    let broker = start(config());
    let mut old = v5("old").connect(&broker);

    reload(&broker, Some(reading_only()));

    // On every shard: sixteen names live on all of them.
    for index in 0..16 {
        let mut new = v5(&format!("new-{index}")).connect(&broker);
        assert_eq!(
            new.publish_acknowledged("a", ""),
            ReasonCode::NOT_AUTHORIZED
        );
    }
    assert!(!old.publish_acknowledged("a", "").is_error());
}

#[test]
fn a_reload_without_anonymous_access_refuses_new_connections() {
    let broker = start(config());
    let mut old = v5("old").connect(&broker);

    reload(&broker, None);

    for index in 0..16 {
        assert_eq!(v5(&format!("new-{index}")).refused(&broker), 0x87);
    }
    old.ping();
}

#[test]
fn a_reload_with_a_rule_that_is_no_filter_changes_nothing() {
    let broker = start(config());
    let mut bad = config();
    bad.listeners[0].anonymous = Some(Grant {
        publish: vec!["a/#/b".into()],
        ..Grant::default()
    });
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());

    let error = broker.reload(&bad, hooks);

    assert!(matches!(error, Err(StartError::Grant { .. })));
    let mut client = v5("one").connect(&broker);
    assert!(!client.publish_acknowledged("a", "").is_error());
}

/// The listener is still there; what it gives is not.
#[test]
fn a_reload_without_a_listener_closes_it_and_no_connection() {
    let broker = start(config());
    let mut old = v5("old").connect(&broker);
    let mut none = config();
    none.listeners.clear();
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    broker.reload(&none, hooks).expect("reloaded");

    for _ in 0..8 {
        let packets = v5("new").dial(&broker).until_closed();
        assert!(!packets.contains(&Received::ConnAck {
            session_present: false,
            reason: ReasonCode::SUCCESS
        }));
    }

    old.ping();
    assert_eq!(broker.stats().panics, 0);
}

#[test]
fn a_reload_brings_new_plugins_and_new_limits() {
    let broker = start(config());
    let mut stricter = config();
    stricter.limits = Arc::new(ServerLimits {
        client_id_bytes: 3,
        ..ServerLimits::default()
    });
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::welcoming());
    broker.reload(&stricter, hooks).expect("reloaded");

    for _ in 0..8 {
        assert_eq!(v5("long").refused(&broker), 0x85);
        v5("one").username("user").connect(&broker).ping();
    }
}

#[test]
fn a_subscription_that_its_client_may_not_end_stays() {
    let rule = |is_allowed, filter: &str| OrderedRule {
        is_allowed,
        is_exact: false,
        filter: filter.into(),
    };
    let broker = granting(Grant {
        ordered: Some(OrderedRules {
            publish: vec![rule(true, "#")],
            receive: vec![rule(false, "kept/secret"), rule(true, "#")],
            subscribe: vec![rule(true, "kept/#"), rule(true, "free")],
            unsubscribe: vec![rule(true, "free")],
        }),
        ..Grant::default()
    });
    let mut client = v5("one").username("user").connect(&broker);
    client.subscribe("kept/#", QoS::AtMostOnce);
    client.subscribe("free", QoS::AtMostOnce);

    let kept = client.unsubscribe("kept/#");
    let free = client.unsubscribe("free");
    let other = client.try_subscribe("other", QoS::AtMostOnce);
    for topic in ["free", "kept/secret", "kept/a"] {
        client.publish(topic, "", QoS::AtMostOnce);
    }

    assert_eq!([kept, other], [ReasonCode::NOT_AUTHORIZED; 2]);
    assert_eq!(free, ReasonCode::SUCCESS);
    assert_eq!(client.take_message().topic, "kept/a");
}
