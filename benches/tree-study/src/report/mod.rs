//! `make tree-report`: the subscription directory beside its peers, in one process, and which goals it meets.

pub mod clock;
mod compared;
pub mod goals;
pub mod grid;
pub mod heap;
pub mod memory;
pub mod options;
pub mod page;
pub mod peer;
pub mod plots;
pub mod progress;
pub mod threads;
