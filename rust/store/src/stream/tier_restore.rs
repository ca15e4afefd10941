//! Restores a stream whose folder is lost from its object storage.

use crate::error::StoreError;
use crate::stream::identity::{Found, wrong};
use crate::stream::manifest::{self, ALIASES, FORMAT, SEALED, STREAM, Sealed, StreamIdentity};
use crate::stream::tier::StreamTier;

/// Takes over what object storage has of a stream that has no folder here: its identity and its file index, whose files
/// stay where they are. Does nothing if object storage has nothing of it.
///
/// The rows that were not uploaded are lost, so the epoch grows: the same offsets may mean other rows. First the store is
/// told the new owner, and `stream.json` comes last here: after a crash the next start begins again.
///
/// # Errors
///
/// The store does not answer: a stream that begins anew would give offsets twice. The objects are of another format.
pub(super) fn restore(
    found: &mut Found,
    store: &str,
    next_id: u32,
    known_epoch: u64,
) -> Result<(), StoreError> {
    let options = found
        .definition
        .as_ref()
        .and_then(|known| known.tier.clone());
    let (None, Some(options)) = (&found.identity, options) else {
        return Ok(());
    };
    let tier = StreamTier::new(&found.name, options, Vec::new()).limited();
    let Some(old) = tier.read::<StreamIdentity>(STREAM)? else {
        return Ok(());
    };
    let sealed = readable(&tier, &old)?;
    let identity = StreamIdentity {
        id: next_id,
        store: store.to_owned(),
        epoch: old.epoch.max(known_epoch) + 1,
        ..old
    };
    take_over(found, &tier, &identity, &sealed)?;
    found.restored_rows = Some(sealed.rows());
    found.identity = Some(identity);
    Ok(())
}

/// Tells the store the new owner, and writes the files of the stream's folder.
fn take_over(
    found: &Found,
    tier: &StreamTier,
    identity: &StreamIdentity,
    sealed: &Sealed,
) -> Result<(), StoreError> {
    // INVARIANT: all keys are strings.
    let text = serde_json::to_vec(identity).expect("texts and numbers");
    tier.write(STREAM, &text)?;
    if let Some(aliases) = tier.read::<serde_json::Value>(ALIASES)? {
        manifest::write(&*found.folder, ALIASES, &aliases)?;
    }
    manifest::write(&*found.folder, SEALED, sealed)?;
    manifest::write(&*found.folder, STREAM, identity)
}

/// The index in the store.
///
/// # Errors
///
/// Its format is newer than this version, or it contradicts `old`.
fn readable(tier: &StreamTier, old: &StreamIdentity) -> Result<Sealed, StoreError> {
    if old.format > FORMAT {
        return Err(StoreError::NewerFormat {
            file: format!("{}/{STREAM}", tier.url()),
            found: old.format,
            known: FORMAT,
        });
    }
    let sealed: Sealed = tier.read(SEALED)?.unwrap_or_default();
    let partitions = usize::from(old.partitions);
    if !sealed.partitions.is_empty() && sealed.partitions.len() != partitions {
        let problem = format!(
            "{}: {SEALED} does not have {partitions} partitions",
            tier.url()
        );
        return Err(wrong(&old.name, &problem));
    }
    Ok(sealed)
}
