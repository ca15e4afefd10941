//! What the fuzz target of payloads does with its bytes, and what has to hold of the answer.
//!
//! Shared with `rust/columnar/tests/decoder.rs`, which runs the same body without a fuzzer.

use arrow_array::Array;
use mqttcore_columnar::{
    CORRUPT, Decoder, Format, OnError, ReadOptions, Row, RowBuilder, TailReader,
    parse_payload_schema,
};

const FORMATS: [Format; 6] = [
    Format::Json,
    Format::Cbor,
    Format::Sparkplug,
    Format::Auto,
    Format::MessagePack,
    Format::Protobuf,
];

/// Declares `factory.Machine`, whose fields are in the schema, too.
const DESCRIPTOR: &[u8] = include_bytes!("../rust/columnar/tests/protobuf/machine.binpb");

/// Schema 1, with fields of the schema; each payload gets its header, since a zero byte ends the one before.
const SCHEMAS: &str = r#"{"1": {"type": "record", "name": "R", "fields": [
    {"name": "a", "type": ["null", "long"]}, {"name": "c", "type": {"type": "map", "values": ["string", "R", "double"]}},
    {"name": "e", "type": {"type": "array", "items": "null"}}, {"name": "g", "type": {"type": "int", "logicalType": "date"}},
    {"name": "i", "type": {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 4}}]}}"#;
const HEADER: [u8; 5] = [0, 0, 0, 0, 1];
/// From this choice on, payloads are Avro.
const AVRO: u8 = 0xE0;

const TOPICS: [&str; 3] = ["a/b", "spBv1.0/g/NBIRTH/e", "spBv1.0/g/NDATA/e"];
const SCHEMA: &str = "a BIGINT, b DOUBLE, c STRING, d BOOLEAN, e STRUCT<a: BIGINT, b: ARRAY<STRING>>, f TIMESTAMP,
    temperature DOUBLE, unit STRING, g DATE, h BINARY, i DECIMAL(20, 4), j TINYINT, k FLOAT, _seq BIGINT, _metrics ARRAY<STRUCT<name: STRING, value: STRING>>";

/// Decodes what follows the first byte, which chooses format and topic, in parts that a zero byte ends.
pub(crate) fn decode_payloads(input: &[u8]) {
    let Some((&choice, bytes)) = input.split_first() else {
        return;
    };
    let is_avro = choice >= AVRO;
    let format = if is_avro {
        Format::Avro
    } else {
        FORMATS[usize::from(choice) % FORMATS.len()]
    };
    let topic = TOPICS[usize::from(choice / 8) % TOPICS.len()];
    let mut rows = RowBuilder::new(0);
    for (offset, payload) in (0..).zip(bytes.split(|byte| *byte == 0)) {
        let framed = [&HEADER, payload].concat();
        let is_framed = is_avro && !payload.is_empty();
        let row = Row {
            offset,
            topic,
            payload: if is_framed { &framed } else { payload },
            ..Row::default()
        };
        rows.push(&row).expect("a small row");
    }
    let batch = rows.finish();
    let decoder = |on_error| {
        let fields = parse_payload_schema(SCHEMA).expect("a schema");
        let decoder = Decoder::new(format, fields, on_error).expect("a decoder");
        let described = decoder.with_descriptor(DESCRIPTOR, "factory.Machine");
        let described = described.expect("a message");
        described.with_schemas(SCHEMAS.as_bytes()).expect("schemas")
    };

    let marked = decoder(OnError::Null).decode(&batch).expect("decoded");
    let kept = decoder(OnError::Drop).decode(&batch).expect("decoded");
    let failed = decoder(OnError::Fail).decode(&batch).is_err();

    let bad = marked.num_rows() - marked[CORRUPT].null_count();
    assert_eq!(marked.num_rows(), batch.num_rows());
    let without_document = bytes.split(|byte| *byte == 0).enumerate();
    let without_document = without_document
        .filter(|(row, payload)| marked[CORRUPT].is_null(*row) && is_empty(format, topic, payload));
    assert_eq!(
        kept.num_rows(),
        batch.num_rows() - bad - without_document.count()
    );
    assert_eq!(failed, bad > 0);

    let few = ["offset", "c", "f", "i"].map(str::to_owned);
    let options = ReadOptions {
        decoder: Some(decoder(OnError::Null)),
        columns: Some(few.to_vec()),
        ..ReadOptions::default()
    };
    let end = i64::try_from(batch.num_rows()).expect("few rows");
    let tail = TailReader::new(vec![batch], 0, 0..end, &options).expect("a plan");
    let narrow: Vec<_> = tail.map(|batch| batch.expect("decoded")).collect();
    for name in &few {
        assert_eq!(&narrow[0][name.as_str()], &marked[name.as_str()], "{name}");
    }
}

/// Whether a payload of white space, or none, is no document of a format. That of Protocol Buffers has defaults.
fn is_empty(format: Format, topic: &str, payload: &[u8]) -> bool {
    match format {
        Format::Json => payload.trim_ascii().is_empty(),
        Format::Auto if !topic.starts_with("spBv1.0/") => payload.trim_ascii().is_empty(),
        Format::Protobuf => false,
        _ => payload.is_empty(),
    }
}
