//! The durable log: records in, the same records back, whatever happened in between.
//!
//! A [`Wal`] writes [`Batch`]es of typed [`Record`](record::Record)s. Batches that wait are
//! written together and synced once; who waits for a [`Ticket`] then knows that they survive.
//! After a crash every batch is there whole or not at all, and what was promised is there.
//!
//! The crate knows neither sessions nor sockets. It refuses to guess: what was safe and cannot be
//! read is reported, never skipped; what was never promised is cut off, and reported too.
//!
//! ```
//! use std::sync::Arc;
//!
//! use mqttcore_store::files::{Files, Folder};
//! use mqttcore_store::record::Record;
//! use mqttcore_store::{Batch, Wal, WalOptions, Durability, SpacePolicy};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("mqttcore-store-{}", std::process::id()));
//! # let options = WalOptions { segment_bytes: 4_096, ballast_bytes: 0, ..Default::default() };
//! let files: Arc<dyn Files> = Arc::new(Folder::open(&path)?);
//! let (wal, _) = Wal::open(&files, &options, &mut |_| Ok(()))?;
//! let mut batch = Batch::default();
//! batch.push(&Record::Released { session: 1, packet_id: 7 });
//! let ticket = wal.append(&mut batch, Durability::Fsync, SpacePolicy::Ordinary)?;
//! wal.wait(ticket)?;
//! wal.close()?;
//!
//! let mut released = Vec::new();
//! Wal::open(&files, &options, &mut |logged| {
//!     if let Record::Released { packet_id, .. } = logged.record {
//!         released.push(packet_id);
//!     }
//!     Ok(())
//! })?;
//! assert_eq!(released, [7]);
//! # std::fs::remove_dir_all(path)?;
//! # Ok(())
//! # }
//! ```
#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod aside;
mod backup;
mod durable;
mod error;
#[cfg(feature = "faults")]
pub mod faults;
pub mod files;
mod folder;
mod index;
pub mod record;
mod repair;
mod rows;
mod runs;
mod scrub;
#[cfg(feature = "faults")]
mod simulated;
mod stats;
mod store;
#[cfg(feature = "columnar")]
pub mod stream;
#[cfg(not(feature = "columnar"))]
#[path = "stream/none.rs"]
mod stream;
pub mod tools;
pub mod wal;
mod wire;

pub use backup::NOTED;
pub use durable::{DurableStore, StoreOptions};
pub use error::{Damage, StoreError};
pub use index::QueueSummary;
pub use index::restore::KeptSession;
pub use index::rows::{SessionRow, StoredDelivery, StoredMessage, StoredSubscriptions, StoredWill};
#[cfg(feature = "faults")]
pub use simulated::SimulatedStore;
pub use stats::{Durations, LogStats};
pub use store::{MemoryStore, Store, StoreStats};
pub use wal::batch::Batch;
pub use wal::{
    Durability, LogObserver, LogPosition, Logged, Pressure, RecordVisitor, Recovery, SpacePolicy,
    Ticket, TornTail, Wal, WalOptions,
};
pub use wire::BodyError;
