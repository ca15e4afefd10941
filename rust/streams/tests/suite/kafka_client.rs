//! The engine that speaks to Kafka, against librdkafka's own mock of a cluster.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mqttcore_broker::{Broker, StartError};
use mqttcore_codec::{PropertiesBuf, Property, QoS, ReasonCode, Text};
use mqttcore_streams::kafka::{Compression, KafkaClient, KafkaConfig, KafkaStream, Security};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message, OwnedMessage};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::{RDKafkaApiKey, RDKafkaRespErr};

use crate::common::{Client, DEADLINE, Plugin, Received, eventually, figure, v5};
use crate::setup::Setup;

/// Long enough for what must not come to come.
const A_WHILE: Duration = Duration::from_millis(100);

const PARTITIONS: u16 = 2;

type Mock = MockCluster<'static, DefaultProducerContext>;

/// One node with the topic `plant`.
fn mock() -> Mock {
    let mock = MockCluster::new(1).expect("a mock");
    let made = mock.create_topic("plant", PARTITIONS.into(), 1);
    made.expect("a topic");
    mock
}

fn client(servers: String) -> KafkaClient {
    KafkaClient {
        servers,
        start_deadline: DEADLINE,
        delivery_timeout: DEADLINE,
        linger: Duration::from_millis(1),
        compression: Compression::Lz4,
        security: Security::default(),
    }
}

fn with(client: KafkaClient, topic: &str, partitions: u16) -> Setup {
    let stream = KafkaStream {
        name: "lines".into(),
        topic: topic.into(),
        filters: vec!["plant/#".into()],
        partitions,
        ..KafkaStream::default()
    };
    Setup::new(KafkaConfig {
        streams: vec![stream],
        queue_bytes: 1 << 20,
        connect: Arc::new(client),
    })
}

fn begin(mock: &Mock) -> Broker {
    let client = client(mock.bootstrap_servers());
    with(client, "plant", PARTITIONS).start()
}

/// Every record of `plant`, as soon as there are so many.
fn records(mock: &Mock, count: usize) -> Vec<OwnedMessage> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", mock.bootstrap_servers())
        .set("group.id", "test")
        .create()
        .expect("a consumer");
    let mut from = TopicPartitionList::new();
    for partition in 0..i32::from(PARTITIONS) {
        let added = from.add_partition_offset("plant", partition, Offset::Beginning);
        added.expect("an offset");
    }
    consumer.assign(&from).expect("partitions");
    let start = Instant::now();
    let mut found = Vec::new();
    while found.len() < count {
        assert!(start.elapsed() < DEADLINE, "{} records", found.len());
        if let Some(record) = consumer.poll(Duration::from_millis(50)) {
            found.push(record.expect("a record").detach());
        }
    }
    found
}

fn acknowledged(client: &mut Client, id: u16) {
    assert_eq!(client.receive(), Received::PubAck(id, ReasonCode::SUCCESS));
}

fn headers(record: &OwnedMessage) -> Vec<(String, String)> {
    let headers = record.headers().expect("headers").iter();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
    headers
        .map(|header| {
            (
                header.key.to_owned(),
                header.value.map_or_else(String::new, text),
            )
        })
        .collect()
}

#[test]
fn a_record_has_the_topic_as_its_key_and_all_else_in_headers() {
    let mock = mock();
    let broker = begin(&mock);
    let mut publisher = v5("meter-1").connect(&broker);
    let text = |text| Text::new(text).expect("text");
    let mut properties = PropertiesBuf::default();
    let unit = Property::UserProperty(text("unit"), text("C"));
    properties.push(unit).expect("a property");

    let properties = properties.as_properties();
    let id = publisher.publish_with("plant/1", b"21.5", QoS::AtLeastOnce, true, properties);

    assert_eq!(
        publisher.receive(),
        Received::PubAck(id, ReasonCode::SUCCESS)
    );
    let [record] = &records(&mock, 1)[..] else {
        panic!("one record");
    };
    assert_eq!(record.key(), Some(&b"plant/1"[..]));
    assert_eq!(record.payload(), Some(&b"21.5"[..]));
    let headers = headers(record);
    let (first, rest) = headers.split_first().expect("headers");
    let timestamp_us: u128 = first.1.parse().expect("a number");
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock");
    assert_eq!(first.0, "timestamp_us");
    assert!((now.as_micros() - timestamp_us) < DEADLINE.as_micros());
    assert_eq!(
        record.timestamp().to_millis().map(i128::from),
        i128::try_from(timestamp_us / 1_000).ok()
    );
    let named = [
        ("qos", "1"),
        ("retain", "true"),
        ("dup", "false"),
        ("client_id", "meter-1"),
        ("user.unit", "C"),
    ];
    assert_eq!(
        rest,
        named.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
}

#[test]
fn nothing_is_acknowledged_while_kafka_is_down_and_nothing_is_lost_by_it() {
    let mock = mock();
    let broker = begin(&mock);
    let mut publisher = v5("publisher").connect(&broker);
    let first = publisher.publish("plant/1", "1", QoS::AtLeastOnce);
    publisher.receive();
    mock.broker_down(1).expect("a node");

    let second = publisher.publish("plant/1", "2", QoS::AtLeastOnce);
    publisher.ping();
    publisher.hears_nothing_for(A_WHILE);
    mock.broker_up(1).expect("a node");

    assert_eq!((first, second), (1, 2));
    acknowledged(&mut publisher, second);
    let payloads: Vec<_> = records(&mock, 2)
        .iter()
        .map(|record| record.payload().expect("a payload").to_vec())
        .collect();
    assert_eq!(payloads, [b"1", b"2"]);
}

#[test]
fn a_record_that_kafka_refuses_for_now_is_sent_again_and_kept_once() {
    let mock = mock();
    let broker = begin(&mock);
    let mut publisher = v5("publisher").connect(&broker);
    let short = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    mock.request_errors(RDKafkaApiKey::Produce, &[short, short]);

    let id = publisher.publish("plant/1", "1", QoS::AtLeastOnce);

    acknowledged(&mut publisher, id);
    let id = publisher.publish("plant/1", "2", QoS::AtLeastOnce);
    acknowledged(&mut publisher, id);
    assert_eq!(records(&mock, 2).len(), 2);
    assert_eq!(figure(&broker, "kafka_records"), 2);
}

#[test]
fn a_record_that_is_given_up_ends_the_connection_without_an_acknowledgement() {
    let mock = mock();
    let client = KafkaClient {
        delivery_timeout: Duration::from_secs(1),
        ..client(mock.bootstrap_servers())
    };
    let broker = with(client, "plant", PARTITIONS).start();
    let mut publisher = v5("publisher").connect(&broker);
    mock.broker_down(1).expect("a node");

    publisher.publish("plant/1", "1", QoS::AtLeastOnce);

    let last = publisher.until_closed();
    assert_eq!(last, [Received::Disconnect(ReasonCode::SERVER_BUSY)]);
    assert_eq!(figure(&broker, "kafka_lost"), 1);
    eventually("nothing is on its way", || {
        figure(&broker, "kafka_waiting_bytes") == 0
    });
}

#[test]
fn a_broker_that_stops_sends_what_it_has_first() {
    let mock = mock();
    let client = KafkaClient {
        linger: Duration::from_millis(200),
        ..client(mock.bootstrap_servers())
    };
    let broker = with(client, "plant", PARTITIONS).start();
    let mut publisher = v5("publisher").connect(&broker);
    publisher.publish("plant/1", "1", QoS::AtMostOnce);
    publisher.ping();

    broker.stop(DEADLINE);

    assert_eq!(records(&mock, 1).len(), 1);
}

#[test]
fn the_guarantee_names_what_kafka_does_not_have() {
    let mock = mock();

    let broker = begin(&mock);

    assert_eq!(
        broker.guarantees(),
        "memory; kafka on plant/# (unknown number of copies)"
    );
}

#[test]
fn a_broker_does_not_start_without_kafka_or_its_topic() {
    let start = |setup: Setup| setup.try_start_with(Plugin::default()).map(drop);
    let nowhere = KafkaClient {
        start_deadline: Duration::from_millis(300),
        ..client("127.0.0.1:1".into())
    };
    let mock = mock();

    let unreachable = start(with(nowhere, "plant", PARTITIONS));
    let narrow = start(with(client(mock.bootstrap_servers()), "plant", 3));

    let text = |error: Result<(), StartError>| error.expect_err("no broker").to_string();
    let unreachable = text(unreachable);
    assert!(
        unreachable.starts_with("kafka: 127.0.0.1:1: "),
        "{unreachable}"
    );
    assert_eq!(
        text(narrow),
        "kafka: stream lines: topic \"plant\": has 2 partitions, but 3 are configured"
    );
}
