//! Streams whose log is Kafka, with the test in Kafka's place: it gets the records, and says what
//! becomes of each.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Data, Durability, EventKind, FullQueuePolicy, PublishError};
use mqttcore_codec::{Packet, Properties, QoS, ReasonCode};
use mqttcore_session::ServerLimits;
use mqttcore_streams::kafka::{
    ConnectKafka, KafkaConfig, KafkaError, KafkaRecord, KafkaStream, KafkaTopic, RecordOutcomes,
    RecordSender,
};

use crate::common::{
    Client, DEADLINE, HOUR_S, Home, Plugin, Received, eventually, figure, queued, v3, v5, within,
};
use crate::setup::Setup;

/// Long enough for what must not come to come.
const A_WHILE: Duration = Duration::from_millis(100);

const RECORD_BYTES: usize = 10_000;

/// Kafka, as far as a broker sees it.
struct Kafka {
    records: Receiver<KafkaRecord>,
    outcomes: Receiver<RecordOutcomes>,
    known: Mutex<Option<RecordOutcomes>>,
}

/// What the broker is given.
struct Wire {
    records: Sender<KafkaRecord>,
    outcomes: Sender<RecordOutcomes>,
    topic: KafkaTopic,
}

impl ConnectKafka for Wire {
    fn connect(
        &self,
        streams: &[KafkaStream],
        outcomes: RecordOutcomes,
    ) -> Result<(Box<dyn RecordSender>, Vec<KafkaTopic>), KafkaError> {
        self.outcomes.send(outcomes).expect("a test that goes on");
        let engine = Desk(Mutex::new(self.records.clone()));
        Ok((Box::new(engine), vec![self.topic; streams.len()]))
    }
}

struct Desk(Mutex<Sender<KafkaRecord>>);

impl RecordSender for Desk {
    fn send(&self, records: &mut Vec<KafkaRecord>) {
        let sender = self.0.lock().expect("no panic");
        // The test may be over.
        records
            .drain(..)
            .for_each(|record| drop(sender.send(record)));
    }

    fn close(&self, _: Duration) {}
}

impl Kafka {
    fn new() -> (Self, KafkaConfig) {
        let ((records, taken), (outcomes, told)) = (channel(), channel());
        let topic = KafkaTopic {
            copies: 3,
            in_sync: Some(2),
            record_bytes: RECORD_BYTES,
        };
        let wire = Wire {
            records,
            outcomes,
            topic,
        };
        let plant = KafkaStream {
            name: "plant".into(),
            topic: "plant".into(),
            filters: vec!["plant/#".into()],
            partitions: 4,
            ..KafkaStream::default()
        };
        let config = KafkaConfig {
            streams: vec![plant],
            queue_bytes: 1 << 20,
            connect: Arc::new(wire),
        };
        let kafka = Self {
            records: taken,
            outcomes: told,
            known: Mutex::default(),
        };
        (kafka, config)
    }

    /// The next record.
    fn record(&self) -> KafkaRecord {
        self.records.recv_timeout(DEADLINE).expect("a record")
    }

    fn has_no_record(&self) {
        let more = self.records.recv_timeout(A_WHILE);
        assert!(more.is_err(), "a record that nobody published");
    }

    /// That of the last broker.
    fn outcomes(&self) -> RecordOutcomes {
        let mut known = self.known.lock().expect("no panic");
        if let Some(last) = self.outcomes.try_iter().last() {
            *known = Some(last);
        }
        known.clone().expect("a broker was started")
    }

    fn keep(&self, record: &KafkaRecord) {
        self.outcomes().kept(record.ticket);
    }

    fn lose(&self, record: &KafkaRecord) {
        self.outcomes()
            .lost(record.ticket, record.key(), "in a test");
    }

    fn keep_next(&self) {
        self.keep(&self.record());
    }
}

fn with_kafka() -> (Kafka, Setup) {
    let (kafka, config) = Kafka::new();
    (kafka, Setup::new(config))
}

fn begin() -> (Kafka, Broker) {
    let (kafka, setup) = with_kafka();
    (kafka, setup.start())
}

fn acknowledged(client: &mut Client, id: u16) {
    assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
}

#[test]
fn a_message_is_delivered_at_once_and_acknowledged_when_kafka_has_it() {
    let (kafka, broker) = begin();
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("plant/#", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    let id = publisher.publish("plant/1", "21.5", QoS::AtLeastOnce);
    let record = kafka.record();

    assert_eq!((record.key(), record.value()), ("plant/1", &b"21.5"[..]));
    assert_eq!(subscriber.take_message().text(), "21.5");
    publisher.ping();
    kafka.keep(&record);
    acknowledged(&mut publisher, id);
    assert_eq!(figure(&broker, "kafka_records"), 1);
    eventually("nothing is on its way", || {
        figure(&broker, "kafka_waiting_bytes") == 0
    });
}

#[test]
fn messages_of_one_topic_have_one_partition_below_that_of_the_stream() {
    let (kafka, broker) = begin();
    let mut publisher = v5("publisher").connect(&broker);

    let partitions: Vec<_> = (0..40)
        .map(|number| {
            publisher.publish(&format!("plant/{}", number % 20), "", QoS::AtMostOnce);
            kafka.record().partition
        })
        .collect();

    assert_eq!(partitions[..20], partitions[20..]);
    assert_eq!(partitions.iter().max(), Some(&3));
}

#[test]
fn mqtt_4_6_0_2_acknowledgements_leave_in_order_whatever_kafka_takes_first() {
    let (kafka, broker) = begin();
    let mut publisher = v5("publisher").connect(&broker);

    let first = publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    let second = publisher.publish("plant/2", "2", QoS::AtLeastOnce);
    let elsewhere = publisher.publish("elsewhere", "3", QoS::AtLeastOnce);
    let records = [kafka.record(), kafka.record()];
    kafka.keep(&records[1]);
    publisher.ping();
    kafka.keep(&records[0]);

    acknowledged(&mut publisher, first);
    acknowledged(&mut publisher, second);
    assert_eq!(
        publisher.receive(),
        Received::PubAck(elsewhere, ReasonCode::NO_MATCHING_SUBSCRIBERS)
    );
}

#[test]
fn a_publisher_to_other_topics_does_not_wait_for_kafka() {
    let (kafka, broker) = begin();
    let mut publisher = v5("publisher").connect(&broker);
    let mut other = v5("other").connect(&broker);

    publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    let waiting = kafka.record();

    other.publish_acknowledged("elsewhere", "2");
    kafka.keep(&waiting);
}

#[test]
fn records_that_kafka_does_not_take_are_not_acknowledged_and_disconnect_their_publisher() {
    let (kafka, setup) = with_kafka();
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    let plugin = Plugin::default().events(&[EventKind::Dropped], move |event| {
        let _ = sender.lock().expect("no panic").send(event.topic);
    });
    let broker = setup.start_with(plugin);
    let mut publisher = v5("publisher").keeping_session_s(60).connect(&broker);
    publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    publisher.publish("plant/2", "2", QoS::AtLeastOnce);
    let records = [kafka.record(), kafka.record()];

    kafka.lose(&records[0]);
    kafka.keep(&records[1]);

    let last = publisher.until_closed();
    assert_eq!(last, [Received::Disconnect(ReasonCode::SERVER_BUSY)]);
    assert_eq!(publisher.reason_string(), "Kafka did not accept a message");
    assert_eq!(
        events.recv_timeout(DEADLINE).unwrap().as_deref(),
        Some("plant/1")
    );
    assert_eq!(figure(&broker, "kafka_lost"), 1);
    let (mut again, was_kept) = v5("publisher")
        .keeping_session_s(60)
        .connect_or_resume(&broker);
    assert!(was_kept);
    let id = again.publish("plant/1", "1", QoS::AtLeastOnce);
    kafka.keep_next();
    acknowledged(&mut again, id);
}

#[test]
fn a_loss_that_belongs_to_an_old_connection_does_not_end_the_new_one() {
    let (kafka, broker) = begin();
    let mut old = v5("publisher").keeping_session_s(60).connect(&broker);
    old.publish("plant/1", "1", QoS::AtLeastOnce);
    let record = kafka.record();
    let (mut new, _) = v5("publisher")
        .keeping_session_s(60)
        .connect_or_resume(&broker);

    kafka.lose(&record);

    eventually("the loss is booked", || figure(&broker, "kafka_lost") == 1);
    new.ping();
    new.publish_acknowledged("elsewhere", "2");
}

#[test]
fn acknowledgements_that_wait_for_kafka_leave_before_the_disconnect() {
    let (kafka, broker) = begin();
    let hello = v5("publisher").keeping_session_s(60);
    let mut old = hello.connect(&broker);
    let id = old.publish("plant/1", "1", QoS::AtLeastOnce);
    let record = kafka.record();

    let mut new = hello.connect(&broker);
    new.ping();
    old.hears_nothing_for(A_WHILE);
    kafka.keep(&record);

    acknowledged(&mut old, id);
    let goodbye = Received::Disconnect(ReasonCode::SESSION_TAKEN_OVER);
    assert_eq!(old.until_closed(), [goodbye]);
}

#[test]
fn a_loss_that_belongs_to_a_connection_that_ends_is_not_acknowledged_there() {
    let (kafka, broker) = begin();
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    let record = kafka.record();

    assert!(broker.disconnect("publisher", ReasonCode::ADMINISTRATIVE_ACTION));
    kafka.lose(&record);

    let last = publisher.until_closed();
    assert!(matches!(last[..], [Received::Disconnect(_)]), "{last:?}");
}

#[test]
fn an_acknowledgement_waits_for_the_store_and_for_kafka() {
    let (kafka, mut setup) = with_kafka();
    let home = Home::new();
    setup.config.data = Some(Data {
        durability: Durability::Fsync,
        ..home.data(0)
    });
    let broker = setup.start();
    let (mut subscriber, _) = v5("subscriber")
        .keeping_session_s(60)
        .connect_or_resume(&broker);
    subscriber.subscribe("plant/#", QoS::AtLeastOnce);
    let mut publisher = v5("publisher").connect(&broker);

    let id = publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    let record = kafka.record();
    assert_eq!(subscriber.take_message().text(), "1");
    publisher.ping();
    publisher.hears_nothing_for(A_WHILE);
    kafka.keep(&record);

    acknowledged(&mut publisher, id);
    assert_eq!(
        broker.guarantees(),
        "fsync; kafka on plant/# (2 of 3 copies)"
    );
}

#[test]
fn a_qos_2_message_is_accepted_when_kafka_has_it() {
    let (kafka, broker) = begin();
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("plant/#", QoS::ExactlyOnce);
    let mut publisher = v5("publisher").connect(&broker);

    let id = publisher.publish_retained("plant/1", "1", QoS::ExactlyOnce);
    let record = kafka.record();
    subscriber.ping();
    publisher.hears_nothing_for(A_WHILE);
    assert_eq!(broker.stats().retained_messages, 0);
    kafka.keep(&record);

    assert_eq!(
        publisher.receive(),
        Received::PubRec(id, ReasonCode::SUCCESS)
    );
    assert_eq!(subscriber.take_message().text(), "1");
    assert_eq!(broker.stats().retained_messages, 1);
    publisher.pubrel(id);
    assert_eq!(
        publisher.receive(),
        Received::PubComp(id, ReasonCode::SUCCESS)
    );
    kafka.has_no_record();
}

#[test]
fn a_qos_2_message_that_kafka_did_not_take_comes_again_and_is_delivered_once() {
    let (kafka, broker) = begin();
    let mut subscriber = v5("subscriber").connect(&broker);
    subscriber.subscribe("plant/#", QoS::ExactlyOnce);
    let (mut publisher, _) = v5("publisher")
        .keeping_session_s(60)
        .connect_or_resume(&broker);
    let id = publisher.publish("plant/1", "1", QoS::ExactlyOnce);

    kafka.lose(&kafka.record());

    let last = publisher.until_closed();
    assert_eq!(last, [Received::Disconnect(ReasonCode::SERVER_BUSY)]);
    let (mut again, was_kept) = v5("publisher")
        .keeping_session_s(60)
        .connect_or_resume(&broker);
    assert!(was_kept);
    assert_eq!(again.publish("plant/1", "1", QoS::ExactlyOnce), id);
    kafka.keep_next();
    assert_eq!(again.receive(), Received::PubRec(id, ReasonCode::SUCCESS));
    let message = subscriber.take_message();
    assert_eq!(message.text(), "1");
    assert_eq!(
        subscriber.receive(),
        Received::PubRel(message.packet_id, ReasonCode::SUCCESS)
    );
    subscriber.ping();
}

/// The store must not know the identifier of a message that Kafka may not have.
#[test]
fn a_qos_2_message_that_a_crash_kept_from_kafka_is_no_repeat_to_the_next_broker() {
    let (kafka, setup) = with_kafka();
    let home = Home::new();
    let broker = setup.clone().over(&home, 0).start();
    let (mut publisher, _) = v5("publisher")
        .keeping_session_s(60)
        .connect_or_resume(&broker);
    let id = publisher.publish("plant/1", "1", QoS::ExactlyOnce);
    drop(kafka.record());

    let broker = setup.start_after_crash(&home, broker);

    let (mut again, was_kept) = v5("publisher")
        .keeping_session_s(60)
        .connect_or_resume(&broker);
    assert!(was_kept);
    assert_eq!(again.publish("plant/1", "1", QoS::ExactlyOnce), id);
    let record = kafka.record();
    again.hears_nothing_for(A_WHILE);
    kafka.keep(&record);
    assert_eq!(again.receive(), Received::PubRec(id, ReasonCode::SUCCESS));
}

#[test]
fn while_too_much_waits_qos_0_is_dropped_and_publishers_are_not_read() {
    let (kafka, mut setup) = with_kafka();
    setup.kafka.queue_bytes = 1;
    let broker = setup.start();
    let mut publisher = v3("publisher").connect(&broker);
    let mut fleeting = v5("fleeting").connect(&broker);
    let first = publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    let record = kafka.record();

    fleeting.publish("plant/2", "2", QoS::AtMostOnce);
    fleeting.ping();
    publisher.send(&Packet::PingReq);
    publisher.hears_nothing_for(A_WHILE);
    assert_eq!(broker.stats().dropped_stream_overload, 1);
    kafka.keep(&record);

    acknowledged(&mut publisher, first);
    assert_eq!(publisher.receive(), Received::PingResp);
    kafka.has_no_record();
}

#[test]
fn above_twice_that_new_publishers_are_refused() {
    let (kafka, mut setup) = with_kafka();
    setup.kafka.queue_bytes = 1;
    let broker = setup.start();
    let mut first = v5("first").connect(&broker);
    first.publish("plant/1", "1", QoS::AtLeastOnce);
    let record = kafka.record();

    let mut second = v5("second").connect(&broker);
    for qos in [QoS::AtLeastOnce, QoS::ExactlyOnce] {
        let id = second.publish("plant/2", "2", qos);
        let (reason, why) = (ReasonCode::QUOTA_EXCEEDED, "too many bytes wait for Kafka");
        let refused = match qos {
            QoS::ExactlyOnce => Received::PubRec(id, reason),
            _ => Received::PubAck(id, reason),
        };
        assert_eq!(second.receive(), refused);
        assert_eq!(second.reason_string(), why);
    }
    second.publish_acknowledged("elsewhere", "3");

    assert_eq!(broker.stats().refused_no_room, 2);
    kafka.keep(&record);
}

#[test]
fn a_message_that_is_larger_than_kafka_takes_is_refused() {
    let (kafka, broker) = begin();
    let mut publisher = v5("publisher").connect(&broker);

    let large = vec![0; RECORD_BYTES];
    let id = publisher.publish("plant/1", &large, QoS::AtLeastOnce);

    assert_eq!(
        publisher.receive(),
        Received::PubAck(id, ReasonCode::QUOTA_EXCEEDED)
    );
    assert_eq!(publisher.reason_string(), "it is larger than Kafka's limit");
    publisher.publish_acknowledged("elsewhere", &large);
    kafka.has_no_record();
}

#[test]
fn a_publish_from_inside_and_a_will_go_to_kafka_too() {
    let (kafka, broker) = begin();
    let broker = Arc::new(broker);
    let fleeting = broker.publish("plant/0", b"", QoS::AtMostOnce, false, Properties::EMPTY);
    assert_eq!(fleeting, Ok(1), "QoS 0 waits for nobody");
    kafka.keep_next();
    let publishing = Arc::clone(&broker);
    let published = std::thread::spawn(move || {
        publishing.publish(
            "plant/1",
            b"own",
            QoS::AtLeastOnce,
            false,
            Properties::EMPTY,
        )
    });
    let own = kafka.record();
    assert_eq!(own.value(), b"own");
    kafka.has_no_record();
    assert!(!published.is_finished(), "before Kafka has it");
    kafka.keep(&own);
    let matched = within(DEADLINE, "a publish", move || published.join());
    assert_eq!(matched.expect("no panic"), Ok(1));

    let publishing = Arc::clone(&broker);
    let published = std::thread::spawn(move || {
        publishing.publish(
            "plant/1",
            b"own",
            QoS::AtLeastOnce,
            false,
            Properties::EMPTY,
        )
    });
    kafka.lose(&kafka.record());
    let refused = within(DEADLINE, "a publish", move || published.join());
    assert_eq!(refused.expect("no panic"), Err(PublishError::NotLogged));

    let mortal = v5("mortal")
        .will("plant/2", "gone")
        .will_qos(QoS::AtLeastOnce);
    mortal.connect(&broker).vanish();

    let will = kafka.record();
    assert_eq!(will.value(), b"gone");
    kafka.lose(&will);
    eventually("the loss is booked", || figure(&broker, "kafka_lost") == 2);
}

/// Else what it sends again would be a second record.
#[test]
fn a_3_1_1_message_of_qos_2_that_waits_for_room_in_a_queue_is_no_record_yet() {
    const ROOM: usize = 3;
    let (kafka, mut setup) = with_kafka();
    let home = Home::new();
    let mut limits = ServerLimits::clone(&setup.config.limits);
    limits.queue_disk_messages = ROOM;
    setup.config = Config {
        limits: Arc::new(limits),
        queue_policy: FullQueuePolicy::Refuse,
        queue_deadline: Duration::from_millis(50),
        ..setup.config
    };
    let broker = setup.over(&home, 0).start();
    let mut away = v5("away").keeping_session_s(HOUR_S).connect(&broker);
    away.subscribe("#", QoS::ExactlyOnce);
    away.disconnect();
    let mut filler = v5("filler").connect(&broker);
    for _ in 0..ROOM {
        filler.publish_acknowledged("elsewhere", "");
    }
    eventually("the queue is full", || queued(&broker, "away") == ROOM);

    let mut waiting = v3("waiting").connect(&broker);
    waiting.publish("plant/1", "1", QoS::ExactlyOnce);

    assert!(waiting.until_closed().is_empty());
    kafka.has_no_record();
}
