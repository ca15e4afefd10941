//! Watches deliveries while they happen: what becomes of messages on matching topics, for each receiver (ADR 0118).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::SystemTime;

use mqttcore_codec::QoS;
use mqttcore_session::Message;
use mqttcore_topics::TopicFilter;

use super::receiver::{ExplainedReceiver, judge_target};
use crate::clients::delivery_observer::DeliveryObserver;
use crate::clients::target::Target;
use crate::operations::asking::AskError;
use crate::runtime::memory::MemoryLevel;
use crate::service::{BrokerHandle, BrokerStopped};
use crate::shard::Shard;

/// Maximum bytes of the deliveries that wait to be read from one watch.
const WATCH_BYTES: usize = 1 << 20;

/// Deliveries of all shards, until it is dropped.
#[derive(Debug)]
pub struct DeliveryWatch {
    filter: TopicFilter,
    client_id: Option<String>,
    log: Mutex<WatchLog>,
    /// Bytes of the deliveries of all watches: they are part of the memory budget.
    total_bytes: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct WatchLog {
    deliveries: VecDeque<WatchedDelivery>,
    bytes: usize,
    /// The number of the last delivery.
    last: u64,
}

/// A message and one of its receivers.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WatchedDelivery {
    /// Counts the deliveries of the watch from 1. A gap means that some were left out.
    pub number: u64,
    /// When the session of the receiver got the message.
    pub at: SystemTime,
    /// The topic, with the mount point of the publisher in front.
    pub topic: Box<str>,
    /// The QoS that it was published with.
    pub published_qos: QoS,
    /// Bytes of its payload.
    pub payload_bytes: usize,
    /// The receiver, and what becomes of the message there.
    pub receiver: ExplainedReceiver,
}

impl BrokerHandle {
    /// Watches deliveries of messages on topics that `filter` matches, to one client or to all.
    ///
    /// # Errors
    ///
    /// [`AskError`]
    pub async fn watch_deliveries(
        &self,
        filter: TopicFilter,
        client_id: Option<String>,
    ) -> Result<Arc<DeliveryWatch>, AskError> {
        let engine = self.engine().ok_or(BrokerStopped)?;
        let watch = Arc::new(DeliveryWatch {
            filter,
            client_id,
            log: Mutex::default(),
            total_bytes: Arc::clone(&engine.watched_bytes),
        });
        drop(engine);
        for shard in 0..self.shards() {
            let observer: Weak<DeliveryWatch> = Arc::downgrade(&watch);
            self.read(shard, move |shard| shard.observe_deliveries(observer))
                .await?;
        }
        Ok(watch)
    }
}

impl DeliveryWatch {
    /// Takes at most `limit` deliveries, the oldest ones.
    pub fn take(&self, limit: usize) -> Vec<WatchedDelivery> {
        self.change(|log| {
            let count = limit.min(log.deliveries.len());
            let taken: Vec<_> = log.deliveries.drain(..count).collect();
            log.bytes -= taken
                .iter()
                .map(WatchedDelivery::memory_bytes)
                .sum::<usize>();
            taken
        })
    }

    /// Changes the deliveries that wait, and the bytes of all watches with them.
    fn change<T>(&self, change: impl FnOnce(&mut WatchLog) -> T) -> T {
        let mut log = self.log();
        let before = log.bytes;
        let result = change(&mut log);
        // ORDERING: a figure; each change is made under the lock.
        self.total_bytes.fetch_add(log.bytes, Ordering::Relaxed);
        self.total_bytes.fetch_sub(before, Ordering::Relaxed);
        result
    }

    fn log(&self) -> MutexGuard<'_, WatchLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_about(&self, shard: &Shard, message: &Message, target: &Target) -> bool {
        let is_of_client = |id: &String| {
            let client = shard.client_at(target.handle);
            client.is_some_and(|client| *client.id == **id)
        };
        self.filter.matches(message.topic_name())
            && self.client_id.as_ref().is_none_or(is_of_client)
    }
}

impl DeliveryObserver<Shard> for DeliveryWatch {
    fn observe(&self, shard: &Shard, message: &Message, target: &Target) {
        if !self.is_about(shard, message, target) {
            return;
        }
        let mut receiver = ExplainedReceiver::unknown(target);
        receiver.fill(judge_target(shard, message, target));
        let delivery = WatchedDelivery {
            number: 0,
            at: SystemTime::now(),
            topic: message.topic().into(),
            published_qos: message.qos(),
            payload_bytes: message.payload().len(),
            receiver,
        };
        let is_short = shard.memory_level() == MemoryLevel::Full;
        self.change(|log| log.push(delivery, is_short));
    }
}

impl Drop for DeliveryWatch {
    fn drop(&mut self) {
        self.take(usize::MAX);
    }
}

impl WatchLog {
    /// Adds a delivery; the oldest ones make room. If memory `is_short`, it is only counted.
    fn push(&mut self, delivery: WatchedDelivery, is_short: bool) {
        self.last += 1;
        if is_short {
            return;
        }
        self.bytes += delivery.memory_bytes();
        let number = self.last;
        self.deliveries
            .push_back(WatchedDelivery { number, ..delivery });
        while self.bytes > WATCH_BYTES
            && let Some(oldest) = self.deliveries.pop_front()
        {
            self.bytes -= oldest.memory_bytes();
        }
    }
}

impl WatchedDelivery {
    /// Bytes of memory; the place in the queue counts twice, since a queue grows to twice its length.
    fn memory_bytes(&self) -> usize {
        let receiver = &self.receiver;
        let group = receiver
            .group
            .as_ref()
            .map_or(0, |group| group.as_str().len());
        let detail = receiver.detail.as_ref().map_or(0, String::len);
        let ids = size_of_val(&*receiver.subscription_ids);
        2 * size_of::<Self>() + self.topic.len() + group + detail + ids
    }
}

#[cfg(test)]
mod tests {
    use mqttcore_topics::TopicLimits;

    use super::*;
    use crate::operations::explain::Verdict;

    fn watch() -> DeliveryWatch {
        DeliveryWatch {
            filter: TopicFilter::parse("#", &TopicLimits::WIDEST).expect("a filter"),
            client_id: None,
            log: Mutex::default(),
            total_bytes: Arc::default(),
        }
    }

    fn push(watch: &DeliveryWatch, topic: &str, is_short: bool) {
        let delivery = WatchedDelivery {
            number: 0,
            at: SystemTime::now(),
            topic: topic.into(),
            published_qos: QoS::AtMostOnce,
            payload_bytes: 0,
            receiver: ExplainedReceiver::none("c", Verdict::Delivered, None),
        };
        watch.change(|log| log.push(delivery, is_short));
    }

    fn numbers(taken: &[WatchedDelivery]) -> Vec<u64> {
        taken.iter().map(|delivery| delivery.number).collect()
    }

    #[test]
    fn deliveries_are_taken_once_and_a_gap_in_their_numbers_counts_those_that_are_left_out() {
        let watch = watch();
        for is_short in [false, false, true, false] {
            push(&watch, "t", is_short);
        }

        assert_eq!(numbers(&watch.take(1)), [1]);
        assert_eq!(numbers(&watch.take(9)), [2, 4]);
        assert!(watch.take(9).is_empty());
    }

    #[test]
    fn the_oldest_deliveries_make_room_within_the_bytes() {
        let watch = watch();
        let count = 100_000;
        for number in 0..count {
            push(&watch, &"t".repeat(number % 300), false);
            assert!(watch.log().bytes <= WATCH_BYTES);
        }

        let heap = watch.log().deliveries.capacity() * size_of::<WatchedDelivery>();
        assert!(heap <= WATCH_BYTES, "{heap}");
        let taken = numbers(&watch.take(usize::MAX));
        assert_eq!(taken.last(), Some(&(count as u64)));
        assert!(taken.len() > 1_000 && watch.log().bytes == 0);
    }

    #[test]
    fn the_bytes_of_all_watches_are_those_that_wait() {
        let (one, mut other) = (watch(), watch());
        other.total_bytes = Arc::clone(&one.total_bytes);
        let total = || one.total_bytes.load(Ordering::Relaxed);
        for _ in 0..1_000 {
            push(&one, "t", false);
            push(&other, "longer", false);
            assert_eq!(total(), one.log().bytes + other.log().bytes);
        }

        one.take(3);
        assert_eq!(total(), one.log().bytes + other.log().bytes);
        drop(other);
        assert_eq!(total(), one.log().bytes);
        one.take(usize::MAX);
        assert_eq!(total(), 0);
    }
}
