//! Log lines for operators, limited to one a second for each category, so that many events do not make many lines.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use mqttcore_codec::ReasonCode;

use crate::config::hooks::{Hooks, LogLevel, LogLine, LogSubject};

const INTERVAL: Duration = Duration::from_secs(1);

/// The category of a log line; each has its own limit.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum LogCategory {
    Refused,
    Disconnected,
    Left,
    Violation,
    Dropped,
    Denied,
    Stalled,
    Accept,
    Descriptors,
    Connections,
    ListenerConnections,
    ListenerRate,
    AddressConnections,
    AddressPending,
    AddressRate,
    FailedLogins,
    Login,
    Protocol,
    Unanswered,
    Banned,
    Paused,
    ProtocolVersion,
    Sessions,
    Takeover,
    Flapping,
    SessionShare,
    RetainedShare,
    RetainedLimit,
    Subscriptions,
    Rate,
    Disk,
    QueueFull,
    TooManyFilters,
    Panic,
    Will,
    DelayedWill,
    Store,
    Clock,
    Kafka,
    Queue,
    Tls,
    MemoryPublish,
    MemorySession,
    MemoryRetained,
    MemoryPacket,
    MemoryDelivery,
    MemorySender,
}

const CLASSES: usize = LogCategory::MemorySender as usize + 1;

impl LogCategory {
    /// The name in machine-readable logs.
    ///
    /// Longer than other functions: one match.
    fn name(self) -> &'static str {
        match self {
            Self::Refused => "refused",
            Self::Disconnected => "disconnected",
            Self::Left => "left",
            Self::Violation => "violation",
            Self::Dropped => "dropped",
            Self::Denied => "denied",
            Self::Stalled => "stalled",
            Self::Accept => "accept",
            Self::Descriptors => "descriptors",
            Self::Connections => "connections",
            Self::ListenerConnections => "listener_connections",
            Self::ListenerRate => "listener_rate",
            Self::AddressConnections => "address_connections",
            Self::AddressPending => "address_pending",
            Self::AddressRate => "address_rate",
            Self::FailedLogins => "failed_logins",
            Self::Login => "login",
            Self::Protocol => "protocol",
            Self::Unanswered => "unanswered",
            Self::Banned => "banned",
            Self::Paused => "paused",
            Self::ProtocolVersion => "protocol_version",
            Self::Sessions => "sessions",
            Self::Takeover => "takeover",
            Self::Flapping => "flapping",
            Self::SessionShare => "session_share",
            Self::RetainedShare => "retained_share",
            Self::RetainedLimit => "retained_limit",
            Self::Subscriptions => "subscriptions",
            Self::Rate => "rate",
            Self::Disk => "disk",
            Self::QueueFull => "queue_full",
            Self::TooManyFilters => "too_many_filters",
            Self::Panic => "panic",
            Self::Will => "will",
            Self::DelayedWill => "delayed_will",
            Self::Store => "store",
            Self::Clock => "clock",
            Self::Kafka => "kafka",
            Self::Queue => "queue",
            Self::Tls => "tls",
            Self::MemoryPublish => "memory_publish",
            Self::MemorySession => "memory_session",
            Self::MemoryRetained => "memory_retained",
            Self::MemoryPacket => "memory_packet",
            Self::MemoryDelivery => "memory_delivery",
            Self::MemorySender => "memory_sender",
        }
    }

    fn level(self) -> LogLevel {
        match self {
            Self::Panic | Self::Store | Self::Tls => LogLevel::Error,
            Self::Disconnected | Self::Left => LogLevel::Info,
            _ => LogLevel::Warning,
        }
    }
}

/// The content of a log line.
pub(crate) struct LogEntry {
    event: &'static str,
    text: String,
    subject: LogSubject,
}

impl From<String> for LogEntry {
    fn from(text: String) -> Self {
        Self::new("", text, LogSubject::default())
    }
}

impl LogEntry {
    pub(crate) fn new(event: &'static str, text: String, subject: LogSubject) -> Self {
        Self {
            event,
            text,
            subject,
        }
    }

    pub(crate) fn with_reason(mut self, reason: Option<ReasonCode>) -> Self {
        self.subject.reason = reason;
        self
    }
}

/// Lines that [`LatestLines`] keeps.
const LATEST: usize = 200;

/// A line of the log, for operators who look at it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct LoggedLine {
    /// Its number; lines are numbered from 1.
    pub number: u64,
    /// When it was written.
    pub at: SystemTime,
    /// The line.
    pub line: LogLine,
}

/// The latest lines of the log of all shards; none before somebody wants them.
#[derive(Default)]
pub(crate) struct LatestLines(Mutex<KeptLines>);

#[derive(Default)]
struct KeptLines {
    is_wanted: bool,
    count: u64,
    lines: VecDeque<LoggedLine>,
}

impl LatestLines {
    fn lock(&self) -> MutexGuard<'_, KeptLines> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps lines from now on.
    pub(crate) fn keep(&self) {
        self.lock().is_wanted = true;
    }

    fn add(&self, line: &LogLine) {
        let mut kept = self.lock();
        if !kept.is_wanted {
            return;
        }
        kept.count += 1;
        if kept.lines.len() == LATEST {
            kept.lines.pop_front();
        }
        let logged = LoggedLine {
            number: kept.count,
            at: SystemTime::now(),
            line: line.clone(),
        };
        kept.lines.push_back(logged);
    }

    /// The lines behind the one with this number, the oldest first.
    pub(crate) fn after(&self, number: u64) -> Vec<LoggedLine> {
        let kept = self.lock();
        let newer = kept.lines.iter().filter(|line| line.number > number);
        newer.cloned().collect()
    }
}

/// The logger of one shard.
pub(crate) struct Logger {
    sink: RefCell<Arc<dyn Hooks>>,
    latest: Arc<LatestLines>,
    classes: [Class; CLASSES],
}

#[derive(Default)]
struct Class {
    last: Cell<Option<Instant>>,
    suppressed: Cell<u64>,
}

impl Logger {
    pub(crate) fn new(sink: Arc<dyn Hooks>, latest: Arc<LatestLines>) -> Self {
        Self {
            sink: RefCell::new(sink),
            latest,
            classes: std::array::from_fn(|_| Class::default()),
        }
    }

    pub(crate) fn redirect(&self, sink: Arc<dyn Hooks>) {
        *self.sink.borrow_mut() = sink;
    }

    /// Logs an event that happens once, such as a start, without a rate limit.
    pub(crate) fn say(&self, text: String) {
        self.write(LogLine::new(LogLevel::Info, "broker", text));
    }

    /// Writes a line unless one of its category was written less than a second ago.
    pub(crate) fn warn<E: Into<LogEntry>>(
        &self,
        class: LogCategory,
        now: Instant,
        entry: impl FnOnce() -> E,
    ) {
        let state = &self.classes[class as usize];
        let quiet = state.last.get().is_some_and(|last| now < last + INTERVAL);
        if quiet {
            state.suppressed.set(state.suppressed.get() + 1);
            return;
        }
        state.last.set(Some(now));
        let entry = entry().into();
        self.write(LogLine {
            event: entry.event,
            subject: entry.subject,
            suppressed: state.suppressed.take(),
            ..LogLine::new(class.level(), class.name(), entry.text)
        });
    }

    /// Writes a line, without a rate limit.
    pub(crate) fn write(&self, line: LogLine) {
        self.latest.add(&line);
        let sink = Arc::clone(&self.sink.borrow());
        // A panic of the log sink must not stop the broker, and cannot be reported anywhere else.
        let _ = catch_unwind(AssertUnwindSafe(|| sink.log(line)));
    }
}

/// Client text made safe for a log line: control characters are escaped, the length is limited.
pub(crate) struct Escaped<'a>(pub(crate) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const LONGEST: usize = 120;
        for (count, character) in self.0.chars().enumerate() {
            if count == LONGEST {
                return f.write_str("...");
            }
            if is_harmless(character) {
                write!(f, "{character}")?;
            } else {
                write!(f, "{}", character.escape_unicode())?;
            }
        }
        Ok(())
    }
}

/// Whether it is neither a control character nor one that changes the direction of text (abuse H09).
fn is_harmless(character: char) -> bool {
    !character.is_control()
        && !matches!(character, '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::config::hooks::{
        AuthorizeDecision, AuthorizeRequest, HookInterests, Login, LoginDecision, Reply,
    };
    use crate::config::plugin_event::PluginEvent;

    #[derive(Default)]
    struct Lines(Mutex<Vec<String>>);

    impl Hooks for Lines {
        fn interests(&self) -> HookInterests {
            HookInterests::default()
        }
        fn authenticate(&self, _: Arc<Login>, _: Reply<LoginDecision>) {}
        fn authorize(&self, _: AuthorizeRequest, _: Reply<AuthorizeDecision>) {}
        fn event(&self, _: PluginEvent) {}
        fn log(&self, line: LogLine) {
            self.0.lock().unwrap().push(line.to_string());
        }
    }

    #[test]
    fn a_flood_of_one_class_is_one_line_a_second_and_a_count() {
        let lines = Arc::new(Lines::default());
        let log = Logger::new(lines.clone(), Arc::default());
        let start = Instant::now();
        for ms in 0..1_500 {
            let now = start + Duration::from_millis(ms);
            log.warn(LogCategory::Dropped, now, || "dropped".to_owned());
        }

        let lines = lines.0.lock().unwrap();
        assert_eq!(
            *lines,
            ["dropped", "dropped (999 similar since the last line)"]
        );
    }

    #[test]
    fn the_latest_lines_are_kept_once_somebody_wants_them() {
        let latest = Arc::new(LatestLines::default());
        let log = Logger::new(Arc::new(Lines::default()), Arc::clone(&latest));
        log.say("before".to_owned());
        assert!(latest.after(0).is_empty());

        latest.keep();
        for number in 1..=LATEST + 5 {
            log.say(format!("line {number}"));
        }

        let texts: Vec<_> = latest
            .after(203)
            .into_iter()
            .map(|line| line.line.text)
            .collect();
        assert_eq!(texts, ["line 204", "line 205"]);
        assert_eq!(latest.after(0).len(), LATEST);
    }

    #[test]
    fn classes_do_not_silence_each_other() {
        let lines = Arc::new(Lines::default());
        let log = Logger::new(lines.clone(), Arc::default());
        let now = Instant::now();
        log.warn(LogCategory::Dropped, now, || "a".to_owned());
        log.warn(LogCategory::Denied, now, || "b".to_owned());

        assert_eq!(*lines.0.lock().unwrap(), ["a", "b"]);
    }

    #[test]
    fn control_and_direction_characters_are_escaped() {
        let text = format!("{}", Escaped("a\r\nb\u{1b}[31m\u{202e}x"));

        assert_eq!(text, "a\\u{d}\\u{a}b\\u{1b}[31m\\u{202e}x");
    }

    #[test]
    fn long_text_is_cut() {
        assert_eq!(format!("{}", Escaped(&"x".repeat(500))).len(), 123);
    }
}
