//! Explains what would happen to a message or a request, without doing anything (ADR 0056).
//!
//! The answers come from the functions that publishing and delivery use; no rule is repeated here.

mod access;
mod delivery;
mod delivery_watch;
mod error;
pub(crate) mod history;
mod publisher;
mod receiver;
mod step;
mod trial;
mod verdict;

pub use access::AccessQuestion;
pub use delivery::{DeliveryQuestion, ExplainedDelivery};
pub use delivery_watch::{DeliveryWatch, WatchedDelivery};
pub use error::{EXPLAINED_BYTES_MAX, ExplainError};
pub use history::{EventQuery, PastEvent, PastEvents};
pub use receiver::{ExplainedReceiver, ReceiverPosition};
pub use step::ExplainedStep;
pub use verdict::Verdict;
