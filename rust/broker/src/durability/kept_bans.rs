//! Bans by operators, in notes of the store, so that they outlive the broker.

use std::time::Instant;

use mqttcore_store::record::Record;
use mqttcore_store::{Batch, Durability, StoreError};

use crate::clients::bans::{BanReason, BanTarget, Bans};
use crate::durability::store::DurableLog;

/// Prefix of the keys of these notes.
const BAN: &str = "ban/";
/// A ban without end.
const FOR_EVER: u64 = u64::MAX;

/// Which note has a ban: its kind is one letter, so that the longest name fits. `None`: the ban is not kept.
fn key_of(target: &BanTarget) -> Option<String> {
    Some(match target {
        BanTarget::ClientId(id) => format!("{BAN}c/{id}"),
        BanTarget::ClientIdOfUser { .. } => return None,
        BanTarget::ClientIdPattern(pattern) => format!("{BAN}r/{pattern}"),
        BanTarget::Username(name) => format!("{BAN}u/{name}"),
        BanTarget::Network(network) => format!("{BAN}n/{network}"),
    })
}

fn target_of(key: &str) -> Option<BanTarget> {
    let (kind, name) = key.strip_prefix(BAN)?.split_once('/')?;
    match kind {
        "c" => Some(BanTarget::ClientId(name.into())),
        "r" => name.parse().ok().map(BanTarget::ClientIdPattern),
        "u" => Some(BanTarget::Username(name.into())),
        "n" => name.parse().ok().map(BanTarget::Network),
        _ => None,
    }
}

impl DurableLog {
    /// Writes a ban, in the place of one of the same target; those of a client identifier of one user are not kept.
    pub(crate) fn keep_ban(&self, target: &BanTarget, reason: &BanReason, until: Option<Instant>) {
        let until_ms = until.map_or(FOR_EVER, |until| self.clock.unix_ms(until));
        let mut value = until_ms.to_le_bytes().to_vec();
        value.extend_from_slice(reason.text.as_bytes());
        value.push(0);
        value.extend_from_slice(reason.by.as_bytes());
        self.write_ban_note(target, &value);
    }

    /// Writes that a ban is over.
    pub(crate) fn forget_ban(&self, target: &BanTarget) {
        self.write_ban_note(target, &[]);
    }

    fn write_ban_note(&self, target: &BanTarget, value: &[u8]) {
        // No client can have a name for which the key is too long.
        let fits = |key: &String| u16::try_from(key.len()).is_ok();
        let Some(key) = key_of(target).filter(fits) else {
            return;
        };
        let mut batch = Batch::default();
        batch.push(&Record::Note { key: &key, value });
        self.append(&mut batch, Durability::Fsync);
    }

    /// Adds the bans of earlier brokers to `bans`, and removes those that have ended.
    ///
    /// # Errors
    ///
    /// Those of the store.
    pub(crate) fn read_bans(&self, bans: &Bans, now: Instant) -> Result<(), StoreError> {
        let mut ended = Vec::new();
        let now_ms = self.clock.unix_ms(now);
        self.store.notes(&mut |key, value| {
            let Some((target, (until_ms, reason))) = target_of(key).zip(decode(value)) else {
                return;
            };
            if until_ms <= now_ms {
                ended.push(target);
                return;
            }
            let until = (until_ms != FOR_EVER).then(|| self.clock.instant(until_ms));
            bans.add(target, reason, until, now);
        })?;
        for target in &ended {
            self.forget_ban(target);
        }
        Ok(())
    }
}

/// When a ban ends, and its reason. Notes of earlier versions have no name.
fn decode(value: &[u8]) -> Option<(u64, BanReason)> {
    let (until_ms, reason) = value.split_first_chunk()?;
    let reason = String::from_utf8_lossy(reason);
    let (text, by) = reason.rsplit_once('\0').unwrap_or((&reason, ""));
    let reason = BanReason::new(text.to_owned(), by);
    Some((u64::from_le_bytes(*until_ms), reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_without_the_name_of_the_operator_is_read() {
        let note = |rest: &[u8]| [&7_u64.to_le_bytes(), rest].concat();
        let of = |text: &str, by| Some((7, BanReason::new(text.to_owned(), by)));

        assert_eq!(decode(&note(b"floods")), of("floods", ""));
        assert_eq!(decode(&note(b"floods\0user 0")), of("floods", "user 0"));
        assert_eq!(decode(&note(b"a\0b\0the owner")), of("a\0b", "the owner"));
        assert_eq!(decode(b"short"), None);
    }
}
