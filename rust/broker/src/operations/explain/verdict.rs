//! The closed list of verdicts.

/// The result of one step, or for one receiver.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
#[non_exhaustive]
pub enum Verdict {
    /// The step lets the message pass.
    Passed,
    /// The client's rules deny the publish.
    DeniedPublish,
    /// The client's rules deny the subscription.
    DeniedSubscribe,
    /// A deny rule of the receiver matches the topic.
    DeniedReceive,
    /// The topic or the filter is outside of the client's mount point.
    DeniedMountPoint,
    /// A plugin decides when the client sends it.
    DependsOnPlugin,
    /// The client has not connected since the broker started: its rules are decided at CONNECT.
    UnknownRights,
    /// The topic is not a valid topic name, or it exceeds the limits of topics.
    RefusedTopic,
    /// A limit of the publisher.
    RefusedLimit,
    /// The disk is nearly full.
    RefusedDisk,
    /// Memory is short.
    RefusedMemory,
    /// A queue is full, and the queue policy refuses the message.
    RefusedQueueFull,
    /// The search for subscribers takes too many steps.
    RefusedFilters,
    /// Kafka does not accept the message.
    RefusedKafka,
    /// The publisher cannot be informed of a failure, so it waits until a queue has room.
    WaitingQueueRoom,
    /// The message is sent to the receiver at once.
    Delivered,
    /// It is queued until the client acknowledges earlier messages.
    WaitingQuota,
    /// It is queued behind earlier messages.
    WaitingEarlier,
    /// It is queued until the client connects.
    WaitingOffline,
    /// The queue is full.
    DroppedQueueFull,
    /// QoS 0, and the client reads too slowly.
    DroppedBacklog,
    /// QoS 0, memory is short, and the message would wait.
    DroppedMemory,
    /// The message has expired.
    DroppedExpired,
    /// The packet exceeds the client's Maximum Packet Size.
    DroppedTooLarge,
    /// QoS 0, and the client is not connected.
    DroppedOffline,
    /// The session has ended.
    DroppedSessionEnded,
    /// The client has no subscription that matches the topic.
    NoSubscription,
    /// All matching subscriptions have No Local, and the receiver is the publisher.
    NoLocal,
    /// Only shared subscriptions of the client match, and another member is chosen.
    SharedWentTo,
    /// The shard of the receiver did not answer.
    Unknown,
}

impl Verdict {
    /// All verdicts.
    pub const ALL: [Self; 30] = [
        Self::Passed,
        Self::DeniedPublish,
        Self::DeniedSubscribe,
        Self::DeniedReceive,
        Self::DeniedMountPoint,
        Self::DependsOnPlugin,
        Self::UnknownRights,
        Self::RefusedTopic,
        Self::RefusedLimit,
        Self::RefusedDisk,
        Self::RefusedMemory,
        Self::RefusedQueueFull,
        Self::RefusedFilters,
        Self::RefusedKafka,
        Self::WaitingQueueRoom,
        Self::Delivered,
        Self::WaitingQuota,
        Self::WaitingEarlier,
        Self::WaitingOffline,
        Self::DroppedQueueFull,
        Self::DroppedBacklog,
        Self::DroppedMemory,
        Self::DroppedExpired,
        Self::DroppedTooLarge,
        Self::DroppedOffline,
        Self::DroppedSessionEnded,
        Self::NoSubscription,
        Self::NoLocal,
        Self::SharedWentTo,
        Self::Unknown,
    ];

    /// The verdict as a word for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Passed => "ok",
            Self::DeniedPublish => "denied:publish",
            Self::DeniedSubscribe => "denied:subscribe",
            Self::DeniedReceive => "denied:receive",
            Self::DeniedMountPoint => "denied:mount-point",
            Self::DependsOnPlugin => "depends:plugin",
            Self::UnknownRights => "unknown:not-connected",
            Self::RefusedTopic => "refused:topic",
            Self::RefusedLimit => "refused:limit",
            Self::RefusedDisk => "refused:disk",
            Self::RefusedMemory => "refused:memory",
            Self::RefusedQueueFull => "refused:queue-full",
            Self::RefusedFilters => "refused:too-many-filters",
            Self::RefusedKafka => "refused:kafka",
            Self::WaitingQueueRoom => "waiting:queue-room",
            Self::Delivered => "delivered",
            Self::WaitingQuota => "waiting:quota",
            Self::WaitingEarlier => "waiting:earlier",
            Self::WaitingOffline => "waiting:offline",
            Self::DroppedQueueFull => "dropped:queue-full",
            Self::DroppedBacklog => "dropped:backlog",
            Self::DroppedMemory => "dropped:memory",
            Self::DroppedExpired => "dropped:expired",
            Self::DroppedTooLarge => "dropped:too-large",
            Self::DroppedOffline => "dropped:offline-qos0",
            Self::DroppedSessionEnded => "dropped:session-ended",
            Self::NoSubscription => "not-matched:no-subscription",
            Self::NoLocal => "not-matched:no-local",
            Self::SharedWentTo => "not-matched:shared-went-to",
            Self::Unknown => "unknown:no-answer",
        }
    }

    /// Whether no receiver gets the message.
    pub fn is_refusal(self) -> bool {
        let name = self.name();
        name.starts_with("denied:") || name.starts_with("refused:")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn each_verdict_has_a_name_of_its_own() {
        let names: HashSet<_> = Verdict::ALL.iter().map(|verdict| verdict.name()).collect();

        assert_eq!(names.len(), Verdict::ALL.len());
    }
}
