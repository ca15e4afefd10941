//! Copies a checkpoint, table by table.

use redb::{ReadTransaction, ReadableTable, TableDefinition, TableError, WriteTransaction};

use crate::error::StoreError;
use crate::files::Files;
use crate::index::tables::{
    BODY, MESSAGE, META, NOTE, QUEUE, RETAINED, SEGMENT, SESSION, SUBSCRIPTION, Tables,
    begin_change, checkpoint,
};

/// Cache size for writing a copy, in bytes.
const COPY_CACHE_BYTES: usize = 16 << 20;

/// Copies a snapshot of a checkpoint into a new checkpoint in `to`.
pub(crate) fn copy(snapshot: &ReadTransaction, to: &dyn Files) -> Result<(), StoreError> {
    let copied = Tables::open(to, COPY_CACHE_BYTES)?;
    let transaction = begin_change(&copied.database())?;
    copy_table(snapshot, &transaction, META)?;
    copy_table(snapshot, &transaction, SESSION)?;
    copy_table(snapshot, &transaction, SUBSCRIPTION)?;
    copy_table(snapshot, &transaction, QUEUE)?;
    copy_table(snapshot, &transaction, MESSAGE)?;
    copy_table(snapshot, &transaction, BODY)?;
    copy_table(snapshot, &transaction, NOTE)?;
    copy_table(snapshot, &transaction, RETAINED)?;
    copy_table(snapshot, &transaction, SEGMENT)?;
    let known = snapshot.list_tables().map_err(checkpoint)?.count();
    let there = transaction.list_tables().map_err(checkpoint)?.count();
    if known != there {
        return Err(StoreError::Checkpoint("a table has no copy".into()));
    }
    transaction.commit().map_err(checkpoint)
}

fn copy_table<K: redb::Key + 'static, V: redb::Value + 'static>(
    from: &ReadTransaction,
    to: &WriteTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<(), StoreError> {
    let source = match from.open_table(definition) {
        Err(TableError::TableDoesNotExist(_)) => return Ok(()),
        other => other.map_err(checkpoint)?,
    };
    let mut target = to.open_table(definition).map_err(checkpoint)?;
    for row in source.iter().map_err(checkpoint)? {
        let (key, value) = row.map_err(checkpoint)?;
        target
            .insert(key.value(), value.value())
            .map_err(checkpoint)?;
    }
    Ok(())
}
