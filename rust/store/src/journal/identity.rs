//! Whose log it is, and which segments are surely nothing: what headers say before anything else is read.

use crate::error::StoreError;
use crate::files::Files;
use crate::journal::frame;
use crate::journal::open::Known;
use crate::journal::segment::{self, Header, StoreId};

/// A last segment without a header was being made when the power went: nothing is in it.
pub(super) fn drop_unborn(
    files: &dyn Files,
    known: &Known,
    numbers: &mut Vec<u64>,
) -> Result<(), StoreError> {
    let Some(&last) = numbers.last() else {
        return Ok(());
    };
    let name = segment::name(last);
    let mut bytes = Vec::new();
    let file = files
        .open(&name)
        .map_err(|error| StoreError::io("open", &name, error))?;
    segment::read(&*file, &name, &mut bytes)?;
    if Header::parse(&name, &bytes)?.is_some() || holds_frames(files, known, numbers, &bytes)? {
        return Ok(());
    }
    numbers.pop();
    if known.is_read_only {
        return Ok(());
    }
    files
        .remove(&name)
        .map_err(|error| StoreError::io("remove", &name, error))?;
    files
        .sync_names()
        .map_err(|error| StoreError::io("sync the names of", ".", error))
}

/// Whether a segment without a header holds frames nevertheless: then the header is damaged.
fn holds_frames(
    files: &dyn Files,
    known: &Known,
    numbers: &[u64],
    bytes: &[u8],
) -> Result<bool, StoreError> {
    let store = match numbers {
        [.., before, _] => read_header(files, *before)?.map(|header| header.store),
        _ => known.knows_store.then_some(known.store),
    };
    let number = numbers.last().copied().unwrap_or_default();
    let Some(store) = store else {
        // Nobody knows whose it is: only an empty file is surely nothing.
        let start = segment::HEADER;
        return Ok(bytes.iter().skip(start).any(|&byte| byte != 0));
    };
    let seed = Header {
        store,
        number,
        first_lsn: 0,
    }
    .seed();
    let mut at = segment::HEADER;
    while at < bytes.len() {
        if bytes[at] != 0 && frame::parse(&bytes[at..], seed).is_some() {
            return Ok(true);
        }
        at += 1;
    }
    Ok(false)
}

/// Whose log it is, by the first header that can be read.
pub(crate) fn store_of(files: &dyn Files, numbers: &[u64]) -> Result<Option<StoreId>, StoreError> {
    for number in numbers {
        if let Some(header) = read_header(files, *number)? {
            return Ok(Some(header.store));
        }
    }
    Ok(None)
}

/// Whose log it is, if there is one.
pub(crate) fn peek(files: &dyn Files) -> Result<Option<StoreId>, StoreError> {
    store_of(files, &segment::numbers(files)?)
}

pub(super) fn read_header(files: &dyn Files, number: u64) -> Result<Option<Header>, StoreError> {
    let name = segment::name(number);
    let file = files
        .open(&name)
        .map_err(|error| StoreError::io("open", &name, error))?;
    let mut bytes = [0; segment::HEADER];
    let read = crate::files::read_full(&*file, &mut bytes, 0);
    let read = read.map_err(|error| StoreError::io("read", &name, error))?;
    Header::parse(&name, &bytes[..read])
}
