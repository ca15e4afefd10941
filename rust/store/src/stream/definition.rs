//! Definition of a stream, and the partition of a message.

use std::time::Duration;

use twox_hash::XxHash3_64;

/// What a stream is.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Definition {
    /// A folder, and a part of URLs: `[a-z0-9][a-z0-9_-]{0,63}`.
    pub name: String,
    /// Messages to topics that one of these matches are its rows; the store only tells readers.
    pub filters: Vec<String>,
    /// At least one; the number stays as it was first.
    pub partitions: u16,
    /// What decides about the partition.
    pub key: PartitionKey,
    /// What is older goes.
    pub retention_age: Option<Duration>,
    /// Bytes of sealed files, over all partitions, above which the oldest go.
    pub retention_bytes: Option<u64>,
    /// For how long retention waits for a consumer that says nothing; `None`: seven days.
    pub hold_max: Option<Duration>,
    /// How payloads are read for the typed columns; `None` without such columns.
    pub decode: Option<String>,
    /// For payloads that are messages of Protocol Buffers: which.
    pub protobuf: Option<ProtobufMessage>,
    /// Typed columns beside those that every stream has: names and types.
    pub columns: Vec<(String, String)>,
    /// The group that may read sealed files, by its number.
    pub group: Option<u32>,
}

/// What payloads are that are messages of Protocol Buffers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProtobufMessage {
    /// A `FileDescriptorSet` that declares the message and everything that it needs.
    pub descriptor: Vec<u8>,
    /// Its full name.
    pub name: String,
}

/// What rows have in common that stay in order.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PartitionKey {
    /// Their topic.
    #[default]
    Topic,
    /// Their publisher.
    ClientId,
    /// Group and edge node of Sparkplug topics; else the topic.
    Sparkplug,
}

impl PartitionKey {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::ClientId => "client_id",
            Self::Sparkplug => "sparkplug",
        }
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let all = [Self::Topic, Self::ClientId, Self::Sparkplug];
        all.into_iter().find(|key| key.name() == name)
    }

    /// Returns the partition, one of `partitions`, of a message: the same for ever.
    ///
    /// It is the remainder of the 64-bit xxh3 hash, with `seed`, of the bytes of the key; those of
    /// group and edge node are joined by a slash.
    pub fn partition(self, seed: u64, partitions: u16, topic: &str, client_id: &str) -> u16 {
        let sparkplug = (self == Self::Sparkplug)
            .then(|| edge_node(topic))
            .flatten();
        let hash = match (self, sparkplug) {
            (Self::ClientId, _) => XxHash3_64::oneshot_with_seed(seed, client_id.as_bytes()),
            (_, Some((group, node))) => {
                let key = [group.as_bytes(), b"/", node.as_bytes()].concat();
                XxHash3_64::oneshot_with_seed(seed, &key)
            }
            _ => XxHash3_64::oneshot_with_seed(seed, topic.as_bytes()),
        };
        // INVARIANT: the remainder is below a `u16`.
        u16::try_from(hash % u64::from(partitions.max(1))).expect("a remainder")
    }
}

/// Group and edge node of a topic `spBv1.0/group/type/node...`.
fn edge_node(topic: &str) -> Option<(&str, &str)> {
    let mut levels = topic.strip_prefix("spBv1.0/")?.split('/');
    let (group, _, node) = (levels.next()?, levels.next()?, levels.next()?);
    Some((group, node))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the reference implementation: another version, or another language, agrees.
    #[test]
    fn a_topic_has_the_partition_of_the_reference_hash() {
        assert_eq!(XxHash3_64::oneshot_with_seed(0, b""), 0x2D06_8005_38D3_94C2);
        let hash = XxHash3_64::oneshot_with_seed(7, b"plant/1/temperature");
        let expected = u16::try_from(hash % 5).unwrap();
        assert_eq!(
            PartitionKey::Topic.partition(7, 5, "plant/1/temperature", "c"),
            expected
        );
    }

    #[test]
    fn what_one_edge_node_says_is_in_one_partition() {
        let partition = |topic| PartitionKey::Sparkplug.partition(1, 1_000, topic, "host");

        assert_eq!(
            partition("spBv1.0/g/NBIRTH/n"),
            partition("spBv1.0/g/DDATA/n/d")
        );
        assert_ne!(
            partition("spBv1.0/g/NBIRTH/n"),
            partition("spBv1.0/g/NBIRTH/m")
        );
        assert_eq!(
            partition("other/t"),
            PartitionKey::Topic.partition(1, 1_000, "other/t", "")
        );
    }

    #[test]
    fn what_one_publisher_says_is_in_one_partition() {
        let partition = |topic| PartitionKey::ClientId.partition(1, 1_000, topic, "meter-1");

        assert_eq!(partition("a"), partition("b"));
    }
}
