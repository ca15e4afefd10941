//! Streams and their endpoint, where the extension is built with them: the feature `streams`.

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
