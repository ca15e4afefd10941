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

/// Opens a database and verifies every checksum in it.
pub(super) fn open_checked(
    file: Arc<dyn File>,
    cache_bytes: usize,
) -> Result<Database, StoreError> {
    let mut database = Contained(Some(open(file, cache_bytes)?));
    database.check()?;
    Ok(database.into_inner())
}

/// A database with unverified checksums. It may be so damaged that closing it panics.
struct Contained(Option<Database>);

impl Contained {
    fn check(&mut self) -> Result<(), StoreError> {
        let Some(database) = &mut self.0 else {
            return Ok(());
        };
        // redb repairs a file by going back to an older commit; the log has the records after that.
        database.check_integrity().map(drop).map_err(unopened)
    }

    fn into_inner(mut self) -> Database {
        // INVARIANT: only this function and `drop` take the database out.
        self.0.take().expect("it is there")
    }
}

impl Drop for Contained {
    fn drop(&mut self) {
        let database = self.0.take();
        // The database is not used any more, so a panic is ignored.
        let _ = contained(|| drop(database));
    }
}

/// Maps redb's error at opening: the file is damaged, or the system failed.
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
