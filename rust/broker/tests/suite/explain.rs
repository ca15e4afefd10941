//! Verdicts of explanations that need a service of the broker: an external log that refuses, and a session that ends
//! between two questions.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::task::Poll;
use std::time::Duration;

use mqttcore_broker::{
    Broker, BrokerHandle, Config, DeliveryQuestion, ExplainedDelivery, Extensions, Figure, Figures,
    Hooks, RecordOutcomes, RowLog, RowRecord, RowStream, RowSubscription, Service, ServiceError,
    Stats, Verdict,
};
use mqttcore_codec::{QoS, ReasonCode};
use mqttcore_session::Message;
use mqttcore_store::files::Files;
use mqttcore_store::{DurableStore, Recovery, StoreError, StoreOptions};
use mqttcore_topics::TopicName;

use crate::common::{HOUR_S, Plugin, config, eventually, v5};

/// A service that gives its handle of the broker away.
#[derive(Default)]
struct Questioner(OnceLock<BrokerHandle>);

impl Figures for Questioner {
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl Service for Questioner {
    fn start(&self, broker: &BrokerHandle, _: &Config) -> Result<(), ServiceError> {
        let _ = self.0.set(broker.clone());
        Ok(())
    }

    fn begin_to_stop(&self, _: Duration) {}

    fn stop(&self) {}
}

/// A broker of one shard, and a handle of it.
fn start(rows: Option<Arc<dyn RowLog>>) -> (Broker, BrokerHandle) {
    let questioner: Arc<Questioner> = Arc::default();
    let hooks: Arc<dyn Hooks> = Arc::new(Plugin::default());
    let extensions = Extensions {
        rows,
        services: vec![Arc::clone(&questioner) as _],
    };
    let config = Config {
        shards: 1,
        ..config()
    };
    let broker = Broker::start_with(config, &hooks, extensions).expect("the broker starts");
    let handle = questioner.0.get().expect("the service has started");
    (broker, handle.clone())
}

fn block_on<T>(work: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_time().build().expect("a runtime");
    runtime.block_on(work)
}

/// A question about a message of the broker itself.
fn question(topic: &str, qos: QoS) -> DeliveryQuestion {
    DeliveryQuestion {
        topic: topic.into(),
        qos,
        limit: 10,
        ..DeliveryQuestion::default()
    }
}

/// What happens to a message for `c` whose session ends after the shard has found it, and before the shard judges it.
async fn explained_around_an_end(broker: &BrokerHandle) -> ExplainedDelivery {
    let mut explained = pin!(broker.explain_delivery(question("t", QoS::AtLeastOnce)));
    // The first poll asks for the receivers; the answer is handled by the next one.
    let first = poll_fn(|cx| Poll::Ready(explained.as_mut().poll(cx))).await;
    let reason = ReasonCode::ADMINISTRATIVE_ACTION;
    let ended = broker.disconnect("c", reason, true).await;
    assert_eq!(ended, Ok(true));
    match first {
        Poll::Ready(explained) => explained.expect("an answer"),
        Poll::Pending => explained.await.expect("an answer"),
    }
}

#[test]
fn the_session_of_a_receiver_that_has_just_ended_is_told() {
    let (broker, handle) = start(None);

    // If the shard answers within the first poll, the second question comes before the end.
    eventually("the session ends between the questions", || {
        let mut client = v5("c").keeping_session_s(HOUR_S).connect(&broker);
        client.subscribe("t", QoS::AtLeastOnce);
        let explained = block_on(explained_around_an_end(&handle));
        let [receiver] = &explained.receivers[..] else {
            panic!("one receiver, not {explained:?}")
        };
        receiver.verdict == Verdict::DroppedSessionEnded && receiver.client_id.is_none()
    });
}

/// An external log that refuses all messages.
struct RefusingLog;

const WHY: &str = "the log of the test refuses all";

impl Figures for RefusingLog {
    fn figures(&self) -> Vec<Figure> {
        Vec::new()
    }

    fn sys_topics(&self, _: &Stats) -> Vec<(String, String)> {
        Vec::new()
    }
}

impl RowLog for RefusingLog {
    fn open_store(
        &self,
        _: &Arc<dyn Files>,
        _: &StoreOptions,
    ) -> Result<(Arc<DurableStore>, Recovery), StoreError> {
        Err(StoreError::Missing)
    }

    fn count_by(&self, _: Arc<dyn Fn() -> u64 + Send + Sync>) {}

    fn open_external(&self, _: &RecordOutcomes) -> Result<bool, ServiceError> {
        Ok(true)
    }

    fn subscriptions(&self) -> Result<Vec<RowSubscription>, ServiceError> {
        Ok(Vec::new())
    }

    fn notices(&self) -> Vec<String> {
        Vec::new()
    }

    fn warning(&self) -> Option<String> {
        None
    }

    fn guarantees(&self) -> Vec<String> {
        Vec::new()
    }

    fn partition(&self, _: RowStream, _: &str, _: &str, _: usize) -> Option<u16> {
        None
    }

    fn external_streams(&self, _: TopicName<'_>) -> Vec<u32> {
        Vec::new()
    }

    fn refusal(&self, _: TopicName<'_>, _: &Message) -> Option<&'static str> {
        Some(WHY)
    }

    fn has_room(&self) -> bool {
        true
    }

    fn reserve(&self, _: &Message) -> usize {
        0
    }

    fn settled(&self, _: usize, _: bool) {}

    fn send(&self, _: &mut Vec<RowRecord>) {}

    fn close(&self, _: Duration) {}
}

#[test]
fn a_message_that_kafka_refuses_is_foretold_and_refused() {
    let (broker, handle) = start(Some(Arc::new(RefusingLog)));
    let explain = |qos| {
        let explained = block_on(handle.explain_delivery(question("t", qos)));
        explained.expect("an answer")
    };

    let refused = explain(QoS::AtLeastOnce);
    let told = v5("c").connect(&broker).publish_acknowledged("t", "x");

    assert_eq!(refused.verdict(), Verdict::RefusedKafka);
    let detail = refused.steps.last().and_then(|step| step.detail.as_deref());
    assert_eq!(detail, Some(WHY));
    assert!(told.is_error(), "{told:?}");
    assert_eq!(broker.stats().refused_no_room, 1);
    assert_eq!(explain(QoS::AtMostOnce).verdict(), Verdict::Passed);
}
