//! The will message.

use crate::message::Message;

/// A checked will of a CONNECT.
#[derive(Clone, Debug)]
pub struct WillMessage {
    /// The message to publish; its expiry starts when it is published.
    pub message: Message,
    /// The Will Delay Interval in seconds.
    pub delay_s: u32,
}
