//! The owner of a stream's objects: `stream.json` in object storage names the store and the epoch.

use crate::error::StoreError;
use crate::stream::identity::wrong;
use crate::stream::manifest::{SEALED, STREAM, Sealed, StreamIdentity};
use crate::stream::tier::StreamTier;

/// Takes the objects of a stream over for `identity`; returns the index in object storage. `has_objects` tells whether
/// the index here names some.
///
/// # Errors
///
/// The objects are of another store or newer than this folder, or the objects that the index names are not there.
pub(super) fn claim(
    tier: &StreamTier,
    identity: &StreamIdentity,
    has_objects: bool,
) -> Result<Sealed, StoreError> {
    let (owner, published) = look(tier, identity, has_objects)?;
    if owner.as_ref() != Some(identity) {
        own(tier, identity)?;
    }
    Ok(published)
}

/// Reads the owner and the index in object storage, if `identity` may take the objects over; changes nothing.
///
/// # Errors
///
/// As of [`claim`].
pub(super) fn look(
    tier: &StreamTier,
    identity: &StreamIdentity,
    has_objects: bool,
) -> Result<(Option<StreamIdentity>, Sealed), StoreError> {
    let owner = owner(tier, identity)?;
    if owner.is_none() && has_objects {
        let problem = format!(
            "its files are in object storage, but {} is empty: copy the objects there, or set url as it was",
            tier.url()
        );
        return Err(wrong(&identity.name, &problem));
    }
    let published: Sealed = tier.read(SEALED)?.unwrap_or_default();
    for (partition, (there, here)) in published.ends().zip(&tier.first_ends).enumerate() {
        if there > *here {
            let problem = format!(
                "partition {partition} ends at {here} here, and at {there} in {}: this folder is an older copy. To \
                 restore the rows, stop the broker and move streams/{} away; to keep this copy, set another url",
                tier.url(),
                identity.name
            );
            return Err(wrong(&identity.name, &problem));
        }
    }
    Ok((owner, published))
}

/// Checks that the objects still belong to `identity`, which has claimed them.
///
/// # Errors
///
/// They belong to another store or a later epoch, or nothing is there any more, as in a folder that is not mounted.
pub(super) fn check(tier: &StreamTier, identity: &StreamIdentity) -> Result<(), StoreError> {
    match owner(tier, identity)? {
        Some(found) if found == *identity => Ok(()),
        Some(_) => own(tier, identity),
        None => {
            let problem = format!(
                "{} had {STREAM} of this stream and has it no more: mount it again, or copy the objects back. Files \
                 stay here until then",
                tier.url()
            );
            Err(wrong(&identity.name, &problem))
        }
    }
}

/// The identity in object storage, of this store and not of a later epoch.
fn owner(tier: &StreamTier, own: &StreamIdentity) -> Result<Option<StreamIdentity>, StoreError> {
    let found = tier.read::<StreamIdentity>(STREAM)?;
    let other = |found: &&StreamIdentity| found.store != own.store || found.epoch > own.epoch;
    let Some(other) = found.as_ref().filter(other) else {
        return Ok(found);
    };
    let problem = format!(
        "{} belongs to store {} (epoch {}), this is store {} (epoch {}): another broker uses it, or took it over. Set \
         another url",
        tier.url(),
        other.store,
        other.epoch,
        own.store,
        own.epoch
    );
    Err(wrong(&own.name, &problem))
}

/// Writes the identity of the stream into object storage.
fn own(tier: &StreamTier, identity: &StreamIdentity) -> Result<(), StoreError> {
    // INVARIANT: all keys are strings.
    let text = serde_json::to_vec(identity).expect("texts and numbers");
    tier.write(STREAM, &text)
}
