//! Messages of Protocol Buffers become columns. Descriptor and payloads are of Google's own compiler and runtime.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Float32Type, Float64Type, Int32Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, RecordBatch};
use mqttcore_columnar::{
    ColumnarError, Decoder, Format, OnError, Row, RowBuilder, parse_payload_schema,
};
use proptest::collection::vec;
use proptest::prelude::*;

const DESCRIPTOR: &[u8] = include_bytes!("protobuf/machine.binpb");

const SCHEMA: &str = "temperature DOUBLE, load FLOAT, small INT, large BIGINT, parts BIGINT, total BIGINT, \
    serial BIGINT, shift BIGINT, on BOOLEAN, unit STRING, image BINARY, state STRING, \
    position STRUCT<x: INT, y: BIGINT>, codes ARRAY<INT>, names ARRAY<STRING>, path ARRAY<STRUCT<x: INT, y: BIGINT>>, \
    limits ARRAY<STRUCT<key: STRING, value: DOUBLE>>, at TIMESTAMP, set_point DOUBLE, level INT, \
    states ARRAY<STRING>, drill STRING, saw INT";

/// A message with every field.
const FULL: &str = "090000000000803540150000003f18fdffffffffffffffff01208080808080e0ffffff012880d0acf30e308080\
    808080808080103d0700000041f7ffffffffffffff48015203c2b0435a0200ff60076a09080110ffffffffff3f720d01fefffffffff\
    fffffff01ac027a01617a01628201040802100482010208068a010f0a0468696768110000000000a0564092010b0880e2cfaa061080\
    e59a779a0100a00100aa01020107f80105";

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).expect("digits"));
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).expect("a byte"))
        .collect()
}

fn decoder(schema: &str, on_error: OnError) -> Decoder {
    let fields = parse_payload_schema(schema).expect("a schema");
    let decoder = Decoder::new(Format::Protobuf, fields, on_error).expect("a decoder");
    decoder
        .with_descriptor(DESCRIPTOR, "factory.Machine")
        .expect("a message")
}

fn batch(rows: &[(Vec<u8>, bool)]) -> RecordBatch {
    let mut builder = RowBuilder::new(4);
    for (offset, (payload, retain)) in (0..).zip(rows) {
        let row = Row {
            offset,
            payload,
            retain: *retain,
            ..Row::default()
        };
        builder.push(&row).expect("a small row");
    }
    builder.finish()
}

fn decode(schema: &str, payloads: &[Vec<u8>]) -> RecordBatch {
    let rows: Vec<_> = payloads
        .iter()
        .map(|payload| (payload.clone(), false))
        .collect();
    decoder(schema, OnError::Null)
        .decode(&batch(&rows))
        .expect("decoded")
}

fn is_corrupt(batch: &RecordBatch, row: usize) -> bool {
    batch["_corrupt"].is_valid(row)
}

#[test]
fn every_kind_of_field_becomes_a_column() {
    let batch = decode(SCHEMA, &[bytes(FULL)]);

    assert!(!is_corrupt(&batch, 0));
    let long = |name: &str| batch[name].as_primitive::<Int64Type>().value(0);
    let text = |name: &str| batch[name].as_string::<i32>().value(0).to_owned();
    assert!((batch["temperature"].as_primitive::<Float64Type>().value(0) - 21.5).abs() < 1e-9);
    assert!((batch["load"].as_primitive::<Float32Type>().value(0) - 0.5).abs() < 1e-9);
    assert_eq!(batch["small"].as_primitive::<Int32Type>().value(0), -3);
    assert_eq!(long("large"), -(1 << 40));
    assert_eq!((long("parts"), long("total")), (4_000_000_000, 1 << 60));
    assert_eq!((long("serial"), long("shift")), (7, -9));
    assert!(batch["on"].as_boolean().value(0));
    assert_eq!(
        (text("unit"), text("state")),
        ("°C".into(), "BROKEN".into())
    );
    assert_eq!(batch["image"].as_binary::<i32>().value(0), [0, 0xFF]);
    let position = batch["position"].as_struct();
    assert_eq!(position["x"].as_primitive::<Int32Type>().value(0), -1);
    assert_eq!(
        position["y"].as_primitive::<Int64Type>().value(0),
        -(1 << 40)
    );
    let micros = batch["at"]
        .as_primitive::<TimestampMicrosecondType>()
        .value(0);
    assert_eq!(micros, 1_700_000_000_250_000);
    assert_eq!(
        batch["set_point"]
            .as_primitive::<Float64Type>()
            .value(0)
            .to_bits(),
        0
    );
    assert_eq!(batch["level"].as_primitive::<Int32Type>().value(0), 0);
    assert_eq!(batch["saw"].as_primitive::<Int32Type>().value(0), 5);
    assert!(batch["drill"].is_null(0));
}

#[test]
fn what_is_repeated_is_an_array_packed_or_not() {
    // As the message above, with one code more that stands alone, as writers may.
    let mut payload = bytes(FULL);
    payload.extend([14 << 3, 9]);

    let batch = decode(SCHEMA, &[payload]);

    assert!(!is_corrupt(&batch, 0));
    let codes = batch["codes"].as_list::<i32>().value(0);
    assert_eq!(codes.as_primitive::<Int32Type>().values(), &[1, -2, 300, 9]);
    let texts = |name: &str| -> Vec<String> {
        let list = batch[name].as_list::<i32>().value(0);
        list.as_string::<i32>()
            .iter()
            .flatten()
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(texts("names"), ["a", "b"]);
    assert_eq!(texts("states"), ["RUNNING", "BROKEN"]);
    let path = batch["path"].as_list::<i32>().value(0);
    let path = path.as_struct();
    assert_eq!(path["x"].as_primitive::<Int32Type>().values(), &[1, 3]);
    assert_eq!(path["y"].as_primitive::<Int64Type>().values(), &[2, 0]);
    let limits = batch["limits"].as_list::<i32>().value(0);
    let limits = limits.as_struct();
    assert_eq!(limits["key"].as_string::<i32>().value(0), "high");
    assert!((limits["value"].as_primitive::<Float64Type>().value(0) - 90.5).abs() < 1e-9);
}

#[test]
fn a_field_of_proto3_that_is_not_there_has_its_default_unless_it_can_tell() {
    let batch = decode(SCHEMA, &[bytes("52014b")]);

    assert_eq!(batch["unit"].as_string::<i32>().value(0), "K");
    assert_eq!(
        batch["temperature"]
            .as_primitive::<Float64Type>()
            .value(0)
            .to_bits(),
        0
    );
    assert_eq!(batch["state"].as_string::<i32>().value(0), "STOPPED");
    for name in [
        "position",
        "codes",
        "at",
        "set_point",
        "level",
        "drill",
        "saw",
    ] {
        assert!(batch[name].is_null(0), "{name}");
    }
}

/// A message whose fields all have their defaults is no byte long; so is what deletes a retained message.
#[test]
fn an_empty_payload_is_a_message_of_defaults_unless_it_is_retained() {
    let rows = [
        (Vec::new(), false),
        (Vec::new(), true),
        (bytes("ff"), false),
        // A temperature whose bytes are all white space in ASCII.
        (bytes("092020202020202020"), false),
    ];
    let read = |on_error| {
        let mut decoder = decoder("temperature DOUBLE, unit STRING", on_error);
        decoder.decode(&batch(&rows)).expect("decoded")
    };

    let kept = read(OnError::Null);
    let units: Vec<_> = kept["unit"].as_string::<i32>().iter().collect();
    assert_eq!(units, [Some(""), None, None, Some("")]);
    assert!(kept["temperature"].is_valid(0) && kept["temperature"].is_null(1));
    let corrupt: Vec<_> = (0..4).map(|row| is_corrupt(&kept, row)).collect();
    assert_eq!(corrupt, [false, false, true, false]);

    let left = read(OnError::Drop);
    let offsets = left["offset"].as_primitive::<Int64Type>();
    assert_eq!(offsets.values(), &[0, 3]);
}

#[test]
fn what_is_no_such_message_is_corrupt() {
    let payloads = ["ff", "0a05", "0d0000803f", "5202ffff", "080196"].map(bytes);

    let batch = decode("temperature DOUBLE, unit STRING", &payloads);

    for (row, payload) in payloads.iter().enumerate() {
        assert!(is_corrupt(&batch, row), "{payload:x?}");
    }
}

#[test]
fn a_descriptor_without_the_message_or_what_it_needs_is_refused() {
    let with = |descriptor: &[u8], message: &str| {
        let fields = parse_payload_schema("unit STRING").expect("a schema");
        let decoder = Decoder::new(Format::Protobuf, fields, OnError::Null).expect("a decoder");
        let refused = decoder.with_descriptor(descriptor, message);
        match refused.map(|_| ()) {
            Err(error @ ColumnarError::Option { .. }) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };

    assert!(with(DESCRIPTOR, "Machine").contains("factory.Machine.Position"));
    assert!(with(b"no descriptor", "factory.Machine").contains("FileDescriptorSet"));
    // The file alone, as protoc writes it without its imports: the last one of the set.
    let mut rest = DESCRIPTOR;
    let mut alone = rest;
    while !rest.is_empty() {
        alone = rest;
        let len = usize::from(rest[1] & 0x7F) | usize::from(rest[2]) << 7;
        let (len, head) = if rest[1] & 0x80 == 0 {
            (usize::from(rest[1]), 2)
        } else {
            (len, 3)
        };
        rest = &rest[head + len..];
    }
    let told = with(alone, ".factory.Machine");
    assert!(
        told.contains("google.protobuf") && told.contains("--include_imports"),
        "{told}"
    );
}

proptest! {
    /// Whatever the bytes are, no byte of them breaks anything.
    #[test]
    fn any_bytes_are_a_row(payloads in vec(vec(any::<u8>(), 0..64), 1..20), cut in 0..200_usize) {
        let mut payloads = payloads;
        let full = bytes(FULL);
        payloads.push(full[..cut.min(full.len())].to_vec());
        let batch = decode(SCHEMA, &payloads);
        prop_assert_eq!(batch.num_rows(), payloads.len());
    }

    #[test]
    fn any_bytes_are_no_danger_as_descriptor(start in 0..1_700_usize, noise in vec(any::<u8>(), 0..40)) {
        let mut descriptor = DESCRIPTOR.to_vec();
        for (place, byte) in (start..descriptor.len()).zip(noise) {
            descriptor[place] = byte;
        }
        let fields = parse_payload_schema(SCHEMA).expect("a schema");
        let decoder = Decoder::new(Format::Protobuf, fields, OnError::Null).expect("a decoder");
        let _ = decoder.with_descriptor(&descriptor, "factory.Machine");
    }
}
