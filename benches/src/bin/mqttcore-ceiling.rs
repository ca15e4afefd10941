//! Forwards messages between sockets, and nothing else: see `mqttcore_benches::ceiling`.

use std::io::Write;
use std::net::TcpListener;
use std::process::ExitCode;

use mqttcore_benches::ceiling;

fn main() -> ExitCode {
    let Some(address) = std::env::args().nth(1) else {
        let _ = writeln!(std::io::stderr(), "usage: mqttcore-ceiling IP:PORT");
        return ExitCode::from(2);
    };
    match TcpListener::bind(&address).and_then(ceiling::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mqttcore-ceiling: {address}: {error}");
            ExitCode::FAILURE
        }
    }
}
