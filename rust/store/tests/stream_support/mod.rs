//! A store with streams that one thread drives, and what its streams should hold.
#![allow(dead_code, unreachable_pub, reason = "each test uses a part of it")]
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int64Type, TimestampMicrosecondType};
use bytes::Bytes;
use mqttcore_store::faults::Disk;
use mqttcore_store::files::{Files, FolderAccess};
use mqttcore_store::record::{MessageRecord, Record, RowRefsBuf, Streamed};
use mqttcore_store::stream::{
    Bounds, Definition, KeptTime, StreamError, StreamLimits, StreamOptions, Streams,
};
use mqttcore_store::{
    Batch, Durability, SimulatedStore, SpacePolicy, Store, StoreError, StoreOptions, Ticket,
};
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;

pub const STORE: StoreOptions = StoreOptions::small(2 * 1_024, 2);

pub fn definition(name: &str, partitions: u16) -> Definition {
    Definition {
        name: name.to_owned(),
        filters: vec!["#".to_owned()],
        partitions,
        ..Definition::default()
    }
}

pub fn options(definitions: &[Definition]) -> StreamOptions {
    StreamOptions {
        definitions: definitions.to_vec(),
        limits: StreamLimits {
            // Files are merged when a test says so, however young they are.
            merge_age: Duration::ZERO,
            ..StreamLimits::default()
        },
    }
}

/// When the clock of a log begins: in the year 2020.
const BEGIN_US: u64 = 1_577_836_800_000_000;

/// Offset, time, payload.
pub type Row = (i64, i64, Vec<u8>);

pub struct Log {
    pub disk: Disk,
    pub store: SimulatedStore,
    pub clock: Arc<Clock>,
    published: AtomicU64,
}

/// Kept time that a test moves, in unix microseconds.
#[derive(Debug)]
pub struct Clock(AtomicU64);

impl Clock {
    pub fn set(&self, now_us: u64) {
        self.0.store(now_us, Ordering::Relaxed);
    }
}

impl KeptTime for Clock {
    fn now_us(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Log {
    pub fn open(disk: &Disk, options: &StreamOptions) -> Result<Self, StoreError> {
        let files: Arc<dyn Files> = Arc::new(disk.clone());
        let (store, _) = SimulatedStore::open_with(&files, &STORE, options)?;
        let clock = Arc::new(Clock(AtomicU64::new(BEGIN_US)));
        if let Some(streams) = store.streams() {
            streams.count_by(Arc::clone(&clock) as Arc<dyn KeptTime>);
        }
        Ok(Self {
            disk: disk.clone(),
            store,
            clock,
            published: AtomicU64::new(0),
        })
    }

    pub fn streams(&self) -> Arc<Streams> {
        self.store.streams().unwrap()
    }

    pub fn bounds(&self, name: &str) -> Vec<Bounds> {
        self.streams().bounds(name).unwrap()
    }

    pub fn epoch(&self, name: &str) -> String {
        self.streams().describe(name).unwrap().epoch
    }

    /// The time of the message that comes next: one a second.
    pub fn now_us(&self) -> u64 {
        self.clock.now_us()
    }

    /// Hands a message over that is a row in each of `places`.
    pub fn append(&self, durability: Durability, text: u64, places: &[(&str, u16)]) -> Ticket {
        let at_us = self.now_us();
        self.published.fetch_add(1, Ordering::Relaxed);
        self.clock.set(at_us + 1_000_000);
        append(&self.store, durability, text, at_us, places).unwrap()
    }

    /// A message for each place, each safe when this returns.
    pub fn publish(&self, places: &[(&str, u16)]) {
        for place in places {
            let text = self.published.load(Ordering::Relaxed);
            let ticket = self.append(Durability::Fsync, text, &[*place]);
            self.store.wait(ticket).unwrap();
        }
    }

    /// Every row of a partition, out of files and memory.
    pub fn rows(&self, name: &str, partition: u16) -> Vec<Row> {
        read(&self.disk, &self.streams(), name, partition)
    }
}

/// Hands a message over that is a row in each of `places`.
pub fn append(
    store: &SimulatedStore,
    durability: Durability,
    text: u64,
    at_us: u64,
    places: &[(&str, u16)],
) -> Result<Ticket, StoreError> {
    append_row(
        store,
        durability,
        ("plant/1", &payload(text)),
        at_us,
        places,
    )
}

/// Hands a message over that is a row of the first partition of `plant`.
pub fn append_payload(store: &SimulatedStore, payload: &[u8]) -> Ticket {
    append_message(store, "plant/1", payload)
}

/// The same with a topic.
pub fn append_message(store: &SimulatedStore, topic: &str, payload: &[u8]) -> Ticket {
    append_row(
        store,
        Durability::Fsync,
        (topic, payload),
        1,
        &[("plant", 0)],
    )
    .unwrap()
}

fn append_row(
    store: &SimulatedStore,
    durability: Durability,
    (topic, payload): (&str, &[u8]),
    at_us: u64,
    places: &[(&str, u16)],
) -> Result<Ticket, StoreError> {
    let streams = store.streams().unwrap();
    let mut rows = RowRefsBuf::default();
    for (stream, partition) in places {
        rows.push(streams.find(stream).unwrap(), *partition);
    }
    let mut batch = Batch::default();
    batch.push(&Record::Message(MessageRecord {
        message: store.numbers(1),
        topic,
        source: Some("meter"),
        streamed: Some(Streamed {
            dup: false,
            at_us,
            rows: rows.as_rows(),
        }),
        payload,
        ..MessageRecord::default()
    }));
    store.append(&mut batch, durability, SpacePolicy::Ordinary)
}

pub fn payload(text: u64) -> Vec<u8> {
    format!("{text:040}").into_bytes()
}

pub fn tail(
    log: &Log,
    name: &str,
    partition: u16,
    from: u64,
    to: u64,
) -> Result<Vec<RecordBatch>, StreamError> {
    log.streams().tail(name, partition, from, to)
}

pub fn offsets(batches: &[RecordBatch]) -> Vec<i64> {
    let rows = batches.iter().flat_map(rows_of);
    rows.map(|(offset, ..)| offset).collect()
}

/// Every row of a partition from its first one on: files first, then memory.
pub fn read(disk: &Disk, streams: &Streams, name: &str, partition: u16) -> Vec<Row> {
    let bounds = streams.bounds(name).unwrap()[usize::from(partition)];
    let data = format!("streams/{name}/data");
    let mut files = disk
        .folder(&data, FolderAccess::Owner)
        .unwrap()
        .list()
        .unwrap();
    files.retain(|file| file.starts_with(&format!("{partition:05}-")));
    let mut rows = Vec::new();
    for file in files {
        let content = disk.content(&format!("{data}/{file}")).unwrap();
        let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(content));
        for batch in reader.unwrap().build().unwrap() {
            rows.extend(rows_of(&batch.unwrap()));
        }
    }
    rows.retain(|(offset, ..)| *offset >= bounds.earliest.cast_signed());
    let tail = streams.tail(name, partition, bounds.sealed_end, bounds.end);
    rows.extend(tail.unwrap().iter().flat_map(rows_of));
    rows
}

pub fn rows_of(batch: &RecordBatch) -> Vec<Row> {
    let offsets = batch.column_by_name("offset").unwrap();
    let offsets = offsets.as_primitive::<Int64Type>().values();
    let times = batch.column_by_name("timestamp").unwrap();
    let times = times.as_primitive::<TimestampMicrosecondType>().values();
    let payloads = batch.column_by_name("payload").unwrap();
    let payloads = payloads.as_binary::<i32>();
    let rows = offsets.iter().zip(times).zip(payloads.iter());
    rows.map(|((offset, time), payload)| (*offset, *time, payload.unwrap().to_vec()))
        .collect()
}

/// The columns `value` and `count` of a file of `plant`.
pub fn column_f64_i64(disk: &Disk, file: &str) -> Vec<(Option<f64>, Option<i64>)> {
    let content = disk.content(&format!("streams/plant/data/{file}")).unwrap();
    let reader = ParquetRecordBatchReaderBuilder::try_new(Bytes::from(content));
    let mut rows = Vec::new();
    for batch in reader.unwrap().build().unwrap() {
        let batch = batch.unwrap();
        let values = batch.column_by_name("value").unwrap();
        let counts = batch.column_by_name("count").unwrap();
        let values = values.as_primitive::<Float64Type>().iter();
        rows.extend(values.zip(counts.as_primitive::<Int64Type>().iter()));
    }
    rows
}
