//! Retained messages: what each costs the broker at rest, and how soon a new subscriber of `#` has all.

use std::io::{self, Read, Write};
use std::time::{Duration, Instant};

use super::connection::{self, Terms};
use super::framing::{self, Received, Version};
use super::idle;
use super::options::Options;
use super::report::IdleReport;
use super::run;
use super::stream::Stream;

/// Messages between two PINGREQs: the broker has handled all before it answers one.
const MESSAGES_OF_BATCH: usize = 1_000;
/// Read at once by the subscriber.
const READ_BYTES: usize = 256 * 1_024;

/// Publishes retained messages, reads the broker's memory before and after, and then subscribes to all.
///
/// # Errors
///
/// When there is no process to read, a connection fails or ends, or not all messages come.
pub fn measure(options: &Options) -> io::Result<IdleReport> {
    let terms = run::terms(options)?;
    let at_rest = idle::measured(options, options.retained, || {
        let mut publisher = connection::open(&terms, "load-retained", None)?;
        publish(&mut publisher, options, terms.version)?;
        Ok(vec![publisher])
    })?;
    Ok(IdleReport {
        replay: Some(replay(&terms, options.retained)?),
        ..at_rest
    })
}

fn publish(publisher: &mut Stream, options: &Options, version: Version) -> io::Result<()> {
    let mut batch = Vec::new();
    for first in (0..options.retained).step_by(MESSAGES_OF_BATCH) {
        batch.clear();
        for place in first..options.retained.min(first + MESSAGES_OF_BATCH) {
            let topic = format!("load/retained/{}/{place}", place % 1_000);
            let message = framing::retained(&topic, options.payload_bytes, version);
            batch.extend_from_slice(&message);
        }
        batch.extend_from_slice(&framing::PINGREQ);
        publisher.write_all(&batch)?;
        let mut answer = [0; 2];
        publisher.read_exact(&mut answer)?;
        if answer != framing::PINGRESP {
            return Err(io::Error::other(format!("no PINGRESP: {answer:02x?}")));
        }
    }
    Ok(())
}

/// How long it takes from before SUBSCRIBE until the last of `count` messages was read.
fn replay(terms: &Terms, count: usize) -> io::Result<Duration> {
    let mut subscriber = connection::open(terms, "load-all", None)?;
    let (mut bytes, mut filled, mut came) = (vec![0; READ_BYTES], 0, 0);
    let began = Instant::now();
    subscriber.write_all(&framing::subscribe(&["#"], 0, terms.version))?;
    while came < count {
        if filled == bytes.len() {
            bytes.resize(2 * filled, 0);
        }
        let read = subscriber.read(&mut bytes[filled..]);
        let read = read.map_err(|error| missing(came, count, &error))?;
        if read == 0 {
            return Err(missing(came, count, &"the connection ended"));
        }
        filled += read;
        let (messages, used) = messages_of(&bytes[..filled], terms.version)?;
        came += messages;
        bytes.copy_within(used..filled, 0);
        filled -= used;
    }
    Ok(began.elapsed())
}

fn missing(came: usize, count: usize, why: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{came} of {count} retained messages came: {why}"))
}

/// How many whole messages there are, and how many bytes all whole packets are.
fn messages_of(bytes: &[u8], version: Version) -> io::Result<(usize, usize)> {
    let (mut messages, mut used) = (0, 0);
    while let Some((packet, length)) =
        framing::read(&bytes[used..], version).map_err(io::Error::other)?
    {
        messages += usize::from(matches!(packet, Received::Publish { .. }));
        used += length;
    }
    Ok((messages, used))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_counted_without_other_packets_and_torn_ones() {
        let message = framing::retained("a/b", 64, Version::V3);
        let bytes = [&[0x90, 3, 0, 1, 0], &*message, &message, &message[..9]].concat();

        let (messages, used) = messages_of(&bytes, Version::V3).unwrap();

        assert_eq!((messages, used), (2, 5 + 2 * message.len()));
    }
}
