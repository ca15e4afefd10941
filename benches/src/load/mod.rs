//! A load generator that is faster than the broker it drives.
//!
//! One thread, edge-triggered readiness, one read and one write a connection and turn, nothing
//! allocated for a message. Each message carries its publisher, its sequence and its send time,
//! so that every row also says what was lost and what came twice. It drives any MQTT 3.1.1
//! or 5.0 broker, from outside, over loopback; it is no client library.

pub mod connection;
pub mod connects;
pub mod flows;
pub mod framing;
pub mod histogram;
pub mod idle;
pub mod options;
pub mod pace;
pub mod process;
pub mod report;
pub mod retained;
pub mod run;
pub mod stream;
pub mod turns;

use std::io;

use options::{Options, Row};

/// Runs the row of a command line and answers its JSON line.
///
/// # Errors
///
/// When a connection fails or ends, or a busy row delivered nothing.
pub fn measure(options: &Options) -> io::Result<String> {
    let report = match options.row {
        Row::Idle => return idle::connections(options).map(|report| report.to_json(Row::Idle)),
        Row::Filters => return idle::filters(options).map(|report| report.to_json(Row::Filters)),
        Row::Retained => {
            return retained::measure(options).map(|report| report.to_json(Row::Retained));
        }
        Row::Turns => return turns::measure(options).map(|report| report.to_json()),
        Row::Connects => connects::measure(options)?,
        _ => run::busy(options)?,
    };
    if report.delivered == 0 {
        return Err(io::Error::other("nothing was delivered"));
    }
    Ok(report.to_json(options))
}
