//! A client that does not keep up pays for it itself: nobody waits for it, and what it misses is
//! counted.

use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use mqttcore_broker::{Broker, Config};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::{QueuePolicy, ServerLimits};

use crate::common::{
    Client, DEADLINE, Plugin, Received, config, config_with_limits, deep_queues, eventually, start,
    start_with, v3, v5,
};

const BACKLOG: usize = 256 * 1024;

fn with_backlog() -> Config {
    config_with_limits(|limits| limits.qos0_backlog_bytes = BACKLOG)
}

/// Subscribed to `flood`, with a receive buffer that is full soon; it reads nothing from now on.
fn stalled(broker: &Broker, qos: QoS) -> Client {
    let mut client = v5("stalled").small_buffer().connect(broker);
    client.subscribe("flood", qos);
    client
}

/// A client that hears what it publishes itself, so that it is never slow.
struct Echo(Client);

impl Echo {
    fn new(broker: &Broker) -> Self {
        let mut client = v3("echo").connect(broker);
        client.subscribe("flood", QoS::AtMostOnce);
        Self(client)
    }

    /// Publishes messages of 1,000 bytes in steps, and hears each of them.
    fn flood(&mut self, messages: usize) {
        for _ in 0..messages / 100 {
            for _ in 0..100 {
                self.0.publish("flood", [b'.'; 1_000], QoS::AtMostOnce);
            }
            for _ in 0..100 {
                assert_eq!(self.0.message().payload.len(), 1_000);
            }
        }
    }
}

/// Abuse H01
#[test]
fn qos_0_messages_beyond_the_backlog_of_a_stalled_client_are_dropped_and_counted() {
    let broker = start(with_backlog());
    let mut stalled = stalled(&broker, QoS::AtMostOnce);
    let mut echo = Echo::new(&broker);

    echo.flood(10_000);
    eventually("each message is on its way twice, or counted", || {
        let stats = broker.stats();
        stats.messages_sent + stats.dropped_qos0_backlog == 20_000
    });

    let dropped = broker.stats().dropped_qos0_backlog;
    assert!(dropped > 0);
    // Every message is either one that it can still read, or counted.
    let mut publisher = v3("publisher").connect(&broker);
    let mut got = 0;
    loop {
        let message = stalled.message();
        if message.payload.is_empty() {
            break;
        }
        got += 1;
        if got == 10_000 - dropped {
            publisher.publish("flood", "", QoS::AtMostOnce);
        }
    }
    assert_eq!(got + dropped, 10_000);
    assert_eq!(broker.stats().dropped_qos0_backlog, dropped);
}

#[test]
fn a_stalled_client_costs_other_clients_no_message() {
    let broker = start(with_backlog());
    let _stalled = stalled(&broker, QoS::AtMostOnce);

    // Each flood is heard to its last message by the one who sends it.
    Echo::new(&broker).flood(10_000);

    v5("newcomer").connect(&broker).ping();
}

#[test]
fn qos_1_messages_beyond_send_quota_and_queue_are_dropped_and_counted() {
    const WINDOW: usize = 32;
    const QUEUE: usize = 100;
    let broker = start(config_with_limits(|limits| {
        limits.queue_messages = QUEUE;
    }));
    let mut stalled = stalled(&broker, QoS::AtLeastOnce);
    let mut publisher = v3("publisher").connect(&broker);

    publisher.publish_numbers("flood", QoS::AtLeastOnce, 1_000);

    eventually("the rest is dropped", || {
        broker.stats().dropped_queue_full == (1_000 - WINDOW - QUEUE) as u64
    });
    let client = &broker.clients()[..];
    let client = client.iter().find(|client| &*client.client_id == "stalled");
    let (in_flight, queued) = client.map_or((0, 0), |client| (client.in_flight, client.queued));
    assert_eq!((in_flight, queued), (WINDOW, QUEUE));
    for number in 0..WINDOW + QUEUE {
        assert_eq!(stalled.take_message().number(), number);
    }
    stalled.ping();
}

#[test]
fn a_queue_that_drops_the_oldest_keeps_the_newest_and_counts_the_others() {
    let broker = start(config_with_limits(|limits| {
        limits.queue_messages = 10;
        limits.queue_policy = QueuePolicy::DropOldest;
    }));
    let hello = v5("away").keeping_session_s(60);
    let mut client = hello.connect(&broker);
    client.subscribe("flood", QoS::AtLeastOnce);
    client.disconnect();

    v3("publisher")
        .connect(&broker)
        .publish_numbers("flood", QoS::AtLeastOnce, 100);

    eventually("the oldest are counted", || {
        broker.stats().dropped_queue_full == 90
    });
    let mut client = hello.connect(&broker);
    for number in 90..100 {
        assert_eq!(client.take_message().number(), number);
    }
}

#[test]
fn where_a_full_queue_disconnects_the_client_hears_0x97_at_once() {
    let broker = start(config_with_limits(|limits| {
        limits.queue_messages = 10;
        limits.queue_policy = QueuePolicy::Disconnect;
    }));
    let mut client = v5("one").connect(&broker);
    client.subscribe("flood", QoS::AtLeastOnce);

    v3("publisher")
        .connect(&broker)
        .publish_numbers("flood", QoS::AtLeastOnce, 100);

    let packets = client.until_closed();
    let disconnect = Received::Disconnect(ReasonCode::QUOTA_EXCEEDED);
    assert_eq!(packets.last(), Some(&disconnect));
}

fn stalling_after(stall_deadline: Duration) -> Config {
    Config {
        stall_deadline,
        ..deep_queues()
    }
}

/// More than the sockets hold.
fn block(broker: &Broker) {
    let mut publisher = v3("publisher").connect(broker);
    for _ in 0..8 {
        publisher.publish("flood", vec![0; 1_000_000], QoS::AtMostOnce);
    }
    publisher.ping();
    publisher.disconnect();
}

/// Abuse H01
#[test]
fn a_client_that_takes_no_byte_until_the_stall_deadline_is_disconnected() {
    const STALL: Duration = Duration::from_millis(500);
    let (sender, lines) = channel();
    let plugin = Plugin::default().log_lines(move |line| drop(sender.send(line)));
    let broker = start_with(stalling_after(STALL), plugin);
    let mut stalled = stalled(&broker, QoS::AtMostOnce);

    let start = Instant::now();
    block(&broker);
    eventually("it is disconnected", || {
        broker.stats().clients_connected == 0
    });

    assert!(start.elapsed() >= STALL);
    eventually("its session ends", || broker.stats().sessions == 0);
    assert_eq!(broker.stats().stalled, 1);
    assert!(stalled.is_closed_within(DEADLINE));
    let is_of_it = |line: &String| line.contains("stalled") && line.contains(" disconnected: ");
    let line = lines.try_iter().filter(is_of_it).last();
    let text = " disconnected: 0x97 Quota exceeded: the client does not read what the broker sends";
    assert!(line.is_some_and(|line| line.ends_with(text)));
}

/// Abuse H02 the other way round: progress is what counts, not speed. A client that reads nothing shows when the deadline
/// has passed.
#[test]
fn a_client_that_takes_some_bytes_before_each_stall_deadline_stays() {
    let broker = start(stalling_after(Duration::from_secs(4)));
    let mut slow = v5("slow").receive_buffer(64 * 1024).connect(&broker);
    slow.subscribe("flood", QoS::AtMostOnce);
    let mut stalled = stalled(&broker, QoS::AtMostOnce);
    let mut bystander = v5("bystander").connect(&broker);
    block(&broker);

    while broker.stats().stalled == 0 {
        bystander.hears_nothing_for(Duration::from_millis(100));
        slow.read_a_little();
    }

    for _ in 0..8 {
        assert_eq!(slow.message().payload.len(), 1_000_000);
    }
    assert!(stalled.is_closed_within(DEADLINE));
    assert_eq!(broker.stats().stalled, 1);
}

#[test]
fn a_client_that_has_nothing_to_take_is_not_stalled() {
    let broker = start(stalling_after(Duration::from_millis(300)));
    let mut idle = stalled(&broker, QoS::AtMostOnce);

    idle.hears_nothing_for(Duration::from_millis(900));

    idle.ping();
    assert_eq!(broker.stats().stalled, 0);
}

#[test]
fn a_session_that_is_kept_survives_the_stall() {
    let broker = start(stalling_after(Duration::from_millis(300)));
    let hello = v5("stalled").keeping_session_s(60);
    let mut client = hello.clone().small_buffer().connect(&broker);
    client.subscribe("flood", QoS::AtMostOnce);
    client.subscribe("kept", QoS::AtLeastOnce);
    block(&broker);
    eventually("it is disconnected", || broker.stats().stalled == 1);
    eventually("it is gone", || broker.stats().clients_connected == 0);

    v5("publisher")
        .connect(&broker)
        .publish_acknowledged("kept", "for later");

    let (mut client, present) = hello.connect_or_resume(&broker);
    assert!(present);
    assert_eq!(client.take_message().text(), "for later");
}

/// It speaks in time; that the broker does not listen meanwhile is not its silence.
#[test]
fn a_slow_reader_that_pings_is_not_closed_for_silence() {
    let broker = start(deep_queues());
    let mut slow = v5("slow").keep_alive_s(1).small_buffer().connect(&broker);
    slow.subscribe("flood", QoS::AtMostOnce);
    let mut bystander = v5("bystander").connect(&broker);
    block(&broker);

    for _ in 0..2 {
        slow.send_bytes(b"\xC0\x00");
        bystander.hears_nothing_for(Duration::from_millis(900));
    }

    for _ in 0..8 {
        assert_eq!(slow.message().payload.len(), 1_000_000);
    }
    assert_eq!(slow.receive(), Received::PingResp);
}

/// One shard: a member that is full is so before the next publish is matched.
fn team() -> Broker {
    start(Config {
        shards: 1,
        ..config()
    })
}

/// Abuse E17: a member of a shared group that acknowledges nothing gets what it may have in flight, and no more.
#[test]
fn a_member_of_a_shared_group_without_send_quota_is_passed_over() {
    const WINDOW: usize = 2;
    let broker = team();
    let mut stuck = v5("stuck").receive_maximum(2).connect(&broker);
    stuck.subscribe("$share/team/work", QoS::AtLeastOnce);
    let mut member = v5("member").connect(&broker);
    member.subscribe("$share/team/work", QoS::AtLeastOnce);

    let mut publisher = v3("publisher").connect(&broker);
    for _ in 0..20 {
        publisher.publish_acknowledged("work", "");
    }

    for _ in 0..20 - WINDOW {
        member.take_message();
    }
    member.ping();
    let held = [stuck.message(), stuck.message()];
    stuck.ping();

    // With room again it takes its share again.
    for message in &held {
        stuck.acknowledge(message);
    }
    stuck.ping();
    for _ in 0..2 {
        publisher.publish_acknowledged("work", "");
    }
    stuck.take_message();
    member.take_message();
}

#[test]
fn when_every_member_of_a_shared_group_is_full_its_messages_wait() {
    let broker = team();
    let hello = ["one", "two"].map(|name| v5(name).receive_maximum(1));
    let mut members = hello.map(|hello| hello.connect(&broker));
    for member in &mut members {
        member.subscribe("$share/team/work", QoS::AtLeastOnce);
    }

    let mut publisher = v3("publisher").connect(&broker);
    for number in 0..6 {
        publisher.publish_acknowledged("work", number.to_string());
    }

    let mut got: Vec<_> = (0..6)
        .map(|number| members[number % 2].take_message().text().to_owned())
        .collect();
    got.sort();
    assert_eq!(got, ["0", "1", "2", "3", "4", "5"]);
}

#[test]
fn a_publisher_does_not_wait_for_a_stalled_subscriber() {
    let broker = start(Config {
        shards: 1,
        ..with_backlog()
    });
    let _stalled = stalled(&broker, QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    for _ in 0..2_000 {
        publisher.publish_acknowledged("flood", [b'.'; 4_000]);
    }
}

/// The limits that a connection took with it hold, whatever a reload says.
#[test]
fn a_reload_does_not_lift_the_limits_of_a_session_that_is_there() {
    let broker = start(config_with_limits(|limits| limits.queue_messages = 1));
    let mut client = v5("one").receive_maximum(1).connect(&broker);
    client.subscribe("flood", QoS::AtLeastOnce);
    let mut wider = config();
    wider.limits = Arc::new(ServerLimits::default());
    let hooks: Arc<dyn mqttcore_broker::Hooks> = Arc::new(Plugin::default());
    broker.reload(&wider, hooks).expect("reloaded");

    let mut publisher = v3("publisher").connect(&broker);
    publisher.publish_numbers("flood", QoS::AtLeastOnce, 10);

    eventually("eight are dropped", || {
        broker.stats().dropped_queue_full == 8
    });
}
