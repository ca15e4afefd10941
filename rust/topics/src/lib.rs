//! Topic names and filters, the directory of subscriptions, and the store of retained values.
//!
//! A text is parsed once ([`TopicName`], [`TopicFilter`], [`SubscriptionFilter`]) and not checked again. The
//! [`Directory`] finds the subscribers of a message; its readers take no lock, its writers replace one root.
//!
//! The crate uses no sockets, clocks, threads or randomness: seeds and random words are arguments, and the
//! caller decides when removed subscribers are cleaned.
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
