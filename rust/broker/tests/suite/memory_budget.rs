//! The budget of memory: what happens above its two watermarks (ADR 0033).

use std::sync::Arc;
use std::sync::Mutex;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, PublishError};
use mqttcore_codec::{Properties, QoS, ReasonCode};

use crate::common::{
    Client, HOUR_S, Home, Plugin, Received, back, config, config_with_limits, eventually,
    line_about, logged, queued, start, start_with, v3, v5,
};

const MIB: usize = 1 << 20;
const BUDGET: usize = 8 * MIB;
const ONCE: QoS = QoS::AtLeastOnce;
const LARGE: usize = 8 * 1024;
const AWAY: usize = 3;
/// For each of them: their queues have room for that.
const MESSAGES: usize = 900;

fn small() -> Config {
    Config {
        memory_bytes: BUDGET,
        ..config()
    }
}

fn used(broker: &Broker) -> usize {
    usize::try_from(broker.stats().memory_used_bytes).expect("it fits")
}

/// A session with a queue, whose client is away.
fn away(broker: &Broker, id: &str, filter: &str) {
    let mut client = v5(id).keeping_session_s(HOUR_S).connect(broker);
    client.subscribe(filter, ONCE);
    client.disconnect();
}

/// Publishes `most` messages to `topic`, or until one is refused; how many were acknowledged. Several clients take part,
/// so that none of them is slowed down.
fn fill(broker: &Broker, topic: &str, most: usize) -> usize {
    const EACH: usize = 40;
    let mut writer = v5("writer").connect(broker);
    for count in 0..most {
        if count % EACH == EACH - 1 {
            writer = v5("writer").connect(broker);
        }
        match writer.publish_acknowledged(topic, format!("{count:0>LARGE$}")) {
            ReasonCode::SUCCESS => {}
            ReasonCode::QUOTA_EXCEEDED => return count,
            other => panic!("{other:?}"),
        }
    }
    most
}

/// Sessions whose queues together take more than the budget, each less than it may.
fn many_away(broker: &Broker) {
    for number in 0..AWAY {
        away(broker, &format!("away-{number}"), &format!("t/{number}"));
    }
}

/// Ends the sessions of `many_away`.
fn end_all(broker: &Broker) {
    for number in 0..AWAY {
        let name = format!("away-{number}");
        v5(&name).clean_start().connect(broker).disconnect();
    }
}

/// Fills the queues of `many_away` in turn until publishes are refused; what was acknowledged for each.
fn fill_all(broker: &Broker) -> Vec<usize> {
    many_away(broker);
    let fill = |number| fill(broker, &format!("t/{number}"), MESSAGES);
    let acknowledged: Vec<usize> = (0..AWAY).map(fill).collect();
    assert!(broker.stats().refused_memory > 0, "{acknowledged:?}");
    acknowledged
}

#[test]
fn publishes_that_would_wait_are_refused_above_the_second_watermark_and_nothing_acknowledged_is_lost()
 {
    let broker = start(small());

    let acknowledged = fill_all(&broker);

    assert!(used(&broker) < BUDGET, "{}", used(&broker));
    assert!(used(&broker) > BUDGET / 100 * 80, "{}", used(&broker));
    assert_eq!(broker.stats().dropped_queue_full, 0);
    for (number, count) in acknowledged.into_iter().enumerate() {
        let mut client = back(&broker, &format!("away-{number}"));
        for expected in 0..count {
            assert_eq!(client.take_message().number(), expected);
        }
    }
}

#[test]
fn after_the_load_everything_is_taken_again() {
    let broker = start(small());
    let before = used(&broker);
    fill_all(&broker);

    end_all(&broker);

    eventually("the memory is there again", || used(&broker) < before + MIB);
    away(&broker, "new", "t/0");
    let mut writer = v5("writer").connect(&broker);
    eventually("publishes are taken again", || {
        writer.publish_acknowledged("t/0", "0") == ReasonCode::SUCCESS
    });
}

#[test]
fn bystanders_notice_nothing() {
    let broker = start(small());
    fill_all(&broker);
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("b", ONCE);
    let mut old = v3("old").connect(&broker);

    for number in 0..200 {
        let payload = number.to_string();
        old.publish("b", &payload, ONCE);
        assert!(matches!(
            old.receive(),
            Received::PubAck(_, ReasonCode::SUCCESS)
        ));
        assert_eq!(reader.take_message().number(), number);
    }
}

/// A window of messages that nobody acknowledges is memory, too.
#[test]
fn a_client_that_acknowledges_nothing_gets_no_more_above_the_second_watermark() {
    let broker = start(small());
    fill_all(&broker);
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("b", ONCE);
    let mut writer = v5("writer").connect(&broker);
    let mut publish = || writer.publish_acknowledged("b", vec![b'x'; 20_000]);

    assert_eq!(publish(), ReasonCode::SUCCESS);
    let Received::Publish(first) = reader.receive() else {
        panic!("no message");
    };
    assert_eq!(publish(), ReasonCode::QUOTA_EXCEEDED);

    reader.acknowledge(&first);
    reader.ping();
    eventually("it may have the next one", || {
        publish() == ReasonCode::SUCCESS
    });
}

#[test]
fn publishers_of_3_x_are_disconnected_without_an_acknowledgement() {
    let broker = start(small());
    let acknowledged = fill_all(&broker);
    let is_all = || queued(&broker, "away-0") == acknowledged[0];
    eventually("other shards have queued what was acknowledged", is_all);
    let mut old = v3("old").connect(&broker);

    old.publish("t/0", vec![0; LARGE], ONCE);

    assert_eq!(old.until_closed(), []);
    assert_eq!(queued(&broker, "away-0"), acknowledged[0]);
}

#[test]
fn new_kept_sessions_and_retained_topics_are_refused_and_those_that_are_there_stay() {
    let broker = start(small());
    let mut writer = v5("writer").connect(&broker);
    writer.publish_retained("kept", "old", ONCE);
    writer.receive();
    writer.disconnect();
    fill_all(&broker);
    let mut writer = v5("another").connect(&broker);

    assert_eq!(
        v5("new").keeping_session_s(HOUR_S).refused(&broker),
        ReasonCode::QUOTA_EXCEEDED.value()
    );
    assert_eq!(v3("new").keeping_session_s(HOUR_S).refused(&broker), 3);
    v5("clean").connect(&broker).ping();
    let id = writer.publish_retained("another", "new", ONCE);
    let refused = Received::PubAck(id, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(writer.receive(), refused);
    writer.publish_retained("kept", "new", ONCE);
    assert!(!matches!(
        writer.receive(),
        Received::PubAck(_, ReasonCode::QUOTA_EXCEEDED)
    ));
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("kept", ONCE);
    assert_eq!(reader.take_message().text(), "new");
    let stats = broker.stats();
    assert_eq!(
        (stats.refused_memory_sessions, stats.refused_memory_retained),
        (2, 1)
    );
}

/// What is retained is changed before a message is matched: a refusal comes before both.
#[test]
fn a_retained_message_that_is_refused_changes_nothing() {
    let broker = start(small());
    let mut writer = v5("writer").connect(&broker);
    writer.publish_retained("t/0", "old", ONCE);
    writer.receive();
    writer.disconnect();
    fill_all(&broker);
    let mut writer = v5("another").connect(&broker);
    let mut old = v3("old").connect(&broker);

    let id = writer.publish_retained("t/0", "new", ONCE);
    old.publish_retained("t/0", "new", QoS::ExactlyOnce);

    let refused = Received::PubAck(id, ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(writer.receive(), refused);
    assert_eq!(old.until_closed(), []);
    let mut reader = v5("reader").connect(&broker);
    reader.subscribe("t/0", ONCE);
    assert_eq!(reader.take_message().text(), "old");
    let id = writer.publish_retained("t/0", "", ONCE);
    let taken = Received::PubAck(id, ReasonCode::SUCCESS);
    assert_eq!(writer.receive(), taken);
}

#[test]
fn a_program_is_told_that_its_message_would_wait() {
    let broker = start(small());
    fill_all(&broker);

    let result = broker.publish("t/0", &[0; LARGE], ONCE, false, Properties::EMPTY);

    assert_eq!(result, Err(PublishError::NoMemory));
}

/// With a store, queues go to the disk above the first watermark, so that nothing has to be refused.
#[test]
fn with_a_store_queues_go_to_the_disk_and_nothing_is_refused() {
    const EACH: usize = 600;
    let home = Home::new();
    let broker = home.start_with(0, small());
    let mut writer = v5("writer").connect(&broker);
    many_away(&broker);

    for count in 0..EACH {
        for number in 0..AWAY {
            let payload = format!("{count:0>LARGE$}");
            let told = writer.publish_acknowledged(&format!("t/{number}"), payload);
            assert_eq!(told, ReasonCode::SUCCESS);
        }
    }

    let stats = broker.stats();
    assert_eq!((stats.refused_memory, stats.dropped_queue_full), (0, 0));
    assert!(used(&broker) < BUDGET / 100 * 85, "{}", used(&broker));
    for number in 0..AWAY {
        let mut client = back(&broker, &format!("away-{number}"));
        for expected in 0..EACH {
            assert_eq!(client.take_message().number(), expected);
        }
    }
}

/// Abuse F11.
#[test]
fn wills_are_counted_and_large_ones_are_refused_above_the_second_watermark() {
    const WILL: usize = 7_000;
    let broker = start(small());
    let with_will = |number: usize, bytes| {
        let id = format!("will-{number}");
        v5(&id).will("wills", &"x".repeat(bytes))
    };
    let before = used(&broker);
    let clients: Vec<Client> = (0..100)
        .map(|number| with_will(number, WILL).connect(&broker))
        .collect();
    assert!(used(&broker) - before > clients.len() * WILL);
    assert!(used(&broker) - before < clients.len() * 2 * WILL);
    for client in clients {
        client.disconnect();
    }
    eventually("the wills are gone", || used(&broker) < before + WILL);
    let mut returns = v5("kept").keeping_session_s(HOUR_S).connect(&broker);
    returns.ping();
    fill_all(&broker);

    let told = [
        with_will(0, 1_100).refused(&broker),
        v5("kept")
            .will("wills", &"x".repeat(1_100))
            .refused(&broker),
    ];

    assert_eq!(told, [ReasonCode::QUOTA_EXCEEDED.value(); 2]);
    assert_eq!(broker.stats().refused_memory_sessions, 2);
    returns.ping();
    with_will(0, 900).connect(&broker).ping();
}

/// These wait until the client is let in, and are messages of it like those that come later.
#[test]
fn messages_that_come_with_connect_are_counted() {
    let broker = start(small());
    away(&broker, "away", "b");
    let before = broker.stats().memory_messages_bytes;
    // PUBLISH of 1,505 bytes at QoS 1: it fits one read with CONNECT.
    let mut publish = vec![0x32, 0xE1, 0x0B, 0, 1, b'b', 0, 1];
    publish.resize(publish.len() + 1_500, 0);

    let mut writer = v3("writer").open(broker.addresses()[0]);
    writer.send_bytes(&[v3("writer").bytes(), publish].concat());
    writer.expect_welcome();
    writer.receive();

    // PUBACK says that the message is on its way to the other shard.
    eventually("it is queued", || queued(&broker, "away") == 1);
    assert!(broker.stats().memory_messages_bytes >= before + 1_500);
}

/// A client that is here and acknowledges nothing has its queue counted, too.
#[test]
fn the_queue_of_a_client_that_does_not_acknowledge_counts() {
    let config = config_with_limits(|limits| {
        limits.queue_bytes = 64 * MIB;
        limits.queue_messages = 10_000;
    });
    let broker = start(Config {
        memory_bytes: BUDGET,
        ..config
    });
    let mut mute = v5("mute").connect(&broker);
    mute.subscribe("t", ONCE);
    let mut drain = mute.second_hand();
    std::thread::spawn(move || while drain.next_packet().is_some() {});

    let count = fill(&broker, "t", 5_000);

    assert!(count < 5_000);
    assert!(used(&broker) < BUDGET);
}

/// Abuse H03: frames that are not whole yet are memory, too.
#[test]
fn packets_above_64_kib_are_refused_above_the_second_watermark() {
    let broker = start(small());
    let mut bystander = v5("bystander").connect(&broker);
    let mut clients: Vec<Client> = Vec::new();
    // PUBLISH of 1,000,000 bytes, of which 900,000 come.
    let mut begun = vec![0x30, 0xC0, 0x84, 0x3D, 0, 1, b't'];
    begun.resize(900_000, 0);

    eventually("a large packet is refused", || {
        let mut client = v5(&format!("large-{}", clients.len())).connect(&broker);
        client.try_send_bytes(&begun);
        clients.push(client);
        bystander.ping();
        broker.stats().refused_memory_packets > 0
    });

    assert!(clients.len() < 60, "{}", clients.len());
    drop(clients);
    eventually("the memory is there again", || used(&broker) < MIB);
}

/// A read may end within any frame.
#[test]
fn a_client_that_sends_many_packets_at_once_is_read_above_the_second_watermark() {
    let broker = start(small());
    fill_all(&broker);
    let mut writer = v5("many").connect(&broker);
    // PUBLISH of 20,003 bytes.
    let mut publish = vec![0x30, 0xA3, 0x9C, 0x01, 0, 1, b'b'];
    publish.resize(publish.len() + 20_000, 0);

    let before = broker.stats().messages_received;
    writer.send_bytes(&publish.repeat(40));

    // The writer may be slowed down as the largest sender.
    eventually("all of them are read", || {
        broker.stats().messages_received == before + 40
    });
    assert_eq!(broker.stats().refused_memory_packets, 0);
}

#[test]
fn qos_0_does_not_wait_above_the_first_watermark() {
    let broker = start(Config {
        memory_bytes: BUDGET,
        ..config_with_limits(|limits| {
            limits.queue_qos0 = true;
            limits.queue_bytes = 64 * MIB;
            limits.queue_messages = 10_000;
        })
    });
    away(&broker, "away", "#");
    let acknowledged = fill(&broker, "t", 5_000);
    eventually("all are queued", || queued(&broker, "away") == acknowledged);
    let mut writer = v5("writer").connect(&broker);

    writer.publish("lossy", "0", QoS::AtMostOnce);

    // The writer may be slowed down as the largest sender.
    eventually("it is dropped", || broker.stats().dropped_memory > 0);
    assert_eq!(queued(&broker, "away"), acknowledged);
}

/// The sender whose messages take most is read slowly; it is read all the same.
#[test]
fn the_largest_sender_is_slowed_down_and_goes_on() {
    let broker = start(small());
    many_away(&broker);
    let mut writer = v5("writer").connect(&broker);
    let mut other = v5("other").connect(&broker);

    eventually("the writer is slowed down", || {
        let (payload, number) = (vec![0; LARGE], used(&broker) / (5 * MIB));
        writer.publish_acknowledged(&format!("t/{}", number.min(AWAY - 1)), payload);
        broker.stats().slowed_memory > 0
    });

    assert_eq!(broker.stats().slowed_memory, 1);
    for _ in 0..100 {
        other.ping();
    }
    let before = broker.stats().messages_received;
    writer.publish("t/none", "0", QoS::AtMostOnce);
    eventually("the slowed writer is read all the same", || {
        broker.stats().messages_received == before + 1
    });
    end_all(&broker);
    eventually("the memory is there again", || used(&broker) < MIB);
    for number in 2..22 {
        writer.publish("t/none", "0", QoS::AtMostOnce);
        eventually("it is read as ever", || {
            broker.stats().messages_received == before + number
        });
    }
}

#[test]
fn refusals_are_logged_with_the_address_of_the_client() {
    let lines = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&lines);
    let plugin = Plugin::default().log_lines(move |line| seen.lock().unwrap().push(line));
    let broker = start_with(small(), plugin);
    fill_all(&broker);

    let said = |what: &str| lines.lock().unwrap().iter().any(|line| line.contains(what));
    eventually("the refusal and the level are logged", || {
        said("publish refused of client writer at 127.0.0.1:") && said("memory: ")
    });
}

#[test]
fn a_reload_changes_the_budget() {
    let broker = start(small());
    assert_eq!(broker.stats().memory_budget_bytes, BUDGET as u64);
    let hooks: Arc<dyn mqttcore_broker::Hooks> = Arc::new(Plugin::default());
    let more = Config {
        memory_bytes: 2 * BUDGET,
        ..small()
    };

    broker.reload(&more, hooks).expect("it is taken");

    eventually("the new budget is in force", || {
        broker.stats().memory_budget_bytes == 2 * BUDGET as u64
    });
}

/// Nobody knows the address of a client that was not here since the start.
#[test]
fn drops_for_clients_of_an_earlier_run_are_logged_without_an_address() {
    let home = Home::new();
    let config = || Config {
        memory_bytes: BUDGET,
        data: Some(home.data(0)),
        ..config_with_limits(|limits| limits.queue_qos0 = true)
    };
    let first = start(config());
    away(&first, "away", "lossy");
    drop(first);
    let (broker, lines) = logged(config());
    let mut small = v5("small").connect(&broker);
    let mut writer = v5("writer").connect(&broker);
    for number in 0..BUDGET / LARGE * 4 / 5 {
        writer.publish_retained(&format!("kept/{number}"), [0; LARGE], QoS::AtMostOnce);
    }

    // The writer is slowed down as the largest sender.
    eventually("a message is dropped", || {
        small.publish("lossy", "0", QoS::AtMostOnce);
        broker.stats().dropped_memory > 0
    });

    line_about(
        &lines,
        "QoS 0 message dropped of client away: memory is short",
    );
}

/// Abuse H01: what the system holds for a client that stops to read is not part of the budget, so only few clients of
/// large messages may have a MiB of it.
#[test]
fn the_system_holds_a_mib_unsent_for_few_clients_only() {
    const CLIENTS: usize = 8;
    let broker = start(Config {
        shards: 1,
        // A sixteenth is for two of them.
        memory_bytes: 32 * MIB,
        ..config()
    });
    let connect = |number| {
        let id = format!("stalled-{number}");
        let mut client = v5(&id).small_buffer().connect(&broker);
        client.subscribe("flood", QoS::AtMostOnce);
        client
    };
    let _stalled: Vec<Client> = (0..CLIENTS).map(connect).collect();
    let mut publisher = v5("publisher").connect(&broker);
    let before = broker.stats().bytes_sent;

    for _ in 0..4 {
        publisher.publish("flood", vec![0; 1_000_000], QoS::AtMostOnce);
    }

    let sent = || broker.stats().bytes_sent - before;
    eventually("two sockets hold a MiB", || sent() > 2 << 20);
    publisher.hears_nothing_for(Duration::from_millis(200));
    assert!(sent() < 4 << 20, "{} bytes", sent());
}
