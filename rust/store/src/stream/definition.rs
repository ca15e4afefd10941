//! Definition of a stream, and the partition of a message.

use std::time::Duration;

use twox_hash::XxHash3_64;

use crate::stream::tier::TierOptions;

/// Configuration of a stream.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Definition {
    /// Name of the stream, its folder and its part of URLs: `[a-z0-9][a-z0-9_-]{0,63}`.
    pub name: String,
    /// Topic filters of its messages; the store only reports them to readers.
    pub filters: Vec<String>,
    /// Number of partitions, at least 1; it cannot change later.
    pub partitions: u16,
    /// The key that selects the partition.
    pub key: PartitionKey,
    /// Retention age: older files are removed.
    pub retention_age: Option<Duration>,
    /// Total size of sealed files in bytes; above it the oldest files are removed.
    pub retention_bytes: Option<u64>,
    /// How long retention waits for a consumer that does not renew its hold; `None`: seven days.
    pub hold_max: Option<Duration>,
    /// Format of payloads for typed columns; `None` without such columns.
    pub decode: Option<String>,
    /// The message type of payloads in Protocol Buffers.
    pub protobuf: Option<ProtobufMessage>,
    /// The schemas of payloads in Avro: a JSON object of schemas by number.
    pub avro: Option<Vec<u8>>,
    /// Typed columns in addition to the common ones: names and types.
    pub columns: Vec<(String, String)>,
    /// Number of the group that may read sealed files.
    pub group: Option<u32>,
    /// Object storage for its sealed files.
    pub tier: Option<TierOptions>,
}

/// A message type of Protocol Buffers.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct ProtobufMessage {
    /// A `FileDescriptorSet` with the message type and its dependencies.
    pub descriptor: Vec<u8>,
    /// Full name of the message type.
    pub name: String,
}

/// The key of a partition: rows with the same key stay in order.
#[derive(Clone, Copy, Debug, Default, Eq, Hash, PartialEq)]
pub enum PartitionKey {
    /// The topic.
    #[default]
    Topic,
    /// The publisher's client identifier.
    ClientId,
    /// Group and edge node of a Sparkplug topic; for other topics, the topic.
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

    /// Returns the partition of a message, one of `partitions`; it never changes.
    ///
    /// The partition is the remainder of the 64-bit xxh3 hash, with `seed`, of the bytes of the key; group and edge
    /// node are joined by a slash.
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

    /// Values of the reference implementation, which other versions and languages must give, too.
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
