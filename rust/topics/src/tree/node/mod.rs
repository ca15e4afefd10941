//! The heap layout of the tree, and the edit that makes and retires blocks.
//!
//! A block has a header of 8 bytes (tag: 4, number of words: 2, length of text: 2), then words of 8 bytes, then the
//! text. A HAMT block has a bitmap of 8 bytes, then one word for each set bit. Blocks never change after they were
//! made. A group's [`GroupCursor`] does change; it is not a block.
//!
//! Freeing: blocks are reachable from versions. A writer that replaces a block in a new version retires it in the
//! edit. When the version is published, the retired blocks are freed after a grace period. A failed edit also frees
//! its blocks after a grace period, so that no [`Word`] dangles while its pin lives.

mod block;
mod edit;
mod garbage;
pub(crate) mod word;

pub(crate) use block::{Block, Branches, GROUP_CURSOR_BYTES, GroupCursor, place_of};
pub(crate) use edit::{Edit, HandleLookup, Size};
pub(crate) use garbage::{TreeVersion, clear, clear_with, measure};
