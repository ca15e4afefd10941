//! The subscription directory beside those of other brokers: a study that `make tree-report` runs anew.
#![warn(missing_docs)]

pub mod contenders;
pub mod report;

// Shared with the benches, and nothing else of them: they build what the study has no need of.
#[path = "../../src/numbered.rs"]
pub mod numbered;
#[path = "../../src/workload.rs"]
pub mod workload;
