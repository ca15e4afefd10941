//! Configuration of streams and their HTTP endpoint; empty without the feature `streams`.

#[cfg(feature = "streams")]
mod kafka;
#[cfg(not(feature = "streams"))]
mod none;
#[cfg(feature = "streams")]
mod streams;

#[cfg(not(feature = "streams"))]
pub(crate) use none::Rows;
#[cfg(feature = "streams")]
pub(crate) use streams::Rows;
