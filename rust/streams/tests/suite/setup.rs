//! A broker with streams of Kafka.

use std::sync::Arc;

use mqttcore_broker::{Broker, Config, Extensions, Hooks, StartError};
use mqttcore_streams::kafka::KafkaConfig;
use mqttcore_streams::{RowStreams, StreamsConfig};

use crate::common::{Home, Plugin, config, copy, settle};

/// What is started.
#[derive(Clone)]
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) kafka: KafkaConfig,
}

impl Setup {
    pub(crate) fn new(kafka: KafkaConfig) -> Self {
        let config = config();
        Self { config, kafka }
    }

    /// The same with data in run `number` of `home`.
    pub(crate) fn over(mut self, home: &Home, number: u32) -> Self {
        self.config.data = Some(home.data(number));
        self
    }

    pub(crate) fn start(self) -> Broker {
        self.start_with(Plugin::default())
    }

    pub(crate) fn start_with(self, plugin: Plugin) -> Broker {
        self.try_start_with(plugin).expect("the broker starts")
    }

    pub(crate) fn try_start_with(self, plugin: Plugin) -> Result<Broker, StartError> {
        let hooks: Arc<dyn Hooks> = Arc::new(plugin);
        let streams = RowStreams::new(StreamsConfig {
            streams: Vec::new(),
            kafka: Some(self.kafka),
        });
        let extensions = Extensions {
            rows: Some(Arc::new(streams)),
            ..Extensions::default()
        };
        Broker::start_with(self.config, &hooks, extensions)
    }

    /// What run 0 of `home` has kept by now, in which `broker` dies, is where the next one begins.
    pub(crate) fn start_after_crash(self, home: &Home, broker: Broker) -> Broker {
        settle(&broker);
        copy(&home.folder(0), &home.folder(1));
        drop(broker);
        self.over(home, 1).start()
    }
}
