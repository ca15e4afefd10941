//! Topic names and filters, and the directory of who subscribed to what.
//!
//! A text is parsed once ([`TopicName`], [`TopicFilter`], [`SubscriptionFilter`]) and only matched from then on.
//! The [`Directory`] answers who gets a message; its readers take no lock, its writers replace one root.
//!
//! The crate refuses to know sockets, clocks, threads and randomness: seeds and random words are arguments, and
//! cleaning up happens when the caller says so.
//!
//! ```
//! use mqttcore_topics::{TopicFilter, TopicLimits, TopicName};
//!
//! let limits = TopicLimits::default();
//! let filter = TopicFilter::parse("sensors/+/temperature", &limits)?;
//!
//! assert!(filter.matches(TopicName::parse("sensors/7/temperature", &limits)?));
//! # Ok::<(), mqttcore_topics::TopicError>(())
//! ```
#![warn(missing_docs)]

mod delivery;
mod directory;
mod error;
mod filter;
mod levels;
mod limits;
mod mount;
mod name;
mod retained;
mod share;
mod subscribers;
mod sync;
mod tree;

pub use delivery::{MAX_SUBSCRIPTION_ID, Match, Options, Search, Strategy, SubscriberId, Visitor};
pub use directory::{
    Change, ChangeOutcome, ChangeOutcomes, Directory, DirectoryStats, Listing, MatchCache, Snapshot,
};
pub use error::TopicError;
pub use filter::TopicFilter;
pub use limits::{MAX_BYTES, MAX_LEVELS, TopicLimits};
pub use mount::MountPoint;
pub use name::{TopicName, TopicNameBuf};
pub use retained::{RetainedCursor, RetainedStore};
pub use share::{ShareName, SubscriptionFilter};
