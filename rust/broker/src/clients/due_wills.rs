//! Queue of wills that are due and wait for the rate limit (abuse F09).

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mqttcore_session::Message;

use crate::clients::client::Client;
use crate::runtime::token_bucket::{Rate, TokenBucket};

/// A will that is due.
pub(crate) struct DueWill {
    /// Its session may have ended.
    pub(crate) client: Rc<Client>,
    pub(crate) message: Message,
    /// The record number of the will in the store, if its session has ended and only the will is left.
    pub(crate) record: Option<u64>,
    /// Number of invalidations when it came due.
    pub(crate) due_at: u64,
}

impl DueWill {
    pub(crate) fn of(client: &Rc<Client>, message: Message, due_at: u64) -> Self {
        Self {
            client: Rc::clone(client),
            message,
            record: None,
            due_at,
        }
    }

    fn heap_bytes(&self) -> usize {
        self.message.heap_bytes() + WAITING_BYTES
    }
}

/// Maximum number of waiting wills, and of their bytes.
#[derive(Clone, Copy)]
pub(crate) struct WaitingMax {
    wills: usize,
    bytes: usize,
}

impl WaitingMax {
    /// The limits of one shard.
    pub(crate) fn of_one_of(shards: usize) -> Self {
        Self {
            wills: WILLS_MAX / shards,
            bytes: BYTES_MAX / shards,
        }
    }
}

/// The waiting wills of one shard, oldest first.
#[derive(Default)]
pub(crate) struct DueWills {
    tokens: TokenBucket,
    last: u64,
    queue: BTreeMap<u64, DueWill>,
    by_client_id: HashMap<Arc<str>, u64>,
    bytes: usize,
}

impl DueWills {
    /// Whether a will that is due now may be published at once.
    pub(crate) fn is_next(&mut self, rate: Option<Rate>, now: Instant) -> bool {
        self.queue.is_empty() && self.tokens.take(rate, now)
    }

    /// Queues a will. Publish an earlier waiting will of the same client identifier first.
    pub(crate) fn push(&mut self, will: DueWill) {
        self.last += 1;
        let id = Arc::clone(&will.client.id);
        let earlier = self.by_client_id.insert(id, self.last);
        debug_assert!(
            earlier.is_none(),
            "a connection publishes the will before it"
        );
        self.bytes += will.heap_bytes();
        self.queue.insert(self.last, will);
    }

    /// Takes the oldest will if a limit is exceeded. This needs no token: otherwise a flood would hold back wills of
    /// others.
    pub(crate) fn pop_excess(&mut self, most: WaitingMax) -> Option<DueWill> {
        let is_excess = self.queue.len() > most.wills || self.bytes > most.bytes;
        is_excess.then(|| self.pop_early())?
    }

    /// Takes the oldest will if a token is available.
    pub(crate) fn pop(&mut self, rate: Option<Rate>, now: Instant) -> Option<DueWill> {
        let has_turn = !self.queue.is_empty() && self.tokens.take(rate, now);
        has_turn.then(|| self.pop_early())?
    }

    /// Takes the oldest will without a token.
    pub(crate) fn pop_early(&mut self) -> Option<DueWill> {
        let (_, will) = self.queue.pop_first()?;
        self.by_client_id.remove(&will.client.id);
        self.bytes -= will.heap_bytes();
        Some(will)
    }

    /// Takes the waiting will of this client identifier and spends a token, even if none is available: other wills then
    /// wait longer.
    pub(crate) fn take(
        &mut self,
        client_id: &str,
        rate: Option<Rate>,
        now: Instant,
    ) -> Option<DueWill> {
        let number = self.by_client_id.remove(client_id)?;
        let will = self.queue.remove(&number)?;
        self.bytes -= will.heap_bytes();
        if self.tokens.has_token(rate, now + DEBT_MAX) {
            self.tokens.spend(rate, now);
        }
        Some(will)
    }

    /// The waiting will of `client`.
    pub(crate) fn of(&mut self, client: &Rc<Client>) -> Option<&mut DueWill> {
        let number = self.by_client_id.get(&client.id)?;
        let will = self.queue.get_mut(number)?;
        Rc::ptr_eq(&will.client, client).then_some(will)
    }
}

/// Maximum number of waiting wills, in all shards together.
const WILLS_MAX: usize = 100_000;
/// Maximum number of their bytes.
const BYTES_MAX: usize = 64 << 20;
/// Bytes of a waiting will without its message, which is charged to the connection that it came over: the client, whose
/// session may have ended, and the table entries.
pub(crate) const WAITING_BYTES: usize = size_of::<Client>() + size_of::<DueWill>() + 320;
/// How many seconds' worth of tokens may be spent in advance.
const DEBT_MAX: Duration = Duration::from_secs(60);

/// How many seconds' worth of wills may be published at once.
pub(crate) const BURST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use mqttcore_codec::{Properties, QoS};
    use mqttcore_topics::{Directory, Strategy, TopicName};

    use super::*;
    use crate::clients::handle::Handle;

    fn will(directory: &Directory, number: u32) -> DueWill {
        let client = Client::offline(directory, Handle::new(0, number, 1), &number.to_string());
        let topic = TopicName::from_checked("will");
        let (now, properties) = (Instant::now(), Properties::EMPTY);
        let message = Message::copied(now, topic, properties, b"lost", QoS::AtMostOnce, false);
        DueWill::of(&Rc::new(client), message, 0)
    }

    /// A queue in which wills with these numbers wait, and one token a second.
    fn waiting(count: u32) -> (DueWills, Option<Rate>, Instant) {
        let directory = Directory::new(1, Strategy::default());
        let (mut wills, rate, now) = (DueWills::default(), Rate::new(1, BURST), Instant::now());
        assert!(wills.is_next(rate, now), "a second's worth at once");
        for number in 0..count {
            assert!(!wills.is_next(rate, now));
            wills.push(will(&directory, number));
        }
        (wills, rate, now)
    }

    fn id_of(will: Option<DueWill>) -> Option<String> {
        will.map(|will| will.client.id.to_string())
    }

    #[test]
    fn f09_wills_come_in_their_turn_one_with_each_token() {
        let (mut wills, rate, start) = waiting(3);

        for (second, expected) in [(0, None), (1, Some("0")), (1, None), (2, Some("1"))] {
            let now = start + Duration::from_secs(second);
            assert_eq!(id_of(wills.pop(rate, now)).as_deref(), expected);
        }
    }

    #[test]
    fn f09_a_will_that_is_published_early_takes_a_token() {
        let (mut wills, rate, start) = waiting(10);

        for number in 0..9 {
            let early = wills.take(&number.to_string(), rate, start);
            assert_eq!(id_of(early), Some(number.to_string()));
        }

        let at = |second| start + Duration::from_secs(second);
        assert!(wills.pop(rate, at(9)).is_none());
        assert_eq!(id_of(wills.pop(rate, at(10))).as_deref(), Some("9"));
    }

    #[test]
    fn f09_those_that_keep_their_turn_wait_a_minute_longer_at_most() {
        let (mut wills, rate, start) = waiting(1_000);

        for number in 0..999 {
            assert!(wills.take(&number.to_string(), rate, start).is_some());
        }

        let over = start + DEBT_MAX + Duration::from_secs(1);
        assert_eq!(id_of(wills.pop(rate, over)).as_deref(), Some("999"));
    }

    #[test]
    fn f09_above_the_most_that_may_wait_the_oldest_comes_without_token() {
        let (mut wills, ..) = waiting(10);
        let bytes = wills.bytes / 10;
        let (few, small) = (
            WaitingMax {
                wills: 8,
                bytes: usize::MAX,
            },
            WaitingMax {
                wills: usize::MAX,
                bytes: 6 * bytes,
            },
        );

        for (most, expected) in [(few, ["0", "1"]), (small, ["2", "3"])] {
            for id in expected {
                assert_eq!(id_of(wills.pop_excess(most)).as_deref(), Some(id));
            }
            assert!(wills.pop_excess(most).is_none());
        }
    }

    #[test]
    fn bytes_of_wills_that_left_do_not_count() {
        let (mut wills, rate, now) = waiting(3);
        assert!(wills.bytes >= 3 * WAITING_BYTES);

        wills.take("1", rate, now);
        wills.pop_early();
        wills.pop(None, now);

        assert_eq!(wills.bytes, 0);
    }
}
