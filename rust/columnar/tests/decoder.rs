//! Payloads become columns: what fits, what does not, and what happens then.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, Decimal128Type, Float32Type, Float64Type, Int8Type, Int32Type, Int64Type,
    TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use mqttcore_columnar::{
    ColumnarError, Decoder, Format, OnError, ReadOptions, Row, RowBuilder, TailReader,
    parse_payload_schema,
};
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

#[path = "../../../fuzz/kept.rs"]
mod kept;
#[path = "../../../fuzz/payloads.rs"]
mod payloads;
mod sparkplug_support;

use sparkplug_support::{double, metric, number};

fn batch<P: AsRef<[u8]>>(payloads: &[P]) -> RecordBatch {
    let mut builder = RowBuilder::new(4);
    for (offset, payload) in (100..).zip(payloads) {
        let payload = payload.as_ref();
        let row = Row {
            offset,
            payload,
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
    }
    builder.finish()
}

fn decoder(format: Format, schema: &str, on_error: OnError) -> Decoder {
    let fields = parse_payload_schema(schema).expect("a schema");
    Decoder::new(format, fields, on_error).expect("a decoder")
}

fn decode(schema: &str, payloads: &[&str]) -> RecordBatch {
    let mut decoder = decoder(Format::Json, schema, OnError::Null);
    decoder.decode(&batch(payloads)).expect("decoded")
}

#[test]
fn inputs_that_fuzz_runs_found_are_answered() {
    let inputs = include_str!("../../../fuzz/kept/payload.hex");

    assert!(kept::each_input(inputs, payloads::decode_payloads) > 100);
}

/// Which rows have their payload in `_corrupt`.
fn corrupt(batch: &RecordBatch) -> Vec<bool> {
    let corrupt = batch["_corrupt"].as_binary::<i32>();
    let payloads = batch["payload"].as_binary::<i32>();
    let rows = corrupt.iter().zip(payloads);
    let is_corrupt = rows.map(|(corrupt, payload)| {
        corrupt
            .inspect(|corrupt| assert_eq!(Some(*corrupt), payload))
            .is_some()
    });
    is_corrupt.collect()
}

#[test]
fn a_document_becomes_a_row() {
    let schema = "on BOOLEAN, small TINYINT, id BIGINT, load FLOAT, t DOUBLE, price DECIMAL(9, 2), name STRING,
        raw BINARY, at TIMESTAMP, day DATE, position STRUCT<x: INT, tags: ARRAY<STRING>>";
    let batch = decode(
        schema,
        &[
            r#" {"on":true,"small":-128,"id":9223372036854775807,"load":0.1,"t":1e-3,"price":19.995,
            "name":"\u00fc\n\ud83d\ude00","raw":"AAH/","at":"2024-02-29T13:00:00.5+01:00","day":"2024-02-29",
            "position":{"tags":["a",null,"b"],"x":7},"unknown":[{"deep":[]}]} "#,
        ],
    );

    assert_eq!(corrupt(&batch), [false]);
    assert!(batch["on"].as_boolean().value(0));
    assert_eq!(batch["small"].as_primitive::<Int8Type>().value(0), -128);
    assert_eq!(batch["id"].as_primitive::<Int64Type>().value(0), i64::MAX);
    assert_eq!(
        batch["load"]
            .as_primitive::<Float32Type>()
            .value(0)
            .to_bits(),
        0.1_f32.to_bits()
    );
    assert_eq!(
        batch["t"].as_primitive::<Float64Type>().value(0).to_bits(),
        1e-3_f64.to_bits()
    );
    assert_eq!(
        batch["price"].as_primitive::<Decimal128Type>().value(0),
        2_000
    );
    assert_eq!(batch["name"].as_string::<i32>().value(0), "ü\n😀");
    assert_eq!(batch["raw"].as_binary::<i32>().value(0), [0, 1, 255]);
    assert_eq!(
        batch["at"]
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        1_709_208_000_500_000
    );
    assert_eq!(batch["day"].as_primitive::<Date32Type>().value(0), 19_782);
    let position = batch["position"].as_struct();
    assert_eq!(position.column(0).as_primitive::<Int32Type>().value(0), 7);
    let tags = position.column(1).as_list::<i32>().value(0);
    let tags: Vec<_> = tags
        .as_string::<i32>()
        .iter()
        .map(|tag| tag.map(str::to_owned))
        .collect();
    assert_eq!(tags, [Some("a".to_owned()), None, Some("b".to_owned())]);
}

#[test]
fn what_is_missing_or_null_is_null_and_no_fault() {
    let batch = decode(
        "a INT, b STRING, c STRUCT<d: INT>",
        &[r#"{"a":null,"c":{}}"#, "{}", "", " \n"],
    );

    assert_eq!(corrupt(&batch), [false; 4]);
    assert_eq!(batch["a"].null_count(), 4);
    assert_eq!(batch["b"].null_count(), 4);
    assert!(batch["c"].is_valid(0));
    assert!(batch["c"].is_null(1));
    assert_eq!(batch["c"].as_struct().column(0).null_count(), 4);
}

#[test]
fn of_keys_that_repeat_the_last_counts() {
    let batch = decode("a INT, b INT", &[r#"{"a":1,"b":2,"a":"x","a":3}"#]);

    assert_eq!(corrupt(&batch), [false]);
    assert_eq!(batch["a"].as_primitive::<Int32Type>().value(0), 3);
    assert_eq!(batch["b"].as_primitive::<Int32Type>().value(0), 2);
}

#[test]
fn keys_count_by_what_they_say_not_by_how_or_where_the_document_before_wrote_them() {
    let batch = decode(
        "a INT, ab INT",
        &[
            r#"{"a":1,"ab":2}"#,
            r#"{"a":3,"ab":4}"#,
            r#"{"ab":5,"a":6}"#,
            r#"{ "ab" : 7 , "\u0061" : 8 }"#,
            r#"{ "ab" : 9 , "\u0061" : 10 }"#,
            r#"{"x":11,"a":12}"#,
            r#"{"x":13,"ab":14}"#,
            r#"{"a" 15}"#,
            r#"{"a":16}"#,
        ],
    );

    let column = |name| {
        let values = batch[name].as_primitive::<Int32Type>();
        values
            .iter()
            .map(Option::unwrap_or_default)
            .collect::<Vec<_>>()
    };
    assert_eq!(column("a"), [1, 3, 6, 8, 10, 12, 0, 0, 16]);
    assert_eq!(column("ab"), [2, 4, 5, 7, 9, 0, 14, 0, 0]);
    assert_eq!(corrupt(&batch).iter().filter(|is| **is).count(), 1);
}

#[test]
fn a_value_that_does_not_fit_is_null_and_the_rest_stays() {
    for (column, value) in [
        ("BOOLEAN", "1"),
        ("BOOLEAN", "\"true\""),
        ("TINYINT", "128"),
        ("INT", "2147483648"),
        ("INT", "1.0"),
        ("INT", "1e2"),
        ("INT", "\"1\""),
        ("BIGINT", "9223372036854775808"),
        ("DOUBLE", "\"1.5\""),
        ("DOUBLE", "true"),
        ("DECIMAL(4, 2)", "99.995"),
        ("DECIMAL(4, 2)", "\"x\""),
        ("BINARY", "\"?\""),
        ("BINARY", "1"),
        ("TIMESTAMP", "\"yesterday\""),
        ("TIMESTAMP", "true"),
        ("DATE", "19782"),
        ("STRUCT<x: INT>", "[1]"),
        ("ARRAY<INT>", "{\"x\":1}"),
    ] {
        let payload = format!(r#"{{"a":{value},"b":7}}"#);
        let batch = decode(&format!("a {column}, b INT"), &[&payload]);

        assert_eq!(corrupt(&batch), [true], "{column} {value}");
        assert!(batch["a"].is_null(0), "{column} {value}");
        assert_eq!(
            batch["b"].as_primitive::<Int32Type>().value(0),
            7,
            "{column} {value}"
        );
    }
}

#[test]
fn a_part_that_does_not_fit_is_null_in_its_place() {
    let batch = decode(
        "a STRUCT<x: INT, y: INT>, b ARRAY<INT>",
        &[r#"{"a":{"x":"?","y":2},"b":[1,"?",3]}"#],
    );

    assert_eq!(corrupt(&batch), [true]);
    let a = batch["a"].as_struct();
    assert!(a.is_valid(0));
    assert!(a.column(0).is_null(0));
    assert_eq!(a.column(1).as_primitive::<Int32Type>().value(0), 2);
    let b = batch["b"].as_list::<i32>().value(0);
    let b: Vec<_> = b.as_primitive::<Int32Type>().iter().collect();
    assert_eq!(b, [Some(1), None, Some(3)]);
}

#[test]
fn numbers_and_texts_take_what_stands_for_them() {
    let payload = r#"{"a":"NaN","b":"-INF","c":12,"d":{"x": [1, "ü"]},"e":1e5,"f":true,"g":1700000000,"h":1.5,"i":"2.50"}"#;
    let schema = "a DOUBLE, b FLOAT, c DOUBLE, d STRING, e STRING, f STRING, g TIMESTAMP, h TIMESTAMP, i DECIMAL(5, 1)";
    let batch = decode(schema, &[payload]);

    assert_eq!(corrupt(&batch), [false]);
    assert!(batch["a"].as_primitive::<Float64Type>().value(0).is_nan());
    assert!(batch["b"].as_primitive::<Float32Type>().value(0) < f32::MIN);
    assert_eq!(
        batch["c"].as_primitive::<Float64Type>().value(0).to_bits(),
        12_f64.to_bits()
    );
    assert_eq!(batch["d"].as_string::<i32>().value(0), r#"{"x": [1, "ü"]}"#);
    assert_eq!(batch["e"].as_string::<i32>().value(0), "1e5");
    assert_eq!(batch["f"].as_string::<i32>().value(0), "true");
    let instant = |name: &str| {
        batch[name]
            .as_primitive::<TimestampMicrosecondType>()
            .value(0)
    };
    assert_eq!(instant("g"), 1_700_000_000_000_000);
    assert_eq!(instant("h"), 1_500_000);
    assert_eq!(batch["i"].as_primitive::<Decimal128Type>().value(0), 25);
}

#[test]
fn what_is_no_document_is_corrupt_as_a_whole() {
    let deep = format!("{{\"a\":1,\"x\":{}{}}}", "[".repeat(200), "]".repeat(200));
    let payloads = [
        "{\"a\":1",
        "{\"a\":1}}",
        "{\"a\":1} x",
        "{\"a\":1,}",
        "{,}",
        "{\"a\" 1}",
        "{a:1}",
        "{'a':1}",
        "[1]",
        "1",
        "\"a\"",
        "null",
        "{\"a\":01}",
        "{\"a\":1.}",
        "{\"a\":.5}",
        "{\"a\":+1}",
        "{\"a\":-}",
        "{\"a\":1e}",
        "{\"a\":NaN}",
        "{\"a\":tru}",
        "{\"a\":1,\"x\":\"\\x\"}",
        "{\"a\":1,\"x\":\"\\ud800\"}",
        "{\"a\":1,\"x\":\"\u{1}\"}",
        "{\"a\":1,\"x\":\"\\u12\"}",
        "{\"a\":1,\"x\":\"\\",
        "{\"a\":1,\"x\":[1 2]}",
        "{\"a\":1,\"x\":[1,]}",
        &deep,
    ];
    let batch = decode("a INT", &payloads);

    for (row, is_corrupt) in corrupt(&batch).into_iter().enumerate() {
        assert!(is_corrupt, "{}", payloads[row]);
        assert!(batch["a"].is_null(row), "{}", payloads[row]);
    }
    let latin = self::batch(&[&b"{\"a\":1,\"x\":\"\xFF\"}"[..]]);
    let mut decoder = decoder(Format::Json, "a INT", OnError::Null);
    assert_eq!(corrupt(&decoder.decode(&latin).expect("decoded")), [true]);
}

/// An empty payload deletes a retained message. It has no value that a row could have.
#[test]
fn a_row_without_a_document_is_dropped_and_fails_nothing() {
    for format in [
        Format::Json,
        Format::Cbor,
        Format::MessagePack,
        Format::Text,
    ] {
        let mut dropping = decoder(format, "a INT", OnError::Drop);
        let mut failing = decoder(format, "a INT", OnError::Fail);

        let dropped = dropping.decode(&batch(&[""])).expect("decoded");
        let kept = failing.decode(&batch(&[""])).expect("decoded");

        assert_eq!((dropped.num_rows(), kept.num_rows()), (0, 1), "{format:?}");
    }
}

#[test]
fn white_space_is_no_document_in_json_and_a_value_in_text() {
    let read = |format| {
        let mut dropping = decoder(format, "a STRING", OnError::Drop);
        dropping.decode(&batch(&["  ", "\t\n"])).expect("decoded")
    };

    assert_eq!(read(Format::Json).num_rows(), 0);
    let texts = read(Format::Text);
    let texts: Vec<_> = texts["a"].as_string::<i32>().iter().collect();
    assert_eq!(texts, [Some("  "), Some("\t\n")]);
}

#[test]
fn rows_that_do_not_fit_are_dropped_or_fail() {
    let payloads = [r#"{"a":1}"#, "{", r#"{"a":"x"}"#, r#"{"a":4}"#];

    let dropped = decoder(Format::Json, "a INT", OnError::Drop)
        .decode(&batch(&payloads))
        .expect("decoded");
    assert_eq!(
        dropped["offset"].as_primitive::<Int64Type>().values(),
        &[100, 103]
    );
    assert_eq!(dropped["a"].as_primitive::<Int32Type>().values(), &[1, 4]);
    assert!(dropped.column_by_name("_corrupt").is_none());

    let mut failing = decoder(Format::Json, "a INT", OnError::Fail);
    let failed = failing
        .decode(&batch(&payloads))
        .expect_err("row 101 is no document");
    assert!(matches!(
        failed,
        ColumnarError::Undecodable {
            partition: 4,
            offset: 101
        }
    ));
    let whole = failing.decode(&batch(&payloads[..1])).expect("decoded");
    assert_eq!(whole["a"].as_primitive::<Int32Type>().values(), &[1]);
    let first = failing
        .decode(&batch(&payloads[1..]))
        .expect_err("row 100 is no document");
    assert!(matches!(
        first,
        ColumnarError::Undecodable { offset: 100, .. }
    ));
}

#[test]
fn a_schema_that_cannot_be_is_refused() {
    let refused = |schema| {
        let fields = parse_payload_schema(schema).expect("a schema");
        let decoder = Decoder::new(Format::Json, fields, OnError::Null);
        decoder.expect_err("refused").to_string()
    };

    assert_eq!(
        refused("topic STRING"),
        "option payload_schema: topic is a column of every row already"
    );
    assert_eq!(
        refused("_corrupt STRING"),
        "option payload_schema: _corrupt is a column of every row already"
    );
}

#[test]
fn cbor_fits_as_json_does() {
    // {"a": 7, "t": 1.5 (half), "name": "ü", "raw": h'00ff', "at": 1(1700000000), "in": {"x": [1, "?"]}, "b": 300}
    let document = [
        &[0xA7, 0x61, b'a', 0x07, 0x61, b't', 0xF9, 0x3E, 0x00, 0x64][..],
        b"name",
        &[0x62, 0xC3, 0xBC, 0x63],
        b"raw",
        &[0x42, 0x00, 0xFF, 0x62],
        b"at",
        &[0xC1, 0x1A, 0x65, 0x53, 0xF1, 0x00, 0x62],
        b"in",
        &[
            0xA1, 0x61, b'x', 0x82, 0x01, 0x61, b'?', 0x61, b'b', 0x19, 0x01, 0x2C,
        ],
    ]
    .concat();
    let schema = "a INT, t DOUBLE, name STRING, raw BINARY, at TIMESTAMP, `in` STRUCT<x: ARRAY<INT>>, b TINYINT";
    let mut decoder = decoder(Format::Cbor, schema, OnError::Null);
    let cut = &document[..document.len() - 1];

    let batch = decoder
        .decode(&batch(&[&document[..], cut, b""]))
        .expect("decoded");

    assert_eq!(corrupt(&batch), [true, true, false]);
    assert_eq!(
        batch["a"]
            .as_primitive::<Int32Type>()
            .iter()
            .collect::<Vec<_>>(),
        [Some(7), None, None]
    );
    assert_eq!(
        batch["t"].as_primitive::<Float64Type>().value(0).to_bits(),
        1.5_f64.to_bits()
    );
    assert_eq!(batch["name"].as_string::<i32>().value(0), "ü");
    assert_eq!(batch["raw"].as_binary::<i32>().value(0), [0, 255]);
    assert_eq!(
        batch["at"]
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        1_700_000_000_000_000
    );
    let items = batch["in"].as_struct().column(0).as_list::<i32>().value(0);
    assert_eq!(
        items.as_primitive::<Int32Type>().iter().collect::<Vec<_>>(),
        [Some(1), None]
    );
    assert_eq!(batch["b"].null_count(), 3);
}

#[test]
fn message_pack_fits_as_json_does() {
    // {"a": 7, "t": 1.5, "name": "ü", "raw": bin 00ff, "at": timestamp 1700000000, "in": {"x": [1, "?"]}}
    let document = [
        &[
            0x86, 0xA1, b'a', 0x07, 0xA1, b't', 0xCA, 0x3F, 0xC0, 0, 0, 0xA4,
        ][..],
        b"name",
        &[0xD9, 2, 0xC3, 0xBC, 0xA3],
        b"raw",
        &[0xC4, 2, 0x00, 0xFF, 0xA2],
        b"at",
        &[0xD6, 0xFF, 0x65, 0x53, 0xF1, 0x00, 0xA2],
        b"in",
        &[0x81, 0xA1, b'x', 0x92, 0x01, 0xA1, b'?'],
    ]
    .concat();
    let schema =
        "a INT, t DOUBLE, name STRING, raw BINARY, at TIMESTAMP, `in` STRUCT<x: ARRAY<INT>>";
    let mut decoder = decoder(Format::MessagePack, schema, OnError::Null);
    let cut = &document[..document.len() - 1];

    let batch = decoder
        .decode(&batch(&[&document[..], cut, b""]))
        .expect("decoded");

    assert_eq!(corrupt(&batch), [true, true, false]);
    let numbers: Vec<_> = batch["a"].as_primitive::<Int32Type>().iter().collect();
    assert_eq!(numbers, [Some(7), None, None]);
    let floats: Vec<_> = batch["t"].as_primitive::<Float64Type>().iter().collect();
    assert_eq!(floats, [Some(1.5), None, None]);
    assert_eq!(batch["name"].as_string::<i32>().value(0), "ü");
    assert_eq!(batch["raw"].as_binary::<i32>().value(0), [0, 255]);
    let instants = batch["at"].as_primitive::<TimestampMicrosecondType>();
    assert_eq!(instants.value(0), 1_700_000_000_000_000);
    let items = batch["in"].as_struct().column(0).as_list::<i32>().value(0);
    let items: Vec<_> = items.as_primitive::<Int32Type>().iter().collect();
    assert_eq!(items, [Some(1), None]);
}

#[test]
fn a_payload_that_is_one_value_is_one_column() {
    let payloads = [" 21.5 ", "7", "true", "open {", "\"quoted\"", "", "1e400x"];
    let read = |schema| {
        let mut decoder = decoder(Format::Text, schema, OnError::Null);
        decoder.decode(&batch(&payloads)).expect("decoded")
    };

    let numbers = read("celsius DOUBLE");
    let values: Vec<_> = numbers["celsius"]
        .as_primitive::<Float64Type>()
        .iter()
        .collect();
    assert_eq!(
        values,
        [Some(21.5), Some(7.0), None, None, None, None, None]
    );
    assert_eq!(
        corrupt(&numbers),
        [false, false, true, true, true, false, true]
    );

    let texts = read("state STRING");
    let values: Vec<_> = texts["state"].as_string::<i32>().iter().collect();
    let expected = ["21.5", "7", "true", "open {", "\"quoted\"", "", "1e400x"];
    let expected = expected.map(|text| Some(text).filter(|text| !text.is_empty()));
    assert_eq!(values, expected);

    for schema in ["a INT, b INT", "a BINARY", "a ARRAY<INT>"] {
        let fields = parse_payload_schema(schema).expect("a schema");
        assert!(
            Decoder::new(Format::Text, fields, OnError::Null).is_err(),
            "{schema}"
        );
    }
    let latin = batch(&[&b"\xFF"[..]]);
    let mut decoder = decoder(Format::Text, "a STRING", OnError::Null);
    assert_eq!(corrupt(&decoder.decode(&latin).expect("decoded")), [true]);
}

fn topics(rows: &[(&str, Vec<u8>)]) -> RecordBatch {
    let mut builder = RowBuilder::new(4);
    for (offset, (topic, payload)) in (100..).zip(rows) {
        let row = Row {
            offset,
            topic,
            payload,
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
    }
    builder.finish()
}

/// A BIRTH of two metrics, then data by alias.
fn sparkplug_rows() -> Vec<(&'static str, Vec<u8>)> {
    let birth = [
        number(1, 1_700_000_000_000),
        metric("Motor/Speed", 1, 10, &double(0.0)),
        metric("Steps", 2, 3, &number(10, 0)),
        number(3, 0),
    ];
    // 4,294,967,295 as the 32 bits of -1
    let data = [
        metric("", 1, 0, &double(1.5)),
        metric("", 2, 0, &number(10, 0xFFFF_FFFF)),
        number(3, 1),
    ];
    let unknown = [
        metric("", 9, 0, &double(1.0)),
        metric("", 1, 0, &double(2.5)),
    ];
    vec![
        ("spBv1.0/g/NBIRTH/e", birth.concat()),
        ("spBv1.0/g/NDATA/e", data.concat()),
        ("spBv1.0/g/NDATA/other", data.concat()),
        ("spBv1.0/g/NDATA/e", unknown.concat()),
    ]
}

#[test]
fn metrics_are_columns_by_the_names_of_their_birth() {
    let schema = "`Motor/Speed` DOUBLE, Steps INT, _seq BIGINT, _timestamp TIMESTAMP,
        _metrics ARRAY<STRUCT<name: STRING, alias: BIGINT, value: STRING>>";
    let mut decoder = decoder(Format::Sparkplug, schema, OnError::Null);

    let batch = decoder.decode(&topics(&sparkplug_rows())).expect("decoded");

    assert_eq!(corrupt(&batch), [false, false, true, true]);
    let speeds: Vec<_> = batch["Motor/Speed"]
        .as_primitive::<Float64Type>()
        .iter()
        .collect();
    assert_eq!(speeds, [Some(0.0), Some(1.5), None, None]);
    let steps: Vec<_> = batch["Steps"].as_primitive::<Int32Type>().iter().collect();
    assert_eq!(steps, [Some(0), Some(-1), None, None]);
    let seqs: Vec<_> = batch["_seq"].as_primitive::<Int64Type>().iter().collect();
    assert_eq!(seqs, [Some(0), Some(1), None, None]);
    assert_eq!(
        batch["_timestamp"]
            .as_primitive::<TimestampMicrosecondType>()
            .value(0),
        1_700_000_000_000_000
    );
    let metrics = batch["_metrics"].as_list::<i32>().value(1);
    let metrics = metrics.as_struct();
    assert_eq!(
        metrics
            .column(0)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        ["Motor/Speed", "Steps"]
    );
    assert_eq!(
        metrics.column(1).as_primitive::<Int64Type>().values(),
        &[1, 2]
    );
    assert_eq!(
        metrics
            .column(2)
            .as_string::<i32>()
            .iter()
            .flatten()
            .collect::<Vec<_>>(),
        ["1.5", "-1"]
    );
}

#[test]
fn aliases_go_on_in_another_decoder() {
    let rows = sparkplug_rows();
    let mut first = decoder(Format::Auto, "`Motor/Speed` DOUBLE", OnError::Drop);
    first.decode(&topics(&rows[..1])).expect("decoded");

    let second = decoder(Format::Auto, "`Motor/Speed` DOUBLE", OnError::Drop);
    let mut second = second.with_aliases(&first.aliases()).expect("a table");
    let batch = second.decode(&topics(&rows[1..])).expect("decoded");

    assert_eq!(
        batch["Motor/Speed"].as_primitive::<Float64Type>().values(),
        &[1.5]
    );
    assert_eq!(second.aliases(), first.aliases());
    let wrong = decoder(Format::Auto, "a INT", OnError::Drop)
        .with_aliases("[]")
        .expect_err("no table");
    assert_eq!(
        wrong.to_string(),
        "option aliases: not a valid table of aliases"
    );
}

#[test]
fn a_filter_hides_births_and_they_count_still() {
    let options = ReadOptions {
        filter: Some(ReadOptions::parse_filter("spBv1.0/+/NDATA/e").expect("a filter")),
        decoder: Some(decoder(Format::Auto, "Steps INT", OnError::Null)),
        columns: Some(vec!["offset".to_owned(), "Steps".to_owned()]),
        ..ReadOptions::default()
    };

    let rows = vec![topics(&sparkplug_rows())];
    let tail = TailReader::new(rows, 4, 100..104, &options).expect("a plan");
    let batches: Vec<_> = tail.map(|batch| batch.expect("rows")).collect();

    assert_eq!(
        batches[0]["offset"].as_primitive::<Int64Type>().values(),
        &[101, 103]
    );
    assert_eq!(
        batches[0]["Steps"]
            .as_primitive::<Int32Type>()
            .iter()
            .collect::<Vec<_>>(),
        [Some(-1), None]
    );
}

#[test]
fn columns_that_nobody_asks_for_are_not_decoded_and_judge_no_row() {
    let payloads = [r#"{"a":1,"b":"x"}"#, r#"{"a":2,"b":3"#, r#"{"b":4,"a":5}"#];
    let read = |on_error, columns: &[&str]| {
        let options = ReadOptions {
            decoder: Some(decoder(Format::Json, "a INT, b INT", on_error)),
            columns: Some(columns.iter().map(|name| (*name).to_owned()).collect()),
            ..ReadOptions::default()
        };
        let tail = TailReader::new(vec![batch(&payloads)], 4, 100..103, &options);
        tail.expect("a plan").next().expect("rows")
    };

    let alone = read(OnError::Null, &["a"]).expect("decoded");
    let values: Vec<_> = alone["a"].as_primitive::<Int32Type>().iter().collect();
    assert_eq!(values, [Some(1), None, Some(5)]);

    let judged = read(OnError::Null, &["a", "_corrupt"]).expect("decoded");
    assert_eq!(judged["_corrupt"].null_count(), 1);
    assert_eq!(read(OnError::Drop, &["a"]).expect("decoded").num_rows(), 1);
    assert!(read(OnError::Fail, &["a"]).is_err());

    let none = read(OnError::Null, &["offset"]).expect("not decoded");
    assert_eq!(none.num_rows(), 3);
}

#[test]
fn the_format_shows_in_topic_and_first_byte() {
    let rows = vec![
        ("a", b" {\"Steps\":1}".to_vec()),
        ("a", [&[0xA1, 0x65][..], b"Steps", &[2]].concat()),
        ("spBv1.0/g/NBIRTH/e", metric("Steps", 2, 3, &number(10, 3))),
        ("a", b"plain".to_vec()),
    ];

    let batch = decoder(Format::Auto, "Steps INT", OnError::Null)
        .decode(&topics(&rows))
        .expect("decoded");

    assert_eq!(corrupt(&batch), [false, false, false, true]);
    assert_eq!(
        batch["Steps"]
            .as_primitive::<Int32Type>()
            .iter()
            .collect::<Vec<_>>(),
        [Some(1), Some(2), Some(3), None]
    );
}

/// Any document, with the keys of the schema below among its keys.
fn documents() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        (-1_000..1_000_i64).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let key = || prop_oneof![3 => "[a-e]".boxed(), 1 => ".{0,3}".boxed()];
    let value = scalar.prop_recursive(3, 24, 5, move |inner| {
        prop_oneof![
            vec(inner.clone(), 0..4).prop_map(Value::from),
            vec((key(), inner), 0..4)
                .prop_map(|fields| Value::Object(fields.into_iter().collect())),
        ]
    });
    let key = || prop_oneof![3 => "[a-e]".boxed(), 1 => ".{0,3}".boxed()];
    vec((key(), value), 0..8).prop_map(|fields| Value::Object(fields.into_iter().collect()))
}

const SCHEMA: &str =
    "a BIGINT, b DOUBLE, c STRING, d BOOLEAN, e STRUCT<a: BIGINT, b: ARRAY<STRING>>";

/// What the oracle says a string column gets.
fn as_text(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    }
}

/// Reads row 0 of a batch with [`SCHEMA`] back into a document without what is null.
fn encode(batch: &RecordBatch, row: usize) -> Value {
    let mut fields = serde_json::Map::new();
    let mut set =
        |key: &str, value: Option<Value>| value.map(|value| fields.insert(key.to_owned(), value));
    let long = batch["a"].as_primitive::<Int64Type>();
    set("a", long.is_valid(row).then(|| long.value(row).into()));
    let double = batch["b"].as_primitive::<Float64Type>();
    set(
        "b",
        double
            .is_valid(row)
            .then(|| json!(double.value(row).to_bits())),
    );
    let text = batch["c"].as_string::<i32>();
    set("c", text.is_valid(row).then(|| text.value(row).into()));
    let boolean = batch["d"].as_boolean();
    set(
        "d",
        boolean.is_valid(row).then(|| boolean.value(row).into()),
    );
    let nested = batch["e"].as_struct();
    set(
        "e",
        nested.is_valid(row).then(|| {
            let long = nested.column(0).as_primitive::<Int64Type>();
            let long = long.is_valid(row).then(|| long.value(row));
            let list = nested.column(1).as_list::<i32>();
            let list = list.is_valid(row).then(|| {
                let texts = list.value(row);
                let texts = texts
                    .as_string::<i32>()
                    .iter()
                    .map(|text| text.map(str::to_owned));
                texts.collect::<Vec<_>>()
            });
            json!({"a": long, "b": list})
        }),
    );
    Value::Object(fields)
}

/// The same out of a tree of serde_json.
fn expected(document: &Value) -> Value {
    let mut fields = serde_json::Map::new();
    let mut set =
        |key: &str, value: Option<Value>| value.map(|value| fields.insert(key.to_owned(), value));
    set("a", document["a"].as_i64().map(Value::from));
    let infinite = |text: &str| match text {
        "NaN" => Some(f64::NAN),
        "INF" | "+INF" | "Infinity" | "+Infinity" => Some(f64::INFINITY),
        "-INF" | "-Infinity" => Some(f64::NEG_INFINITY),
        _ => None,
    };
    let b = document["b"]
        .as_f64()
        .or_else(|| document["b"].as_str().and_then(infinite));
    set("b", b.map(|b| json!(b.to_bits())));
    set("c", as_text(&document["c"]).map(Value::from));
    set("d", document["d"].as_bool().map(Value::from));
    set(
        "e",
        document["e"].as_object().map(|e| {
            let a = e.get("a").and_then(Value::as_i64);
            let b = e.get("b").and_then(Value::as_array);
            let b = b.map(|items| items.iter().map(as_text).collect::<Vec<_>>());
            json!({"a": a, "b": b})
        }),
    );
    Value::Object(fields)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn columns_are_what_a_tree_says(documents in vec(documents(), 1..6)) {
        let texts: Vec<String> = documents.iter().map(Value::to_string).collect();

        let columns = decoder(Format::Json, SCHEMA, OnError::Null).decode(&batch(&texts)).expect("decoded");

        for (row, document) in documents.iter().enumerate() {
            prop_assert_eq!(encode(&columns, row), expected(document), "{}", texts[row]);
        }
    }

    #[test]
    fn what_is_well_formed_is_not_a_matter_of_opinion(
        document in documents(),
        damage in vec((any::<prop::sample::Index>(), any::<u8>(), 0..3_u8), 1..3),
    ) {
        let mut text = document.to_string().into_bytes();
        for (place, byte, kind) in damage {
            let place = place.index(text.len() + 1);
            match kind {
                0 if place < text.len() => text[place] = byte,
                1 => text.truncate(place),
                _ => text.insert(place, b"{}[]\",:0e.-\\ "[usize::from(byte) % 13]),
            }
        }

        let decoded = decoder(Format::Json, "zz INT", OnError::Null).decode(&batch(&[&text])).expect("decoded");

        let is_blank = text.iter().all(|byte| b" \t\r\n".contains(byte));
        let tree = serde_json::from_slice::<Value>(&text);
        let is_too_large = tree.as_ref().is_err_and(|error| error.to_string().starts_with("number out of range"));
        prop_assume!(!is_too_large);
        let fits = is_blank || tree.is_ok_and(|tree| tree.is_object() && (tree["zz"].is_null() || tree["zz"].is_i64()));
        prop_assert_eq!(corrupt(&decoded), [!fits], "{}", String::from_utf8_lossy(&text));
    }

    #[test]
    fn any_bytes_are_answered(input in prop_oneof![
        vec(any::<u8>(), 0..200),
        (any::<u8>(), vec(prop::sample::select(&b"{}[]\":,abcdefghijk019.-eE\\ \0"[..]), 0..200))
            .prop_map(|(choice, rest)| [&[choice][..], &rest].concat()),
    ]) {
        payloads::decode_payloads(&input);
    }
}
