//! Rows become batches, batches files, and files the same rows again.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use arrow_array::RecordBatch;
use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int32Type, Int64Type, TimestampMicrosecondType};
use arrow_array::{Array, ArrayRef, Int32Array, StringArray};
use arrow_schema::Schema;
use mqttcore_columnar::{
    ColumnarError, Decoder, FileMeta, FilePart, Format, MetricAliases, OnError, Origin,
    PartitionReader, ReadOptions, Row, RowBuilder, TailReader, parse_payload_schema, row_schema,
    write_parquet,
};
use mqttcore_topics::{TopicLimits, TopicName};
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::Index;

/// A row that owns what it is made of.
#[derive(Clone, Debug, PartialEq)]
struct OwnedRow {
    timestamp_us: i64,
    topic: String,
    payload: Vec<u8>,
    qos: u8,
    retain: bool,
    dup: bool,
    client_id: String,
    content_type: Option<String>,
    response_topic: Option<String>,
    correlation_data: Option<Vec<u8>>,
    expiry_s: Option<u32>,
    user_properties: Vec<(String, String)>,
}

fn rows(max: usize) -> impl Strategy<Value = Vec<OwnedRow>> {
    let fixed = (0..1_i64 << 50, 0..3_u8, any::<bool>(), any::<bool>());
    let texts = (
        ".{0,12}",
        ".{0,8}",
        option::of(".{0,8}"),
        option::of(".{0,8}"),
    );
    let blob = || prop_oneof![9 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 5_000..9_000)];
    let blobs = (
        blob(),
        option::of(vec(any::<u8>(), 0..9)),
        option::of(any::<u32>()),
    );
    let pairs = vec((".{0,6}", ".{0,6}"), 0..3);
    let row = (fixed, texts, blobs, pairs).prop_map(|(fixed, texts, blobs, pairs)| OwnedRow {
        timestamp_us: fixed.0,
        qos: fixed.1,
        retain: fixed.2,
        dup: fixed.3,
        topic: texts.0,
        client_id: texts.1,
        content_type: texts.2,
        response_topic: texts.3,
        payload: blobs.0,
        correlation_data: blobs.1,
        expiry_s: blobs.2,
        user_properties: pairs,
    });
    vec(row, 1..max)
}

/// Batches of `sizes` rows, then one of what is left.
fn batches(rows: &[OwnedRow], partition: i32, base: i64, sizes: &[usize]) -> Vec<RecordBatch> {
    let mut builder = RowBuilder::new(partition);
    let mut sizes = sizes.iter().copied();
    let mut batches = Vec::new();
    let mut size = sizes.next();
    for (offset, row) in (base..).zip(rows) {
        let properties = row.user_properties.iter();
        let properties: Vec<_> = properties.map(|(key, value)| (&**key, &**value)).collect();
        let row = Row {
            offset,
            timestamp_us: row.timestamp_us,
            topic: &row.topic,
            payload: &row.payload,
            qos: row.qos,
            retain: row.retain,
            dup: row.dup,
            client_id: &row.client_id,
            content_type: row.content_type.as_deref(),
            response_topic: row.response_topic.as_deref(),
            correlation_data: row.correlation_data.as_deref(),
            expiry_s: row.expiry_s,
            user_properties: &properties,
        };
        builder.push(&row).expect("a small row");
        if size.is_some_and(|size| builder.rows() >= size) {
            batches.push(builder.finish());
            size = sizes.next();
        }
    }
    batches.push(builder.finish());
    batches
}

/// Offset and row of each row of a batch that has all columns.
fn unfold(batch: &RecordBatch, partition: i32) -> Vec<(i64, OwnedRow)> {
    assert_eq!(batch.schema(), row_schema());
    let text = |name: &str| batch[name].as_string::<i32>().clone();
    let optional =
        |texts: &StringArray, row| texts.is_valid(row).then(|| texts.value(row).to_owned());
    let (topic, client_id) = (text("topic"), text("client_id"));
    let (content_type, response_topic) = (text("content_type"), text("response_topic"));
    let payload = batch["payload"].as_binary::<i32>();
    let correlation = batch["correlation_data"].as_binary::<i32>();
    let expiry = batch["expiry"].as_primitive::<Int64Type>();
    let properties = batch["user_properties"].as_list::<i32>();
    let row = |row: usize| {
        assert_eq!(
            batch["partition"].as_primitive::<Int32Type>().value(row),
            partition
        );
        let pairs = properties.value(row);
        let pairs = pairs.as_struct();
        let (keys, values) = (
            pairs.column(0).as_string::<i32>(),
            pairs.column(1).as_string::<i32>(),
        );
        let pair = |index| (keys.value(index).to_owned(), values.value(index).to_owned());
        let owned = OwnedRow {
            timestamp_us: batch["timestamp"]
                .as_primitive::<TimestampMicrosecondType>()
                .value(row),
            topic: topic.value(row).to_owned(),
            payload: payload.value(row).to_vec(),
            qos: batch["qos"]
                .as_primitive::<Int8Type>()
                .value(row)
                .cast_unsigned(),
            retain: batch["retain"].as_boolean().value(row),
            dup: batch["dup"].as_boolean().value(row),
            client_id: client_id.value(row).to_owned(),
            content_type: optional(&content_type, row),
            response_topic: optional(&response_topic, row),
            correlation_data: correlation
                .is_valid(row)
                .then(|| correlation.value(row).to_vec()),
            expiry_s: expiry
                .is_valid(row)
                .then(|| expiry.value(row).try_into().expect("32 bits")),
            user_properties: (0..pairs.len()).map(pair).collect(),
        };
        (
            batch["offset"].as_primitive::<Int64Type>().value(row),
            owned,
        )
    };
    (0..batch.num_rows()).map(row).collect()
}

fn read(
    parts: &[FilePart],
    partition: i32,
    from: i64,
    to: i64,
) -> Result<Vec<(i64, OwnedRow)>, ColumnarError> {
    let options = ReadOptions {
        batch_rows: 7,
        ..ReadOptions::default()
    };
    let mut rows = Vec::new();
    for batch in PartitionReader::new(parts, partition, from..to, options)? {
        rows.extend(unfold(&batch?, partition));
    }
    Ok(rows)
}

/// A folder that is gone with its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path =
            std::env::temp_dir().join(format!("mqttcore-columnar-{}-{number}", process::id()));
        fs::create_dir_all(&path).expect("a temporary folder");
        Self(path)
    }

    fn write(&self, batches: &[RecordBatch]) -> FilePart {
        let path = self.0.join("new.parquet");
        let file = File::create(&path).expect("a new file");
        let meta = write_parquet(file, batches, &origin(), &mut MetricAliases::default())
            .expect("dense rows");
        self.keep(&path, &meta)
    }

    fn keep(&self, path: &Path, meta: &FileMeta) -> FilePart {
        let (base, last) = (meta.base, meta.last);
        let kept = self.0.join(format!("{base:020}-{last}.parquet"));
        fs::rename(path, &kept).expect("renamed");
        FilePart {
            path: kept,
            base,
            last,
        }
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn origin() -> Origin {
    Origin {
        stream: "plant".to_owned(),
        epoch: "7c9e:1".to_owned(),
        schema: 2,
    }
}

fn plain_rows(count: usize) -> Vec<OwnedRow> {
    let row = |index: usize| OwnedRow {
        timestamp_us: i64::try_from(index).expect("small") * 1_000,
        topic: format!("plant/{}", index % 3),
        payload: index.to_string().into_bytes(),
        qos: 1,
        retain: false,
        dup: false,
        client_id: "device".to_owned(),
        content_type: None,
        response_topic: None,
        correlation_data: None,
        expiry_s: None,
        user_properties: vec![],
    };
    (0..count).map(row).collect()
}

/// A file by another writer: row groups of a few rows, with or without dictionaries.
fn write_by_hand(
    folder: &Folder,
    batch: &RecordBatch,
    meta: &FileMeta,
    group_rows: usize,
    dictionary: bool,
) -> FilePart {
    let entry = |key: &str, value: String| KeyValue::new(format!("mqttcore.{key}"), value);
    let entries = vec![
        entry("stream", meta.origin.stream.clone()),
        entry("epoch", meta.origin.epoch.clone()),
        entry("schema", meta.origin.schema.to_string()),
        entry("partition", meta.partition.to_string()),
        entry("base", meta.base.to_string()),
        entry("last", meta.last.to_string()),
        entry("min_us", meta.min_us.to_string()),
        entry("max_us", meta.max_us.to_string()),
    ];
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(group_rows))
        .set_dictionary_enabled(dictionary)
        .set_key_value_metadata(Some(entries))
        .build();
    let path = folder.0.join("hand.parquet");
    let file = File::create(&path).expect("a new file");
    let mut writer =
        ArrowWriter::try_new(file, batch.schema(), Some(properties)).expect("a writer");
    writer.write(batch).expect("rows");
    writer.close().expect("a footer");
    folder.keep(&path, meta)
}

fn meta(partition: i32, base: i64, rows: usize) -> FileMeta {
    FileMeta {
        origin: origin(),
        partition,
        base,
        last: base + i64::try_from(rows).expect("small") - 1,
        min_us: 0,
        max_us: i64::MAX,
        typed: 0,
        aliases: None,
    }
}

/// Offsets that a reader hands out.
fn offsets(reader: impl Iterator<Item = Result<RecordBatch, ColumnarError>>) -> Vec<i64> {
    let batches = reader.map(|batch| batch.expect("whole files"));
    let offsets = batches.map(|batch| {
        batch["offset"]
            .as_primitive::<Int64Type>()
            .values()
            .to_vec()
    });
    offsets.flatten().collect()
}

const FILTERS: [&str; 9] = [
    "#",
    "plant/#",
    "plant/+",
    "plant/1",
    "plant/+/b",
    "+/1",
    "plant/1/#",
    "z/#",
    "$SYS/#",
];
const TOPICS: [&str; 8] = [
    "plant",
    "plant/1",
    "plant/2",
    "plant/1/b",
    "plant/2/b",
    "$SYS/1",
    "z/1",
    "größe/1",
];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn a_filter_leaves_what_it_matches(
        picks in vec((0..TOPICS.len(), 0..4_i64), 1..60),
        filter in option::weighted(0.8, 0..FILTERS.len()),
        times in (option::of(-5..150_i64), option::of(-5..150_i64)),
        range in (0..60_i64, 0..60_i64),
        layout in (1..20_usize, any::<bool>()),
        columns in option::of(Just(vec!["offset".to_owned()])),
    ) {
        let mut now = 0;
        let rows = picks.iter().map(|(topic, pause)| {
            now += pause;
            OwnedRow { timestamp_us: now, topic: TOPICS[*topic].to_owned(), ..plain_rows(1).remove(0) }
        });
        let rows: Vec<OwnedRow> = rows.collect();
        let batch = batches(&rows, 0, 0, &[]).remove(0);
        let filter = filter.map(|filter| ReadOptions::parse_filter(FILTERS[filter]).expect("a filter"));
        let options = ReadOptions {
            filter: filter.clone(),
            start_us: times.0,
            end_us: times.1,
            batch_rows: 7,
            columns,
            ..ReadOptions::default()
        };
        let end = i64::try_from(rows.len()).expect("small");
        let (from, to) = (range.0.min(end), range.1.min(end));
        let expected: Vec<i64> = (0..).zip(&rows).filter(|(offset, row)| {
            let topic = TopicName::parse(&row.topic, &TopicLimits::default()).expect("a topic");
            (from..to).contains(offset)
                && filter.as_ref().is_none_or(|filter| filter.matches(topic))
                && times.0.is_none_or(|start| row.timestamp_us >= start)
                && times.1.is_none_or(|end| row.timestamp_us < end)
        }).map(|(offset, _)| offset).collect();

        let folder = Folder::new();
        let part = write_by_hand(&folder, &batch, &meta(0, 0, rows.len()), layout.0, layout.1);
        let reader = PartitionReader::new(&[part], 0, from..to, options.clone()).expect("a plan");
        prop_assert_eq!(offsets(reader), expected.clone());

        let wanted = batch.slice(usize::try_from(from).expect("small"), usize::try_from((to - from).max(0)).expect("small"));
        let reader = TailReader::new(vec![wanted], 0, from..to, &options).expect("a plan");
        prop_assert_eq!(offsets(reader), expected);
    }
}

#[test]
fn a_tail_that_is_not_the_range_is_refused() {
    let batch = |base| batches(&plain_rows(5), 0, base, &[]).remove(0);
    let refused = |batches: Vec<RecordBatch>, range| {
        let mut reader =
            TailReader::new(batches, 0, range, &ReadOptions::default()).expect("a plan");
        let error = reader.find_map(Result::err).expect("refused");
        assert!(reader.next().is_none());
        error.to_string()
    };

    assert_eq!(
        refused(vec![], 3..5),
        "partition 0: offsets 3 to 5 (exclusive) are missing"
    );
    assert_eq!(
        refused(vec![batch(3)], 3..9),
        "partition 0: offsets 8 to 9 (exclusive) are missing"
    );
    assert_eq!(
        refused(vec![batch(3)], 3..7),
        "partition 0: offset 7 is beyond the end of the range"
    );
    assert_eq!(
        refused(vec![batch(3)], 2..8),
        "partition 0: found offset 3, expected 2"
    );
    assert_eq!(
        refused(vec![batch(3), batch(9)], 3..14),
        "partition 0: found offset 9, expected 8"
    );
    let other = batches(&plain_rows(1), 1, 0, &[]).remove(0);
    assert_eq!(
        refused(vec![other], 0..1),
        "partition 0: a row of partition 1"
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rows_come_back_as_they_were(rows in rows(60), sizes in vec(1..20_usize, 0..3), base in 0..1_i64 << 40) {
        let batches = batches(&rows, 5, base, &sizes);

        let seen: Vec<_> = batches.iter().flat_map(|batch| unfold(batch, 5)).collect();

        let expected: Vec<_> = (base..).zip(rows).collect();
        prop_assert_eq!(seen, expected);
    }

    #[test]
    fn any_range_of_any_files_is_exactly_that_range(
        rows in rows(60),
        cuts in vec(0..60_usize, 0..4),
        base in 0..1_i64 << 40,
        range in (0..60_i64, 0..60_i64),
    ) {
        let folder = Folder::new();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(rows.len())).collect();
        cuts.extend([0, rows.len()]);
        cuts.sort_unstable();
        let mut parts = Vec::new();
        for cut in cuts.windows(2).filter(|cut| cut[0] < cut[1]) {
            let first = base + i64::try_from(cut[0]).expect("small");
            parts.push(folder.write(&batches(&rows[cut[0]..cut[1]], 5, first, &[9])));
        }
        let end = base + i64::try_from(rows.len()).expect("small");
        let (from, to) = ((base + range.0).min(end), (base + range.1).min(end));

        let seen = read(&parts, 5, from, to).expect("all of it is there");

        let all = (base..).zip(rows);
        let expected: Vec<_> = all.filter(|(offset, _)| (from..to).contains(offset)).collect();
        prop_assert_eq!(seen, expected);
    }
}

/// Everything that a reader makes of a file, however it is.
fn read_all(part: &FilePart) -> Result<usize, ColumnarError> {
    let schema = parse_payload_schema("a INT").expect("a schema");
    let decoder = Decoder::new(Format::Json, schema, OnError::Null).expect("a decoder");
    let filter = ReadOptions::parse_filter("plant/1").expect("a filter");
    let plain = ReadOptions::default();
    let filtered = ReadOptions {
        filter: Some(filter),
        decoder: Some(decoder),
        ..plain.clone()
    };
    let mut rows = 0;
    for options in [plain, filtered] {
        for batch in
            PartitionReader::new(slice::from_ref(part), 0, part.base..part.last + 1, options)?
        {
            rows += batch?.num_rows();
        }
    }
    Ok(rows)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_file_is_an_error_or_rows_and_never_a_panic(
        damage in vec((any::<Index>(), any::<u8>()), 1..4),
        in_footer in any::<bool>(),
        cut in option::weighted(0.2, any::<Index>()),
        dictionary in any::<bool>(),
    ) {
        let folder = Folder::new();
        let batch = batches(&plain_rows(300), 0, 0, &[]).remove(0);
        let part = write_by_hand(&folder, &batch, &meta(0, 0, 300), 100, dictionary);
        let mut bytes = fs::read(&part.path).expect("a file");
        let footer = bytes.len() - 8 - u32::from_le_bytes(bytes[bytes.len() - 8..][..4].try_into().expect("four")) as usize;
        let start = if in_footer { footer } else { 0 };
        for (place, byte) in damage {
            let place = start + place.index(bytes.len() - start);
            bytes[place] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        fs::write(&part.path, bytes).expect("written");

        if let Err(error) = read_all(&part) {
            let file = part.path.display().to_string();
            prop_assert!(error.to_string().contains(&file), "{}", error);
        }
    }
}

#[test]
fn the_footer_says_what_the_file_holds() {
    let folder = Folder::new();
    let part = folder.write(&batches(&plain_rows(40), 3, 100, &[16]));

    let meta = FileMeta::read(&part.path).expect("a whole file");

    let expected = FileMeta {
        origin: origin(),
        partition: 3,
        base: 100,
        last: 139,
        min_us: 0,
        max_us: 39_000,
        typed: 0,
        aliases: Some("{}".to_owned()),
    };
    assert_eq!(meta, expected);
    assert_eq!(meta.rows(), 40);
}

/// Rows with JSON as payload, and a typed column of before there was another.
fn early_file(folder: &Folder) -> FilePart {
    let rows = (0..3).map(|number| format!(r#"{{"a":{number},"b":{}}}"#, number + 10));
    let mut builder = RowBuilder::new(0);
    for (offset, payload) in (0..).zip(rows) {
        let row = Row {
            offset,
            payload: payload.as_bytes(),
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
    }
    let batch = builder.finish();
    let fields = batch.schema().fields().iter().cloned().collect::<Vec<_>>();
    let a = Arc::new(parse_payload_schema("a INT").expect("a schema").remove(0));
    let schema = Schema::new([fields, vec![a]].concat());
    // Not what the payloads say: what a file has is not decoded again.
    let values: ArrayRef = Arc::new(Int32Array::from(vec![7, 7, 7]));
    let columns = [batch.columns(), &[values]].concat();
    folder.write(&[RecordBatch::try_new(Arc::new(schema), columns).expect("columns")])
}

#[test]
fn a_typed_column_that_a_file_is_too_old_for_is_decoded() {
    let folder = Folder::new();
    let part = early_file(&folder);
    assert_eq!(FileMeta::read(&part.path).expect("a footer").typed, 1);
    let typed = parse_payload_schema("a INT, b INT").expect("a schema");
    let late = Decoder::new(Format::Json, typed.clone(), OnError::Null).expect("a decoder");
    let read = |names: &[&str], late: Option<Decoder>| {
        let options = ReadOptions {
            typed: typed.clone(),
            late,
            columns: Some(names.iter().map(|name| (*name).to_owned()).collect()),
            ..ReadOptions::default()
        };
        let parts = slice::from_ref(&part);
        let mut reader = PartitionReader::new(parts, 0, 1..3, options).expect("a plan");
        reader.next().expect("rows").expect("a whole file")
    };
    let numbers = |batch: &RecordBatch, name: &str| {
        let column = batch[name].as_primitive::<Int32Type>();
        column.iter().collect::<Vec<_>>()
    };

    let both = read(&["b", "a"], Some(late.clone()));
    assert_eq!(numbers(&both, "b"), [Some(11), Some(12)]);
    assert_eq!(numbers(&both, "a"), [Some(7), Some(7)]);
    let without = read(&["b"], None);
    assert_eq!(numbers(&without, "b"), [None, None]);
    let plain = read(&["a", "offset"], Some(late));
    assert_eq!(
        (plain.num_columns(), numbers(&plain, "a")),
        (2, vec![Some(7), Some(7)])
    );
}

#[test]
fn columns_come_as_they_are_asked_for() {
    let folder = Folder::new();
    let part = folder.write(&batches(&plain_rows(3), 0, 0, &[]));
    let options = ReadOptions {
        columns: Some(vec!["payload".to_owned(), "offset".to_owned()]),
        ..ReadOptions::default()
    };

    let reader = PartitionReader::new(&[part], 0, 1..3, options).expect("a plan");

    let schema = reader.schema().clone();
    let names: Vec<_> = schema.fields().iter().map(|field| field.name()).collect();
    assert_eq!(names, ["payload", "offset"]);
    let batches: Vec<_> = reader.map(|batch| batch.expect("a whole file")).collect();
    assert_eq!(batches.len(), 1);
    assert_eq!(batches[0].schema(), schema);
    assert_eq!(batches[0]["payload"].as_binary::<i32>().value(0), b"1");
    assert_eq!(
        batches[0]["offset"].as_primitive::<Int64Type>().values(),
        &[1, 2]
    );
}

#[test]
fn a_wrong_column_is_named() {
    let refused = |names: &[&str]| {
        let columns = Some(names.iter().map(|name| (*name).to_owned()).collect());
        let options = ReadOptions {
            columns,
            ..ReadOptions::default()
        };
        let reader = PartitionReader::new(&[], 0, 0..0, options);
        reader.err().expect("refused").to_string()
    };

    assert_eq!(
        refused(&["offset", "speed"]),
        "option columns: there is no column \"speed\""
    );
    assert_eq!(
        refused(&["qos", "qos"]),
        "option columns: column \"qos\" is named twice"
    );
    assert_eq!(
        refused(&[]),
        "option columns: is empty: name at least one column"
    );
}

#[test]
fn rows_that_are_not_dense_are_no_file() {
    let refused = |batches: &[RecordBatch]| {
        let written = write_parquet(
            Vec::new(),
            batches,
            &origin(),
            &mut MetricAliases::default(),
        );
        written.expect_err("refused").to_string()
    };
    let rows = plain_rows(3);

    let mut gap = batches(&rows, 2, 0, &[]);
    gap.extend(batches(&rows, 2, 4, &[]));
    assert_eq!(refused(&gap), "partition 2: found offset 4, expected 3");
    let mut repeat = batches(&rows, 2, 0, &[]);
    repeat.extend(batches(&rows, 2, 2, &[]));
    assert_eq!(refused(&repeat), "partition 2: found offset 2, expected 3");
    let mut other = batches(&rows, 2, 0, &[]);
    other.extend(batches(&rows, 1, 3, &[]));
    assert_eq!(refused(&other), "partition 2: a row of partition 1");
    assert_eq!(refused(&[]), "partition 0: no row to write");
}

#[test]
fn a_file_that_is_not_what_the_index_says_is_refused() {
    let folder = Folder::new();
    let part = folder.write(&batches(&plain_rows(10), 0, 0, &[]));
    let refused = |part: FilePart, partition| {
        let (from, to) = (part.base, part.last + 1);
        read(&[part], partition, from, to)
            .expect_err("refused")
            .to_string()
    };
    let file = part.path.display().to_string();

    let other = format!("{file} does not match the index: it holds offsets 0 to 9 of partition 0");
    assert_eq!(
        refused(
            FilePart {
                last: 8,
                ..part.clone()
            },
            0
        ),
        other
    );
    assert_eq!(refused(part.clone(), 1), other);
    fs::write(&part.path, b"PAR1 something else PAR1").expect("written");
    assert!(refused(part.clone(), 0).starts_with(&format!("{file} cannot be read: ")));
    fs::remove_file(&part.path).expect("removed");
    assert!(refused(part, 0).starts_with(&format!("{file}: No such file")));
}
