//! The persistent tree: blocks, words, lookups, and changes by copying paths.

pub(crate) mod hamt;
pub(crate) mod hash;
pub(crate) mod lookup;
pub(crate) mod node;
mod path;
pub(crate) mod update;

pub(crate) use node::word;
