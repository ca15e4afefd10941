//! One message at a time, in turn with the disk that it has to reach: what an idle broker adds.

use std::io::{self, Read, Write};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use mqttcore_store::files::{Files, Folder};

use super::connection::{self, Terms};
use super::framing::{PublishTemplate, Stamp, Version};
use super::options::Options;
use super::report::TurnsReport;
use super::run;
use super::stream::Stream;

/// Before each measurement, so that nothing of the one before is still under way: what became of a
/// message is synced behind its acknowledgement.
const PAUSE: Duration = Duration::from_millis(20);
/// What a record has besides topic and payload, about.
pub(super) const RECORD_BYTES: usize = 48;
/// Turns that are not counted.
const WARMUP: usize = 20;

/// Publishes at QoS 1 to a subscriber that is there, and syncs a plain file of its own, in turns.
///
/// # Errors
///
/// When a connection or the disk fails, or the broker says something else than expected.
pub fn measure(options: &Options) -> io::Result<TurnsReport> {
    let bytes = run::topic(options, 0).len() + options.payload_bytes + RECORD_BYTES;
    let folder = options.disk.as_deref().ok_or(io::ErrorKind::InvalidInput)?;
    let mut disk = Disk::open(folder, bytes, WARMUP + options.turns)?;
    let mut pair = Pair::open(options)?;
    let (mut synced, mut acknowledged) = (Vec::new(), Vec::new());
    for turn in 0..WARMUP + options.turns {
        thread::sleep(PAUSE);
        let took = (disk.sync(turn)?, {
            thread::sleep(PAUSE);
            pair.publish(turn)?
        });
        pair.deliver()?;
        if turn >= WARMUP {
            synced.push(took.0);
            acknowledged.push(took.1);
        }
    }
    Ok(TurnsReport {
        turns: options.turns,
        acknowledged: quantiles(acknowledged),
        synced: quantiles(synced),
    })
}

/// Half of the times are no longer, and 99 of 100.
pub(super) fn quantiles(mut times: Vec<Duration>) -> [Duration; 2] {
    times.sort_unstable();
    let at = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    [at(50), at(99)]
}

/// A file whose room is taken as the store takes it for its log.
pub(super) struct Disk {
    file: std::sync::Arc<dyn mqttcore_store::files::File>,
    bytes: Vec<u8>,
}

impl Disk {
    /// A new file with room for `count` writes of so many bytes.
    pub(super) fn open(folder: &Path, bytes: usize, count: usize) -> io::Result<Self> {
        let room = count * bytes;
        Ok(Self {
            file: Folder::open(folder)?.create("plain", room as u64)?,
            bytes: vec![b'x'; bytes],
        })
    }

    /// How long one write and its sync take.
    pub(super) fn sync(&mut self, turn: usize) -> io::Result<Duration> {
        let began = Instant::now();
        let offset = turn * self.bytes.len();
        self.file.write_at(&self.bytes, offset as u64)?;
        self.file.sync()?;
        Ok(began.elapsed())
    }
}

/// A publisher and its subscriber, whose sessions are kept.
struct Pair {
    publisher: Stream,
    subscriber: Stream,
    template: PublishTemplate,
    sent: Vec<u8>,
}

impl Pair {
    fn open(options: &Options) -> io::Result<Self> {
        let filter = run::filter(options.row, 0);
        let terms = Terms {
            kept: true,
            version: Version::V3,
            ..run::terms(options)?
        };
        let open = |id, subscription| connection::open(&terms, id, subscription);
        Ok(Self {
            publisher: open("load-p0", None)?,
            subscriber: open("load-s0", Some((&*filter, 1)))?,
            template: PublishTemplate::new(
                &run::topic(options, 0),
                1,
                options.payload_bytes,
                Version::V3,
            ),
            sent: Vec::new(),
        })
    }

    /// How long the broker took to acknowledge a message.
    fn publish(&mut self, turn: usize) -> io::Result<Duration> {
        let stamp = Stamp {
            publisher: 0,
            sequence: turn as u64,
            sent_ns: 0,
        };
        self.sent.clear();
        self.template.append(&mut self.sent, stamp);
        let began = Instant::now();
        self.publisher.write_all(&self.sent)?;
        let mut puback = [0; 4];
        self.publisher.read_exact(&mut puback)?;
        let took = began.elapsed();
        if puback[..2] == [0x40, 2] {
            Ok(took)
        } else {
            Err(io::Error::other(format!("no PUBACK: {puback:02x?}")))
        }
    }

    /// The message that was published comes, and is acknowledged.
    fn deliver(&mut self) -> io::Result<()> {
        let mut message = vec![0; self.sent.len()];
        self.subscriber.read_exact(&mut message)?;
        let id = self.template.packet_id_of(&message);
        self.subscriber.write_all(&[0x40, 2, id[0], id[1]])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_times_in_order() {
        let times = (1..=200).rev().map(Duration::from_millis).collect();

        assert_eq!(quantiles(times), [100, 198].map(Duration::from_millis));
    }
}
