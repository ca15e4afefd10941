//! Streams: messages that matched a filter, as rows with dense offsets a partition.

pub mod columnar;
mod definition;

pub use definition::{Definition, Key};
