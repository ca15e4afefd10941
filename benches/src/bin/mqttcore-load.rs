//! Puts load on an MQTT broker and prints one JSON line: see `mqttcore_benches::load`.

use std::io::Write;
use std::process::ExitCode;

use mqttcore_benches::load;
use mqttcore_benches::load::options::{Options, USAGE};

fn main() -> ExitCode {
    let options = match Options::parse(std::env::args().skip(1)) {
        Ok(options) => options,
        Err(mistake) => {
            let _ = writeln!(std::io::stderr(), "mqttcore-load: {mistake}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match load::measure(&options) {
        Ok(line) if writeln!(std::io::stdout(), "{line}").is_ok() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "mqttcore-load: {error}");
            ExitCode::FAILURE
        }
    }
}
