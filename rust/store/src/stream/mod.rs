//! Streams: messages that match a filter, as rows with consecutive offsets in each partition.
//!
//! **One log**: a message that is a row is one record, with a list of streams and partitions; the log's thread
//! assigns the offsets when it writes the record. **One tail**: once the record is safe, its rows are visible in
//! memory, as Arrow batches. **One history**: the sealer writes rows from memory into Parquet files and records this
//! in the log, which then does not need them any more.
//!
//! ```text
//! <folder>/streams/<name>/stream.json   what it is: number, partitions, seed, epoch, columns
//!                         sealed.json   which file holds which offsets, and the first that may be read
//!                         sealed.log    files that were sealed since sealed.json was written
//!                         aliases.json  what Sparkplug's aliases mean where the rows in files end
//!                         holds.json    what consumers still need
//!                         data/<partition, 5 digits>-<first offset, 20 digits>.parquet
//! ```

mod definition;
mod error;
mod file_index;
mod history;
mod holds;
mod identity;
pub(crate) mod look;
mod manifest;
mod merging;
pub(crate) mod open;
mod parquet_io;
mod reads;
mod refill;
mod row;
pub(crate) mod sealer;
pub(crate) mod sealing;
mod streams;
mod tail;
mod tier;
mod tier_owner;
mod tier_restore;
mod tier_start;
pub(crate) mod tier_thread;
mod tiering;
mod typed;
mod upload;

pub use definition::{Definition, PartitionKey, ProtobufMessage};
pub use error::StreamError;
pub use holds::HoldLag;
pub use reads::{Bounds, Description, Object};
pub use streams::{KeptTime, StreamFigures, StreamLimits, StreamOptions, Streams};
pub use tier::{Objects, TierOptions, TierReport};
