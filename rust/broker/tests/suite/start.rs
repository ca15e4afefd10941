//! The order in which a broker starts.

use std::io::ErrorKind;
use std::net::{SocketAddr, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mqttcore_broker::{
    Broker, BrokerHandle, Config, Extensions, Figure, Figures, Hooks, Listener, Service,
    ServiceError, StartError, Stats,
};

use crate::common::{Plugin, config};

/// An address of this process alone: the test needs to know the port before it is bound.
fn own_address(number: u8) -> SocketAddr {
    let [high, low, ..] = std::process::id().to_le_bytes();
    ([127, 100 + number, high, low.max(1)], 18_830).into()
}

/// A service that connects to a listener while it starts.
struct Visitor {
    address: SocketAddr,
    found: Mutex<Option<ErrorKind>>,
}

impl Figures for Visitor {
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn memory_bytes(&self) -> usize {
        0
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl Service for Visitor {
    fn start(&self, _: &BrokerHandle, _: &Config) -> Result<(), ServiceError> {
        let found = TcpStream::connect(self.address);
        *self.found.lock().expect("not poisoned") = found.err().map(|error| error.kind());
        Ok(())
    }

    fn begin_to_stop(&self, _: Duration) {}

    fn stop(&self) {}
}

fn start(address: SocketAddr, services: Vec<Arc<dyn Service>>) -> Result<Broker, StartError> {
    let listeners = vec![Listener::new("test", address)];
    let config = Config {
        listeners,
        ..config()
    };
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let extensions = Extensions {
        services,
        ..Extensions::default()
    };
    Broker::start_with(config, &hooks, extensions)
}

#[test]
fn no_client_connects_before_all_services_have_started() {
    let address = own_address(0);
    let visitor = Arc::new(Visitor {
        address,
        found: Mutex::default(),
    });

    let _broker = start(address, vec![Arc::clone(&visitor) as _]).expect("it starts");

    let found = *visitor.found.lock().expect("not poisoned");
    assert_eq!(found, Some(ErrorKind::ConnectionRefused));
    TcpStream::connect(address).expect("clients can connect now");
}

#[test]
fn of_two_brokers_that_start_at_the_same_port_one_fails() {
    /// A service that starts another broker at the port of its own.
    struct Rival(SocketAddr, Mutex<Option<Broker>>);

    impl Figures for Rival {
        fn figures(&self) -> Vec<Figure> {
            Vec::new()
        }

        fn memory_bytes(&self) -> usize {
            0
        }

        fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
            Vec::new()
        }
    }

    impl Service for Rival {
        fn start(&self, _: &BrokerHandle, _: &Config) -> Result<(), ServiceError> {
            *self.1.lock().expect("not poisoned") = Some(start(self.0, Vec::new())?);
            Ok(())
        }

        fn begin_to_stop(&self, _: Duration) {}

        fn stop(&self) {}
    }

    let address = own_address(1);
    let rival = Arc::new(Rival(address, Mutex::default()));

    let failed = start(address, vec![Arc::clone(&rival) as _]).err();

    assert!(
        matches!(failed, Some(StartError::Bind { .. })),
        "{failed:?}"
    );
    assert!(rival.1.lock().expect("not poisoned").is_some());
}
