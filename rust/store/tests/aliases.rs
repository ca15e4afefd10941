//! Metrics of Sparkplug B that come by alias have their names wherever rows begin to be read.
#![cfg(feature = "columnar")]

use std::fs::{self, File};
use std::path::PathBuf;

use arrow_array::cast::AsArray;
use arrow_array::types::Float64Type;
use arrow_array::{Array, RecordBatch};
use mqttcore_columnar::{
    ColumnarError, Decoder, FileMeta, FilePart, Format, MetricAliases, OnError, Origin,
    PartitionReader, ReadOptions, Row, RowBuilder, TailReader, parse_payload_schema, write_parquet,
};
use mqttcore_store::Store;
use mqttcore_store::faults::{Disk, Faults};
use mqttcore_store::files::{Files as _, FolderAccess};
use mqttcore_store::stream::{Definition, StreamOptions};

#[path = "../../columnar/tests/sparkplug_support/mod.rs"]
mod sparkplug_support;
mod stream_support;

use sparkplug_support::{birth, data};
use stream_support::{Log, append_message, definition, options};

/// Kind of message, and its payload.
type Message = (&'static str, Vec<u8>);

fn batch(base: i64, messages: &[Message]) -> RecordBatch {
    let mut builder = RowBuilder::new(0);
    for (offset, (kind, payload)) in (base..).zip(messages) {
        let row = Row {
            offset,
            topic: &format!("spBv1.0/g/{kind}/e"),
            payload,
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
    }
    builder.finish()
}

/// The column `Speed`, decoded out of payloads by a reader that begins without any alias.
fn speeds(
    read: impl FnOnce(ReadOptions) -> Box<dyn Iterator<Item = Result<RecordBatch, ColumnarError>>>,
) -> Vec<Option<f64>> {
    let fields = parse_payload_schema("Speed DOUBLE").expect("a schema");
    let decoder = Decoder::new(Format::Sparkplug, fields, OnError::Null);
    let options = ReadOptions {
        decoder: Some(decoder.expect("a decoder")),
        columns: Some(vec!["Speed".to_owned()]),
        ..ReadOptions::default()
    };
    let batches = read(options).map(|batch| batch.expect("rows"));
    let columns = batches.map(|batch| batch["Speed"].clone());
    let values = columns.map(|column| column.as_primitive::<Float64Type>().iter().collect());
    values.collect::<Vec<Vec<_>>>().concat()
}

/// Files in a folder that is gone with its test.
struct Files(PathBuf);

impl Files {
    fn new(test: &str) -> Self {
        let path = std::env::temp_dir().join(format!("mqttcore-{test}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn part(&self, name: &str, meta: impl FnOnce(File) -> FileMeta) -> FilePart {
        let path = self.0.join(name);
        let meta = meta(File::create(&path).expect("a new file"));
        let (base, last) = (meta.base, meta.last);
        FilePart { path, base, last }
    }

    /// A file out of a simulated disk.
    fn copy(&self, disk: &Disk, base: u64) -> (FilePart, FileMeta) {
        let name = format!("00000-{base:020}.parquet");
        let content = disk.content(&format!("streams/plant/data/{name}"));
        let path = self.0.join(&name);
        fs::write(&path, content.expect("a file")).expect("written");
        let meta = FileMeta::read(&path).expect("a footer");
        let (base, last) = (meta.base, meta.last);
        (FilePart { path, base, last }, meta)
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn read(parts: &[FilePart], from: i64, to: i64) -> Vec<Option<f64>> {
    speeds(|options| {
        let reader = PartitionReader::new(parts, 0, from..to, options);
        Box::new(reader.expect("a plan"))
    })
}

#[test]
fn a_range_that_begins_behind_its_birth_knows_the_names() {
    let files = Files::new("aliases-ranges");
    let mut known = MetricAliases::default();
    let all = [
        vec![("NBIRTH", birth("Speed", 1))],
        vec![("NDATA", data(1, 1.0)), ("NDATA", data(1, 2.0))],
        vec![
            ("NDATA", data(1, 3.0)),
            ("NBIRTH", birth("Speed", 2)),
            ("NDATA", data(2, 4.0)),
            ("NDATA", data(1, 5.0)),
            ("NDATA", data(2, 6.0)),
        ],
    ];
    let mut base = 0;
    let parts = all.map(|messages| {
        let rows = [batch(base, &messages)];
        let part = files.part(&base.to_string(), |file| {
            write_parquet(file, &rows, &Origin::default(), &mut known).expect("dense rows")
        });
        base = part.last + 1;
        part
    });

    let whole = read(&parts, 0, 8);
    // An alias of before the second BIRTH means nothing behind it.
    let expected = [0.0, 1.0, 2.0, 3.0, 0.0, 4.0, f64::NAN, 6.0];
    let expected = expected.map(|value| Some(value).filter(|value| !value.is_nan()));
    assert_eq!(whole, expected);
    for from in 0..8 {
        let begin = usize::try_from(from).expect("small");
        // Retention may have taken what lies before.
        let left: Vec<FilePart> = parts
            .iter()
            .filter(|part| part.last >= from)
            .cloned()
            .collect();
        assert_eq!(read(&left, from, 8), whole[begin..], "from {from}");
    }
}

#[test]
fn a_footer_tells_of_no_other_nodes_than_its_rows() {
    let files = Files::new("aliases-footer");
    let mut known = MetricAliases::default();
    known
        .follow(&batch(0, &[("NBIRTH", birth("Speed", 1))]))
        .expect("rows");
    let told = |messages: &[Message]| {
        let rows = [batch(7, messages)];
        let part = files.part("told", |file| {
            write_parquet(file, &rows, &Origin::default(), &mut known.clone()).expect("dense rows")
        });
        FileMeta::read(&part.path).expect("a footer").aliases
    };

    let table = r#"{"g/e":{"1":["Speed",10]}}"#;
    assert_eq!(told(&[("NDATA", data(1, 1.0))]).as_deref(), Some(table));
    assert_eq!(
        told(&[("NBIRTH", birth("Speed", 2))]).as_deref(),
        Some("{}")
    );
    let mut builder = RowBuilder::new(0);
    builder
        .push(&Row {
            topic: "plant/1",
            ..Row::default()
        })
        .expect("a small row");
    let rows = [builder.finish()];
    let meta = write_parquet(Vec::new(), &rows, &Origin::default(), &mut known).expect("rows");
    assert_eq!(meta.aliases.as_deref(), Some("{}"));
}

fn publish(log: &Log, messages: &[Message]) {
    for (kind, payload) in messages {
        let ticket = append_message(&log.store, &format!("spBv1.0/g/{kind}/e"), payload);
        log.store.wait(ticket).expect("safe");
    }
}

/// The rows from `from` on, out of the tail.
fn tail(log: &Log, from: u64) -> Vec<Option<f64>> {
    let end = log.bounds("plant")[0].end;
    let batches = stream_support::tail(log, "plant", 0, from, end).expect("rows");
    let range = from.cast_signed()..end.cast_signed();
    speeds(|options| Box::new(TailReader::new(batches, 0, range, &options).expect("a plan")))
}

#[test]
fn the_tail_says_what_its_rows_need_of_before_them() {
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &options(&[definition("plant", 1)])).expect("a store");
    publish(&log, &[("NBIRTH", birth("Speed", 1))]);
    log.store.seal().expect("sealed");
    publish(
        &log,
        &[("NDATA", data(1, 1.0)), ("NBIRTH", birth("Speed", 2))],
    );
    publish(&log, &[("NDATA", data(1, 2.0)), ("NDATA", data(2, 3.0))]);

    assert_eq!(tail(&log, 1), [Some(1.0), Some(0.0), None, Some(3.0)]);
    assert_eq!(tail(&log, 3), [None, Some(3.0)]);
    assert_eq!(tail(&log, 4), [Some(3.0)]);
    log.store.seal().expect("sealed");
    publish(&log, &[("NDATA", data(2, 4.0))]);
    assert_eq!(tail(&log, 5), [Some(4.0)]);
}

#[test]
fn what_aliases_mean_survives_a_kill_whether_or_not_it_was_noted() {
    for is_noted in [true, false] {
        let files = Files::new(&format!("aliases-kill-{is_noted}"));
        let disk = Disk::new(1, Faults::default());
        let plant = options(&[definition("plant", 1)]);
        let log = Log::open(&disk, &plant).expect("a store");
        publish(
            &log,
            &[("NBIRTH", birth("Speed", 1)), ("NDATA", data(1, 1.0))],
        );
        log.store.seal().expect("sealed");
        let disk = disk.after_kill();
        drop(log);
        if !is_noted {
            let folder = disk
                .folder("streams/plant", FolderAccess::Owner)
                .expect("a folder");
            folder.remove("aliases.json").expect("removed");
        }

        let log = Log::open(&disk, &plant).expect("a store");
        publish(&log, &[("NDATA", data(1, 2.0))]);
        assert_eq!(tail(&log, 2), [Some(2.0)], "noted: {is_noted}");
        log.store.seal().expect("sealed");

        let (second, _) = files.copy(&disk, 2);
        assert_eq!(read(&[second], 2, 3), [Some(2.0)], "noted: {is_noted}");
    }
}

/// A stream whose files have the column `Speed`.
fn typed() -> StreamOptions {
    options(&[Definition {
        decode: Some("sparkplug".to_owned()),
        columns: vec![("Speed".to_owned(), "double".to_owned())],
        ..definition("plant", 1)
    }])
}

#[test]
fn small_files_with_columns_of_metrics_are_merged_and_say_the_same() {
    let files = Files::new("aliases-merge");
    let disk = Disk::new(1, Faults::default());
    let log = Log::open(&disk, &typed()).expect("a store");
    publish(&log, &[("NBIRTH", birth("Speed", 1))]);
    log.store.seal().expect("sealed");
    for value in 1..=16 {
        publish(&log, &[("NDATA", data(1, f64::from(value)))]);
        log.store.seal().expect("sealed");
    }

    log.store.maintain(log.now_us()).expect("merged");

    let (part, meta) = files.copy(&disk, 0);
    assert_eq!((meta.base, meta.last), (0, 16), "seventeen files are one");
    let columns = ReadOptions {
        typed: parse_payload_schema("Speed DOUBLE").expect("a schema"),
        columns: Some(vec!["Speed".to_owned()]),
        ..ReadOptions::default()
    };
    let reader = PartitionReader::new(&[part], 0, 0..17, columns).expect("a plan");
    let rows: Vec<_> = reader.map(|batch| batch.expect("rows")).collect();
    let values = rows[0]["Speed"].as_primitive::<Float64Type>();
    assert_eq!(values.null_count(), 0);
    let expected: Vec<f64> = (0..17).map(f64::from).collect();
    assert_eq!(values.values(), &expected[..]);
}
