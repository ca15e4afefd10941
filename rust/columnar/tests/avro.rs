//! Records of Avro become columns. Payloads are made by hand, after the specification of Avro 1.12.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use mqttcore_columnar::{
    ColumnarError, Decoder, Format, OnError, Row, RowBuilder, parse_payload_schema,
};
use proptest::collection::vec;
use proptest::prelude::*;

/// Schema 258: a field of each kind.
const MACHINE: &str = r#"{"type": "record", "name": "Machine", "namespace": "factory", "fields": [
    {"name": "on", "type": "boolean"},
    {"name": "small", "type": "int"},
    {"name": "large", "type": "long"},
    {"name": "load", "type": "float"},
    {"name": "temperature", "type": ["null", "double"], "default": null},
    {"name": "unit", "type": "string"},
    {"name": "image", "type": "bytes"},
    {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 2}},
    {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["STOPPED", "RUNNING"]}},
    {"name": "before", "type": ["factory.State", "null"]},
    {"name": "codes", "type": {"type": "array", "items": "int"}},
    {"name": "limits", "type": {"type": "map", "values": "double"}},
    {"name": "position", "type": {"type": "record", "name": "Position", "fields": [
        {"name": "x", "type": "int"}, {"name": "next", "type": ["null", "Position"]}]}},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "until", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
    {"name": "exact", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "fine", "type": {"type": "fixed", "name": "Fine", "size": 3, "logicalType": "decimal", "precision": 6}},
    {"name": "id", "type": {"type": "string", "logicalType": "uuid"}}]}"#;

const SCHEMA: &str = "on BOOLEAN, small INT, large BIGINT, load FLOAT, temperature DOUBLE, unit STRING, image BINARY, \
    hash BINARY, state STRING, before STRING, codes ARRAY<INT>, limits ARRAY<STRUCT<key: STRING, value: DOUBLE>>, \
    position STRUCT<x: INT, next: STRUCT<x: INT>>, day DATE, at TIMESTAMP, until TIMESTAMP, exact TIMESTAMP, \
    price DECIMAL(9, 2), fine STRING, id STRING";

/// A machine with every field.
const FULL: &str = "00 00000102 \
    01 05 ffffffffffffffffff01 0000003f 02 0000000000803540 06c2b043 0400ff abcd 02 0000 \
    04020401021000 020868696768 0000000000a05640 00 \
    03 02 0500 beb402 80a0abfef962 8080f28183898506 ffffffffffffffffff01 04fb2e ffff85 0461 62";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("a byte"))
        .collect()
}

fn decoder(schemas: &str, columns: &str) -> Result<Decoder, ColumnarError> {
    let fields = parse_payload_schema(columns).expect("a schema");
    let decoder = Decoder::new(Format::Avro, fields, OnError::Null).expect("a decoder");
    decoder.with_schemas(schemas.as_bytes())
}

fn decode(schemas: &str, columns: &str, payloads: &[Vec<u8>]) -> RecordBatch {
    let mut builder = RowBuilder::new(4);
    for (offset, payload) in (0..).zip(payloads) {
        let row = Row {
            offset,
            payload,
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
    }
    let mut decoder = decoder(schemas, columns).expect("schemas");
    decoder.decode(&builder.finish()).expect("decoded")
}

/// Decodes payloads of schema 1, whose header they lack.
fn decode_bodies(schema: &str, columns: &str, bodies: &[&str]) -> RecordBatch {
    let schemas = format!("{{\"1\": {schema}}}");
    let payloads: Vec<_> = bodies
        .iter()
        .map(|body| bytes(&format!("0000000001{body}")))
        .collect();
    decode(&schemas, columns, &payloads)
}

fn machine(columns: &str, payloads: &[Vec<u8>]) -> RecordBatch {
    decode(&format!("{{\"258\": {MACHINE}}}"), columns, payloads)
}

fn field(of: &str) -> String {
    format!(r#"{{"type": "record", "name": "R", "fields": [{{"name": "v", "type": {of}}}]}}"#)
}

fn corrupt(batch: &RecordBatch) -> Vec<bool> {
    (0..batch.num_rows())
        .map(|row| batch["_corrupt"].is_valid(row))
        .collect()
}

fn texts(batch: &RecordBatch, name: &str) -> Vec<Option<String>> {
    let texts = batch[name].as_string::<i32>().iter();
    texts.map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn every_kind_of_field_becomes_a_column() {
    let batch = machine(SCHEMA, &[bytes(FULL)]);

    assert_eq!(corrupt(&batch), [false]);
    let text = |name: &str| batch[name].as_string::<i32>().value(0).to_owned();
    let micros = |name: &str| {
        batch[name]
            .as_primitive::<TimestampMicrosecondType>()
            .value(0)
    };
    assert!(batch["on"].as_boolean().value(0));
    assert_eq!(batch["small"].as_primitive::<Int32Type>().value(0), -3);
    assert_eq!(
        batch["large"].as_primitive::<Int64Type>().value(0),
        i64::MIN
    );
    assert!((batch["load"].as_primitive::<Float32Type>().value(0) - 0.5).abs() < 1e-9);
    assert!((batch["temperature"].as_primitive::<Float64Type>().value(0) - 21.5).abs() < 1e-9);
    assert_eq!((text("unit"), text("id")), ("°C".into(), "ab".into()));
    assert_eq!(batch["image"].as_binary::<i32>().value(0), [0, 0xFF]);
    assert_eq!(batch["hash"].as_binary::<i32>().value(0), [0xAB, 0xCD]);
    assert_eq!(
        (text("state"), text("before")),
        ("RUNNING".into(), "STOPPED".into())
    );
    let codes = batch["codes"].as_list::<i32>().value(0);
    assert_eq!(codes.as_primitive::<Int32Type>().values(), &[1, 2, 8]);
    let limits = batch["limits"].as_list::<i32>().value(0);
    assert_eq!(
        limits.as_struct()["key"].as_string::<i32>().value(0),
        "high"
    );
    let position = batch["position"].as_struct();
    assert_eq!(position["x"].as_primitive::<Int32Type>().value(0), -2);
    let next = position["next"].as_struct();
    assert_eq!(next["x"].as_primitive::<Int32Type>().value(0), -3);
    assert_eq!(batch["day"].as_primitive::<Date32Type>().value(0), 19_743);
    assert_eq!(micros("at"), 1_700_000_000_000_000);
    assert_eq!(micros("until"), 1_700_000_000_000_000);
    assert_eq!(micros("exact"), i64::MIN.div_euclid(1_000));
    assert_eq!(
        batch["price"].as_primitive::<Decimal128Type>().value(0),
        -1_234
    );
    assert_eq!(text("fine"), "-123");
}

#[test]
fn what_is_made_of_parts_is_json_as_text() {
    let columns = "codes STRING, limits STRING, position STRING, day STRING, price STRING";
    let batch = machine(columns, &[bytes(FULL)]);

    let text = |name: &str| batch[name].as_string::<i32>().value(0).to_owned();
    assert_eq!(corrupt(&batch), [false]);
    assert_eq!(text("codes"), "[1,2,8]");
    assert_eq!(text("limits"), r#"{"high":90.5}"#);
    assert_eq!(text("position"), r#"{"x":-2,"next":{"x":-3,"next":null}}"#);
    assert_eq!(
        (text("day"), text("price")),
        ("2024-01-21".into(), "-12.34".into())
    );
    let kinds = field(
        r#"{"type": "array", "items": ["double", "bytes", "boolean", {"type": "long", "logicalType": "timestamp-micros"},
        {"type": "record", "name": "Empty", "fields": []}, {"type": "map", "values": "int"}]}"#,
    );
    let items = "0c 00 000000000000f87f 00 000000000000f0ff 02 0200 04 01 06 00 08 00";
    let batch = decode_bodies(&kinds, "v STRING", &[items, "02 0a 00 00", "00"]);
    let expected = [
        r#"["NaN","-Infinity","AA==",true,"1970-01-01T00:00:00.000000Z",{}]"#,
        "[{}]",
        "[]",
    ];
    assert_eq!(
        texts(&batch, "v"),
        expected.map(|text| Some(text.to_owned()))
    );
}

#[test]
fn a_payload_is_read_by_the_schema_that_it_names() {
    let one = field("\"int\"");
    let two = r#"["null", {"type": "record", "name": "R", "fields": [
        {"name": "more", "type": "string"}, {"name": "v", "type": "string"}]}]"#;
    let schemas = format!("{{\"1\": {one}, \"4294967295\": {two}}}");
    let payloads = [
        "0000000001 02",
        "00ffffffff 02 0278 026b",
        "",
        // The null of a union, another number, another first byte, a header that is cut off.
        "00ffffffff 00",
        "0000000002 02",
        "0100000001 02",
        "00000000",
    ]
    .map(bytes);

    let batch = decode(&schemas, "v STRING", &payloads);

    assert_eq!(
        corrupt(&batch),
        [false, false, false, true, true, true, true]
    );
    assert_eq!(
        texts(&batch, "v")[..2],
        [Some("1".into()), Some("k".into())]
    );
}

#[test]
fn what_is_no_such_record_is_corrupt() {
    for (of, bodies) in [
        ("\"int\"", &["", "80", "0202", "8080808010"][..]),
        ("\"boolean\"", &["02"]),
        (
            "\"string\"",
            &["0461", "02ff", "01", "feffffffffffffffff0161"],
        ),
        (r#"["null", "int"]"#, &["04", "01", "02"]),
        (
            r#"{"type": "enum", "name": "E", "symbols": ["A"]}"#,
            &["02", "01"],
        ),
        // An array that does not end, that has more items than bytes, or a block with a negative size.
        (
            r#"{"type": "array", "items": "int"}"#,
            &["0202", "feffffffffffffffff0102", "010100"],
        ),
        (r#"{"type": "map", "values": "int"}"#, &["02 02ff 02 00"]),
    ] {
        let batch = decode_bodies(&field(of), "v STRING", bodies);
        assert!(corrupt(&batch).into_iter().all(|is| is), "{of}");
        // Also if the field is only skipped.
        let batch = decode_bodies(&field(of), "other STRING", bodies);
        assert!(corrupt(&batch).into_iter().all(|is| is), "{of}");
    }
}

/// A count of 2^62 items that have no bytes would keep a reader busy for years.
#[test]
fn items_without_bytes_are_refused() {
    for of in [
        "\"null\"",
        r#"{"type": "record", "name": "Empty", "fields": []}"#,
        r#"{"type": "fixed", "name": "Nothing", "size": 0}"#,
    ] {
        let array = field(&format!(r#"{{"type": "array", "items": {of}}}"#));
        for columns in ["v STRING", "v ARRAY<STRING>", "other INT"] {
            let batch = decode_bodies(&array, columns, &["feffffffffffffffff01 00", "00"]);
            assert_eq!(corrupt(&batch), [true, false], "{of} as {columns}");
        }
    }
}

#[test]
fn records_that_are_nested_too_deep_are_corrupt() {
    let list =
        r#"{"type": "record", "name": "L", "fields": [{"name": "v", "type": ["null", "L"]}]}"#;
    let deep = |levels: usize| format!("{}00", "02".repeat(levels));

    let batch = decode_bodies(list, "v STRING", &[&deep(20), &deep(1_000_000)]);

    assert_eq!(corrupt(&batch), [false, true]);
}

#[test]
fn a_decimal_with_too_many_digits_is_its_bytes() {
    let wide = |precision| {
        field(&format!(
            r#"{{"type": "bytes", "logicalType": "decimal", "precision": {precision}, "scale": 1}}"#
        ))
    };

    let batch = decode_bodies(
        &wide(20),
        "v DECIMAL(20, 1)",
        &[
            "00",
            "0205",
            "02fb",
            "22 0000000000000000000000000000000001",
        ],
    );
    assert_eq!(corrupt(&batch), [false, false, false, true]);
    let values = batch["v"].as_primitive::<Decimal128Type>();
    assert_eq!(values.values()[..3], [0, 5, -5]);
    let batch = decode_bodies(&wide(39), "v BINARY", &["0205"]);
    assert_eq!(batch["v"].as_binary::<i32>().value(0), [5]);
}

#[test]
fn a_schema_that_cannot_be_read_is_named() {
    for (schemas, problem) in [
        ("[]", "it is not a JSON object with schemas by number"),
        (
            r#"{"x": "int"}"#,
            "schema x: its number is not one of 32 bits",
        ),
        (r#"{"7": "int"}"#, "schema 7: it is not a record"),
        (
            r#"{"7": {"type": "record", "name": "R"}}"#,
            "schema 7: record R has no \"fields\"",
        ),
        (
            &format!("{{\"7\": {}}}", field("\"shop.Price\"")),
            "schema 7: v: the type \"shop.Price\" is not declared in this file",
        ),
        (
            &format!("{{\"7\": {}}}", field("7")),
            "schema 7: v: 7 is not a type",
        ),
        (
            &format!("{{\"7\": {}}}", field("\"R\"")),
            "schema 7: a record contains itself without a union, array or map",
        ),
        (
            &format!("{{\"7\": {}}}", field(r#"{"type": "enum", "name": "E"}"#)),
            "schema 7: v: an enum has no \"symbols\"",
        ),
    ] {
        let refused = decoder(schemas, "v STRING").map(|_| ());
        let error = refused.expect_err(schemas).to_string();
        assert_eq!(error, format!("option schemas: {problem}"));
    }
}

proptest! {
    /// Whatever the bytes are, no byte of them breaks anything.
    #[test]
    fn any_bytes_are_a_row(payloads in vec(vec(any::<u8>(), 0..64), 1..20), cut in 0..200_usize) {
        let mut payloads: Vec<_> = payloads.into_iter().map(|tail| [bytes("0000000102"), tail].concat()).collect();
        let full = bytes(FULL);
        payloads.push(full[..cut.min(full.len())].to_vec());
        let batch = machine(SCHEMA, &payloads);
        prop_assert_eq!(batch.num_rows(), payloads.len());
    }

    #[test]
    fn any_bytes_are_no_danger_as_schema(start in 0..MACHINE.len(), noise in vec(any::<u8>(), 0..40)) {
        let mut schemas = format!("{{\"258\": {MACHINE}}}").into_bytes();
        for (place, byte) in (start..schemas.len()).zip(noise) {
            schemas[place] = byte;
        }
        let fields = parse_payload_schema(SCHEMA).expect("a schema");
        let decoder = Decoder::new(Format::Avro, fields, OnError::Null).expect("a decoder");
        let _ = decoder.with_schemas(&schemas);
    }
}
