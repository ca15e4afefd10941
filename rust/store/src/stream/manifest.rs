//! Metadata files of a stream: `stream.json`, `sealed.json` (see `file_index`), `holds.json`.
//!
//! Each file is written under a temporary name, synced and renamed: after a crash it is complete, old or new.

use std::collections::BTreeMap;
use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::files::{Files, read_full, write_all};

pub(super) const STREAM: &str = "stream.json";
pub(super) const SEALED: &str = "sealed.json";
pub(super) const HOLDS: &str = "holds.json";
/// Sparkplug aliases at the end of the sealed rows.
pub(super) const ALIASES: &str = "aliases.json";

/// The format that this version writes; also the newest that it reads.
pub(super) const FORMAT: u32 = 1;

/// Identity of a stream: `stream.json`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct StreamIdentity {
    pub(super) format: u32,
    pub(super) name: String,
    /// Its number in the log.
    pub(super) id: u32,
    pub(super) filters: Vec<String>,
    pub(super) partitions: u16,
    pub(super) key: String,
    /// In decimal digits: not every JSON parser has 64-bit integers.
    pub(super) seed: String,
    /// Identifier of its store.
    pub(super) store: String,
    pub(super) epoch: u64,
    pub(super) schema: Option<Schema>,
    pub(super) created_us: u64,
}

/// Typed columns.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Schema {
    /// Grows with each added column; columns are never removed and never change their type.
    pub(super) version: u32,
    /// Format of payloads.
    pub(super) decode: String,
    /// In Base64: for `protobuf`, the `FileDescriptorSet`; for `avro`, a JSON object of schemas by number.
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

/// File index: `sealed.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Sealed {
    /// Files of each partition, in row order.
    pub(super) partitions: Vec<Vec<SealedFile>>,
    /// The earliest readable offset of each partition.
    pub(super) earliest: Vec<u64>,
    /// Number of this snapshot; 0 in indexes of older versions.
    #[serde(default)]
    pub(super) snapshot: u64,
    /// URL of the folder of the files' objects, if the stream has object storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) tier: Option<String>,
}

impl Sealed {
    /// Objects of the files.
    pub(super) fn objects(&self) -> impl Iterator<Item = &str> {
        let files = self.partitions.iter().flatten();
        files.filter_map(|file| file.object.as_deref())
    }

    /// The offset after the last row in a file, for each partition.
    pub(super) fn ends(&self) -> impl Iterator<Item = u64> {
        let partitions = self.partitions.iter();
        partitions.map(|files| files.last().map_or(0, |file| file.last + 1))
    }

    /// Number of readable rows in files.
    pub(super) fn rows(&self) -> u64 {
        let partitions = self.earliest.iter().zip(self.ends());
        partitions
            .map(|(earliest, end)| end.saturating_sub(*earliest))
            .sum()
    }
}

/// A file of rows.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct SealedFile {
    /// Its name in the folder `data`.
    pub(super) file: String,
    /// The first offset.
    pub(super) base: u64,
    /// The last offset.
    pub(super) last: u64,
    /// The earliest time of a row in Unix microseconds.
    pub(super) min_us: i64,
    /// The latest time of a row in Unix microseconds.
    pub(super) max_us: i64,
    /// Number of rows.
    pub(super) rows: u64,
    /// Size of the file in bytes.
    pub(super) bytes: u64,
    /// Number of typed columns; `None` in indexes of older versions.
    #[serde(default)]
    pub(super) typed: Option<usize>,
    /// Kept time at which it was sealed, in Unix microseconds; retention counts its age from here. If it is unknown,
    /// `None` until retention sets it.
    #[serde(default)]
    pub(super) sealed_us: Option<u64>,
    /// Name of its object below [`Sealed::tier`], once that is verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) object: Option<String>,
    /// Whether only the object counts: the file is removed, or will be after the grace.
    #[serde(default, rename = "remote", skip_serializing_if = "std::ops::Not::not")]
    pub(super) is_remote: bool,
}

/// Sparkplug aliases at the end of the rows in files: `aliases.json`.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
#[serde(default)]
pub(super) struct KnownAliases {
    /// End of those files for each partition.
    pub(super) ends: Vec<u64>,
    /// MetricAliases by edge node, encoded by [`MetricAliases`](mqttcore_columnar::MetricAliases).
    pub(super) nodes: serde_json::Value,
}

/// Holds by consumer: `holds.json`.
pub(super) type Holds = BTreeMap<String, Hold>;

/// A consumer's hold.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub(super) struct Hold {
    /// For each partition, the first offset that the consumer still needs.
    pub(super) offsets: Vec<u64>,
    /// Kept time at which it expires, in Unix milliseconds.
    pub(super) until_ms: u64,
}

/// Reads a metadata file; `None` if it does not exist.
pub(super) fn read<T: DeserializeOwned>(
    files: &dyn Files,
    name: &str,
) -> Result<Option<T>, StoreError> {
    let Some(text) = content(files, name)? else {
        return Ok(None);
    };
    serde_json::from_slice(&text)
        .map(Some)
        .map_err(|error| StoreError::io("read", name, error.into()))
}

/// Reads a file; `None` if it does not exist.
pub(super) fn content(files: &dyn Files, name: &str) -> Result<Option<Vec<u8>>, StoreError> {
    let failed = |error| StoreError::io("read", name, error);
    let file = match files.open(name) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    let bytes = file.bytes().map_err(failed)?;
    let mut text = vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)];
    let read = read_full(&*file, &mut text, 0).map_err(failed)?;
    text.truncate(read);
    Ok(Some(text))
}

/// Writes a metadata file; it is safe when this returns.
pub(super) fn write<T: Serialize>(
    files: &dyn Files,
    name: &str,
    value: &T,
) -> Result<(), StoreError> {
    let temporary = format!("_{name}");
    // INVARIANT: all keys are strings.
    let text = serde_json::to_vec(value).expect("a value of texts, numbers and lists");
    let written = remove_if_there(files, &temporary)
        .and_then(|()| files.create(&temporary, 0))
        .and_then(|file| write_all(&*file, &text, 0).and_then(|()| file.sync()))
        .and_then(|()| files.rename(&temporary, name))
        .and_then(|()| files.sync_names());
    written.map_err(|error| full_or(error, name))
}

/// Removes a file, if it exists.
pub(super) fn remove_if_there(files: &dyn Files, name: &str) -> io::Result<()> {
    match files.remove(name) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Converts an error of writing `name`: [`StoreError::NoSpace`] if the disk is full.
pub(super) fn full_or(error: io::Error, name: &str) -> StoreError {
    if crate::wal::segment::is_full(&error) {
        StoreError::NoSpace
    } else {
        StoreError::io("write", name, error)
    }
}
