//! Shutdown: publishes wills, sends DISCONNECT to every client, then the last bytes.

use std::rc::Rc;
use std::time::Duration;

use mqttcore_codec::ReasonCode;
use mqttcore_session::Cause;
use tokio::time::timeout;

use crate::event_loop::handle_work;
use crate::sessions::wills;
use crate::shard::Shard;
use crate::shard::guard::guarded;

/// Ends every connection of this shard; connections that do not end in time are closed.
pub(crate) fn stop(shard: &Rc<Shard>, deadline: Duration) {
    let draining = Rc::clone(shard);
    let drain = async move {
        drain().await;
        publish_wills(&draining, deadline).await;
        for client in draining.clients() {
            if let Some(link) = client.link() {
                link.close(Cause::ServerStop, ReasonCode::SERVER_SHUTTING_DOWN);
            }
        }
        draining.stop_announced();
    };
    let cut_off = |shard: &Rc<Shard>| shard.give_up();
    tokio::task::spawn_local(guarded(
        Rc::clone(shard),
        "the shutdown of a shard",
        drain,
        cut_off,
    ));
    let own = Rc::clone(shard);
    tokio::task::spawn_local(async move {
        tokio::time::sleep(deadline).await;
        own.give_up();
    });
}

/// Publishes the wills of the clients that will be disconnected, while their subscribers are still connected: all
/// shards wait until each has published its wills, unless one of them hangs.
async fn publish_wills(shard: &Rc<Shard>, deadline: Duration) {
    shard.refresh_now();
    wills::publish_all_queued(shard);
    let clients = shard.clients();
    for client in clients.iter().filter(|client| client.is_online()) {
        wills::publish_before_stop(shard, client);
    }
    shard.flush_mailboxes();
    let _ = timeout(deadline / 2, shard.engine.wills_sent.wait()).await;
    handle_work(shard, &mut Vec::new());
}

/// Lets every connection handle the bytes that its socket already has, and send the results: a turn of the scheduler
/// each for reading, for messages between shards, and for writing.
async fn drain() {
    const TURNS: usize = 3;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}
