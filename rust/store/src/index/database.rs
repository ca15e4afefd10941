//! Opens the database of a checkpoint, which may be damaged.

use std::io;
use std::sync::Arc;

use redb::{Database, DatabaseError, StorageError};

use crate::error::{Damage, StoreError};
use crate::files::File;
use crate::index::backend::Backend;
use crate::index::naming::FILE;
use crate::index::tables::checkpoint;
use mqttcore_panics::contained;

pub(super) const UNREADABLE: &str = "its checksums or its structure are wrong";

/// Opens a database.
pub(super) fn open(file: Arc<dyn File>, cache_bytes: usize) -> Result<Database, StoreError> {
    let mut builder = Database::builder();
    let opened = builder
        .set_cache_size(cache_bytes)
        .create_with_backend(Backend(file));
    opened.map_err(unopened)
}

/// Opens a database, and compares every checksum in it.
pub(super) fn open_checked(
    file: Arc<dyn File>,
    cache_bytes: usize,
) -> Result<Database, StoreError> {
    let mut database = Contained(Some(open(file, cache_bytes)?));
    database.check()?;
    Ok(database.into_inner())
}

/// A database whose checksums are not compared yet. It may be so damaged that closing it panics.
struct Contained(Option<Database>);

impl Contained {
    fn check(&mut self) -> Result<(), StoreError> {
        let Some(database) = &mut self.0 else {
            return Ok(());
        };
        // What can be mended is an older state of it; the log then has what is behind that.
        database.check_integrity().map(drop).map_err(unopened)
    }

    fn into_inner(mut self) -> Database {
        // INVARIANT: only this takes it out.
        self.0.take().expect("it is there")
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let database = self.0.take();
        // Nothing of it is used any more.
        let _ = contained(|| drop(database));
    }
}

/// Why redb does not open the file: it is damaged, or the system failed.
fn unopened(error: DatabaseError) -> StoreError {
    let is_damaged = match &error {
        DatabaseError::Storage(StorageError::Io(error)) => matches!(
            error.kind(),
            io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof
        ),
        DatabaseError::Storage(StorageError::Corrupted(_))
        | DatabaseError::RepairAborted
        | DatabaseError::UpgradeRequired(_) => true,
        _ => false,
    };
    if is_damaged {
        Damage::whole(FILE, UNREADABLE).into()
    } else {
        checkpoint(error)
    }
}
