//! The durable log: records in, the same records back, whatever happened in between.
//!
//! A [`Journal`] writes [`Batch`]es of typed [`Record`](record::Record)s. Batches that wait are
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
//! use mqttcore_store::{Batch, Journal, JournalOptions, Level, Need};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let path = std::env::temp_dir().join(format!("mqttcore-store-{}", std::process::id()));
//! # let options = JournalOptions { segment_bytes: 4_096, ballast_bytes: 0, ..Default::default() };
//! let files: Arc<dyn Files> = Arc::new(Folder::open(&path)?);
//! let (journal, _) = Journal::open(&files, &options, &mut |_| Ok(()))?;
//! let mut batch = Batch::default();
//! batch.push(&Record::Released { session: 1, packet_id: 7 });
//! let ticket = journal.append(&mut batch, Level::Fsync, Need::Ordinary)?;
//! journal.wait(ticket)?;
//! journal.close()?;
//!
//! let mut released = Vec::new();
//! Journal::open(&files, &options, &mut |logged| {
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
pub mod journal;
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
mod wire;

pub use backup::NOTED;
pub use durable::{DurableStore, StoreOptions};
pub use error::{Damage, StoreError};
pub use index::Waiting;
pub use index::restore::KeptSession;
pub use index::rows::{Delivery, SessionRow, StoredMessage, Subscriptions, Will};
pub use journal::batch::Batch;
pub use journal::{
    Journal, JournalOptions, Level, Logged, Need, Observer, Place, Pressure, Recovery, Ticket,
    Torn, Visit,
};
#[cfg(feature = "faults")]
pub use simulated::SimulatedStore;
pub use stats::{Durations, LogStats};
pub use store::{MemoryStore, Store, StoreStats};
pub use wire::BodyError;
