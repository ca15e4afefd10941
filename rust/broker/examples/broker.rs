//! The engine alone, without Python: for profilers and for a quick look.
//!
//! `cargo run --release -p mqttcore-broker --example broker -- 127.0.0.1:1883 2`, the latter being the number of
//! shards; ends with its standard input.

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use mqttcore_broker::{Broker, Config, Grant, Hooks, Listener, NoHooks};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or("127.0.0.1:1883".into());
    let defaults = Config::default();
    let shards = arguments.next().map(|shards| shards.parse()).transpose()?;
    let config = Config {
        shards: shards.unwrap_or(defaults.shards),
        listeners: vec![Listener {
            anonymous: Some(Grant::everything()),
            ..Listener::new("local", address.parse()?)
        }],
        ..defaults
    };
    let hooks: Arc<dyn Hooks> = Arc::new(NoHooks);
    let broker = Broker::start(config, &hooks)?;
    eprintln!("listening on {:?}", broker.addresses());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    broker.stop(Duration::from_secs(1));
    Ok(())
}
