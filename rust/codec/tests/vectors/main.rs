//! The hand-made packets of `tests/vectors`, each held against the codec both ways.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use mqttcore_codec::{
    Limits, Packet, ProtocolVersion, ReasonCode, decode, decode_connect, encode, frame_len,
};
use serde::Deserialize;
use toml::{Table, Value};

mod fields;

#[test]
fn there_are_enough_vectors_and_no_name_twice() {
    let vectors = vectors();
    let names: HashSet<_> = vectors.iter().map(|vector| &vector.name).collect();

    assert!(vectors.len() >= 250, "{} vectors", vectors.len());
    assert_eq!(names.len(), vectors.len());
}

#[test]
fn every_vector_gets_its_verdict() {
    let mut failures = Vec::new();
    for vector in vectors() {
        for version in vector.versions() {
            if let Err(failure) = vector.judge(version) {
                failures.push(format!("{} ({version}): {failure}", vector.name));
            }
        }
    }

    assert!(failures.is_empty(), "\n{}", failures.join("\n"));
}

#[test]
fn every_prefix_of_a_packet_is_incomplete() {
    for vector in vectors().iter().filter(|vector| vector.packet.is_some()) {
        let bytes = vector.bytes();
        for version in vector.versions() {
            for len in 0..vector.length.unwrap_or(bytes.len()) {
                let decoded = decode(&bytes[..len], version, &vector.limits());

                assert_eq!(decoded, Ok(None), "{} cut to {len} bytes", vector.name);
            }
        }
    }
}

#[test]
fn what_decodes_encodes_to_the_same_bytes_or_to_the_same_packet() {
    for vector in vectors().iter().filter(|vector| vector.packet.is_some()) {
        let bytes = vector.bytes();
        for version in vector.versions() {
            let (packet, len) = decode(&bytes, version, &vector.limits()).unwrap().unwrap();
            let mut encoded = b"before".to_vec();
            encode(&packet, version, &mut encoded).unwrap();

            if vector.canonical {
                assert_eq!(&encoded[6..], &bytes[..len], "{}", vector.name);
            } else {
                assert_ne!(&encoded[6..], &bytes[..len], "{}", vector.name);
            }
            let (again, _) = decode(&encoded[6..], version, &vector.limits())
                .unwrap()
                .unwrap();
            assert_eq!(again, packet, "{}", vector.name);
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    vector: Vec<Vector>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Vector {
    name: String,
    versions: Vec<String>,
    hex: String,
    #[serde(default)]
    first: bool,
    limits: Option<VectorLimits>,
    packet: Option<String>,
    #[serde(default)]
    fields: Table,
    length: Option<usize>,
    #[serde(default = "yes")]
    canonical: bool,
    reason_code: Option<u8>,
    statement: Option<String>,
    #[serde(default)]
    incomplete: bool,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct VectorLimits {
    packet_bytes: Option<u32>,
    user_properties: Option<u16>,
    user_property_bytes: Option<u32>,
}

const fn yes() -> bool {
    true
}

impl Vector {
    fn bytes(&self) -> Vec<u8> {
        let digits: String = self.hex.split_whitespace().collect();
        assert!(digits.len().is_multiple_of(2), "{}: odd digits", self.name);
        (0..digits.len())
            .step_by(2)
            .map(|at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hex digits"))
            .collect()
    }

    fn versions(&self) -> Vec<ProtocolVersion> {
        let version = |name: &String| match name.as_str() {
            "3.1" => ProtocolVersion::V3_1,
            "3.1.1" => ProtocolVersion::V3_1_1,
            "5.0" => ProtocolVersion::V5,
            other => panic!("{}: version {other}", self.name),
        };
        assert!(!self.versions.is_empty(), "{}", self.name);
        self.versions.iter().map(version).collect()
    }

    fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        if let Some(set) = &self.limits {
            limits.packet_bytes = set.packet_bytes.unwrap_or(limits.packet_bytes);
            limits.user_properties = set.user_properties.unwrap_or(limits.user_properties);
            limits.user_property_bytes = set
                .user_property_bytes
                .unwrap_or(limits.user_property_bytes);
        }
        limits
    }

    fn judge(&self, version: ProtocolVersion) -> Result<(), String> {
        let (bytes, limits) = (self.bytes(), self.limits());
        let decoded = if self.first {
            decode_connect(&bytes, &limits)
                .map(|found| found.map(|(connect, len)| (Packet::Connect(connect), len)))
        } else {
            decode(&bytes, version, &limits)
        };
        match (&self.packet, self.reason_code, self.incomplete) {
            (Some(name), None, false) => {
                let (packet, len) = decoded
                    .map_err(|error| error.to_string())?
                    .ok_or("incomplete")?;
                equal("length", &len, &self.length.unwrap_or(bytes.len()))?;
                equal("frame_len", &frame_len(&bytes, &limits), &Ok(Some(len)))?;
                equal(
                    "packet",
                    &format!("{:?}", packet.packet_type()).to_uppercase(),
                    name,
                )?;
                if let Packet::Connect(connect) = &packet {
                    equal("version", &connect.version, &version)?;
                }
                contains(&fields::fields(&packet), &self.fields)
            }
            (None, Some(value), false) => {
                let error = decoded.err().ok_or("not refused")?;
                equal(
                    "reason code",
                    &Some(error.reason_code()),
                    &ReasonCode::new(value),
                )
                .map_err(|text| format!("{text}: {error}"))?;
                let statement = self.statement.as_deref().unwrap_or(error.statement());
                equal("statement", &error.statement(), &statement)
            }
            (None, None, true) => equal("decoded", &decoded, &Ok(None)),
            _ => Err("needs one verdict".into()),
        }
    }
}

fn equal<T: PartialEq + std::fmt::Debug>(what: &str, got: &T, expected: &T) -> Result<(), String> {
    if got == expected {
        return Ok(());
    }
    Err(format!("{what} is {got:?}, not {expected:?}"))
}

/// Whether every expected field is there; absent fields are compared with nothing.
fn contains(got: &Table, expected: &Table) -> Result<(), String> {
    for (key, value) in expected {
        let found = got.get(key).ok_or(format!("no field {key}"))?;
        match (found, value) {
            (Value::Table(found), Value::Table(value)) => contains(found, value)?,
            (Value::Array(found), Value::Array(value)) if key == "filters" => {
                equal("filters", &found.len(), &value.len())?;
                for (found, value) in found.iter().zip(value) {
                    match (found, value) {
                        (Value::Table(found), Value::Table(value)) => contains(found, value)?,
                        _ => equal(key, found, value)?,
                    }
                }
            }
            _ => equal(key, found, value)?,
        }
    }
    Ok(())
}

fn vectors() -> Vec<Vector> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/vectors");
    let mut vectors = Vec::new();
    for entry in fs::read_dir(folder).expect("the vectors are there") {
        let path = entry.expect("readable").path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
        {
            let text = fs::read_to_string(&path).expect("readable");
            let file: File =
                toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            vectors.extend(file.vector);
        }
    }
    vectors
}
