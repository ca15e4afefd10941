//! The store of the broker: a write-ahead log of typed records, an index with checkpoints, and
//! the rows of streams.
//!
//! A [`Wal`] writes [`Batch`]es of typed [`Record`](record::Record)s. Queued batches are written
//! together and synced once (group commit). When [`Wal::wait`] returns for a [`Ticket`], its
//! batch survives a crash. After a crash, each batch is complete or absent, and every
//! acknowledged batch is complete.
//!
//! The crate knows neither sessions nor sockets. It never guesses: a durable record that cannot
//! be read is an error and is not skipped; an incomplete group that was never acknowledged is cut
//! off and reported.
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
mod stream_name;
pub mod tools;
pub mod wal;
mod wire;

pub use backup::{CopyProgress, NOTED};
pub use durable::{DurableStore, StoreOptions};
pub use error::{Damage, StoreError};
pub use index::QueueSummary;
#[cfg(feature = "faults")]
#[doc(hidden)]
pub use index::fuzzing;
pub use index::restore::KeptSession;
pub use index::rows::{SessionRow, StoredDelivery, StoredMessage, StoredSubscriptions, StoredWill};
#[cfg(feature = "faults")]
pub use simulated::SimulatedStore;
pub use stats::{Durations, LogStats};
pub use store::{MemoryStore, Store, StoreStats};
pub use stream_name::is_stream_name;
pub use wal::batch::Batch;
pub use wal::{
    Durability, LogObserver, LogPosition, Logged, Pressure, RecordVisitor, Recovery, SpacePolicy,
    Ticket, TornTail, Wal, WalOptions,
};
pub use wire::BodyError;
