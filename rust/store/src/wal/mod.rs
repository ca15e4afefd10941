//! The write-ahead log: segments of records, written in groups; after a crash each group is
//! complete or absent.
//!
//! All numbers are little endian. A **segment** is one file `<number, 20 digits>.log`, created at
//! its full size and filled with zeros:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-7 | magic `mqttlog\0` |
//! | 8-11 | format version, 1 |
//! | 12-15 | bit 0: the next segment has been made and is safe |
//! | 16-31 | identifier of the store |
//! | 32-39 | number of the segment |
//! | 40-47 | LSN of its first record |
//! | 48-55 | size of the file; 0 if it is not known |
//! | 56-59 | zero |
//! | 60-63 | CRC32C of bytes 0-59 |
//!
//! Then **frames**, one after the other:
//!
//! | bytes | field |
//! | --- | --- |
//! | 0-3 | length of what follows the checksum, at least 10; 0 is the end |
//! | 4-7 | CRC32C, begun with the identifier of the store and the number of the segment, over bytes 0-3 and 8 to the end |
//! | 8-15 | LSN |
//! | 16 | type |
//! | 17 | flags |
//! | 18.. | body |
//!
//! LSNs grow by one from record to record. A **commit marker** (type 255) closes each group; it
//! repeats the LSN of the last record before it. Its body: number of records of the group
//! (`u32`), CRC32C of their checksums (`u32`), and the *durable LSN* (`u64`): the last LSN that
//! was synced when the marker was written.
//!
//! The loss of a file must be detected. Each segment with a successor has bit 0 set; a checkpoint
//! that names the store implies a log with at least one segment; and each header has the size of
//! its file. `wal/identity.rs` compares them.
//!
//! The durable LSN distinguishes a torn tail from damage. After a power cut, sectors that were
//! written after the last sync may be old or new in any mixture. If a record up to the durable
//! LSN of any marker cannot be read, the log is damaged.

pub(crate) mod batch;
pub(crate) mod commit;
pub(crate) mod frame;
pub(crate) mod identity;
pub(crate) mod log;
pub(crate) mod numbering;
pub(crate) mod open;
pub(crate) mod queue;
pub(crate) mod salvage;
pub(crate) mod scan;
pub(crate) mod segment;
pub(crate) mod shared;
pub(crate) mod writer;
pub(crate) mod writing;

pub use commit::Pressure;
pub use log::{LogObserver, Wal, WalOptions};
pub use open::{LogPosition, Logged, RecordVisitor, Recovery, TornTail};
pub use queue::{Durability, SpacePolicy, Ticket};

#[cfg(test)]
mod tests;
