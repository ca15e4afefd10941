//! The TLS configuration of one listener, replaced as a whole when its files change.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use crate::certificate::{DAY, ServerCertificate};
use crate::config::TlsConfig;
use crate::error::TlsError;
use crate::load::make;
use crate::settings::TlsSettings;

/// Interval between calls of [`TlsServer::refresh`].
pub const WATCH_EVERY: Duration = Duration::from_secs(2);

/// The TLS configuration of one listener, with its settings.
pub struct TlsServer {
    settings: TlsSettings,
    alpn: Box<[&'static str]>,
    state: Mutex<State>,
}

struct State {
    config: TlsConfig,
    certificates: Vec<ServerCertificate>,
    /// When the expiry of the certificates was looked at last.
    reminded_at: SystemTime,
    /// State of the files at the last read, successful or not.
    read: Stamps,
    /// State of the files at the last check.
    seen: Stamps,
}

/// Modification time, change time, size and inode of each file; `None`: the file does not exist.
type Stamps = Vec<Option<[i64; 6]>>;

/// A loaded TLS configuration, and warnings about its files.
#[derive(Debug)]
pub struct Loaded {
    /// The server; [`TlsServer::config`] is called for each handshake.
    pub server: TlsServer,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

/// The outcome of [`TlsServer::refresh`].
#[derive(Debug)]
#[non_exhaustive]
pub struct Refreshed {
    /// Whether the files were read again; otherwise the warnings are those of the day.
    pub is_reloaded: bool,
    /// Warnings for the log.
    pub warnings: Vec<String>,
}

impl TlsServer {
    /// Reads the files of `settings`. A client that sends ALPN names must send one of `alpn`.
    ///
    /// # Errors
    ///
    /// [`TlsError`]: a file cannot be read or is not valid, or a key belongs to another certificate.
    pub fn load(settings: TlsSettings, alpn: &[&'static str]) -> Result<Loaded, TlsError> {
        // Before the files are read, so that the next check notices changes made meanwhile.
        let stamps = stamps(&settings);
        let made = make(&settings, alpn)?;
        let state = State {
            config: made.config,
            certificates: made.certificates,
            reminded_at: SystemTime::now(),
            read: stamps.clone(),
            seen: stamps,
        };
        let server = Self {
            settings,
            alpn: alpn.into(),
            state: Mutex::new(state),
        };
        Ok(Loaded {
            server,
            warnings: made.warnings,
        })
    }

    /// The settings of the listener.
    pub fn settings(&self) -> &TlsSettings {
        &self.settings
    }

    /// The current configuration.
    pub fn config(&self) -> TlsConfig {
        self.state().config.clone()
    }

    /// The certificates in use, in the order of the settings.
    pub fn certificates(&self) -> Vec<ServerCertificate> {
        self.state().certificates.clone()
    }

    /// Reloads the files if they have changed and are the same as at the previous call: a certificate and its key are
    /// two files, which may be replaced one after the other. Session tickets of the old configuration become invalid.
    /// Once a day it returns the warnings about certificates that expire soon. Returns `None` if nothing was read and
    /// nothing is to be said.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); the old configuration stays.
    pub fn refresh(&self) -> Option<Result<Refreshed, TlsError>> {
        self.refresh_at(SystemTime::now())
    }

    fn refresh_at(&self, now: SystemTime) -> Option<Result<Refreshed, TlsError>> {
        let found = stamps(&self.settings);
        {
            let mut state = self.state();
            let is_settled = state.seen == found;
            state.seen.clone_from(&found);
            if !is_settled || state.read == found {
                return state.reminder(now).map(Ok);
            }
            state.read = found;
        }
        let made = make(&self.settings, &self.alpn);
        Some(made.map(|made| {
            let mut state = self.state();
            state.config = made.config;
            state.certificates = made.certificates;
            state.reminded_at = now;
            Refreshed {
                is_reloaded: true,
                warnings: made.warnings,
            }
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The warnings about the expiry of certificates, if the last ones are a day old.
    fn reminder(&mut self, now: SystemTime) -> Option<Refreshed> {
        // An error: the clock was set back.
        if matches!(now.duration_since(self.reminded_at), Ok(age) if age < DAY) {
            return None;
        }
        self.reminded_at = now;
        let expiring = self.certificates.iter();
        let expiring = expiring.filter_map(|certificate| certificate.expiry_warning(now));
        let warnings: Vec<_> = expiring.map(|warning| warning.to_string()).collect();
        (!warnings.is_empty()).then_some(Refreshed {
            is_reloaded: false,
            warnings,
        })
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

fn stamps(settings: &TlsSettings) -> Stamps {
    let stamp = |path| {
        let file = fs::metadata(path).ok()?;
        let size = i64::try_from(file.size()).unwrap_or(i64::MAX);
        let inode = file.ino().cast_signed();
        let (changed, changed_ns) = (file.ctime(), file.ctime_nsec());
        Some([
            file.mtime(),
            file.mtime_nsec(),
            changed,
            changed_ns,
            size,
            inode,
        ])
    };
    settings.files().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes a certificate that expires at `not_after` and its key into a new folder.
    fn files(name: &str, not_after: SystemTime) -> TlsSettings {
        let mut params = rcgen::CertificateParams::new(["localhost".to_owned()]).expect("a name");
        params.not_after = not_after.into();
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        let folder =
            std::env::temp_dir().join(format!("mqttcore-server-{name}-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        let (chain_file, key_file) = (folder.join("a.pem"), folder.join("a.key"));
        fs::write(&chain_file, certificate.pem()).expect("written");
        fs::write(&key_file, key.serialize_pem()).expect("written");
        TlsSettings::new(chain_file, key_file)
    }

    #[test]
    fn an_expiry_is_reminded_of_once_a_day() {
        let start = SystemTime::now();
        let loaded = TlsServer::load(files("day", start + 20 * DAY), &["mqtt"]).expect("loaded");
        let server = loaded.server;
        let reminder = |days: f64| {
            let now = start + DAY.mul_f64(days);
            let said = server.refresh_at(now)?.expect("the files stay");
            assert!(!said.is_reloaded);
            said.warnings.into_iter().next()
        };

        assert_eq!(reminder(0.5), None);
        assert_eq!(reminder(5.0), None, "15 days are left");
        let text = reminder(7.0).expect("13 days are left");
        assert!(text.ends_with("expires in 12 days: renew it"), "{text}");
        assert_eq!(reminder(7.9), None);
        assert!(reminder(8.1).expect("a day later").contains("11 days"));
        assert!(reminder(7.0).is_some(), "the clock was set back");
        let folder = server
            .settings()
            .files()
            .next()
            .and_then(|file| file.parent());
        fs::remove_dir_all(folder.expect("a folder")).expect("removed");
    }
}
