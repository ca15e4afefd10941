//! Notes: small values that the engine stores under keys.

use std::collections::{BTreeMap, BTreeSet};

use redb::{ReadableTable, WriteTransaction};

use crate::error::StoreError;
use crate::index::tables::{NOTE, Tables, checkpoint};

/// All notes. They are few and small, so they stay in memory.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    all: BTreeMap<String, Vec<u8>>,
    /// Keys whose value in the checkpoint is outdated.
    changed: BTreeSet<String>,
}

impl Notes {
    /// Reads the notes of the checkpoint.
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

    /// Sets the value of `key`; an empty value removes the key.
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

    /// Takes the notes that changed since the last call, which the checkpoint does not have.
    pub(crate) fn take_changed(&mut self) -> ChangedNotes {
        let changed = std::mem::take(&mut self.changed).into_iter();
        let now = changed.map(|key| {
            let value = self.all.get(&key).cloned();
            (key, value)
        });
        now.collect()
    }
}

/// Changed notes; `None`: removed.
pub(crate) type ChangedNotes = Vec<(String, Option<Vec<u8>>)>;

/// Writes changed notes into the checkpoint.
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
