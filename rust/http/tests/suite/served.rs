//! A broker with streams and their endpoint.
#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::ops::Deref;
use std::sync::Arc;

use mqttcore_broker::{Broker, Config, Extensions, Hooks, StartError};
use mqttcore_http::{Endpoint, HttpOptions};
use mqttcore_streams::{RowStreams, Stream, StreamsConfig};

use crate::common::{Home, Plugin, config, copy, settle};

/// What is started.
pub(crate) struct Setup {
    pub(crate) config: Config,
    pub(crate) streams: Vec<Stream>,
    pub(crate) http: HttpOptions,
}

impl Setup {
    /// A broker with `streams`, over run 0 of `home`.
    pub(crate) fn new(home: &Home, streams: Vec<Stream>) -> Self {
        let config = Config {
            data: Some(home.data(0)),
            ..config()
        };
        let http = HttpOptions::default();
        Self {
            config,
            streams,
            http,
        }
    }

    pub(crate) fn start(self) -> Served {
        self.try_start().expect("the broker starts")
    }

    pub(crate) fn try_start(self) -> Result<Served, StartError> {
        self.try_start_with(Plugin::default())
    }

    pub(crate) fn try_start_with(self, plugin: Plugin) -> Result<Served, StartError> {
        let hooks: Arc<dyn Hooks> = Arc::new(plugin);
        let streams = Arc::new(RowStreams::new(StreamsConfig {
            streams: self.streams,
            kafka: None,
        }));
        let endpoint = Arc::new(Endpoint::new(Arc::clone(&streams), self.http));
        let extensions = Extensions {
            rows: Some(streams),
            services: vec![endpoint.clone()],
        };
        let broker = Broker::start_with(self.config, &hooks, extensions)?;
        Ok(Served { broker, endpoint })
    }

    /// As [`start`](Self::start), over what run 0 of `home` has kept by now, in which `served` dies.
    pub(crate) fn start_after_crash(mut self, home: &Home, served: Served) -> Served {
        settle(&served.broker);
        copy(&home.folder(0), &home.folder(1));
        drop(served);
        if let Some(data) = &mut self.config.data {
            data.folder = home.folder(1);
        }
        self.start()
    }
}

/// A broker and its endpoint.
pub(crate) struct Served {
    pub(crate) broker: Broker,
    pub(crate) endpoint: Arc<Endpoint>,
}

impl Deref for Served {
    type Target = Broker;

    fn deref(&self) -> &Broker {
        &self.broker
    }
}

/// A stream of one partition.
pub(crate) fn stream(name: &str, filter: &str) -> Stream {
    Stream {
        name: name.into(),
        filters: vec![filter.into()],
        partitions: 1,
        ..Stream::default()
    }
}
