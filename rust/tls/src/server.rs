//! The TLS configuration of one listener, replaced as a whole when its files change.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::certificate::ServerCertificate;
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
    /// Returns `None` if nothing was read.
    ///
    /// # Errors
    ///
    /// As [`load`](Self::load); the old configuration stays.
    pub fn refresh(&self) -> Option<Result<Vec<String>, TlsError>> {
        let now = stamps(&self.settings);
        {
            let mut state = self.state();
            let is_settled = state.seen == now;
            state.seen.clone_from(&now);
            if !is_settled || state.read == now {
                return None;
            }
            state.read = now;
        }
        let made = make(&self.settings, &self.alpn);
        Some(made.map(|made| {
            let mut state = self.state();
            state.config = made.config;
            state.certificates = made.certificates;
            made.warnings
        }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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
