//! Seeded inputs shared by every bench, the load generator, and churn of the subscription directory.
#![warn(missing_docs)]

pub mod ceiling;
pub mod load;
pub mod numbered;
pub mod stress;
pub mod workload;
