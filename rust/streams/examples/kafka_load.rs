//! Load for `python -m tests.kafka.cluster`: records at a fixed rate into a topic of Kafka, or out of it.
//!
//! `kafka_load append SERVERS TOPIC RATE SECONDS` sends like the broker: the settings of its client, the headers of its
//! records. `kafka_load read SERVERS TOPIC RATE SECONDS` begins at the end of the topic and waits for as many records.
//! Both write one line of JSON: latencies of the records after the first two seconds, each from when the record was
//! due, and the CPU time of the process.

#![expect(
    clippy::print_stdout,
    reason = "a report for the program that started it"
)]

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rdkafka::client::ClientContext;
use rdkafka::config::{ClientConfig, RDKafkaLogLevel};
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::metadata::MetadataTopic;
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

/// Seconds at the beginning that are not counted: connections are made, and code is loaded.
const WARM_UP_S: u64 = 2;
/// Bytes of a payload.
const PAYLOAD_BYTES: usize = 100;
/// How long what is missing is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

type Failed = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), Failed> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [what, servers, topic, rate, seconds] = &*arguments else {
        return Err("kafka_load append|read SERVERS TOPIC RATE SECONDS".into());
    };
    let plan = Plan {
        servers,
        topic,
        rate: rate.parse()?,
        seconds: seconds.parse()?,
    };
    let report = match &**what {
        "append" => plan.append()?,
        "read" => plan.read()?,
        other => return Err(format!("unknown {other:?}").into()),
    };
    println!("{report}");
    Ok(())
}

struct Plan<'a> {
    servers: &'a str,
    topic: &'a str,
    /// Records a second.
    rate: u64,
    seconds: u64,
}

impl Plan<'_> {
    fn records(&self) -> u64 {
        self.rate * (self.seconds + WARM_UP_S)
    }

    fn config(&self) -> ClientConfig {
        let mut config = ClientConfig::new();
        config.set("bootstrap.servers", self.servers);
        config
    }

    fn append(&self) -> Result<String, Failed> {
        let seen = Latencies::default();
        let producer: BaseProducer<Latencies> = self
            .config()
            .set("acks", "all")
            .set("enable.idempotence", "true")
            .set("linger.ms", "1")
            .set("compression.type", "lz4")
            .set("queue.buffering.max.messages", "0")
            .set("queue.buffering.max.kbytes", "2147483647")
            .create_with_context(seen.clone())?;
        let partitions = partitions(producer.client(), self.topic)?;
        let producer = Arc::new(producer);
        let is_over = Arc::new(AtomicBool::new(false));
        let hearing = {
            let (producer, is_over) = (Arc::clone(&producer), Arc::clone(&is_over));
            std::thread::spawn(move || {
                while !is_over.load(Ordering::Acquire) {
                    producer.poll(Duration::from_millis(100));
                }
            })
        };
        let late = self.send(&producer, partitions)?;
        producer.flush(PATIENCE)?;
        is_over.store(true, Ordering::Release);
        hearing.join().map_err(|_| "the hearing thread panicked")?;
        Ok(seen.report(self, late))
    }

    /// Sends each record when it is due; returns by how much the last one was late.
    fn send(
        &self,
        producer: &BaseProducer<Latencies>,
        partitions: i32,
    ) -> Result<Duration, Failed> {
        let mut payload = vec![b'x'; PAYLOAD_BYTES];
        let (start, start_us) = (Instant::now(), now_us());
        for number in 0..self.records() {
            let after = Duration::from_nanos(number * 1_000_000_000 / self.rate);
            let due = start + after;
            // Records of a millisecond go together, as they come to a shard.
            if due > Instant::now() + Duration::from_millis(1) {
                std::thread::sleep(Duration::from_millis(1));
            }
            // A sender that falls behind does not make the latencies shorter.
            let due_us = start_us + u64::try_from(after.as_micros())?;
            payload[..8].copy_from_slice(&due_us.to_be_bytes());
            payload[8..16].copy_from_slice(&number.to_be_bytes());
            let key = format!("plant/{}/temperature", number % 5_000);
            let record = BaseRecord::with_opaque_to(self.topic, Box::new((number, due_us)))
                .key(&key)
                .payload(&payload)
                .partition(i32::try_from(number % u64::try_from(partitions)?)?)
                .headers(headers(due_us));
            producer.send(record).map_err(|(error, _)| error)?;
        }
        let last = start + Duration::from_nanos((self.records() - 1) * 1_000_000_000 / self.rate);
        Ok(Instant::now().saturating_duration_since(last))
    }

    fn read(&self) -> Result<String, Failed> {
        let consumer: BaseConsumer = self
            .config()
            .set("group.id", "kafka_load")
            .set("enable.auto.commit", "false")
            .create()?;
        let mut ends = TopicPartitionList::new();
        for partition in 0..partitions(consumer.client(), self.topic)? {
            let (_, end) = consumer.fetch_watermarks(self.topic, partition, PATIENCE)?;
            ends.add_partition_offset(self.topic, partition, Offset::Offset(end))?;
        }
        consumer.assign(&ends)?;
        println!("ready");
        let seen = Latencies::default();
        let mut last = Instant::now();
        let mut found = 0;
        while found < self.records() && last.elapsed() < PATIENCE {
            let Some(message) = consumer.poll(Duration::from_millis(100)) else {
                continue;
            };
            let message = message?;
            let payload = message.payload().unwrap_or_default();
            let number = |from: usize| -> Option<u64> {
                let bytes = payload.get(from..from + 8)?;
                Some(u64::from_be_bytes(bytes.try_into().ok()?))
            };
            let sent = number(0).zip(number(8));
            let (sent_us, number) = sent.ok_or("a record of another program")?;
            seen.add(number, sent_us);
            found += 1;
            last = Instant::now();
        }
        Ok(seen.report(self, Duration::ZERO))
    }
}

/// The number of partitions of a topic, as soon as the cluster has made it.
fn partitions<C: ClientContext>(
    client: &rdkafka::client::Client<C>,
    topic: &str,
) -> Result<i32, Failed> {
    let start = Instant::now();
    loop {
        let found = client.fetch_metadata(Some(topic), PATIENCE)?;
        let partitions = found.topics().first().map(MetadataTopic::partitions);
        let ready =
            partitions.filter(|all| !all.is_empty() && all.iter().all(|one| one.leader() >= 0));
        if let Some(ready) = ready {
            return Ok(i32::try_from(ready.len())?);
        }
        if start.elapsed() > PATIENCE {
            return Err("the topic is not made".into());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Those of a record of the broker, without properties.
fn headers(timestamp_us: u64) -> OwnedHeaders {
    let timestamp = timestamp_us.to_string();
    let headers = [
        ("timestamp_us", &*timestamp),
        ("qos", "1"),
        ("retain", "false"),
        ("dup", "false"),
        ("client_id", "meter-1"),
    ];
    let all = OwnedHeaders::new_with_capacity(headers.len());
    headers.into_iter().fold(all, |all, (key, value)| {
        all.insert(Header {
            key,
            value: Some(value),
        })
    })
}

/// Records with their latencies in microseconds, and how many were lost.
#[derive(Clone, Default)]
struct Latencies(Arc<Mutex<Seen>>);

#[derive(Default)]
struct Seen {
    lost: u64,
    records: Vec<(u64, u32)>,
}

impl Latencies {
    fn lock(&self) -> std::sync::MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, number: u64, sent_us: u64) {
        let latency = now_us().saturating_sub(sent_us);
        let latency = u32::try_from(latency).unwrap_or(u32::MAX);
        self.lock().records.push((number, latency));
    }

    /// One line of JSON.
    fn report(&self, plan: &Plan<'_>, late: Duration) -> String {
        let seen = self.lock();
        let warm = plan.rate * WARM_UP_S;
        let counted = seen.records.iter().filter(|(number, _)| *number >= warm);
        let mut latencies: Vec<u32> = counted.map(|(_, latency)| *latency).collect();
        latencies.sort_unstable();
        let at = |share: usize| {
            let place = (latencies.len() * share / 100).min(latencies.len().saturating_sub(1));
            f64::from(latencies.get(place).copied().unwrap_or_default()) / 1_000.0
        };
        serde_json::json!({
            "records": seen.records.len(), "missing": plan.records() - seen.records.len() as u64,
            "lost": seen.lost, "p50_ms": at(50), "p99_ms": at(99),
            "late_ms": u64::try_from(late.as_millis()).unwrap_or_default(), "cpu_s": cpu_s(),
        })
        .to_string()
    }
}

impl ClientContext for Latencies {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {}

    fn error(&self, error: KafkaError, reason: &str) {
        if error.rdkafka_error_code() != Some(RDKafkaErrorCode::BrokerTransportFailure) {
            eprintln!("Kafka: {reason}");
        }
    }
}

impl ProducerContext for Latencies {
    type DeliveryOpaque = Box<(u64, u64)>;

    fn delivery(&self, result: &DeliveryResult<'_>, sent: Box<(u64, u64)>) {
        match result {
            Ok(_) => self.add(sent.0, sent.1),
            Err(_) => self.lock().lost += 1,
        }
    }
}

fn now_us() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or_default()
}

/// CPU time of this process, in seconds.
fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let ticks = fields.split_whitespace().skip(11).take(2);
    let ticks: u32 = ticks.filter_map(|ticks| ticks.parse::<u32>().ok()).sum();
    f64::from(ticks) / 100.0
}
