//! Seeded inputs shared by every bench.
#![warn(missing_docs)]

pub mod load;
pub mod workload;
