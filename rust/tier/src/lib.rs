//! Object storage for the sealed files of streams: folders that are mounted, and with the feature `stores` S3, Azure
//! and Google Cloud Storage.
//!
//! [`open`] returns [`Objects`] for a URL. What is stored there, and when, is decided in `mqttcore-store`.
//!
//! ```
//! use mqttcore_store::stream::Objects;
//!
//! let folder = std::env::temp_dir().join("mqttcore-tier-example");
//! std::fs::create_dir_all(&folder)?;
//! let objects = mqttcore_tier::open(&format!("file://{}", folder.display()), &[])?;
//! objects.put("plant/sealed.json", &mut &b"{}"[..], 2)?;
//! assert_eq!(objects.get("plant/sealed.json", 0..2)?, b"{}");
//! # std::fs::remove_dir_all(folder)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod folder;
#[cfg(feature = "stores")]
mod stores;

use std::sync::Arc;

use mqttcore_store::stream::Objects;
use thiserror::Error;

use crate::folder::FolderObjects;

/// Why a URL cannot be used.
#[derive(Clone, Debug, Error, Eq, PartialEq)]
#[non_exhaustive]
pub enum TierError {
    /// The URL names no place that this build can use.
    #[error("{url}: {problem}")]
    Url {
        /// The URL.
        url: String,
        /// The fault.
        problem: String,
    },
}

/// The objects below `url`: `file:///folder`, which must exist for each call, and with the feature `stores` `s3://`,
/// `s3a://`, `gs://`, `abfs://`, `abfss://` and `az://`. `options` are names and values, as `AWS_ENDPOINT_URL`; they win over the environment.
/// Nothing is asked of the store yet.
///
/// # Errors
///
/// [`TierError::Url`].
pub fn open(url: &str, options: &[(String, String)]) -> Result<Arc<dyn Objects>, TierError> {
    let url = url.trim_end_matches('/');
    if let Some(path) = url.strip_prefix("file://") {
        return Ok(Arc::new(FolderObjects::new(url, path.as_ref())));
    }
    open_store(url, options)
}

#[cfg(feature = "stores")]
fn open_store(url: &str, options: &[(String, String)]) -> Result<Arc<dyn Objects>, TierError> {
    let store = stores::StoreObjects::open(url, options).map_err(|problem| TierError::Url {
        url: url.to_owned(),
        problem,
    })?;
    Ok(Arc::new(store))
}

#[cfg(not(feature = "stores"))]
fn open_store(url: &str, _options: &[(String, String)]) -> Result<Arc<dyn Objects>, TierError> {
    Err(TierError::Url {
        url: url.to_owned(),
        problem: "this build of mqttcore has no object stores; use file:// and a folder, or in a checkout make build \
                  FEATURES=tier"
            .to_owned(),
    })
}
