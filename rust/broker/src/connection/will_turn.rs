//! Lost connections of clients with a will end by turns, so that the wills of many come one after the other (abuse F09).

use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::{Duration, Instant};

use mqttcore_session::Cause;

use crate::clients::client::Client;
use crate::clients::link::Link;
use crate::runtime::log::LogCategory;
use crate::runtime::token_bucket::Rate;
use crate::shard::Shard;

/// How many seconds' worth of wills may come at once.
const BURST: Duration = Duration::from_secs(1);

/// When the session of `client` may learn that its connection has ended; `None`: now.
pub(super) fn turn_of(
    shard: &Shard,
    client: &Client,
    link: &Rc<Link>,
    cause: Cause,
) -> Option<Instant> {
    let per_second = shard.config().wills_per_second;
    // One that was taken over has left its will already.
    let has_will = client.has_link(link) && client.session.borrow().will().is_some();
    if !has_will || cause == Cause::ClientDisconnect {
        return None;
    }
    // INVARIANT: there are few shards.
    let shards = u32::try_from(shard.engine.shards()).expect("fewer than 2^8 shards");
    let (rate, now) = (
        Rate::new(per_second.div_ceil(shards), BURST)?,
        shard.refresh_now(),
    );
    let mut wills = shard.wills.borrow_mut();
    let turn = wills.ready_at(rate).filter(|turn| *turn > now);
    wills.spend(Some(rate), now);
    if turn.is_some() {
        shard.metrics().wills_delayed.add(1);
        shard.log.warn(LogCategory::WillStorm, now, || {
            format!("wills are published later: more than {per_second} clients a second are lost")
        });
    }
    turn
}

/// Waits for its turn, unless the client comes back or the broker stops meanwhile.
pub(super) async fn wait(shard: &Shard, client: &Client, link: &Rc<Link>, turn: Instant) {
    let mut sleep = pin!(tokio::time::sleep_until(turn.into()));
    poll_fn(|cx| {
        link.park(cx.waker());
        let is_over = !client.has_link(link)
            || client.session.borrow().will().is_none()
            || shard.engine.is_stopping();
        if is_over {
            return Poll::Ready(());
        }
        sleep.as_mut().poll(cx)
    })
    .await;
    shard.refresh_now();
}
