//! The will message.

use crate::message::Message;

/// A checked will, as CONNECT brought it.
#[derive(Clone, Debug)]
pub struct WillMessage {
    /// What will be published; its expiry only begins then.
    pub message: Message,
    /// The Will Delay Interval in seconds.
    pub delay_s: u32,
}
