//! Finds the streams of a store and their identities; rejects definitions that contradict them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::backup::STREAMS;
use crate::error::StoreError;
use crate::files::{Files, FolderAccess};
use crate::index::Index;
use crate::stream::definition::Definition;
use crate::stream::manifest::{self, FORMAT, STREAM, StreamIdentity};
use crate::stream::streams::{StreamOptions, now_us};
use crate::stream::typed::schema_of;
use crate::stream_name::is_stream_name;
use crate::wal::segment::{self, StoreId};

/// A stream that is defined, has a folder, or both.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) folder: Arc<dyn Files>,
    pub(super) definition: Option<Definition>,
    pub(super) identity: Option<StreamIdentity>,
    /// Number of the rows that were restored from object storage.
    pub(super) restored_rows: Option<u64>,
}

/// The streams of `options` and of the folder `root`, by name.
pub(super) fn find(root: &dyn Files, options: &StreamOptions) -> Result<Vec<Found>, StoreError> {
    let mut definitions = BTreeMap::new();
    for definition in &options.definitions {
        let is_valid = is_stream_name(&definition.name) && definition.partitions > 0;
        if !is_valid || definitions.insert(&definition.name, definition).is_some() {
            let problem = "its name is not valid or used twice, or it has no partition";
            return Err(wrong(&definition.name, problem));
        }
    }
    let listed = root.list();
    let mut names = listed.map_err(|error| StoreError::io("list", STREAMS, error))?;
    names.retain(|name| is_stream_name(name));
    names.extend(definitions.keys().map(|name| (*name).clone()));
    names.sort_unstable();
    names.dedup();
    let mut found = Vec::new();
    for name in names {
        let definition = definitions.get(&name).map(|known| (*known).clone());
        let group = definition.as_ref().and_then(|known| known.group);
        let folder = root.folder(&name, FolderAccess::Passage(group));
        let folder = folder.map_err(|error| StoreError::io("open", &name, error))?;
        // Make the names durable that the rest of opening relies on.
        let synced = folder.sync_names();
        synced.map_err(|error| StoreError::io("sync the folder", &name, error))?;
        let identity: Option<StreamIdentity> = manifest::read(&*folder, STREAM)?;
        if definition.is_some() || identity.is_some() {
            found.push(Found {
                name,
                folder,
                definition,
                identity,
                restored_rows: None,
            });
        }
    }
    Ok(found)
}

/// The identity of the stream with the configured changes; `next_id` is its number if it is new. The caller decides about
/// the epoch.
pub(super) fn identify(
    index: &Index,
    found: &Found,
    store: &str,
    next_id: u32,
) -> Result<StreamIdentity, StoreError> {
    let Some(old) = &found.identity else {
        // INVARIANT: a stream is found by its definition or its identity.
        let definition = found.definition.as_ref().expect("a definition");
        return Ok(begin(index, definition, store, next_id));
    };
    if old.format > FORMAT {
        return Err(StoreError::NewerFormat {
            file: format!("{STREAMS}/{}/{STREAM}", found.name),
            found: old.format,
            known: FORMAT,
        });
    }
    if old.store != store {
        let other = &old.store;
        let problem = format!(
            "its folder belongs to store {other}, this one is {store}: move the folder away"
        );
        return Err(wrong(&found.name, &problem));
    }
    let mut identity = old.clone();
    if let Some(definition) = &found.definition {
        adapt(&mut identity, definition)?;
    }
    Ok(identity)
}

fn begin(index: &Index, definition: &Definition, store: &str, next_id: u32) -> StreamIdentity {
    let mut seed = [0; 8];
    seed.copy_from_slice(&segment::new_store()[..8]);
    let known = index.streams.find(&definition.name);
    StreamIdentity {
        format: FORMAT,
        name: definition.name.clone(),
        id: next_id,
        filters: definition.filters.clone(),
        partitions: definition.partitions,
        key: definition.key.name().to_owned(),
        seed: u64::from_le_bytes(seed).to_string(),
        store: store.to_owned(),
        // If a stream had this name before, a consumer may know its offsets.
        epoch: known.map_or(1, |(_, known)| known.epoch + 1),
        schema: schema_of(definition, None),
        created_us: now_us(),
    }
}

/// Applies the changes that a definition may make and rejects others.
fn adapt(identity: &mut StreamIdentity, definition: &Definition) -> Result<(), StoreError> {
    let (old, new) = (identity.partitions, definition.partitions);
    if old != new {
        let problem = format!(
            "it was created with {old} partitions, which cannot change; {new} are configured"
        );
        return Err(wrong(&identity.name, &problem));
    }
    if identity.key != definition.key.name() {
        let (old, new) = (&identity.key, definition.key.name());
        let problem =
            format!("it was created with key {old}, which cannot change; {new} is configured");
        return Err(wrong(&identity.name, &problem));
    }
    identity.filters.clone_from(&definition.filters);
    let schema = schema_of(definition, identity.schema.as_ref());
    let (old, new) = (identity.schema.as_ref(), schema.as_ref());
    let kept = old.map_or(&[][..], |old| &old.columns);
    if !new.map_or(&[][..], |new| &new.columns).starts_with(kept) {
        let problem = "its columns cannot change: add new ones behind them";
        return Err(wrong(&identity.name, problem));
    }
    identity.schema = schema;
    Ok(())
}

/// The identifier of a store in the form of a UUID.
pub(super) fn uuid(store: StoreId) -> String {
    let hex: Vec<String> = store.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [0..4, 4..6, 6..8, 8..10, 10..16];
    parts.map(|part| hex[part].concat()).join("-")
}

pub(super) fn wrong(stream: &str, problem: &str) -> StoreError {
    StoreError::Stream {
        stream: stream.to_owned(),
        problem: problem.into(),
    }
}
