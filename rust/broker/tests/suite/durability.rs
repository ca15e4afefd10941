//! Levels by listener, topic and client: what each of them keeps through a crash, and what it does not.
//!
//! Levels above `memory` differ in what they wait for; here is told what they keep. See `durable.rs` for the rest.

use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use mqttcore_broker::{
    Broker, Config, Data, Durability, EventKind, Grant, Listener, TopicDurability,
};
use mqttcore_codec::{Properties, QoS};

use crate::common::{
    Client, DEADLINE, HOUR_S, Hello, Home, Plugin, Received, allow, config, config_with_limits,
    eventually, figure, filter, start, start_with, v5,
};

const BASE: usize = 0;
const MEMORY: usize = 1;

/// The broker says `os`; its second listener, and topics below `lost`, say `memory`; topics below `kept` say `fsync`.
fn several_durabilities() -> Config {
    let mut config = config();
    config.listeners.push(Listener {
        durability: Some(Durability::Memory),
        ..config.listeners[0].clone()
    });
    let rule = |text: &str, durability| TopicDurability {
        filter: filter(text),
        durability,
    };
    config.topic_durability = vec![
        rule("lost/#", Durability::Memory),
        rule("kept/#", Durability::Fsync),
    ];
    config
}

fn resuming(id: &str) -> Hello {
    v5(id).keeping_session_s(HOUR_S)
}

fn subscribed(broker: &Broker, id: &str, listener: usize) -> Client {
    let (mut client, _) = resuming(id).connect_at(broker, listener);
    client.subscribe("#", QoS::ExactlyOnce);
    client
}

/// Everything that waits for a client which subscribed to everything, in order. No ping would tell: a queue is read back
/// from the disk while its client is here.
fn waiting(broker: &Broker, client: &mut Client) -> Vec<String> {
    let end = broker.publish("end", b"end", QoS::AtLeastOnce, false, Properties::EMPTY);
    assert_eq!(end, Ok(1));
    let texts = std::iter::from_fn(|| Some(client.message().text().to_owned()));
    texts.take_while(|text| text != "end").collect()
}

#[test]
fn a_listener_says_how_sessions_are_kept() {
    let home = Home::new();
    let first = home.start_with(0, several_durabilities());
    subscribed(&first, "base", BASE).vanish();
    subscribed(&first, "memory", MEMORY).vanish();

    let second = home.crash_with(first, 0, several_durabilities());

    assert!(resuming("base").connect_at(&second, BASE).1);
    assert!(!resuming("memory").connect_at(&second, MEMORY).1);
}

#[test]
fn a_publish_has_the_durability_of_its_topic_and_else_of_its_client() {
    let home = Home::new();
    let first = home.start_with(0, several_durabilities());
    subscribed(&first, "reader", BASE).vanish();
    let (mut base, _) = v5("base").connect_at(&first, BASE);
    let (mut memory, _) = v5("memory").connect_at(&first, MEMORY);
    for (client, name) in [(&mut base, "base"), (&mut memory, "memory")] {
        for topic in ["lost/1", "kept/1", "other"] {
            client.publish_acknowledged(topic, format!("{name} {topic}"));
        }
    }

    let second = home.crash_with(first, 0, several_durabilities());

    let (mut reader, _) = resuming("reader").connect_at(&second, BASE);
    let texts = waiting(&second, &mut reader);
    assert_eq!(texts, ["base kept/1", "base other", "memory kept/1"]);
}

/// What was replaced must not come back, whatever becomes of that which took its place.
#[test]
fn a_retained_message_of_memory_ends_the_one_that_was_kept() {
    let home = Home::new();
    let first = home.start_with(0, several_durabilities());
    let (mut base, _) = v5("base").connect_at(&first, BASE);
    let (mut memory, _) = v5("memory").connect_at(&first, MEMORY);
    for topic in ["replaced", "cleared", "stays"] {
        base.publish_retained(topic, "old", QoS::AtLeastOnce);
        base.receive();
    }
    memory.publish_retained("replaced", "new", QoS::AtLeastOnce);
    memory.publish_retained("cleared", "", QoS::AtLeastOnce);
    memory.publish_retained("other", "new", QoS::AtLeastOnce);
    (0..3).for_each(|_| drop(memory.receive()));

    let second = home.crash_with(first, 0, several_durabilities());

    let (mut reader, _) = v5("reader").connect_at(&second, BASE);
    reader.subscribe("#", QoS::AtMostOnce);
    assert_eq!(reader.message().topic, "stays");
    reader.ping();
}

#[test]
fn messages_in_memory_are_delivered_like_all_others() {
    let home = Home::new();
    let broker = home.start_with(0, several_durabilities());
    subscribed(&broker, "reader", BASE).vanish();
    let mut writer = v5("writer").connect(&broker);
    for (topic, qos) in [
        ("lost/1", QoS::AtLeastOnce),
        ("kept/1", QoS::AtLeastOnce),
        ("lost/2", QoS::ExactlyOnce),
    ] {
        writer.publish(topic, topic, qos);
        writer.receive();
    }

    let mut reader = resuming("reader").connect(&broker);

    let texts: Vec<String> = (0..3)
        .map(|_| reader.take_message().text().to_owned())
        .collect();
    assert_eq!(texts, ["lost/1", "kept/1", "lost/2"]);
}

#[test]
fn a_grant_says_how_its_client_is_kept() {
    let plugin = || {
        Plugin::default().authenticate(|login, reply| {
            let durability = match login.username.as_deref() {
                Some("careless") => Some(Durability::Memory),
                Some("careful") => Some(Durability::Os),
                _ => None,
            };
            reply.send(allow(Grant {
                durability,
                ..Grant::everything()
            }));
        })
    };
    let home = Home::new();
    let data = |number: u32, durability| Config {
        data: Some(Data {
            folder: home.folder(number),
            durability,
        }),
        ..config()
    };
    let first = start_with(data(0, Durability::Memory), plugin());
    for name in ["careless", "careful", "silent"] {
        let hello = resuming(name).username(name);
        hello.connect(&first).subscribe("t", QoS::AtLeastOnce);
    }
    let mut careful = v5("writer").username("careful").connect(&first);
    careful.publish_acknowledged("t", "!");
    first.stop(Duration::from_secs(5));

    let second = start_with(data(0, Durability::Memory), plugin());

    for (name, is_kept) in [("careless", false), ("careful", true), ("silent", false)] {
        let hello = resuming(name).username(name);
        assert_eq!(hello.connect_or_resume(&second).1, is_kept, "{name}");
    }
}

/// The store hears of the session when it comes through the other listener, with all that it has by then.
#[test]
fn a_session_may_rise_from_memory() {
    let home = Home::new();
    let first = home.start_with(0, several_durabilities());
    let mut reader = subscribed(&first, "riser", MEMORY);
    let mut writer = v5("writer").connect(&first);
    writer.publish_acknowledged("lost/1", "gone");
    let gone = reader.message();
    let open = reader.publish("lost/2", "open", QoS::ExactlyOnce);
    while !matches!(reader.receive(), Received::PubRec(..)) {}
    reader.vanish();
    let (reader, is_resumed) = resuming("riser").connect_at(&first, BASE);
    assert!(is_resumed);
    reader.vanish();
    writer.publish_acknowledged("kept/1", "here");

    let second = home.crash_with(first, 0, several_durabilities());

    let (mut reader, is_resumed) = resuming("riser").connect_at(&second, BASE);
    assert!(is_resumed);
    assert_eq!(gone.text(), "gone");
    let (released, here) = (reader.receive(), reader.message());
    assert!(matches!(released, Received::PubRel(..)), "{released:?}");
    assert_eq!(here.text(), "here");
    reader.pubrel(open);
    match reader.receive() {
        Received::PubComp(id, reason) => assert_eq!((id, reason.value()), (open, 0)),
        other => panic!("no PUBCOMP: {other:?}"),
    }
}

/// The client may have the message. Whoever gives its identifier to another one loses that.
#[test]
fn an_identifier_of_qos_2_outlives_a_message_that_does_not() {
    for rises in [false, true] {
        let home = Home::new();
        let first = home.start_with(0, several_durabilities());
        let mut reader = subscribed(&first, "reader", if rises { MEMORY } else { BASE });
        let mut writer = v5("writer").connect(&first);
        writer.publish("lost/1", "gone", QoS::ExactlyOnce);
        assert!(matches!(writer.receive(), Received::PubRec(..)));
        let gone = reader.message();
        reader.vanish();
        if rises {
            resuming("reader").connect_at(&first, BASE).0.vanish();
        }

        let second = home.crash_with(first, 0, several_durabilities());

        let (mut reader, is_resumed) = resuming("reader").connect_at(&second, BASE);
        assert!(is_resumed);
        match reader.receive() {
            Received::PubRel(id, _) => assert_eq!(id, gone.packet_id),
            other => panic!("no release: {other:?}"),
        }
        reader.pubcomp(gone.packet_id);
        let sent = second.publish(
            "kept/1",
            b"here",
            QoS::ExactlyOnce,
            false,
            Properties::EMPTY,
        );
        assert_eq!(sent, Ok(1));
        assert_eq!(reader.message().text(), "here");
    }
}

/// A session keeps its durability, whatever listener its client reconnects at.
#[test]
fn a_kept_session_does_not_sink_to_memory() {
    let home = Home::new();
    let first = home.start_with(0, several_durabilities());
    subscribed(&first, "reader", BASE).vanish();
    v5("writer")
        .connect(&first)
        .publish_acknowledged("kept/1", "here");
    let (reader, is_resumed) = resuming("reader")
        .receive_maximum(1)
        .connect_at(&first, MEMORY);
    assert!(is_resumed);
    reader.vanish();
    eventually("the reader is away", || {
        let clients = first.clients();
        let mut readers = clients.iter().filter(|one| &*one.client_id == "reader");
        readers.all(|one| !one.connected)
    });

    let second = home.crash_with(first, 0, several_durabilities());

    let (mut reader, is_resumed) = resuming("reader").connect_at(&second, BASE);
    assert!(is_resumed);
    assert_eq!(reader.message().text(), "here");
}

/// Each publish waits for what its own topic asks for, and their acknowledgements keep their order.
#[test]
fn acknowledgements_of_each_durability_come_in_the_order_of_their_publishes() {
    let home = Home::new();
    let broker = home.start_with(0, several_durabilities());
    subscribed(&broker, "reader", BASE).vanish();
    let mut writer = v5("writer").connect(&broker);
    let topics = ["kept/1", "lost/1", "other", "kept/2", "other", "lost/2"];

    let sent: Vec<u16> = (0..60)
        .map(|number| {
            let qos = [QoS::AtLeastOnce, QoS::ExactlyOnce][number / 7 % 2];
            writer.publish(topics[number % topics.len()], "!", qos)
        })
        .collect();

    let answers: Vec<u16> = (0..60)
        .map(|_| match writer.receive() {
            Received::PubAck(id, _) | Received::PubRec(id, _) => id,
            other => panic!("no acknowledgement: {other:?}"),
        })
        .collect();
    assert_eq!(answers, sent);
}

/// The third book: what is dropped has a counter and an event, and below the limit nothing is.
#[test]
fn dropped_messages_are_counted_and_logged_and_below_the_limits_none_are() {
    let home = Home::new();
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().events(&[EventKind::Dropped], move |event| {
        // The test may be over.
        let _ = sender.lock().expect("no panic").send(event);
    });
    let small = config_with_limits(|limits| limits.queue_disk_messages = 10);
    let broker = start_with(
        Config {
            data: Some(home.data(0)),
            ..small
        },
        plugin,
    );
    subscribed(&broker, "reader", 0).disconnect();
    let mut writer = v5("writer").connect(&broker);

    for number in 0..10 {
        writer.publish_acknowledged("t", number.to_string());
    }
    assert_eq!(broker.stats().dropped_queue_full, 0);
    assert!(events.try_recv().is_err());
    writer.publish_acknowledged("t/too", "much");

    let told = events.recv_timeout(DEADLINE).expect("an event");
    assert_eq!(
        (&*told.client_id, told.topic.as_deref()),
        ("reader", Some("t/too"))
    );
    assert_eq!(broker.stats().dropped_queue_full, 1);
    broker.stop(DEADLINE);
    let second = home.start(0);
    let (mut reader, _) = resuming("reader").connect_at(&second, 0);
    let texts = waiting(&second, &mut reader);
    assert_eq!(
        texts,
        (0..10).map(|number| number.to_string()).collect::<Vec<_>>()
    );
}

#[test]
fn a_queue_that_is_nearly_full_is_logged_once_and_counted() {
    let home = Home::new();
    let (sender, lines) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().log_lines(move |line| {
        if line.contains("% full") {
            // The test may be over.
            let _ = sender.lock().expect("no panic").send(line);
        }
    });
    let small = || config_with_limits(|limits| limits.queue_disk_messages = 10);
    let with_data = Config {
        data: Some(home.data(0)),
        ..small()
    };
    let broker = start_with(with_data, plugin);
    subscribed(&broker, "reader", 0).disconnect();
    let mut writer = v5("writer").connect(&broker);

    for _ in 0..7 {
        writer.publish_acknowledged("t", "!");
    }
    assert!(lines.try_recv().is_err());
    for _ in 0..4 {
        writer.publish_acknowledged("t", "!");
    }

    let line = lines.recv_timeout(DEADLINE).expect("a line");
    assert!(
        line.starts_with("queue of client reader at 127.0.0.1:")
            && line.contains(" is 80 % full: 8 messages"),
        "{line}"
    );
    eventually("one is dropped", || {
        broker.stats().dropped_acknowledged == 1
    });
    assert!(lines.try_recv().is_err(), "one line");
    assert_eq!(broker.stats().queues_nearly_full, 1);
    drop(writer);
    let broker = home.crash_with(broker, 0, small());
    eventually("the session is there", || {
        broker.stats().queues_nearly_full == 1
    });
    let (mut reader, _) = resuming("reader").connect_at(&broker, 0);
    for _ in 0..10 {
        reader.take_message();
    }
    eventually("nothing waits", || broker.stats().queues_nearly_full == 0);
}

#[test]
fn the_figures_of_the_store_are_those_of_its_work() {
    let home = Home::new();
    let data = Data {
        folder: PathBuf::new(),
        durability: Durability::Fsync,
    };
    let durable = Config {
        data: Some(data),
        ..config()
    };
    let broker = home.start_with(0, durable);
    let figure = |name: &str| figure(&broker, &format!("store_{name}"));
    let before = (figure("syncs"), figure("records"));
    subscribed(&broker, "reader", BASE).vanish();

    v5("writer")
        .connect(&broker)
        .publish_acknowledged("t", vec![b'x'; 5_000]);

    assert!(figure("syncs") >= before.0 + 3, "CONNACK, SUBACK, PUBACK");
    assert!(figure("records") >= before.1 + 3);
    assert!(figure("sync_p50_us") > 0 && figure("sync_p50_us") <= figure("sync_p99_us"));
    assert_eq!((figure("segments"), figure("pressure")), (1, 0));
    assert!(figure("log_bytes") >= 64 << 20);
    eventually("the message is seen", || figure("live_bytes") >= 5_000);
    assert!(figure("pending_rows") > 0 || figure("checkpoints") > 0);
    eventually("everything is synced", || figure("records_not_synced") == 0);
    let mut without_store = start(config()).figures().into_iter();
    assert!(without_store.all(|(name, _)| name != "store_records"));
}

#[test]
fn sys_topics_have_the_durability_in_force() {
    let home = Home::new();
    let broker = home.start_with(0, several_durabilities());

    let told = "os; memory at test; memory on lost/#; fsync on kept/#";
    assert_eq!(broker.guarantees(), told);
    let without_rules = Config {
        data: Some(Data {
            folder: PathBuf::from("elsewhere"),
            durability: Durability::Fsync,
        }),
        ..config()
    };
    let hooks: std::sync::Arc<dyn mqttcore_broker::Hooks> = std::sync::Arc::new(Plugin::default());
    broker.reload(&without_rules, hooks).expect("a reload");
    assert_eq!(broker.guarantees(), "fsync");
    assert_eq!(start(config()).guarantees(), "memory");
}
