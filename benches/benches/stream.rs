//! How many rows of a stream one core makes, writes, reads, filters and decodes in a second of its time.
//!
//! Times are CPU time of the thread, so that they mean something on a busy machine, too.
//!
//! A row is a message of 95 bytes on one of 2,000 topics. `stream/write` tells the size of a file beside its rate.

use std::env;
use std::fs::{self, File};
use std::hint::black_box;
use std::path::PathBuf;
use std::time::Duration;

use arrow_array::RecordBatch;
use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use mqttcore_columnar::{
    Decoder, FilePart, Format, MetricAliases, OnError, Origin, PartitionReader, ReadOptions, Row,
    RowBuilder, parse_payload_schema, write_parquet,
};

const ROWS: u64 = 250_000;
const BATCH_ROWS: usize = 16 * 1024;
const TOPICS: u64 = 2_000;
const SCHEMA: &str =
    "ts BIGINT, device STRING, temperature DOUBLE, humidity DOUBLE, ok BOOLEAN, seq BIGINT";

/// Time that the thread spent on a core, as Linux counts it.
struct CpuTime;

impl CpuTime {
    fn now() -> Duration {
        let text = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
        let nanos = text.split(' ').next().and_then(|nanos| nanos.parse().ok());
        Duration::from_nanos(nanos.expect("a number in front"))
    }
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        Self::now()
    }

    fn end(&self, start: Duration) -> Duration {
        Self::now().saturating_sub(start)
    }

    fn add(&self, one: &Duration, two: &Duration) -> Duration {
        *one + *two
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        static WALL: WallTime = WallTime;
        WALL.formatter()
    }
}

struct Message {
    topic: String,
    client_id: String,
    payload: String,
}

/// Telemetry that wanders, as sensors do; the same on every machine.
fn messages() -> Vec<Message> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let mut draw = move |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut temperatures = vec![2_150_u64; usize::try_from(TOPICS).expect("fits")];
    let message = |seq| {
        let device = draw(TOPICS);
        let temperature = &mut temperatures[usize::try_from(device).expect("fits")];
        *temperature = (*temperature + draw(21)).clamp(1_010, 3_500) - 10;
        let (whole, cents) = (*temperature / 100, *temperature % 100);
        let time = 1_700_000_000_000 + seq * 3 + draw(3);
        let humidity = 400 + draw(200);
        Message {
            topic: format!("plant/line-{}/dev-{device:04}/data", device % 20),
            client_id: format!("client-dev-{device:04}"),
            payload: format!(
                r#"{{"ts":{time},"device":"dev-{device:04}","temperature":{whole}.{cents:02},"humidity":{}.{},"ok":true,"seq":{seq}}}"#,
                humidity / 10,
                humidity % 10,
            ),
        }
    };
    (0..ROWS).map(message).collect()
}

fn batches(messages: &[Message]) -> Vec<RecordBatch> {
    let mut builder = RowBuilder::new(0);
    let mut batches = Vec::new();
    for (offset, message) in (0..).zip(messages) {
        let row = Row {
            offset,
            timestamp_us: 1_700_000_000_000_000 + offset * 3_000,
            topic: &message.topic,
            payload: message.payload.as_bytes(),
            qos: 1,
            client_id: &message.client_id,
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
        if builder.rows() == BATCH_ROWS {
            batches.push(builder.finish());
        }
    }
    batches.push(builder.finish());
    batches
}

/// A file in a folder that is gone with it.
struct Sealed {
    folder: PathBuf,
    part: FilePart,
}

impl Sealed {
    fn write(batches: &[RecordBatch]) -> Self {
        let folder = env::temp_dir().join(format!("mqttcore-bench-stream-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a temporary folder");
        let path = folder.join("0.parquet");
        let file = File::create(&path).expect("a new file");
        let meta = write_parquet(
            file,
            batches,
            &Origin::default(),
            &mut MetricAliases::default(),
        )
        .expect("dense rows");
        let (base, last) = (meta.base, meta.last);
        let part = FilePart { path, base, last };
        Self { folder, part }
    }

    fn read(&self, options: &ReadOptions) -> usize {
        let parts = [self.part.clone()];
        let range = self.part.base..self.part.last + 1;
        let reader = PartitionReader::new(&parts, 0, range, options.clone()).expect("a plan");
        reader
            .map(|batch| batch.expect("a whole file").num_rows())
            .sum()
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// One element is one row, on its way into a batch and into a file.
fn write(c: &mut Criterion<CpuTime>) {
    let messages = messages();
    let batches = batches(&messages);
    let mut file = Vec::new();
    write_parquet(
        &mut file,
        &batches,
        &Origin::default(),
        &mut MetricAliases::default(),
    )
    .expect("dense rows");
    let texts =
        |message: &Message| message.topic.len() + message.client_id.len() + message.payload.len();
    let raw: usize = messages.iter().map(texts).sum();
    let rows = messages.len();
    eprintln!(
        "stream/write: {} bytes a row of {} raw: {} permille",
        file.len() / rows,
        raw / rows,
        file.len() * 1_000 / raw
    );

    let mut group = c.benchmark_group("stream");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    group.bench_function("build", |b| {
        b.iter(|| self::batches(black_box(&messages)).len());
    });
    group.bench_function("write", |b| {
        b.iter(|| {
            file.clear();
            write_parquet(
                &mut file,
                black_box(&batches),
                &Origin::default(),
                &mut MetricAliases::default(),
            )
            .expect("dense rows")
        });
    });
    group.finish();
}

/// One element is one row of the file, whether or not it is handed out.
fn read(c: &mut Criterion<CpuTime>) {
    let sealed = Sealed::write(&batches(&messages()));
    let columns = |names: &[&str]| Some(names.iter().map(|name| (*name).to_owned()).collect());
    let filter = |text| Some(ReadOptions::parse_filter(text).expect("a filter"));
    let decoder = |on_error| {
        let fields = parse_payload_schema(SCHEMA).expect("a schema");
        Some(Decoder::new(Format::Json, fields, on_error).expect("a decoder"))
    };
    let all = ReadOptions::default;
    let seven = [
        "partition",
        "offset",
        "timestamp",
        "topic",
        "payload",
        "qos",
        "client_id",
    ];
    let four = ["topic", "ts", "temperature", "ok"];
    let mut group = c.benchmark_group("stream");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    for (name, options) in [
        ("scan", all()),
        (
            "scan_7_columns",
            ReadOptions {
                columns: columns(&seven),
                ..all()
            },
        ),
        (
            "scan_2_columns",
            ReadOptions {
                columns: columns(&["timestamp", "topic"]),
                ..all()
            },
        ),
        (
            "filter_all",
            ReadOptions {
                filter: filter("plant/#"),
                ..all()
            },
        ),
        (
            "filter_5_percent",
            ReadOptions {
                filter: filter("plant/line-7/#"),
                ..all()
            },
        ),
        (
            "filter_one_topic",
            ReadOptions {
                filter: filter("plant/line-7/dev-0007/data"),
                ..all()
            },
        ),
        (
            "filter_none",
            ReadOptions {
                filter: filter("plant/+/+/alarm"),
                ..all()
            },
        ),
        (
            "scan_and_decode",
            ReadOptions {
                decoder: decoder(OnError::Drop),
                columns: columns(&four),
                ..all()
            },
        ),
    ] {
        group.bench_function(name, |b| b.iter(|| sealed.read(black_box(&options))));
    }
    group.finish();
}

/// One element is one payload of 95 bytes with six fields.
fn decode(c: &mut Criterion<CpuTime>) {
    let batches = batches(&messages());
    let mut group = c.benchmark_group("stream/decode");
    group.throughput(Throughput::Elements(ROWS)).sample_size(10);
    for (name, schema) in [
        ("json_6_fields", SCHEMA),
        ("json_2_fields", "ts BIGINT, temperature DOUBLE"),
    ] {
        let fields = parse_payload_schema(schema).expect("a schema");
        let mut decoder = Decoder::new(Format::Json, fields, OnError::Null).expect("a decoder");
        group.bench_function(name, |b| {
            b.iter(|| {
                let done = batches.iter().map(|batch| decoder.decode(black_box(batch)));
                done.map(|batch| batch.expect("decoded").num_rows())
                    .sum::<usize>()
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = write, read, decode
}
criterion_main!(benches);
