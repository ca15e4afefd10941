//! A folder that outlives brokers: it is copied as it is, as if one had died there and then.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use mqttcore_broker::{Broker, Config, Data, Durability};

use super::{config, start, v5};

pub const HOUR_S: u32 = 3_600;

/// A folder of this test's own, gone with it.
pub struct Home(PathBuf);

impl Home {
    pub fn new() -> Self {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("mqttcore-durable-{}-{made}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    /// The folder itself, made now.
    pub fn path(&self) -> &Path {
        fs::create_dir_all(&self.0).expect("a folder");
        &self.0
    }

    pub fn folder(&self, number: u32) -> PathBuf {
        self.0.join(number.to_string())
    }

    /// Run `number` as the place of data.
    pub fn data(&self, number: u32) -> Data {
        Data {
            folder: self.folder(number),
            durability: Durability::Os,
        }
    }

    /// A broker over run `number` of the folder.
    pub fn start(&self, number: u32) -> Broker {
        self.start_with(number, config())
    }

    /// The same with a configuration; data are kept as it says.
    pub fn start_with(&self, number: u32, config: Config) -> Broker {
        let durability = config
            .data
            .as_ref()
            .map_or(Durability::Os, |data| data.durability);
        let folder = self.folder(number);
        start(Config {
            data: Some(Data { folder, durability }),
            ..config
        })
    }

    /// What run `number` has kept by now is where the next one begins.
    pub fn crash(&self, broker: Broker, number: u32) -> Broker {
        self.crash_with(broker, number, config())
    }

    /// The same, and the next run has this configuration.
    pub fn crash_with(&self, broker: Broker, number: u32, config: Config) -> Broker {
        settle(&broker);
        copy(&self.folder(number), &self.folder(number + 1));
        drop(broker);
        self.start_with(number + 1, config)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // What cannot be removed is left to the system.
        let _ = fs::remove_dir_all(&self.0);
    }
}

pub fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a folder") {
        let entry = entry.expect("a file");
        let kind = entry.file_type().expect("a kind of file");
        let (path, name) = (entry.path(), entry.file_name());
        if kind.is_dir() {
            copy(&path, &to.join(name));
        } else if kind.is_file() && name != "ballast" && name != "lock" {
            fs::copy(&path, to.join(name)).expect("a copy");
        }
    }
}

/// Waits until everything that was handed to the store so far is kept.
pub fn settle(broker: &Broker) {
    let later = v5("later").clean_start().expiring_s(HOUR_S);
    later.connect(broker).disconnect();
}
