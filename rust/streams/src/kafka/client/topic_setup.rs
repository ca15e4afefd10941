//! Finds or creates the topics of Kafka, and reads their settings, before the broker starts.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{
    AdminClient, AdminOptions, ConfigResource, NewTopic, OwnedResourceSpecifier, ResourceSpecifier,
    TopicReplication,
};
use rdkafka::client::DefaultClientContext;
use rdkafka::error::KafkaError as ClientError;
use rdkafka::metadata::MetadataTopic;
use rdkafka::types::RDKafkaErrorCode;

use super::{KafkaClient, KafkaError, KafkaStream, KafkaTopic, RECORD_BYTES, token};

/// Timeout of the request for the settings of topics.
const TELLING: Duration = Duration::from_secs(3);

/// Finds topics, creates missing ones, and reads their settings.
pub(super) struct TopicSetup<'a> {
    client: &'a KafkaClient,
    admin: AdminClient<DefaultClientContext>,
    runtime: tokio::runtime::Runtime,
    deadline: Instant,
}

impl<'a> TopicSetup<'a> {
    pub(super) fn new(client: &'a KafkaClient) -> Result<Self, KafkaError> {
        let admin = client.config().create();
        let admin: AdminClient<_> =
            admin.map_err(|error: ClientError| client.unreachable(&error))?;
        if let Some(path) = client.security.token_file() {
            let given = token::read(path).and_then(|token| token::give(admin.inner(), token));
            given.map_err(|error| client.unreachable(&error))?;
        }
        let runtime = tokio::runtime::Builder::new_current_thread().build();
        Ok(Self {
            client,
            admin,
            runtime: runtime.map_err(|error| client.unreachable(&error))?,
            deadline: Instant::now() + client.start_deadline,
        })
    }

    pub(super) fn find(&self, streams: &[KafkaStream]) -> Result<Vec<KafkaTopic>, KafkaError> {
        let mut known = self.topics()?;
        let missing = streams.iter();
        let missing: Vec<_> = missing
            .filter(|stream| !known.contains_key(&stream.topic))
            .collect();
        for stream in &missing {
            self.make(stream)?;
        }
        while streams.iter().any(|stream| !is_ready(&known, stream)) {
            if missing.is_empty() || Instant::now() >= self.deadline {
                break;
            }
            known = self.topics()?;
        }
        let settings = self.settings(streams);
        let topics = streams.iter().map(|stream| {
            let partitions = known.get(&stream.topic).map_or(&[][..], Vec::as_slice);
            describe(stream, partitions, settings.get(&stream.topic))
        });
        topics.collect()
    }

    /// The number of replicas of each partition, by topic; empty for a topic that Kafka does not have.
    fn topics(&self) -> Result<HashMap<String, Vec<u16>>, KafkaError> {
        let client = self.admin.inner();
        let metadata = client.fetch_metadata(None, self.left());
        let metadata = metadata.map_err(|error| self.client.without_answer(&error))?;
        let topics = metadata.topics().iter();
        Ok(topics
            .map(|topic| (topic.name().to_owned(), copies(topic)))
            .collect())
    }

    fn make(&self, stream: &KafkaStream) -> Result<(), KafkaError> {
        // The cluster's default number of replicas.
        let replication = TopicReplication::Fixed(-1);
        let new = NewTopic::new(&stream.topic, stream.partitions.into(), replication);
        let made = self.admin.create_topics([&new], &self.options());
        let made = self.runtime.block_on(made);
        match made.map(|results| results.into_iter().next()) {
            Ok(Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists)) | Ok(_)) | None) => Ok(()),
            Ok(Some(Err((_, code)))) => Err(refuse(stream, format!("cannot be created: {code}"))),
            Err(error) => Err(refuse(stream, format!("cannot be created: {error}"))),
        }
    }

    /// The settings of each topic. Topics that Kafka does not describe are left out: the broker starts nevertheless,
    /// but it cannot tell the number of replicas.
    fn settings(&self, streams: &[KafkaStream]) -> HashMap<String, ConfigResource> {
        let topics = streams.iter();
        let topics = topics.map(|stream| ResourceSpecifier::Topic(&stream.topic));
        let topics: Vec<_> = topics.collect();
        let options = self.options().request_timeout(Some(TELLING));
        let asked = self.admin.describe_configs(&topics, &options);
        let answers = self.runtime.block_on(asked).unwrap_or_default();
        let settings = answers.into_iter().filter_map(|answer| {
            let resource = answer.ok()?;
            let OwnedResourceSpecifier::Topic(name) = &resource.specifier else {
                return None;
            };
            Some((name.clone(), resource))
        });
        settings.collect()
    }

    fn options(&self) -> AdminOptions {
        let left = Some(self.left());
        AdminOptions::new()
            .request_timeout(left)
            .operation_timeout(left)
    }

    fn left(&self) -> Duration {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left.max(Duration::from_millis(100))
    }
}

/// Describes the topic of `stream`; `partitions` holds the number of replicas of each partition.
fn describe(
    stream: &KafkaStream,
    partitions: &[u16],
    settings: Option<&ConfigResource>,
) -> Result<KafkaTopic, KafkaError> {
    if partitions.len() < usize::from(stream.partitions) {
        let (has, asked) = (partitions.len(), stream.partitions);
        let why = format!("has {has} partitions, but {asked} are configured");
        return Err(refuse(stream, why));
    }
    let copies = partitions.iter().copied().min().unwrap_or(0);
    let value = |name| settings?.get(name)?.value.as_deref();
    let in_sync = value("min.insync.replicas").and_then(|text| text.parse::<u16>().ok());
    let record_bytes = value("max.message.bytes").and_then(|text| text.parse().ok());
    Ok(KafkaTopic {
        copies,
        in_sync: in_sync.map(|least| least.min(copies)),
        record_bytes: record_bytes.unwrap_or(RECORD_BYTES),
    })
}

fn refuse(stream: &KafkaStream, why: String) -> KafkaError {
    KafkaError::Topic {
        stream: stream.name.clone(),
        topic: stream.topic.clone(),
        why,
    }
}

fn copies(topic: &MetadataTopic) -> Vec<u16> {
    let partitions = topic.partitions().iter();
    partitions
        .map(|partition| u16::try_from(partition.replicas().len()).unwrap_or(u16::MAX))
        .collect()
}

fn is_ready(known: &HashMap<String, Vec<u16>>, stream: &KafkaStream) -> bool {
    let partitions = known.get(&stream.topic).map_or(0, Vec::len);
    partitions >= usize::from(stream.partitions)
}
