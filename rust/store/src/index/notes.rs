//! Notes: small values that the engine stores under keys.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableTable, WriteTransaction};

use crate::error::StoreError;
use crate::index::tables::{NOTE, Tables, checkpoint};

/// All notes; few and small, so they are in memory.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    all: BTreeMap<String, Vec<u8>>,
    /// Keys that the checkpoint does not have as they are.
    changed: BTreeSet<String>,
}

impl Notes {
    /// Reads those of the checkpoint.
    pub(crate) fn read(tables: &Tables) -> Result<Self, StoreError> {
        let mut notes = Self::default();
        if let Some(table) = tables.table(NOTE)? {
            for row in table.iter().map_err(checkpoint)? {
                let (key, value) = row.map_err(checkpoint)?;
                let (key, value) = (key.value().to_owned(), value.value().to_owned());
                notes.all.insert(key, value);
            }
        }
        Ok(notes)
    }

    /// Puts `value` in the place of what was noted under `key`; an empty one removes it.
    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        if value.is_empty() {
            self.all.remove(key);
        } else {
            self.all.insert(key.to_owned(), value.to_owned());
        }
        self.changed.insert(key.to_owned());
    }

    pub(crate) fn all(&self) -> &BTreeMap<String, Vec<u8>> {
        &self.all
    }

    /// Those that have changed since the last time: what the checkpoint does not have.
    pub(crate) fn take_changed(&mut self) -> ChangedNotes {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let now = changed.map(|key| {
            let value = self.all.get(&key).cloned();
            (key, value)
        });
        now.collect()
    }
}

/// Notes that have changed; `None` is gone.
pub(crate) type ChangedNotes = Vec<(String, Option<Vec<u8>>)>;

/// Writes them into the checkpoint.
pub(crate) fn put_notes(
    transaction: &WriteTransaction,
    notes: &ChangedNotes,
) -> Result<(), StoreError> {
    if notes.is_empty() {
        return Ok(());
    }
    let mut table = transaction.open_table(NOTE).map_err(checkpoint)?;
    for (key, value) in notes {
        match value {
            Some(value) => table.insert(key.as_str(), value.as_slice()).map(|_| ()),
            None => table.remove(key.as_str()).map(|_| ()),
        }
        .map_err(checkpoint)?;
    }
    Ok(())
}
