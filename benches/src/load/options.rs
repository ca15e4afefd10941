//! The command line: one row a call.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The largest payload.
const PAYLOAD_MAX: usize = 16 * 1_024 * 1_024;

/// What is printed for `--help` and after a mistake.
pub const USAGE: &str = "\
usage: mqttcore-load ROW --address IP:PORT [--pid N] [option VALUE ...]

rows     pairs | own | fanout | fanin | shared | queue | turns | idle | filters | retained | connects
options  --publishers N   (pairs, own and queue 50, fanout 1, fanin 200, shared 100)
         --subscribers N  (pairs: as publishers, fanout 1000, fanin 4, shared 10)
         --connections N  idle connections (10000)
         --filters N      of each idle connection, 0 or 1 (1); beside other rows, of clients that get nothing (0);
                          those of the row filters (100000); each has a wildcard
         --retained N     retained messages, which a subscriber of # then gets (900000)
         --turns N        messages, one at a time (300)
         --disk FOLDER    whose disk is synced in turn with them; before other rows, with the bytes of all windows
         --qos 0|1|2      (0)
         --window N       messages that one publisher may have under way (16)
         --payload N      bytes, at least 20 (64)
         --rate N         messages a second over all publishers, each stamped with the time at which it was due
                          (as fast as the window lets)
         --seconds S      measured (2)
         --warmup S       before that (0.5)
         --aliases N      topic aliases that clients take; all speak MQTT 5.0 then, else 3.1.1
         --tls FILE       PEM file of the CA that the broker's certificate for localhost is of
         --sessions clean|kept  (clean); kept ones outlive their connections
         --pid N          process whose processor time and memory are read
prints one JSON object; fails when a connection ends or nothing arrives";

/// The shape of the load.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Row {
    /// Each publisher has its own topic and its own subscriber.
    Pairs,
    /// Each publisher subscribes to its own topic.
    Own,
    /// Every subscriber takes the topic of every publisher.
    Fanout,
    /// Publishers are dealt evenly to subscribers, each with one wildcard filter.
    Fanin,
    /// The subscribers are one shared group over all topics.
    Shared,
    /// Each publisher has its own topic, whose subscriber is away.
    Queue,
    /// One message at a time, in turn with a sync of the disk.
    Turns,
    /// Connections with one subscription each and no traffic.
    Idle,
    /// Clients with many wildcard filters each and no traffic.
    Filters,
    /// Retained messages, which a client that subscribes to all then gets.
    Retained,
    /// Connections that are opened and closed, as many at once as there are publishers.
    Connects,
}

impl Row {
    fn parse(text: &str) -> Option<Self> {
        Some(match text {
            "pairs" => Self::Pairs,
            "own" => Self::Own,
            "fanout" => Self::Fanout,
            "fanin" => Self::Fanin,
            "shared" => Self::Shared,
            "queue" => Self::Queue,
            "turns" => Self::Turns,
            "idle" => Self::Idle,
            "filters" => Self::Filters,
            "retained" => Self::Retained,
            "connects" => Self::Connects,
            _ => return None,
        })
    }

    /// The name on the command line and in the report.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pairs => "pairs",
            Self::Own => "own",
            Self::Fanout => "fanout",
            Self::Fanin => "fanin",
            Self::Shared => "shared",
            Self::Queue => "queue",
            Self::Turns => "turns",
            Self::Idle => "idle",
            Self::Filters => "filters",
            Self::Retained => "retained",
            Self::Connects => "connects",
        }
    }

    fn filters(self) -> usize {
        match self {
            Self::Idle => 1,
            Self::Filters => 100_000,
            _ => 0,
        }
    }

    fn counts(self) -> (usize, usize) {
        match self {
            Self::Pairs | Self::Own | Self::Queue => (50, 50),
            Self::Turns => (1, 1),
            Self::Fanout => (1, 1_000),
            Self::Fanin => (200, 4),
            Self::Shared => (100, 10),
            Self::Idle | Self::Filters => (0, 0),
            Self::Retained => (1, 1),
            Self::Connects => (8, 8),
        }
    }
}

/// A checked command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The shape of the load.
    pub row: Row,
    /// Where the broker listens.
    pub address: SocketAddr,
    /// The broker's process, when its time and memory shall be read.
    pub pid: Option<u32>,
    /// Publishing connections.
    pub publishers: usize,
    /// Subscribed connections.
    pub subscribers: usize,
    /// Idle connections.
    pub connections: usize,
    /// Wildcard filters, which match no message of the load.
    pub filters: usize,
    /// Messages of [`Row::Retained`].
    pub retained: usize,
    /// Messages of [`Row::Turns`].
    pub turns: usize,
    /// The folder whose disk takes turns with them, or is measured before a busy row.
    pub disk: Option<PathBuf>,
    /// Quality of service of publishes and subscriptions.
    pub qos: u8,
    /// Messages that one publisher may have under way.
    pub window: u64,
    /// Payload of each message.
    pub payload_bytes: usize,
    /// Messages a second over all publishers; `None` sends what the window lets.
    pub rate: Option<u32>,
    /// Topic Alias Maximum of the clients, which speak MQTT 5.0; `None`: they speak 3.1.1.
    pub aliases: Option<u16>,
    /// The CA of the broker's certificate; `None`: nothing is encrypted.
    pub tls: Option<PathBuf>,
    /// Sessions outlive their connections.
    pub kept: bool,
    /// How long is measured.
    pub measured: Duration,
    /// How long the load runs before that.
    pub warmup: Duration,
}

impl Options {
    /// Reads the words after the program name.
    ///
    /// # Errors
    ///
    /// A line for people when a word is unknown, a value is missing or out of range.
    pub fn parse(words: impl IntoIterator<Item = String>) -> Result<Self, String> {
        let mut words = words.into_iter();
        let row = words.next().ok_or("which row?")?;
        let row = Row::parse(&row).ok_or_else(|| format!("no row is called {row}"))?;
        let (publishers, subscribers) = row.counts();
        let mut options = Self {
            row,
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            pid: None,
            publishers,
            subscribers,
            connections: 10_000,
            filters: row.filters(),
            retained: 900_000,
            turns: 300,
            disk: None,
            qos: 0,
            window: 16,
            payload_bytes: 64,
            rate: None,
            aliases: None,
            tls: None,
            kept: false,
            measured: Duration::from_secs(2),
            warmup: Duration::from_millis(500),
        };
        while let Some(word) = words.next() {
            let value = words
                .next()
                .ok_or_else(|| format!("{word} needs a value"))?;
            options.set(&word, &value)?;
        }
        options.checked()
    }

    fn set(&mut self, word: &str, value: &str) -> Result<(), String> {
        match word {
            "--address" => self.address = number(word, value)?,
            "--pid" => self.pid = Some(number(word, value)?),
            "--publishers" => self.publishers = number(word, value)?,
            "--subscribers" => self.subscribers = number(word, value)?,
            "--connections" => self.connections = number(word, value)?,
            "--filters" => self.filters = number(word, value)?,
            "--retained" => self.retained = number(word, value)?,
            "--turns" => self.turns = number(word, value)?,
            "--disk" => self.disk = Some(value.into()),
            "--qos" => self.qos = number(word, value)?,
            "--window" => self.window = number(word, value)?,
            "--payload" => self.payload_bytes = number(word, value)?,
            "--rate" => self.rate = Some(number(word, value)?),
            "--seconds" => self.measured = seconds(word, value)?,
            "--warmup" => self.warmup = seconds(word, value)?,
            "--aliases" => self.aliases = Some(number(word, value)?),
            "--tls" => self.tls = Some(value.into()),
            "--sessions" => {
                self.kept = match value {
                    "kept" => true,
                    "clean" => false,
                    _ => return Err(format!("{word} does not take {value}")),
                }
            }
            _ => return Err(format!("no option is called {word}")),
        }
        Ok(())
    }

    /// Messages that all publishers together may have under way.
    pub fn in_flight(&self) -> u64 {
        self.publishers as u64 * self.window
    }

    fn checked(mut self) -> Result<Self, String> {
        if matches!(self.row, Row::Pairs | Row::Own | Row::Queue) {
            self.subscribers = self.publishers;
        }
        let busy = !matches!(self.row, Row::Idle | Row::Filters);
        if self.address.port() == 0 {
            return Err("--address is missing".into());
        }
        if self.qos > 2 || self.window == 0 || self.window > 32_768 {
            return Err("--qos is 0 to 2, --window 1 to 32768".into());
        }
        if busy && (self.publishers == 0 || self.subscribers == 0) {
            return Err("--publishers and --subscribers are 1 or more".into());
        }
        if self.row == Row::Fanout && self.publishers != 1 {
            return Err("fanout has one publisher".into());
        }
        if self.row == Row::Queue && self.qos == 0 {
            return Err("queued messages need --qos 1 or 2".into());
        }
        if self.row == Row::Turns && (self.disk.is_none() || self.turns == 0) {
            return Err("turns needs --disk, and --turns above 0".into());
        }
        if self.row == Row::Retained && self.retained == 0 {
            return Err("--retained is above 0".into());
        }
        if self.payload_bytes > PAYLOAD_MAX {
            return Err(format!("--payload is {PAYLOAD_MAX} at most"));
        }
        if self.row == Row::Idle && self.filters > 1 {
            return Err("--filters of an idle connection is 0 or 1".into());
        }
        if self.rate == Some(0) || self.measured.is_zero() {
            return Err("--rate and --seconds are above 0".into());
        }
        Ok(self)
    }
}

fn number<T: std::str::FromStr>(word: &str, value: &str) -> Result<T, String> {
    value
        .parse()
        .map_err(|_| format!("{word} does not take {value}"))
}

fn seconds(word: &str, value: &str) -> Result<Duration, String> {
    Duration::try_from_secs_f64(number(word, value)?)
        .map_err(|_| format!("{word} does not take {value}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        Options::parse(line.split_whitespace().map(String::from))
    }

    #[test]
    fn a_row_has_its_own_defaults() {
        let options = parse("fanin --address 127.0.0.1:9 --qos 1").unwrap();

        assert_eq!((options.publishers, options.subscribers), (200, 4));
        assert_eq!(
            (options.qos, options.window, options.payload_bytes),
            (1, 16, 64)
        );
    }

    #[test]
    fn pairs_have_as_many_subscribers_as_publishers() {
        let options = parse("pairs --address 127.0.0.1:9 --publishers 7 --subscribers 3").unwrap();

        assert_eq!((options.publishers, options.subscribers), (7, 7));
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(parse("pears"), Err("no row is called pears".into()));
        assert_eq!(parse("pairs"), Err("--address is missing".into()));
        assert_eq!(parse("pairs --qos"), Err("--qos needs a value".into()));
        assert!(parse("turns --address 127.0.0.1:9").is_err());
        assert!(parse("queue --address 127.0.0.1:9").is_err());
        assert!(parse("retained --address 127.0.0.1:9 --retained 0").is_err());
        assert!(parse("idle --address 127.0.0.1:9 --filters 2").is_err());
        assert!(parse("pairs --address 127.0.0.1:9 --payload 16777217").is_err());
        assert_eq!(parse("pairs --qos x"), Err("--qos does not take x".into()));
        assert_eq!(
            parse("pairs --speed 1"),
            Err("no option is called --speed".into())
        );
    }
}
