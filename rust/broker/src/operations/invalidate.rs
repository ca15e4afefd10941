//! Invalidation of rights: cached answers are dropped, and the plugins are asked again.

use std::collections::HashSet;
use std::rc::Rc;

use crate::clients::client::Client;
use crate::clients::invalidations::Invalidation;
use crate::connection::renewal;
use crate::sessions::loading;
use crate::shard::Shard;

/// Invalidates the rights of the clients of this shard that `what` covers; returns how many are connected.
pub(crate) fn invalidate(shard: &Rc<Shard>, what: &Invalidation) -> usize {
    if !shard.is_loaded() {
        // The others may have wills.
        let known = shard.clients().into_iter();
        let known: HashSet<u64> = known.map(|client| client.handle.word()).collect();
        let what = what.clone();
        loading::when_loaded(shard, move |shard| {
            let mut clients = covered(shard, &what);
            clients.retain(|client| !known.contains(&client.handle.word()));
            renewal::start(shard, clients);
        });
    }
    let clients = covered(shard, what);
    let links = clients.iter().filter_map(|client| client.link());
    let connected = links.inspect(|link| link.clear_allows()).count();
    renewal::start(shard, clients);
    connected
}

fn covered(shard: &Shard, what: &Invalidation) -> Vec<Rc<Client>> {
    let mut clients = shard.clients();
    clients.retain(|client| {
        let granted_by = client.access().grant.granted_by.text();
        let login = client.login();
        what.covers(&client.id, login.username.as_deref(), granted_by.as_deref())
    });
    clients
}
