//! Errors of parsing topic names, topic filters and shared subscriptions.

use thiserror::Error;

/// An invalid topic name or filter.
///
/// A wildcard in a topic *name* is an error of its own, because it has its own reason code (0x90, Topic Name
/// invalid). A misplaced wildcard in a *filter* is 0x8F.
#[derive(Clone, Copy, Debug, Eq, Error, Hash, PartialEq)]
#[non_exhaustive]
pub enum TopicError {
    /// The text is empty.
    #[error("[MQTT-4.7.3-1] topic is empty")]
    Empty,
    /// The text contains U+0000.
    #[error("[MQTT-4.7.3-2] topic contains a null character")]
    NullCharacter,
    /// The text is longer than the limit, or than 65,535 bytes.
    #[error("[MQTT-4.7.3-3] topic is longer than the limit")]
    TooLong,
    /// The text has more levels than the limit.
    #[error("topic has more levels than the limit")]
    TooManyLevels,
    /// The text contains a control character or a Unicode non-character, and the limits refuse them.
    #[error("[MQTT5 1.5.4] topic contains a control character or a non-character")]
    ControlCharacter,
    /// A topic name contains `+` or `#`.
    #[error("[MQTT-4.7.0-1] topic name contains a wildcard")]
    WildcardInName,
    /// `#` is not the last level of a filter, or not alone in its level.
    #[error("[MQTT-4.7.1-1] `#` is not alone in the last level")]
    MisplacedMultiLevelWildcard,
    /// `+` is not alone in its level.
    #[error("[MQTT-4.7.1-2] `+` is not alone in its level")]
    MisplacedSingleLevelWildcard,
    /// `$share/` is followed by an empty share name.
    #[error("[MQTT-4.8.2-1] share name is empty")]
    EmptyShareName,
    /// The share name contains `+` or `#`.
    #[error("[MQTT-4.8.2-2] share name contains a wildcard")]
    WildcardInShareName,
    /// No topic filter follows the share name.
    #[error("[MQTT-4.8.2-2] share name is not followed by a topic filter")]
    ShareWithoutFilter,
    /// A mount point begins with `$`; such topics are outside of all mount points.
    #[error("mount point begins with `$`")]
    MountPointBeginsWithDollar,
}

impl TopicError {
    /// Returns the id of the violated statement of MQTT 5.0; empty for a limit of the broker.
    pub fn statement(self) -> &'static str {
        match self {
            Self::Empty => "MQTT-4.7.3-1",
            Self::NullCharacter => "MQTT-4.7.3-2",
            Self::TooLong => "MQTT-4.7.3-3",
            Self::TooManyLevels | Self::ControlCharacter | Self::MountPointBeginsWithDollar => "",
            Self::WildcardInName => "MQTT-4.7.0-1",
            Self::MisplacedMultiLevelWildcard => "MQTT-4.7.1-1",
            Self::MisplacedSingleLevelWildcard => "MQTT-4.7.1-2",
            Self::EmptyShareName => "MQTT-4.8.2-1",
            Self::WildcardInShareName | Self::ShareWithoutFilter => "MQTT-4.8.2-2",
        }
    }
}
