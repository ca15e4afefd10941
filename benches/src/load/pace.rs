//! A fixed rate: when each message is due.

use std::collections::VecDeque;
use std::time::Duration;

/// A wait for events takes up to a millisecond longer than it is told to.
const LATE: Duration = Duration::from_millis(2);

/// A fixed rate, dealt to the publishers in turn.
///
/// A message that the window holds back keeps the time at which it was due: the wait of a broker that stops counts for
/// every message that should have been sent meanwhile.
#[derive(Debug)]
pub struct Pace {
    rate: u32,
    granted: u64,
    /// Of each publisher when its next messages were due, in nanoseconds since the start.
    due_ns: Vec<VecDeque<u64>>,
    turn: usize,
}

impl Pace {
    /// So many messages a second over all publishers.
    pub fn new(rate: u32, publishers: usize) -> Self {
        Self {
            rate,
            granted: 0,
            due_ns: vec![VecDeque::new(); publishers],
            turn: 0,
        }
    }

    /// When the message after `granted` others is due.
    fn next_ns(&self) -> u64 {
        let due = u128::from(self.granted + 1) * 1_000_000_000 / u128::from(self.rate);
        u64::try_from(due).unwrap_or(u64::MAX)
    }

    /// Deals what is due.
    pub fn grant(&mut self, elapsed: Duration) {
        while u128::from(self.next_ns()) <= elapsed.as_nanos() {
            let due_ns = self.next_ns();
            self.due_ns[self.turn].push_back(due_ns);
            self.turn = (self.turn + 1) % self.due_ns.len();
            self.granted += 1;
        }
    }

    /// Publishers with a message that is due.
    pub fn waiting(&self) -> impl Iterator<Item = usize> {
        let publishers = self.due_ns.iter().enumerate();
        publishers.filter_map(|(publisher, due)| (!due.is_empty()).then_some(publisher))
    }

    /// When the next message of a publisher was due; `None`: none is.
    pub fn due_ns(&self, publisher: usize) -> Option<u64> {
        self.due_ns[publisher].front().copied()
    }

    /// The message of [`due_ns`](Self::due_ns) was sent.
    pub fn sent(&mut self, publisher: usize) {
        self.due_ns[publisher].pop_front();
    }

    /// How long a wait for events may be, so that the next message is not late; zero when it is due soon.
    pub fn rest(&self, elapsed: Duration) -> Duration {
        let left = Duration::from_nanos(self.next_ns()).saturating_sub(elapsed);
        left.saturating_sub(LATE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_deals_its_rate_evenly() {
        let mut pace = Pace::new(100, 4);

        pace.grant(Duration::from_millis(100));

        let counts: Vec<_> = pace.due_ns.iter().map(VecDeque::len).collect();
        assert_eq!(counts, [3, 3, 2, 2]);
        assert_eq!(pace.waiting().count(), 4);
    }

    #[test]
    fn a_message_that_was_held_back_keeps_its_time() {
        let mut pace = Pace::new(10, 1);

        pace.grant(Duration::from_secs(1));

        let mut due = Vec::new();
        while let Some(due_ns) = pace.due_ns(0) {
            due.push(due_ns / 100_000_000);
            pace.sent(0);
        }
        assert_eq!(due, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn a_wait_ends_before_the_next_message_is_due() {
        let pace = Pace::new(10, 1);

        assert_eq!(pace.rest(Duration::ZERO), Duration::from_millis(98));
        assert_eq!(pace.rest(Duration::from_millis(99)), Duration::ZERO);
    }
}
