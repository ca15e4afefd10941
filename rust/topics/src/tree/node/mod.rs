//! The one heap layout of the tree, and the edit that makes and retires blocks.
//!
//! A block is 8 bytes of header (tag: 4, number of words: 2, length of text: 2), then the words of 8 bytes, then the
//! text. A HAMT block is 8 bytes of bitmap, then a word a bit. Neither changes after it was made, with the exception
//! of a group's [`GroupCursor`], which is no block.
//!
//! Who frees: a block is reachable from versions. A writer that replaces a block in a new version retires it in the
//! edit; when the version is published, the retired blocks are freed after a grace period. A failed edit frees what
//! it made, after a grace period too, so that no [`Word`] dangles while its pin lives.

mod block;
mod edit;
mod garbage;
pub(crate) mod word;

pub(crate) use block::{Block, Branches, GROUP_CURSOR_BYTES, GroupCursor, place_of};
pub(crate) use edit::{Edit, HandleLookup, Size};
pub(crate) use garbage::{TreeVersion, clear, clear_with, measure};
