//! File names of the checkpoint: a new one is written as `checkpoint.new` and renamed when it is complete.

use std::io;
use std::sync::Arc;

use crate::aside;
use crate::error::StoreError;
use crate::files::copy_file;
use crate::files::{File, Files};

pub(crate) const FILE: &str = "checkpoint.redb";
pub(super) const UNBORN: &str = "checkpoint.new";

/// Creates an empty checkpoint under its temporary name.
pub(super) fn begin(files: &dyn Files) -> io::Result<Arc<dyn File>> {
    forget(files)?;
    files.create(UNBORN, 0)
}

fn forget(files: &dyn Files) -> io::Result<()> {
    match files.remove(UNBORN) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Removes an incomplete checkpoint that an interrupted process left.
pub(crate) fn forget_new(files: &dyn Files) -> Result<(), StoreError> {
    forget(files).map_err(|error| StoreError::io("remove", UNBORN, error))
}

/// Begins a new checkpoint as a copy of the current one, which must not be open. Without a current one no file is
/// made.
pub(crate) fn copy_to_new(files: &dyn Files) -> Result<(), StoreError> {
    let copied = forget(files).and_then(|()| match files.open(FILE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        file => copy_file(&*file?, files, UNBORN, u64::MAX).map(drop),
    });
    copied.map_err(|error| StoreError::io("copy", FILE, error))
}

/// Gives a complete new checkpoint its final name; it replaces the current one.
pub(crate) fn name_new(files: &dyn Files) -> Result<(), StoreError> {
    let named = files.rename(UNBORN, FILE).and_then(|()| files.sync_names());
    named.map_err(|error| StoreError::io("open", FILE, error))
}

/// Replaces a damaged checkpoint by the new one; returns the name that the damaged file has now.
pub(crate) fn replace_damaged(files: &dyn Files) -> Result<String, StoreError> {
    let aside = aside::keep(files, FILE)?;
    name_new(files)?;
    Ok(aside)
}
