//! How busy and how slow a connected client is, for lists (ADR 0095).

use std::time::{Duration, Instant};

use crate::clients::client::Client;
use crate::clients::link::{HeldBack, Link, Pace};
use crate::clients::measures::PacketRates;
use crate::config::RateLimitKind;

/// Where messages wait for a connected client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum DelayStage {
    /// Its socket accepts no bytes.
    Network,
    /// Its queue waits for acknowledgements.
    Acknowledgement,
}

/// That messages wait for a connected client.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Delay {
    /// Where they wait.
    pub stage: DelayStage,
    /// For how long its socket has accepted no byte; `None`: it accepts bytes.
    pub blocked_for: Option<Duration>,
}

/// A limit that holds a connected client back.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum HoldingLimit {
    /// A rate limit.
    Rate(RateLimitKind),
    /// Memory is short, and its messages take most of it.
    Memory,
}

impl HoldingLimit {
    /// The name for programs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Rate(limit) => limit.name(),
            Self::Memory => "memory",
        }
    }
}

/// The limits that hold back the client of this connection.
pub(super) fn holding_limits(link: &Link) -> Vec<HoldingLimit> {
    let HeldBack { reads, retained } = link.held_back();
    let rates = [reads, retained].into_iter().flatten();
    let memory = (link.pace.get() == Pace::Held).then_some(HoldingLimit::Memory);
    rates.map(HoldingLimit::Rate).chain(memory).collect()
}

/// The time of a list.
#[derive(Clone, Copy)]
pub(super) struct Clock {
    /// When the broker started.
    pub(super) started: Instant,
    pub(super) now: Instant,
}

impl Clock {
    pub(super) fn since_start(self) -> Duration {
        self.now.saturating_duration_since(self.started)
    }
}

/// Rates of what the client sends and gets; `None`: it is offline.
pub(super) fn rates(client: &Client, clock: Clock) -> Option<PacketRates> {
    let link = client.link_ref();
    let link = link.as_ref()?;
    let since_start = clock.since_start();
    Some(link.measures.rates(since_start, link.age(since_start)))
}

/// A rate in thousandths of a packet.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "rates are positive and far below 2^53"
)]
pub(super) fn rank_of(packets: f64) -> u64 {
    (packets * 1_000.0) as u64
}

/// Reasons why messages of a connected client wait.
pub(super) fn delay(client: &Client, now: Instant) -> Option<Delay> {
    let link = client.link_ref();
    let link = link.as_ref()?;
    let blocked_since = link.measures.blocked_since();
    let stage = match blocked_since {
        Some(_) => DelayStage::Network,
        None if client.session.borrow().queued() > 0 => DelayStage::Acknowledgement,
        None => return None,
    };
    Some(Delay {
        stage,
        blocked_for: blocked_since.map(|since| now.saturating_duration_since(since)),
    })
}

/// Microseconds of the slowest delivery, in front of queued messages; 0 for clients that are offline or got nothing.
pub(super) fn slowness(client: &Client, now: Instant) -> u64 {
    let link = client.link_ref();
    let Some(link) = &*link else { return 0 };
    let measured = link.measures.delivery_times(now);
    let measured = measured.map_or(Duration::ZERO, |times| times.worst);
    let blocked = link.measures.blocked_since();
    let blocked = blocked.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
    let worst_us = u64::try_from(measured.max(blocked).as_micros()).unwrap_or(u64::MAX);
    let queued = client.session.borrow().queued() as u64;
    (worst_us.min(u64::MAX >> QUEUED_BITS) << QUEUED_BITS) | queued.min((1 << QUEUED_BITS) - 1)
}

/// Bits of a rank for queued messages.
const QUEUED_BITS: u32 = 20;

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use mqttcore_codec::ProtocolVersion;
    use mqttcore_topics::{Directory, Strategy};

    use super::*;
    use crate::clients::handle::Handle;
    use crate::clients::link::Link;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_client_is_as_slow_as_its_slowest_delivery_or_its_blocked_socket() {
        let (directory, start) = (Directory::new(1, Strategy::default()), Instant::now());
        let client = Client::offline(&directory, Handle::new(0, 1, 1), "one");
        assert_eq!(slowness(&client, start), 0);
        let clock = Clock {
            started: start,
            now: start,
        };
        assert_eq!((rates(&client, clock), delay(&client, start)), (None, None));
        let login = (client.login(), 0);
        let link = Link::new(ProtocolVersion::V5, 1_000, login, Duration::ZERO);
        let link = Rc::new(link);
        client.set_link(Some(Rc::clone(&link)));
        assert_eq!((slowness(&client, start), delay(&client, start)), (0, None));

        link.measures.note_delivery(start, s(2));
        let by_delivery = slowness(&client, start + s(1));
        link.measures.note_blocked(start);
        let by_socket = slowness(&client, start + s(3));

        assert_eq!(by_delivery >> QUEUED_BITS, 2_000_000);
        assert_eq!(by_socket >> QUEUED_BITS, 3_000_000);
        let delay = delay(&client, start + s(3)).expect("its socket is full");
        assert_eq!(delay.stage, DelayStage::Network);
        assert_eq!(delay.blocked_for, Some(s(3)));
    }

    #[test]
    fn a_rate_is_a_rank_in_thousandths_of_a_packet() {
        assert_eq!((rank_of(1.5), rank_of(0.0)), (1_500, 0));
    }
}
