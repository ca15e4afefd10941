//! API keys: secrets with scopes, in a file that contains only their hashes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::SystemTime;

use rustix::rand::{GetRandomFlags, getrandom};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use toml::value::Datetime;

use super::identity::CallerIdentity;
use super::key_file::{Contents, Entry, KEYS_MAX, KeysError, Stamp, failed, read, stamp_of, write};
use super::key_time::unix_s;
use super::scope::{Scope, Scopes};

/// Prefix of every secret.
const PREFIX: &str = "mq_";
/// Random bytes of a secret.
const SECRET_BYTES: usize = 32;

/// The keys in force, and their file.
#[derive(Debug, Default)]
pub(crate) struct Keys {
    file: Option<PathBuf>,
    in_force: RwLock<Vec<Key>>,
    /// The last version of the file that was read. Locked while the file is changed or read.
    changing: Mutex<Option<Stamp>>,
}

/// One key.
#[derive(Clone, Debug)]
struct Key {
    entry: Entry,
    digest: [u8; 32],
    expires_s: Option<u64>,
    streams: Option<Arc<[String]>>,
}

impl Keys {
    /// Reads the keys of `file`, which need not exist.
    ///
    /// # Errors
    ///
    /// [`KeysError::File`]
    pub(crate) fn open(file: Option<PathBuf>) -> Result<Self, KeysError> {
        let keys = Self {
            file,
            ..Self::default()
        };
        // `refresh` takes a file that is not accessible for a missing one; `read` reports it.
        keys.file.as_deref().map(read).transpose()?;
        keys.refresh()?;
        Ok(keys)
    }

    /// Reads the file if it has changed since the last call; returns whether it has.
    ///
    /// # Errors
    ///
    /// [`KeysError::File`]; the keys in force stay in force.
    pub(crate) fn refresh(&self) -> Result<bool, KeysError> {
        let Some(file) = &self.file else {
            return Ok(false);
        };
        let mut stamp = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let found = stamp_of(file);
        if found == *stamp {
            return Ok(false);
        }
        // Stored first, so that an error is reported once for each version of the file.
        *stamp = found;
        let keys = checked(file, &read(file)?)?;
        self.put_in_force(keys);
        Ok(true)
    }

    fn put_in_force(&self, keys: Vec<Key>) {
        *self
            .in_force
            .write()
            .unwrap_or_else(PoisonError::into_inner) = keys;
    }

    /// Whether there is any key.
    pub(crate) fn has_any(&self) -> bool {
        !self
            .in_force
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .is_empty()
    }

    /// The identity of the key with this secret. Takes as long for a wrong secret as for a right one.
    pub(crate) fn identify(&self, secret: &[u8], now: SystemTime) -> Option<CallerIdentity> {
        let digest: [u8; 32] = Sha256::digest(secret).into();
        let keys = self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = None;
        for key in keys.iter() {
            if key.digest.ct_eq(&digest).into() {
                found = Some(key);
            }
        }
        let key = found.filter(|key| key.is_valid(now))?;
        let scopes = key.entry.scopes.iter().copied().collect();
        let identity = CallerIdentity::new(format!("key {:?}", key.entry.name), scopes);
        let identity = identity.with_key(digest);
        Some(identity.limited_to(key.streams.clone()))
    }

    /// Whether the key with this SHA-256 is in force, still with this scope.
    pub(crate) fn admits(&self, digest: &[u8; 32], scope: Scope, now: SystemTime) -> bool {
        let keys = self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        let mut found = keys.iter().filter(|key| key.digest == *digest);
        found.any(|key| key.is_valid(now) && key.entry.scopes.contains(&scope))
    }

    /// The keys in force, expired ones included.
    pub(crate) fn list(&self) -> Vec<Entry> {
        let keys = self.in_force.read().unwrap_or_else(PoisonError::into_inner);
        keys.iter().map(|key| key.entry.clone()).collect()
    }

    /// Adds a key and returns its secret, which is not stored.
    ///
    /// # Errors
    ///
    /// [`KeysError`]; nothing has changed then, except if only the sync of the file's folder failed.
    pub(crate) fn add(
        &self,
        name: &str,
        scopes: &[Scope],
        streams: Option<Vec<String>>,
        expires: Option<Datetime>,
    ) -> Result<String, KeysError> {
        let secret = secret().map_err(|_| KeysError::Invalid("the system has no random bytes"))?;
        let entry = Entry {
            name: name.into(),
            sha256: hex(&Sha256::digest(secret.as_bytes())),
            scopes: scopes.iter().copied().collect::<Scopes>().names(),
            streams,
            expires,
        };
        Key::of(&entry).map_err(KeysError::Invalid)?;
        self.change(|entries| {
            if entries.iter().any(|other| other.name == name) {
                return Err(KeysError::Exists(name.into()));
            }
            if entries.len() >= KEYS_MAX {
                return Err(KeysError::Invalid("there are 1000 keys: revoke one first"));
            }
            entries.push(entry);
            Ok(())
        })?;
        Ok(secret)
    }

    /// Removes a key; returns false if no key has this name.
    ///
    /// # Errors
    ///
    /// As [`add`](Self::add).
    pub(crate) fn revoke(&self, name: &str) -> Result<bool, KeysError> {
        let mut had = false;
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|entry| entry.name != name);
            had = entries.len() < before;
            Ok(())
        })?;
        Ok(had)
    }

    /// Changes the file, then the keys in force. If an entry is not valid, nothing is written: no entry of such a file
    /// would come into force.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Entry>) -> Result<(), KeysError>,
    ) -> Result<(), KeysError> {
        let file = self.file.as_ref().ok_or(KeysError::NoFile)?;
        let mut stamp = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = read(file)?;
        change(&mut keys)?;
        let in_force = checked(file, &keys)?;
        let contents = Contents { keys };
        let text = toml::to_string(&contents).map_err(|error| failed(file, error))?;
        write(file, &text).map_err(|error| failed(file, error))?;
        *stamp = stamp_of(file);
        self.put_in_force(in_force);
        Ok(())
    }
}

/// Validates the entries of a file.
fn checked(file: &Path, entries: &[Entry]) -> Result<Vec<Key>, KeysError> {
    let key = |entry: &Entry| {
        Key::of(entry).map_err(|text| failed(file, format!("key {:?}: {text}", entry.name)))
    };
    entries.iter().map(key).collect()
}

impl Key {
    fn is_valid(&self, now: SystemTime) -> bool {
        self.expires_s.is_none_or(|end| unix_s(now) < end)
    }

    fn of(entry: &Entry) -> Result<Self, &'static str> {
        let has_control = entry.name.contains(char::is_control);
        if entry.name.is_empty() || entry.name.len() > 128 || has_control {
            return Err("the name of a key must have 1 to 128 bytes, and no control characters");
        }
        if entry.scopes.is_empty() {
            return Err("a key needs scopes: view, payload, operate, admin, rows, publish");
        }
        if entry.streams.as_ref().is_some_and(Vec::is_empty) {
            return Err("streams must name a stream, or be left out for all streams");
        }
        let digest = unhex(&entry.sha256).ok_or("sha256 must have 64 hexadecimal digits")?;
        let expires_s = entry.expires.map(super::key_time::end_s);
        let expires_s = expires_s.map(|end| end.ok_or("expires must be a date or a date and time"));
        Ok(Self {
            expires_s: expires_s.transpose()?,
            streams: entry.streams.as_deref().map(Into::into),
            entry: entry.clone(),
            digest,
        })
    }
}

/// A new secret.
pub(super) fn secret() -> io::Result<String> {
    let mut bytes = [0; SECRET_BYTES];
    // INVARIANT: Linux returns up to 256 random bytes at once.
    getrandom(&mut bytes, GetRandomFlags::empty())?;
    Ok(format!("{PREFIX}{}", base32(&bytes)))
}

/// Base32 of RFC 4648, without padding, in lower case.
fn base32(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let bit = |at: usize| {
        let byte = bytes.get(at / 8).copied().unwrap_or(0);
        usize::from(byte >> (7 - at % 8) & 1)
    };
    let letters = (0..bytes.len() * 8).step_by(5);
    letters
        .map(|at| char::from(LETTERS[(at..at + 5).fold(0, |value, at| value << 1 | bit(at))]))
        .collect()
}

/// Encodes bytes as hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    let digits = bytes.iter().flat_map(|byte| [byte >> 4, *byte]);
    digits.map(digit).collect()
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::super::key_file::tests::Folder;
    use super::*;

    #[test]
    fn a_key_that_was_added_is_known_until_it_is_revoked_also_by_another_reader() {
        let folder = Folder::new("add");
        let keys = Keys::open(Some(folder.file())).unwrap();
        assert!(!keys.has_any());

        let secret = keys.add("grafana", &[Scope::View], None, None).unwrap();

        assert!(secret.starts_with("mq_") && secret.len() == 55, "{secret}");
        let text = fs::read_to_string(folder.file()).unwrap();
        assert!(!text.contains(&secret));
        let mode = fs::metadata(folder.file()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let now = SystemTime::now();
        let other = Keys::open(Some(folder.file())).unwrap();
        for keys in [&keys, &other] {
            let identity = keys.identify(secret.as_bytes(), now).unwrap();
            assert_eq!(identity.scopes.names(), [Scope::View]);
            assert!(keys.identify(b"mq_wrong", now).is_none());
        }
        assert!(matches!(
            keys.add("grafana", &[Scope::View], None, None),
            Err(KeysError::Exists(_))
        ));
        assert!(keys.revoke("grafana").unwrap());
        assert!(!keys.revoke("grafana").unwrap());
        assert!(keys.identify(secret.as_bytes(), now).is_none());
        assert!(other.refresh().unwrap());
        assert!(!other.refresh().unwrap(), "nothing is new");
        assert!(other.identify(secret.as_bytes(), now).is_none());
    }

    #[test]
    fn a_name_has_no_control_characters() {
        let folder = Folder::new("names");
        let keys = Keys::open(Some(folder.file())).unwrap();

        for name in ["a\u{7f}", "\n", "a\u{9b}", ""] {
            let error = keys.add(name, &[Scope::View], None, None).unwrap_err();
            assert!(error.to_string().contains("no control characters"));
        }
        keys.add("b \"ü\"", &[Scope::View], None, None).unwrap();
    }

    #[test]
    fn a_key_may_name_the_streams_that_it_reaches() {
        let folder = Folder::new("streams");
        let keys = Keys::open(Some(folder.file())).unwrap();
        let plant = Some(vec!["plant".to_owned()]);
        let secret = keys.add("a", &[Scope::Rows], plant, None).unwrap();

        let other = Keys::open(Some(folder.file())).unwrap();

        let identity = other.identify(secret.as_bytes(), SystemTime::now());
        let identity = identity.unwrap();
        assert!(identity.reaches("plant") && !identity.reaches("secret"));
        assert!(
            keys.add("b", &[Scope::Rows], Some(Vec::new()), None)
                .is_err()
        );
    }

    #[test]
    fn a_key_ends_when_it_says() {
        let folder = Folder::new("end");
        let keys = Keys::open(Some(folder.file())).unwrap();
        let end: Datetime = "1970-01-02T01:00:00+01:00".parse().unwrap();
        let secret = keys.add("short", &[Scope::Admin], None, Some(end)).unwrap();
        let at = |seconds| SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);

        assert!(keys.identify(secret.as_bytes(), at(86_399)).is_some());
        assert!(keys.identify(secret.as_bytes(), at(86_400)).is_none());
    }

    #[test]
    fn a_file_that_others_may_read_or_that_is_wrong_is_refused_and_the_keys_stay() {
        let folder = Folder::new("rights");
        let keys = Keys::open(Some(folder.file())).unwrap();
        let secret = keys.add("a", &[Scope::View], None, None).unwrap();
        let good = fs::read_to_string(folder.file()).unwrap();

        for (text, mode, word) in [
            (good.as_str(), 0o644, "chmod 600"),
            ("[[keys]]\nname = 'b'\n", 0o600, "missing field"),
            (
                "[[keys]]\nname='b'\nsha256='12'\nscopes=['view']\n",
                0o600,
                "64 hexadecimal",
            ),
            (
                "[[keys]]\nname='b'\nsha256='12'\nscopes=['all']\n",
                0o600,
                "unknown variant",
            ),
            ("[[key]]\n", 0o600, "unknown field"),
        ] {
            folder.write(text);
            fs::set_permissions(folder.file(), fs::Permissions::from_mode(mode)).unwrap();

            let error = keys.refresh().unwrap_err().to_string();

            assert!(error.contains(word), "{error}");
            assert!(
                keys.identify(secret.as_bytes(), SystemTime::now())
                    .is_some()
            );
            assert!(Keys::open(Some(folder.file())).is_err());
        }
        assert!(Keys::open(Some(folder.file().join("below"))).is_err());
    }

    #[test]
    fn a_file_is_read_again_once_its_rights_are_mended() {
        let folder = Folder::new("mended");
        let keys = Keys::open(Some(folder.file())).unwrap();
        let other = Keys::open(Some(folder.file())).unwrap();
        let secret = other.add("a", &[Scope::View], None, None).unwrap();
        let rights = |mode| fs::set_permissions(folder.file(), fs::Permissions::from_mode(mode));
        rights(0o644).unwrap();
        assert!(keys.refresh().is_err());
        assert!(!keys.refresh().unwrap(), "an error is told once");

        rights(0o600).unwrap();

        assert!(keys.refresh().unwrap());
        let now = SystemTime::now();
        assert!(keys.identify(secret.as_bytes(), now).is_some());
    }

    #[test]
    fn a_file_with_a_wrong_entry_is_not_changed_unless_the_entry_goes() {
        let folder = Folder::new("wrong");
        let keys = Keys::open(Some(folder.file())).unwrap();
        keys.add("a", &[Scope::View], None, None).unwrap();
        let wrong = "[[keys]]\nname='b'\nsha256='12'\nscopes=['view']\n";
        let text = fs::read_to_string(folder.file()).unwrap() + wrong;
        folder.write(&text);

        for done in [
            keys.revoke("a").map(drop),
            keys.add("c", &[Scope::View], None, None).map(drop),
        ] {
            let error = done.unwrap_err().to_string();
            assert!(error.contains("key \"b\": sha256"), "{error}");
            assert_eq!(fs::read_to_string(folder.file()).unwrap(), text);
        }
        assert!(keys.revoke("b").unwrap() && keys.revoke("a").unwrap());
        assert!(!keys.has_any());
    }

    #[test]
    fn base32_is_that_of_rfc_4648() {
        for (bytes, text) in [
            ("", ""),
            ("f", "my"),
            ("foob", "mzxw6yq"),
            ("foobar", "mzxw6ytboi"),
        ] {
            assert_eq!(base32(bytes.as_bytes()), text);
        }
    }
}
