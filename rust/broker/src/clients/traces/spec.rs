//! The conditions and limits of a trace.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;
use std::time::Duration;

use mqttcore_topics::TopicFilter;

use crate::config::Network;

/// Bytes that a trace keeps by default, and at most.
pub const TRACE_BYTES: usize = 64 << 20;
/// Packets that a trace keeps at most.
pub const TRACE_PACKETS_MAX: usize = 1_000_000;
/// The longest trace.
pub const TRACE_DURATION_MAX: Duration = Duration::from_secs(24 * 3_600);
/// Maximum length of a pattern of client identifiers, in bytes.
const GLOB_BYTES: usize = 256;

/// A trace to start.
#[derive(Clone, Debug)]
pub struct TraceSpec {
    /// A name for people.
    pub name: String,
    /// Which packets it has.
    pub filter: TraceFilter,
    /// It ends after this time.
    pub duration: Duration,
    /// Bytes of memory that it keeps; the oldest packets make room.
    pub bytes: usize,
    /// Packets that it keeps; the oldest ones make room.
    pub packets: usize,
    /// How much of payloads it has.
    pub payload: TracedPayload,
}

/// All packets for ten minutes, without payloads.
impl Default for TraceSpec {
    fn default() -> Self {
        Self {
            name: String::new(),
            filter: TraceFilter::default(),
            duration: Duration::from_secs(600),
            bytes: TRACE_BYTES,
            packets: 100_000,
            payload: TracedPayload::None,
        }
    }
}

/// Which packets a trace has: all conditions that are set must hold.
#[derive(Clone, Debug, Default)]
pub struct TraceFilter {
    /// The client identifier.
    pub client_id: Option<ClientIdGlob>,
    /// The user name.
    pub username: Option<String>,
    /// The address of the client.
    pub network: Option<Network>,
    /// Only messages on topics that it matches, with mount points, and subscriptions that overlap it.
    pub topic: Option<TopicFilter>,
}

impl TraceFilter {
    /// Whether it covers a client, whatever the topic is.
    pub(crate) fn covers(
        &self,
        client_id: &str,
        username: Option<&str>,
        ip: Option<IpAddr>,
    ) -> bool {
        let is_client = |glob: &ClientIdGlob| glob.matches(client_id);
        let is_user = |name: &String| username == Some(name);
        let is_from = |network: &Network| ip.is_some_and(|ip| network.contains(ip));
        self.client_id.as_ref().is_none_or(is_client)
            && self.username.as_ref().is_none_or(is_user)
            && self.network.as_ref().is_none_or(is_from)
    }
}

/// How much of a payload a trace has.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum TracedPayload {
    /// Nothing.
    #[default]
    None,
    /// The first bytes.
    Head(usize),
    /// All of it.
    All,
}

impl TracedPayload {
    /// The part of `payload` that a trace has.
    pub(crate) fn of(self, payload: &[u8]) -> &[u8] {
        let len = match self {
            Self::None => 0,
            Self::Head(bytes) => payload.len().min(bytes),
            Self::All => payload.len(),
        };
        payload.get(..len).unwrap_or_default()
    }
}

/// A pattern of client identifiers: `*` stands for any characters, `?` for one.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ClientIdGlob(Box<str>);

/// A text is not a pattern of client identifiers.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("a pattern of client identifiers has 1 to {GLOB_BYTES} bytes")]
pub struct InvalidGlob;

impl ClientIdGlob {
    /// Whether it matches the whole identifier. A `*` is tried at each place at most once.
    pub(crate) fn matches(&self, client_id: &str) -> bool {
        let (mut pattern, mut text) = (self.0.chars(), client_id.chars());
        // What follows the last star, and where the text that it stands for ends.
        let mut star = None;
        loop {
            let (mut next_pattern, mut next_text) = (pattern.clone(), text.clone());
            match (next_pattern.next(), next_text.next()) {
                (None, None) => return true,
                (Some('*'), _) => {
                    star = Some((next_pattern.clone(), text.clone()));
                    pattern = next_pattern;
                    continue;
                }
                (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                    (pattern, text) = (next_pattern, next_text);
                    continue;
                }
                _ => {}
            }
            let Some((behind, mut covered)) = star else {
                return false;
            };
            if covered.next().is_none() {
                return false;
            }
            (pattern, text) = (behind.clone(), covered.clone());
            star = Some((behind, covered));
        }
    }
}

impl FromStr for ClientIdGlob {
    type Err = InvalidGlob;

    fn from_str(text: &str) -> Result<Self, InvalidGlob> {
        let is_valid = (1..=GLOB_BYTES).contains(&text.len());
        is_valid.then(|| Self(text.into())).ok_or(InvalidGlob)
    }
}

impl fmt::Display for ClientIdGlob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_matches_whole_identifiers() {
        for (pattern, id, is_matched) in [
            ("plc-7", "plc-7", true),
            ("plc-7", "plc-70", false),
            ("plc-*", "plc-", true),
            ("plc-*", "my plc-7", false),
            ("*7", "plc-77", true),
            ("p*c-?", "plc-plc-7", true),
            ("p?c", "pc", false),
            ("?", "ü", true),
            ("*a*b*", "xxaxxbxx", true),
            ("*a*b*", "xxbxxaxx", false),
            ("*", "", true),
        ] {
            let glob: ClientIdGlob = pattern.parse().expect("a pattern");
            assert_eq!(glob.matches(id), is_matched, "{pattern} {id}");
        }
        assert_eq!("".parse::<ClientIdGlob>(), Err(InvalidGlob));
        assert!("x".repeat(257).parse::<ClientIdGlob>().is_err());
    }

    #[test]
    fn all_conditions_must_hold() {
        let filter = TraceFilter {
            client_id: "a*".parse().ok(),
            username: Some("u".into()),
            network: "10.0.0.0/8".parse().ok(),
            topic: None,
        };
        let near = Some(IpAddr::from([10, 1, 2, 3]));

        assert!(filter.covers("a1", Some("u"), near));
        assert!(!filter.covers("b1", Some("u"), near));
        assert!(!filter.covers("a1", None, near));
        assert!(!filter.covers("a1", Some("u"), Some([11, 1, 2, 3].into())));
        assert!(!filter.covers("a1", Some("u"), None), "a Unix socket");
        assert!(TraceFilter::default().covers("any", None, None));
    }
}
