//! Seeded inputs shared by every bench, the load generator, and the peers of the subscription directory.
#![warn(missing_docs)]

#[path = "../contenders/mod.rs"]
pub mod contenders;
pub mod load;
pub mod report;
pub mod stress;
pub mod workload;
