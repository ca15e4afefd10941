//! Segment files: names, headers, creation, reading.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use crate::error::StoreError;
use crate::files::{File, Files, read_full, write_all};
use crate::wal::frame::{u32_at, u64_at};

/// Bytes before the first frame.
pub(crate) const HEADER: usize = 64;
/// Offset of the first frame.
pub(crate) const START: u64 = HEADER as u64;
const MAGIC: &[u8; 8] = b"mqttlog\0";
/// The format version that is written; newer ones are refused.
pub(crate) const FORMAT: u32 = 1;
const FOLLOWED: u32 = 1;

/// The last number of a segment that is read: the index has 32 bits for it.
pub(crate) const NUMBER_MAX: u64 = u32::MAX as u64 - 1;
/// Segment numbers above this one are never reached: after damage, a repair begins the log behind the last one.
pub(crate) const NUMBER_REACHED_MAX: u64 = 1 << 31;
/// LSNs and numbers of messages and sessions above this one are never reached: who writes them has damaged the file.
pub(crate) const REACHED_MAX: u64 = 1 << 62;

/// Identifier of a store: files of different stores cannot be mixed up.
pub(crate) type StoreId = [u8; 16];

/// Creates a random identifier.
pub(crate) fn new_store() -> StoreId {
    let mut store = [0; 16];
    for half in store.chunks_exact_mut(8) {
        // The standard library seeds each of these from the system's randomness.
        half.copy_from_slice(&RandomState::new().hash_one(0).to_le_bytes());
    }
    store
}

/// The header of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct SegmentHeader {
    pub(crate) store: StoreId,
    pub(crate) number: u64,
    pub(crate) first_lsn: u64,
    /// Size of the file, for later checks; 0 if unknown.
    pub(crate) bytes: u64,
    /// Whether the next segment was created and synced.
    pub(crate) is_followed: bool,
}

/// Initial value of the checksums of a segment's frames.
pub(crate) fn seed(store: &StoreId, number: u64) -> u32 {
    crc32c_append(crc32c(store), &number.to_le_bytes())
}

impl SegmentHeader {
    /// Initial value of the checksums of its frames.
    pub(crate) fn seed(&self) -> u32 {
        seed(&self.store, self.number)
    }

    pub(crate) fn to_bytes(self) -> [u8; HEADER] {
        let mut bytes = [0; HEADER];
        bytes[..8].copy_from_slice(MAGIC);
        bytes[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        bytes[12..16].copy_from_slice(&u32::from(self.is_followed).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.store);
        bytes[32..40].copy_from_slice(&self.number.to_le_bytes());
        bytes[40..48].copy_from_slice(&self.first_lsn.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.bytes.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Parses the header at the front of `bytes`; `None` if there is no valid one.
    ///
    /// # Errors
    ///
    /// The header has a newer format version.
    pub(crate) fn parse(name: &str, bytes: &[u8]) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = bytes.first_chunk::<HEADER>() else {
            return Ok(None);
        };
        if bytes[..8] != *MAGIC || crc32c(&bytes[..60]) != u32_at(bytes, 60) {
            return Ok(None);
        }
        let found = u32_at(bytes, 8);
        if found != FORMAT {
            let file = name.to_owned();
            return Err(StoreError::NewerFormat {
                file,
                found,
                known: FORMAT,
            });
        }
        let first_lsn = u64_at(bytes, 40);
        if !(1..=REACHED_MAX).contains(&first_lsn) {
            return Ok(None);
        }
        let mut store = [0; 16];
        store.copy_from_slice(&bytes[16..32]);
        Ok(Some(Self {
            store,
            number: u64_at(bytes, 32),
            first_lsn,
            bytes: u64_at(bytes, 48),
            is_followed: u32_at(bytes, 12) & FOLLOWED != 0,
        }))
    }
}

/// The file name of a segment.
pub(crate) fn name(number: u64) -> String {
    format!("{number:020}.log")
}

/// The number of a segment, from its file name.
pub(crate) fn number(name: &str) -> Option<u64> {
    let digits = name
        .strip_suffix(".log")
        .filter(|digits| digits.len() == 20)?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    let number = digits.parse().ok().filter(|_| is_number)?;
    (number <= NUMBER_MAX).then_some(number)
}

/// The numbers of all segments in the folder, ascending.
pub(crate) fn numbers(files: &dyn Files) -> Result<Vec<u64>, StoreError> {
    let names = files
        .list()
        .map_err(|error| StoreError::io("list", ".", error))?;
    Ok(names.iter().filter_map(|name| number(name)).collect())
}

/// Creates and syncs a segment without records, of the size in `header`.
///
/// # Errors
///
/// [`StoreError::NoSpace`]; the file does not exist then.
pub(crate) fn create(
    files: &dyn Files,
    header: SegmentHeader,
) -> Result<Arc<dyn File>, StoreError> {
    let name = name(header.number);
    let failed = |doing, error: std::io::Error| StoreError::io(doing, &name, error);
    let file = match files.create(&name, header.bytes) {
        Err(error) if is_full(&error) => return Err(StoreError::NoSpace),
        other => other.map_err(|error| failed("create", error))?,
    };
    match write_all(&*file, &header.to_bytes(), 0).and_then(|()| file.sync()) {
        Err(error) if is_full(&error) => {
            files
                .remove(&name)
                .map_err(|error| failed("remove", error))?;
            return Err(StoreError::NoSpace);
        }
        other => other.map_err(|error| failed("write", error))?,
    }
    files
        .sync_names()
        .map_err(|error| failed("sync the folder of", error))?;
    Ok(file)
}

pub(crate) fn is_full(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded
    )
}

/// The content of a segment.
pub(crate) fn content(files: &dyn Files, number: u64) -> Result<Vec<u8>, StoreError> {
    let name = name(number);
    let file = files.open(&name);
    let file = file.map_err(|error| StoreError::io("open", &name, error))?;
    let mut bytes = Vec::new();
    read(&*file, &name, &mut bytes)?;
    Ok(bytes)
}

/// Reads a whole segment.
pub(crate) fn read(file: &dyn File, name: &str, into: &mut Vec<u8>) -> Result<(), StoreError> {
    let failed = |error| StoreError::io("read", name, error);
    let bytes = file.bytes().map_err(failed)?;
    let size = usize::try_from(bytes).unwrap_or(usize::MAX);
    if into.len() < size {
        // The system gives zeros without writing them.
        *into = Vec::new();
        *into = vec![0; size];
    }
    let read = read_full(file, into, 0).map_err(failed)?;
    into.truncate(read);
    Ok(())
}
