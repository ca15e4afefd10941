//! Metadata files of a stream: `stream.json`, `sealed.json`, `holds.json`.
//!
//! Each is written under a temporary name, synced, and renamed: it is there whole, old or new.

use std::collections::BTreeMap;
use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::files::{Files, read_full, write_all};

pub(super) const STREAM: &str = "stream.json";
pub(super) const SEALED: &str = "sealed.json";
pub(super) const HOLDS: &str = "holds.json";
/// What Sparkplug's aliases mean behind the rows that are sealed.
pub(super) const ALIASES: &str = "aliases.json";

/// The format that this version writes, and the newest that it reads.
pub(super) const FORMAT: u32 = 1;

/// What a stream is: `stream.json`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct StreamIdentity {
    pub(super) format: u32,
    pub(super) name: String,
    /// Its number in the log.
    pub(super) id: u32,
    pub(super) filters: Vec<String>,
    pub(super) partitions: u16,
    pub(super) key: String,
    /// Decimal digits: not every reader of JSON has 64-bit integers.
    pub(super) seed: String,
    /// The store that it belongs to.
    pub(super) store: String,
    pub(super) epoch: u64,
    pub(super) schema: Option<Schema>,
    pub(super) created_us: u64,
}

/// Typed columns.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Schema {
    /// Grows with each column that is added; none ever goes or changes its type.
    pub(super) version: u32,
    /// How payloads are read.
    pub(super) decode: String,
    /// For `protobuf`: the `FileDescriptorSet`, in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) descriptor: Option<String>,
    /// For `protobuf`: the full name of the message.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) message: Option<String>,
    pub(super) columns: Vec<ColumnDefinition>,
}

/// A typed column.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct ColumnDefinition {
    pub(super) name: String,
    pub(super) r#type: String,
}

/// Which files hold which rows: `sealed.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Sealed {
    /// Of each partition, in the order of their rows.
    pub(super) partitions: Vec<Vec<SealedFile>>,
    /// The first offset of each partition that may still be read.
    pub(super) earliest: Vec<u64>,
}

/// A file of rows.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct SealedFile {
    /// Its name in the folder of its partition.
    pub(super) file: String,
    /// The first offset.
    pub(super) base: u64,
    /// The last offset.
    pub(super) last: u64,
    /// The earliest time, in unix microseconds.
    pub(super) min_us: i64,
    /// The latest time.
    pub(super) max_us: i64,
    /// How many rows it has.
    pub(super) rows: u64,
    /// Its size.
    pub(super) bytes: u64,
    /// How many typed columns it has; `None` in an index of before that was told.
    #[serde(default)]
    pub(super) typed: Option<usize>,
    /// Kept time at which it was sealed, in unix microseconds; retention counts its age from here. `None` until
    /// retention looks at it, if nobody knows.
    #[serde(default)]
    pub(super) sealed_us: Option<u64>,
}

/// What Sparkplug's aliases mean where the rows of files end: `aliases.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(super) struct KnownAliases {
    /// Where those files end, of each partition.
    pub(super) ends: Vec<u64>,
    /// By edge node, as [`Aliases`](mqttcore_columnar::Aliases) writes itself.
    pub(super) nodes: serde_json::Value,
}

/// Offsets that somebody still needs: `holds.json`, by consumer.
pub(super) type Holds = BTreeMap<String, Hold>;

/// What one consumer still needs.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Hold {
    /// The first offset of each partition that it has not done with.
    pub(super) offsets: Vec<u64>,
    /// Kept time after which nobody waits for it any more, in unix milliseconds.
    pub(super) until_ms: u64,
}

/// Reads one of the files; `None` if it is not there.
pub(super) fn read<T: DeserializeOwned>(
    files: &dyn Files,
    name: &str,
) -> Result<Option<T>, StoreError> {
    let failed = |error| StoreError::io("read", name, error);
    let file = match files.open(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let bytes = file.bytes().map_err(failed)?;
    let mut text = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let read = read_full(&*file, &mut text, 0).map_err(failed)?;
    serde_json::from_slice(&text[..read])
        .map(Some)
        .map_err(|error| failed(error.into()))
}

/// Writes one of the files; it is safe then.
pub(super) fn write<T: Serialize>(
    files: &dyn Files,
    name: &str,
    value: &T,
) -> Result<(), StoreError> {
    let unborn = format!("_{name}");
    // INVARIANT: all keys are texts.
    let text = serde_json::to_vec(value).expect("a value of texts, numbers and lists");
    let written = remove_if_there(files, &unborn)
        .and_then(|()| files.create(&unborn, 0))
        .and_then(|file| write_all(&*file, &text, 0).and_then(|()| file.sync()))
        .and_then(|()| files.rename(&unborn, name))
        .and_then(|()| files.sync_names());
    written.map_err(|error| full_or(error, name))
}

/// Removes a file that need not be there.
pub(super) fn remove_if_there(files: &dyn Files, name: &str) -> io::Result<()> {
    match files.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What is wrong with writing `name`: the disk is full, or worse.
pub(super) fn full_or(error: io::Error, name: &str) -> StoreError {
    if crate::wal::segment::is_full(&error) {
        StoreError::NoSpace
    } else {
        StoreError::io("write", name, error)
    }
}
