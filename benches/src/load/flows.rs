//! The books: what each publisher sent, what came, what came twice, what is missing.

use std::collections::VecDeque;

/// How messages of one publisher reach subscribers.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Spread {
    /// Every message comes once, in order: pairs and fan-in.
    Single,
    /// Every message comes once to each of this many subscribers, in order at each: fan-out.
    Copies(usize),
    /// Every message comes once, to any of several subscribers: no order over all of them.
    AnyOf,
    /// Nobody is there: a message is over when the broker has acknowledged it.
    Nobody,
}

/// One publisher's window.
#[derive(Clone, Debug)]
struct Window {
    sent: u64,
    acked: u64,
    /// Everything below has come as often as it should, or is counted as lost.
    complete: u64,
    /// Receipts of the messages from `complete` on.
    receipts: VecDeque<u32>,
}

/// The windows of all publishers and the order at all subscribers.
#[derive(Clone, Debug)]
pub struct Flows {
    spread: Spread,
    acknowledged: bool,
    limit: u64,
    windows: Vec<Window>,
    /// Next sequence of each ordered flow: by publisher, or by subscriber in a fan-out.
    expected: Vec<u64>,
    /// Messages that came, without repeats; that were acknowledged, where nobody is there.
    pub delivered: u64,
    /// Messages that came again.
    pub duplicated: u64,
    skipped: u64,
}

impl Flows {
    /// Books for `publishers` with `limit` messages under way each; `acknowledged` holds a
    /// message in the window until the broker acknowledged it, too.
    pub fn new(publishers: usize, spread: Spread, limit: u64, acknowledged: bool) -> Self {
        let ordered = match spread {
            Spread::Single => publishers,
            Spread::Copies(subscribers) => subscribers,
            Spread::AnyOf | Spread::Nobody => 0,
        };
        let capacity = usize::try_from(limit).unwrap_or(0);
        let window = || Window {
            sent: 0,
            acked: 0,
            complete: 0,
            receipts: VecDeque::with_capacity(capacity),
        };
        Self {
            spread,
            acknowledged,
            limit,
            windows: (0..publishers).map(|_| window()).collect(),
            expected: vec![0; ordered],
            delivered: 0,
            duplicated: 0,
            skipped: 0,
        }
    }

    /// Takes the next sequence of a publisher, if its window has room.
    pub fn next(&mut self, publisher: usize) -> Option<u64> {
        let window = self.windows.get_mut(publisher)?;
        let done = if self.acknowledged {
            window.complete.min(window.acked)
        } else {
            window.complete
        };
        if window.sent - done >= self.limit {
            return None;
        }
        let sequence = window.sent;
        window.sent += 1;
        window.receipts.push_back(0);
        Some(sequence)
    }

    /// The broker acknowledged one message of a publisher.
    pub fn acknowledged(&mut self, publisher: usize) {
        let Some(window) = self.windows.get_mut(publisher) else {
            return;
        };
        window.acked += 1;
        if self.spread == Spread::Nobody {
            window.count(window.complete);
            window.advance(1);
            self.delivered += 1;
        }
    }

    /// A message came to a subscriber. True when its publisher's window moved.
    ///
    /// # Errors
    ///
    /// A text when no publisher sent such a message.
    pub fn received(
        &mut self,
        publisher: usize,
        subscriber: usize,
        sequence: u64,
    ) -> Result<bool, &'static str> {
        let window = self.windows.get(publisher).ok_or("unknown publisher")?;
        if sequence >= window.sent {
            return Err("a message that nobody sent");
        }
        match self.spread {
            Spread::Nobody => Err("a message for somebody who is away"),
            Spread::AnyOf => Ok(self.received_unordered(publisher, sequence)),
            Spread::Single => Ok(self.received_ordered(publisher, publisher, sequence, 1)),
            Spread::Copies(copies) => {
                let copies = u32::try_from(copies).unwrap_or(u32::MAX);
                Ok(self.received_ordered(publisher, subscriber, sequence, copies))
            }
        }
    }

    fn received_ordered(
        &mut self,
        publisher: usize,
        flow: usize,
        sequence: u64,
        copies: u32,
    ) -> bool {
        let expected = &mut self.expected[flow];
        if sequence < *expected {
            self.duplicated += 1;
            return false;
        }
        let from = std::mem::replace(expected, sequence + 1);
        self.skipped += sequence - from;
        self.delivered += 1;
        let window = &mut self.windows[publisher];
        for place in from..=sequence {
            window.count(place);
        }
        window.advance(copies)
    }

    fn received_unordered(&mut self, publisher: usize, sequence: u64) -> bool {
        let window = &mut self.windows[publisher];
        if window.count(sequence) != Some(1) {
            self.duplicated += 1;
            return false;
        }
        self.delivered += 1;
        window.advance(1)
    }

    /// Messages that were published.
    pub fn sent(&self) -> u64 {
        self.windows.iter().map(|window| window.sent).sum()
    }

    /// Messages that should have come and have not.
    pub fn lost(&self) -> u64 {
        self.skipped + self.outstanding()
    }

    /// Receipts still to come for what was sent.
    pub fn outstanding(&self) -> u64 {
        let copies = match self.spread {
            Spread::Copies(copies) => copies as u64,
            Spread::Single | Spread::AnyOf | Spread::Nobody => 1,
        };
        let missing = |window: &Window| {
            let receipts = window.receipts.iter();
            receipts
                .map(|&count| copies.saturating_sub(u64::from(count)))
                .sum::<u64>()
        };
        self.windows.iter().map(missing).sum()
    }
}

impl Window {
    /// Counts a receipt and tells how many there are; `None` when the message was complete.
    fn count(&mut self, sequence: u64) -> Option<u32> {
        let place = usize::try_from(sequence.checked_sub(self.complete)?).ok()?;
        let receipts = self.receipts.get_mut(place)?;
        *receipts += 1;
        Some(*receipts)
    }

    fn advance(&mut self, copies: u32) -> bool {
        let before = self.complete;
        while self.receipts.front().is_some_and(|&count| count >= copies) {
            self.receipts.pop_front();
            self.complete += 1;
        }
        self.complete != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(spread: Spread, count: u64) -> Flows {
        let mut flows = Flows::new(1, spread, count, false);
        for _ in 0..count {
            flows.next(0);
        }
        flows
    }

    #[test]
    fn a_window_holds_its_limit_and_opens_with_a_receipt() {
        let mut flows = sent(Spread::Single, 2);

        assert_eq!(flows.next(0), None);
        assert_eq!(flows.received(0, 0, 0), Ok(true));
        assert_eq!(flows.next(0), Some(2));
    }

    #[test]
    fn an_acknowledged_window_also_waits_for_the_broker() {
        let mut flows = Flows::new(1, Spread::Single, 1, true);
        flows.next(0);
        flows.received(0, 0, 0).unwrap();

        assert_eq!(flows.next(0), None);
        flows.acknowledged(0);
        assert_eq!(flows.next(0), Some(1));
    }

    #[test]
    fn a_gap_is_a_loss_and_frees_the_window() {
        let mut flows = sent(Spread::Single, 3);

        flows.received(0, 0, 0).unwrap();
        flows.received(0, 0, 2).unwrap();

        assert_eq!((flows.delivered, flows.lost(), flows.duplicated), (2, 1, 0));
        assert_eq!(flows.next(0), Some(3));
    }

    #[test]
    fn a_repeat_is_a_duplicate_and_not_a_delivery() {
        for spread in [Spread::Single, Spread::AnyOf, Spread::Copies(1)] {
            let mut flows = sent(spread, 2);

            for sequence in [0, 0, 1] {
                flows.received(0, 0, sequence).unwrap();
            }

            assert_eq!((flows.delivered, flows.lost(), flows.duplicated), (2, 0, 1));
        }
    }

    #[test]
    fn a_fan_out_is_complete_when_the_last_subscriber_has_it() {
        let mut flows = sent(Spread::Copies(2), 1);

        assert_eq!(flows.received(0, 0, 0), Ok(false));
        assert_eq!(flows.lost(), 1);
        assert_eq!(flows.received(0, 1, 0), Ok(true));
        assert_eq!(flows.lost(), 0);
    }

    #[test]
    fn a_group_may_receive_in_any_order() {
        let mut flows = sent(Spread::AnyOf, 3);

        assert_eq!(flows.received(0, 1, 2), Ok(false));
        assert_eq!(flows.received(0, 0, 0), Ok(true));

        assert_eq!((flows.delivered, flows.lost(), flows.duplicated), (2, 1, 0));
        assert_eq!(flows.received(0, 0, 1), Ok(true));
        assert_eq!((flows.delivered, flows.lost()), (3, 0));
    }

    #[test]
    fn what_waits_for_nobody_is_over_when_it_is_acknowledged() {
        let mut flows = Flows::new(1, Spread::Nobody, 2, true);
        flows.next(0);
        flows.next(0);

        assert_eq!((flows.next(0), flows.outstanding()), (None, 2));
        flows.acknowledged(0);
        assert_eq!((flows.delivered, flows.outstanding()), (1, 1));
        assert_eq!((flows.next(0), flows.next(0)), (Some(2), None));
        assert!(flows.received(0, 0, 0).is_err());
        assert_eq!(flows.sent(), 3);
    }

    #[test]
    fn a_message_that_nobody_sent_is_an_error() {
        assert!(sent(Spread::Single, 1).received(0, 0, 1).is_err());
        assert!(sent(Spread::Single, 1).received(1, 0, 0).is_err());
    }
}
