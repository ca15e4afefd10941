//! The end of a broker: wills, then DISCONNECT to every client, then the last bytes.

use std::rc::Rc;
use std::time::Duration;

use mqttcore_codec::ReasonCode;
use mqttcore_session::Cause;
use tokio::time::timeout;

use crate::event_loop::handle_work;
use crate::sessions::wills;
use crate::shard::Shard;
use crate::shard::guard::guarded;

/// Ends every connection of this shard; those that cannot be told in time are cut off.
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

/// Publishes the wills of those that will be disconnected, while those that want to hear of it are
/// still there: no shard goes on before all have sent theirs, unless one of them hangs.
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

/// Lets every connection handle what its socket already holds, and what comes of it leave: a
/// turn of the scheduler each to read, to carry mail between shards, and to write.
async fn drain() {
    const TURNS: usize = 3;
    for _ in 0..TURNS {
        tokio::task::yield_now().await;
    }
}
